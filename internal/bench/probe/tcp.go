package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"github.com/softrnic/softrnic/internal/bench"
)

// acceptOne listens and takes one connection.
func acceptOne(address string) (*net.TCPConn, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	c, err := l.Accept()
	if err != nil {
		return nil, err
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil, errors.New("no TCP connection")
	}
	return tcp, nil
}

// serveTCP reads messages and tells at the end how many bytes there were.
func serveTCP(_ context.Context, args []string) (bench.Sample, error) {
	var size, count int
	address, err := pairNumbers(args, &size, &count)
	if err != nil {
		return nil, err
	}
	c, err := acceptOne(address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	buffer, total := make([]byte, max(size, 1<<16)), uint64(0)
	for {
		n, err := c.Read(buffer)
		total += uint64(n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, binary.Write(c, binary.BigEndian, total)
}

// sendTCP writes messages, each by a call of its own.
func sendTCP(_ context.Context, args []string) (bench.Sample, error) {
	var size, count int
	address, err := pairNumbers(args, &size, &count)
	if err != nil {
		return nil, err
	}
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	buffer := make([]byte, size)
	begin := time.Now()
	for range count {
		if _, err := c.Write(buffer); err != nil {
			return nil, err
		}
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return nil, err
	}
	var total uint64
	if err := binary.Read(c, binary.BigEndian, &total); err != nil {
		return nil, err
	}
	took := float64(time.Since(begin).Nanoseconds())
	if total != uint64(size)*uint64(count) {
		return nil, io.ErrUnexpectedEOF
	}
	return bench.Sample{
		bench.Bandwidth: float64(total) / took, bench.Rate: float64(count) * 1e3 / took,
		bench.CPUCost: float64(total) / 1e9,
	}, nil
}

// echoTCP sends back what comes.
func echoTCP(_ context.Context, args []string) (bench.Sample, error) {
	var size, count int
	address, err := pairNumbers(args, &size, &count)
	if err != nil {
		return nil, err
	}
	c, err := acceptOne(address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	buffer := make([]byte, size)
	for range count {
		if _, err := io.ReadFull(c, buffer); err != nil {
			return nil, err
		}
		if _, err := c.Write(buffer); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func pingTCP(_ context.Context, args []string) (bench.Sample, error) {
	var size, count int
	address, err := pairNumbers(args, &size, &count)
	if err != nil {
		return nil, err
	}
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	buffer, times := make([]byte, size), make([]time.Duration, count)
	for i := range times {
		begin := time.Now()
		if _, err := c.Write(buffer); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(c, buffer); err != nil {
			return nil, err
		}
		times[i] = time.Since(begin)
	}
	return bench.Sample{bench.Latency: oneWay(times)}, nil
}
