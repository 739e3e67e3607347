package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
)

// captureOptions are the flags of rnic capture.
type captureOptions struct {
	socket  string
	write   string
	qp      uint32
	address string
	count   uint64
	buffer  uint32 // MiB
}

func newCapture() *cobra.Command {
	var options captureOptions
	command := &cobra.Command{
		Use:   "capture -w FILE",
		Short: "Write the packets of the NIC into a file for Wireshark",
		Long: "Write the packets that the NIC sends and receives into a pcapng file, which Wireshark\n" +
			"and tshark read, until ^C, --count packets, or the end of the NIC. Packets between its\n" +
			"own queue pairs are there too, which tcpdump cannot see: with the headers that they\n" +
			"would have on a wire, but with up to 32 KiB of payload, since no path limits them.\n\n" +
			"A packet on the wire is shown as it is there, faults (--fault) included. Of packets\n" +
			"received over IPv4 the NIC does not know the identification: the file has what it\n" +
			"assumes, and an ICRC that fits. Ethernet addresses are made up.\n\n" +
			"Of connections over TCP (iWARP) the NIC has the bytes: their segments are made up, and\n" +
			"number bytes from the handshake. A capture that begins later makes up handshake and\n" +
			"MPA frames, and shows each direction from the next FPDU on.\n\n" +
			"The NIC never waits for the file. When it is not written fast enough, packets are\n" +
			"left out and counted: the summary tells, and so does the file's last block.\n\n" +
			"tshark takes much for RPC or NVMe that is none: --disable-protocol rpcordma, nvme-tcp.\n\n" +
			"The file has what programs send; only the owner of the NIC and root may have it.",
		Example: "  rnic capture -w rdma.pcapng\n" +
			"  rnic capture -w - --qp 0x1234 -c 100 | tshark -r -\n" +
			"  rnic capture -w - --address 10.0.0.2 | wireshark -k -i -",
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return options.check() },
		RunE:    func(c *cobra.Command, _ []string) error { return options.run(c) },
	}
	registerSocket(command, &options.socket)
	f := command.Flags()
	f.StringVarP(&options.write, "write", "w", "", "`file` to write; - is standard output")
	f.Uint32Var(&options.qp, "qp", 0, "only packets from and to this queue pair of the NIC")
	f.StringVar(&options.address, "address", "", "only packets from and to this `address`")
	f.Uint64VarP(&options.count, "count", "c", 0, "end after so many packets (default: do not)")
	f.Uint32Var(&options.buffer, "buffer", 8,
		"`MiB` of packets that may wait for the file before more are left out")
	return command
}

func (o *captureOptions) check() error {
	if o.write == "" {
		return errors.New("-w: which file?")
	}
	if o.address != "" {
		if _, err := netip.ParseAddr(o.address); err != nil {
			return fmt.Errorf("--address: %w", err)
		}
	}
	if rdma.QPN(o.qp)&^rdma.QPNMask != 0 {
		return fmt.Errorf("--qp: %#x has more than 24 bits", o.qp)
	}
	if o.buffer < 1 || o.buffer > limits.MaxCaptureBytes>>20 {
		return fmt.Errorf("--buffer: %d MiB is not from 1 to %d", o.buffer, limits.MaxCaptureBytes>>20)
	}
	return nil
}

// request is what the NIC is to do.
//
// Preconditions: check found nothing wrong.
func (o *captureOptions) request() abi.CaptureReq {
	req := abi.CaptureReq{Count: o.count, QPN: o.qp, BufferBytes: o.buffer << 20}
	if o.address != "" {
		req.Address = rdma.GIDFromAddr(netip.MustParseAddr(o.address))
	}
	return req
}

