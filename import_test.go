package softrnic_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/test/nictest"
	"github.com/softrnic/softrnic/verbs"
)

// lent is what one context lends to others.
type lent struct {
	pd     *verbs.PD
	mr     *verbs.MR
	memory *verbs.DeviceMemory
}

// lenderText is at the beginning of the region that is lent, whose device memory begins with DM.
const lenderText = "the lender's words"

// lenderDM is how much device memory is lent: no whole page.
const lenderDM = 100

func lend(dev *verbs.Context) (l lent, err error) {
	if l.pd, err = dev.AllocPD(); err != nil {
		return l, err
	}
	if l.mr, err = l.pd.Register([]byte(lenderText), verbs.AccessAll); err != nil {
		return l, err
	}
	if l.memory, err = dev.AllocDeviceMemory(lenderDM); err != nil {
		return l, err
	}
	_, err = l.memory.WriteAt([]byte("DM"), 0)
	return l, err
}

// take imports all that is lent.
func take(t *testing.T, dev *verbs.Context, pd, mr, memory uint32) (l lent) {
	t.Helper()
	var err error
	if l.pd, err = dev.ImportPD(pd); err != nil {
		t.Fatal(err)
	}
	if l.mr, err = l.pd.ImportMR(mr); err != nil {
		t.Fatal(err)
	}
	if l.memory, err = dev.ImportDM(memory); err != nil {
		t.Fatal(err)
	}
	if n := l.memory.Len(); n != lenderDM {
		t.Errorf("%d bytes of device memory, not %d", n, lenderDM)
	}
	if _, err := l.memory.WriteAt([]byte{1}, lenderDM); err == nil {
		t.Error("a byte is written behind the device memory")
	}
	return l
}

// lenderSocket is where a lender sends the descriptor to.
func lenderSocket(nicSocket string) *net.UnixAddr {
	return &net.UnixAddr{Name: nicSocket + ".lender", Net: "unix"}
}

// playLender lends, and shows at each line of its input what became of it.
func playLender() error {
	dev, err := verbs.Open(context.Background(), "")
	if err != nil {
		return err
	}
	l, err := lend(dev)
	if err != nil {
		return err
	}
	file, err := dev.File()
	if err != nil {
		return err
	}
	conn, err := net.DialUnix("unix", nil, lenderSocket(os.Getenv("RNIC_SOCKET")))
	if err != nil {
		return err
	}
	rights := unix.UnixRights(int(file.Fd()))
	if _, _, err = conn.WriteMsgUnix([]byte("x"), rights, nil); err != nil {
		return err
	}
	if err = errors.Join(conn.Close(), file.Close()); err != nil {
		return err
	}
	fmt.Println(l.pd.Handle(), l.mr.Handle(), l.memory.Handle())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var dm [2]byte
		if _, err := l.memory.ReadAt(dm[:], 0); err != nil {
			return err
		}
		fmt.Printf("%s, %s\n", l.mr.Bytes(), dm)
	}
	return nil
}

// receiveFile takes the descriptor that a lender sends.
func receiveFile(t *testing.T, l *net.UnixListener) *os.File {
	t.Helper()
	conn, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		t.Fatalf("%d messages: %v", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		t.Fatalf("descriptors %v: %v", fds, err)
	}
	return os.NewFile(uintptr(fds[0]), "lender")
}

// couple returns two connected ends in a domain.
func couple(t *testing.T, pd *verbs.PD) (x, y *end) {
	t.Helper()
	both := [2]*end{}
	for i := range both {
		e := &end{dev: pd.Context(), pd: pd}
		var err error
		if e.cq, err = e.dev.CreateCQ(verbs.CQConfig{Entries: 16}); err != nil {
			t.Fatal(err)
		}
		if e.qp, err = pd.CreateQP(verbs.QPConfig{Type: verbs.QPTypeRC, SendCQ: e.cq}); err != nil {
			t.Fatal(err)
		}
		if e.point, err = e.qp.Endpoint(); err != nil {
			t.Fatal(err)
		}
		both[i] = e
	}
	x, y = both[0], both[1]
	if err := errors.Join(x.qp.ConnectTo(y.point), y.qp.ConnectTo(x.point)); err != nil {
		t.Fatal(err)
	}
	return x, y
}

