package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/internal/rdma"
)

// block is one block of a pcapng file with n bytes in it.
func block(kind uint32, n int) []byte {
	b := binary.LittleEndian.AppendUint32(nil, kind)
	b = binary.LittleEndian.AppendUint32(b, uint32(12+n))
	b = append(b, make([]byte, n)...)
	return binary.LittleEndian.AppendUint32(b, uint32(12+n))
}

// copied lets a stream copy what a NIC wrote before it closed the pipe.
func copied(t *testing.T, ctx context.Context, text []byte, end func() (abi.CaptureRsp, error),
) (*stream, []byte, error) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = read.Close() }()
	go func() {
		_, _ = write.Write(text)
		if ctx.Err() == nil {
			_ = write.Close()
		}
	}()
	defer func() { _ = write.Close() }()
	var out bytes.Buffer
	s := &stream{in: read, out: &out, end: end}
	err = s.copyUntil(ctx)
	return s, out.Bytes(), err
}

func TestStream_NICClosesItsEnd_WholeBlocksAreInTheFile(t *testing.T) {
	whole := append(append(block(0x0a0d0d0a, 16), block(enhancedPacketBlock, 64)...),
		block(enhancedPacketBlock, 40000)...)
	end := func() (abi.CaptureRsp, error) { return abi.CaptureRsp{Captured: 2, Dropped: 7}, nil }
	for _, torn := range []int{0, 3, 8, 20} {
		text := append(bytes.Clone(whole), block(enhancedPacketBlock, 64)[:torn]...)
		s, file, err := copied(t, t.Context(), text, end)
		if err != nil || !bytes.Equal(file, whole) {
			t.Errorf("%d bytes of a torn block: %v, %d bytes of %d", torn, err, len(file), len(whole))
		}
		if want := "2 packets captured, 7 dropped"; !strings.HasPrefix(s.summary(), want) ||
			!strings.Contains(s.summary(), "--buffer") {
			t.Errorf("summary %q", s.summary())
		}
	}
}

func TestStream_NICIsGone_SaysSo(t *testing.T) {
	s, _, err := copied(t, t.Context(), block(enhancedPacketBlock, 64),
		func() (abi.CaptureRsp, error) { return abi.CaptureRsp{}, errors.New("gone") })
	if err != nil || !strings.HasPrefix(s.summary(), "1 packets captured; the NIC has ended") {
		t.Errorf("%v, %q", err, s.summary())
	}
}

// A NIC that is stopped neither answers nor closes its end.
func TestStream_InterruptedAndNoAnswer_EndsAllTheSame(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	s, file, err := copied(t, ctx, block(enhancedPacketBlock, 64),
		func() (abi.CaptureRsp, error) { return abi.CaptureRsp{}, os.ErrDeadlineExceeded })
	if err != nil || s.packets != 1 || len(file) != 76 || time.Since(began) > 10*lastWords {
		t.Errorf("%v, %d packets, %d bytes after %v", err, s.packets, len(file), time.Since(began))
	}
}

func TestStream_NoBlock_IsAnError(t *testing.T) {
	end := func() (abi.CaptureRsp, error) { return abi.CaptureRsp{}, nil }
	for _, length := range []string{"\xff\xff\xff\xff", "\x0d\x00\x00\x00", "\x00\x00\x00\x00"} {
		text := "\x06\x00\x00\x00" + length
		if _, _, err := copied(t, t.Context(), []byte(text), end); err == nil {
			t.Errorf("%q is taken for a block", text)
		}
	}
}

func TestCaptureRequest_FlagsBecomeTheFilter(t *testing.T) {
	o := captureOptions{write: "x", qp: 0x12, address: "10.0.0.7", count: 5, buffer: 2}
	if err := o.check(); err != nil {
		t.Fatal(err)
	}
	want := abi.CaptureReq{
		Count: 5, QPN: 0x12, BufferBytes: 2 << 20,
		Address: rdma.GIDFromAddr(netip.MustParseAddr("10.0.0.7")),
	}
	if got := o.request(); got != want {
		t.Errorf("%+v, not %+v", got, want)
	}
}

// runCapture runs the command against a NIC without a network.
func runCapture(t *testing.T, args string) (status int, errors string) {
	t.Helper()
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	return execute(root, strings.Fields("capture "+args)), out.String()
}

func TestCapture_Command_EndsWithTheNIC(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "nic.sock")
	t.Setenv("RNIC_SOCKET", socket)
	nic, err := daemon.Start(t.Context(), daemon.Config{SocketPath: socket, NoNetwork: true})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "a.pcapng")
	if status, text := runCapture(t, "-w "+dir+"/none/a"); status != exitFailure ||
		!strings.Contains(text, fs.ErrNotExist.Error()) && !strings.Contains(text, "no such file") {
		t.Errorf("no directory: %d %s", status, text)
	}
	go func() {
		for {
			if s, ok := nic.Status(); !ok || s.Connections > 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		for { // until the file has its head
			if info, err := os.Stat(file); err == nil && info.Size() > 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		_ = nic.Close()
	}()
	status, text := runCapture(t, "-w "+file)
	if status != 0 || !strings.Contains(text, "0 packets captured") {
		t.Errorf("status %d, %s", status, text)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is open to others: %v, %v", info, err)
	}
}

func TestCapture_Interrupted_EndsWithASummary(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "nic.sock")
	t.Setenv("RNIC_SOCKET", socket)
	nic, err := daemon.Start(t.Context(), daemon.Config{SocketPath: socket, NoNetwork: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nic.Close() }()
	file := filepath.Join(dir, "a.pcapng")
	go func() {
		for {
			if info, err := os.Stat(file); err == nil && info.Size() > 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGINT) // the command has asked for it by now
	}()
	status, text := runCapture(t, "-w "+file)
	if status != 0 || !strings.Contains(text, "0 packets captured, 0 dropped") {
		t.Errorf("status %d, %s", status, text)
	}
}