func (o *captureOptions) run(c *cobra.Command) error {
	nic, err := dial(o.socket)
	if err != nil {
		return fail(startHint(err))
	}
	defer func() { _ = nic.Close() }()
	out, err := o.open(c.OutOrStdout())
	if err != nil {
		return fail(err)
	}
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	req := o.request()
	_, fds, err := ctl.CallFDs[struct{}](nic.Client, abi.OpCapture, ctl.Bytes(&req), 1)
	if err != nil {
		_ = out.Close()
		return fail(err)
	}
	fmt.Fprintln(c.ErrOrStderr(), "capturing; ^C ends it")
	_ = unix.SetNonblock(fds[0], true) // so that reading can be given up
	in := os.NewFile(uintptr(fds[0]), "capture")
	defer func() { _ = in.Close() }()
	s := &stream{in: in, out: out, end: nic.endCapture}
	err = s.copyUntil(ctx)
	if closeErr := out.Close(); err == nil {
		err = closeErr
	}
	fmt.Fprintln(c.ErrOrStderr(), s.summary())
	if err != nil {
		return failf("%s: %w", o.write, err)
	}
	return nil
}

// open opens the file. Others do not read what programs send.
func (o *captureOptions) open(standard io.Writer) (io.WriteCloser, error) {
	if o.write != "-" {
		return os.OpenFile(o.write, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	}
	if _, err := unix.IoctlGetTermios(unix.Stdout, unix.TCGETS); err == nil {
		return nil, errors.New("standard output is a terminal: choose a file," +
			" or pipe it to \"tshark -r -\"")
	}
	return unclosed{standard}, nil
}

// unclosed is a writer of somebody else.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }

// endCapture asks for the end of a capture.
func (c *connection) endCapture() (abi.CaptureRsp, error) {
	if err := c.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return abi.CaptureRsp{}, err
	}
	rsp, _, err := ctl.Call[abi.CaptureRsp](c.Client, abi.OpEndCapture, nil)
	return rsp, err
}

// stream copies a capture from the NIC to a file.
type stream struct {
	in  deadlineReader
	out io.Writer
	end func() (abi.CaptureRsp, error)

	packets uint64
	rsp     abi.CaptureRsp
	gone    bool // the NIC has ended
}

// deadlineReader is what a stream needs of an *os.File.
type deadlineReader interface {
	io.Reader
	SetReadDeadline(t time.Time) error
}

// lastWords is how long a NIC that does not answer may still have something in the pipe.
const lastWords = time.Second

// copyUntil copies until the NIC closes its end: after ctx, because it was asked to.
func (s *stream) copyUntil(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- s.copyBlocks() }()
	var err error
	select {
	case err = <-ended:
		s.ask()
		return err
	case <-ctx.Done():
		s.ask()
		if s.gone {
			_ = s.in.SetReadDeadline(time.Now().Add(lastWords))
		}
		return <-ended
	}
}

func (s *stream) ask() {
	var err error
	s.rsp, err = s.end()
	s.gone = err != nil
}

// Blocks of a pcapng file (draft-ietf-opsawg-pcapng, 3.1): type and length, which the NIC writes
// with the least significant byte first.
const (
	blockHeadBytes      = 8
	blockBytesMin       = 12
	blockBytesMax       = 1 << 20
	enhancedPacketBlock = 6
)

// copyBlocks copies whole blocks only, so that the file can be read even if the NIC dies in the
// middle of one.
func (s *stream) copyBlocks() error {
	in, out := bufio.NewReaderSize(s.in, 1<<16), bufio.NewWriterSize(s.out, 1<<16)
	var block []byte
	for {
		block = append(block[:0], make([]byte, blockHeadBytes)...)
		if _, err := io.ReadFull(in, block); err != nil {
			return out.Flush()
		}
		n := binary.LittleEndian.Uint32(block[4:])
		if n < blockBytesMin || n > blockBytesMax || n%4 != 0 {
			return errors.Join(out.Flush(), fmt.Errorf("the NIC sent a block of %d bytes", n))
		}
		block = append(block, make([]byte, n-blockHeadBytes)...)
		if _, err := io.ReadFull(in, block[blockHeadBytes:]); err != nil {
			return out.Flush()
		}
		if _, err := out.Write(block); err != nil {
			return err
		}
		if binary.LittleEndian.Uint32(block) == enhancedPacketBlock {
			s.packets++
		}
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

// summary is one line for people.
func (s *stream) summary() string {
	text := fmt.Sprintf("%d packets captured", s.packets)
	if s.gone {
		return text + "; the NIC has ended or does not answer"
	}
	text += fmt.Sprintf(", %d dropped", s.rsp.Dropped)
	if s.rsp.Dropped > 0 {
		text += " because the file was not written fast enough (see --buffer)"
	}
	return text
}