// Queue pairs of one process read and write the memory of another, which takes no part.
func TestImport_AnotherProcess_SharesItsMemory(t *testing.T) {
	socket, _ := nictest.StartProcess(t)
	listener, err := net.ListenUnix("unix", lenderSocket(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	lender := nictest.StartPart(t, "lender", socket)
	file := receiveFile(t, listener)
	defer file.Close() // held on to: it keeps nothing alive
	dev, err := verbs.Import(nictest.Soon(t), file, verbs.WithSocket(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	var pd, mr, memory uint32
	if _, err := fmt.Sscan(lender.Line(t), &pd, &mr, &memory); err != nil {
		t.Fatal(err)
	}
	l := take(t, dev, pd, mr, memory)
	if l.mr.Len() != len(lenderText) || l.mr.Bytes() != nil {
		t.Errorf("the region has %d bytes, here %v", l.mr.Len(), l.mr.Bytes())
	}
	x, _ := couple(t, l.pd)
	own, err := l.pd.AllocMemory(64, verbs.AccessAll)
	if err != nil {
		t.Fatal(err)
	}
	out := verbs.SendWR{
		Opcode: verbs.WRWrite, SGE: l.mr.SGE(0, l.mr.Len()), RemoteAddr: own.Addr(), RKey: own.RKey(),
	}
	err = x.do(nictest.Soon(t), out)
	if got := string(own.Bytes()[:l.mr.Len()]); err != nil || got != lenderText {
		t.Errorf("a WRITE out of the lender's memory brought %q: %v", got, err)
	}
	in := verbs.SendWR{
		Opcode: verbs.WRWrite, Inline: []byte("THE"), RemoteAddr: l.mr.Addr(), RKey: l.mr.RKey(),
	}
	_, dmErr := l.memory.WriteAt([]byte("dm"), 0)
	if err := errors.Join(x.do(nictest.Soon(t), in), dmErr); err != nil {
		t.Error(err)
	}
	fmt.Fprintln(lender.In)
	if got := lender.Line(t); got != "THE lender's words, dm" {
		t.Errorf("the lender has %q", got)
	}
	lender.Kill()
	nictest.Settles(t, "lenders", 0, func() int {
		again, err := dev.ImportDM(memory)
		if errors.Is(err, syscall.EINVAL) {
			return 0
		}
		if err = errors.Join(err, again.Close()); err != nil {
			t.Fatal(err)
		}
		return 1
	})
	err = x.do(nictest.Soon(t), out)
	if !errors.Is(err, verbs.ErrLocalProtection) {
		t.Errorf("a WRITE out of memory that has gone: %v", err)
	}
}

// Close lets go of what is imported; Dealloc ends a domain for all.
func TestImport_CloseAndDealloc_OwnersKeepWhatIsTheirs(t *testing.T) {
	socket, _ := nictest.StartProcess(t)
	owner := open(t, verbs.WithSocket(socket))
	l, err := lend(owner)
	if err != nil {
		t.Fatal(err)
	}
	fds := nictest.Descriptors()
	dev := importOf(t, owner, verbs.WithSocket(socket))
	again := func() lent { return take(t, dev, l.pd.Handle(), l.mr.Handle(), l.memory.Handle()) }
	mine, twice := again(), again()
	if err := errors.Join(mine.mr.Close(), mine.memory.Close(), mine.pd.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := mine.pd.ImportMR(l.mr.Handle()); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("ImportMR in a closed domain: %v", err)
	}
	var dm [2]byte
	if _, err := twice.memory.ReadAt(dm[:], 0); err != nil || string(dm[:]) != "DM" {
		t.Errorf("the other import has %q: %v", dm, err)
	}
	if err := twice.pd.Dealloc(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("Dealloc of a domain with a region: %v", err)
	}
	if err := errors.Join(l.mr.Close(), l.memory.Close(), twice.pd.Dealloc()); err != nil {
		t.Error(err)
	}
	if err := l.pd.Close(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Close of a domain that another freed: %v", err)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
	if _, err := twice.memory.ReadAt(dm[:], 0); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("device memory of a closed context: %v", err)
	}
	nictest.Settles(t, "descriptors", fds, nictest.Descriptors)
}

// importOf imports a context of this process.
func importOf(t *testing.T, owner *verbs.Context, opts ...verbs.Option) *verbs.Context {
	t.Helper()
	file, err := owner.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	dev, err := verbs.Import(nictest.Soon(t), file, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

func TestImport_WhatIsNotThere_IsRefused(t *testing.T) {
	socket, _ := nictest.StartProcess(t)
	at := verbs.WithSocket(socket)
	owner := open(t, at)
	l, err := lend(owner)
	if err != nil {
		t.Fatal(err)
	}
	dev := importOf(t, owner, at)
	defer dev.Close()
	other, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	_, pdErr := dev.ImportPD(l.mr.Handle())
	_, mrErr := other.ImportMR(l.mr.Handle())
	_, dmErr := dev.ImportDM(l.pd.Handle())
	_, noneErr := owner.ImportPD(other.Handle())
	for what, err := range map[string]error{
		"ImportPD of a region": pdErr, "ImportMR in another domain": mrErr,
		"ImportDM of a domain": dmErr, "ImportPD without a source": noneErr,
	} {
		var op *verbs.OpError
		if !errors.Is(err, syscall.EINVAL) || !errors.As(err, &op) {
			t.Errorf("%s: %v", what, err)
		}
	}
	file, err := owner.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := owner.Close(); err != nil { // that somebody has the descriptor keeps nothing alive
		t.Fatal(err)
	}
	closed, _, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	fds := nictest.Descriptors()
	for want, file := range map[error]*os.File{
		syscall.EINVAL: file, os.ErrClosed: closed, os.ErrInvalid: nil,
	} {
		if _, err := verbs.Import(nictest.Soon(t), file, at); !errors.Is(err, want) {
			t.Errorf("Import: %v, not %v", err, want)
		}
	}
	nictest.Settles(t, "descriptors", fds, nictest.Descriptors)
	if _, err := owner.File(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("File of a closed context: %v", err)
	}
}

// The device is found, whichever it is, also of a NIC inside the program that serves a socket.
func TestImport_SecondDevice_IsFound(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nic.sock")
	nictest.Start(t, softrnic.Config{Socket: socket, Devices: []string{"rnic0", "iwarp0=iwarp"}})
	owner, err := verbs.Open(nictest.Soon(t), "iwarp0", verbs.WithSocket(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	dev := importOf(t, owner, verbs.WithSocket(socket))
	defer dev.Close()
	if dev.Device() != owner.Device() {
		t.Errorf("%v imported, of %v", dev.Device(), owner.Device())
	}
}

// A closed file is the caller's mistake, after which the context works as before.
func TestContext_OpenXRCD_ClosedFile_IsRefused(t *testing.T) {
	dev := open(t, verbs.WithConnector(nictest.Start(t, softrnic.Config{})))
	file, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	_ = file.Close()
	_, err = dev.OpenXRCD(verbs.XRCDConfig{File: file, Create: true})
	if !errors.Is(err, os.ErrClosed) {
		t.Errorf("OpenXRCD: %v", err)
	}
	if _, err := dev.AllocPD(); err != nil {
		t.Error(err)
	}
}

// Only a NIC that is reached by its socket can tell its programs apart.
func TestContext_File_OfANICInside_IsRefused(t *testing.T) {
	dev := open(t, verbs.WithConnector(nictest.Start(t, softrnic.Config{})))
	if _, err := dev.File(); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("File: %v", err)
	}
}

// The connection of a context whose File is out still does not block: its requests end with it.
func TestContext_File_LeavesTheConnectionAsItIs(t *testing.T) {
	socket, _ := nictest.StartProcess(t)
	dev := open(t, verbs.WithSocket(socket))
	file, err := dev.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("flags %#x: %v", flags, err)
	}
	flags, err = unix.FcntlInt(file.Fd(), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("descriptor flags %#x: %v", flags, err)
	}
}
