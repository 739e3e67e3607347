package ctl

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
)

func pair(t *testing.T) (*Client, *Conn) {
	t.Helper()
	a, b, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	client, conn := NewClient(a), NewServerConn(b)
	t.Cleanup(func() { _, _ = client.Close(), conn.Close() })
	deadline := time.Now().Add(20 * time.Second)
	if err := errors.Join(conn.SetDeadline(deadline), client.conn.SetDeadline(deadline)); err != nil {
		t.Fatal(err)
	}
	return client, conn
}

// raw sends bytes that no Client would send.
func raw(t *testing.T, c *Client, b []byte, fds ...int) {
	t.Helper()
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if _, _, err := c.conn.sock.WriteMsgUnix(b, oob, nil); err != nil {
		t.Fatal(err)
	}
}

func countFDs(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func devNull(t *testing.T) int {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return int(f.Fd())
}

func TestClient_Call_CarriesBodiesAndDescriptors(t *testing.T) {
	client, conn := pair(t)
	null := devNull(t)
	go func() {
		var m Message
		if err := conn.Receive(&m); err != nil {
			t.Errorf("receive: %v", err)
			return
		}
		var req abi.HandleMsg
		if !Decode(m.Body, &req) || req.Handle != 7 || len(m.FDs) != 2 || m.Op != abi.OpRegMR {
			t.Errorf("request %+v", m)
		}
		m.CloseFDs()
		rsp := abi.RegMRRsp{Handle: 1, LKey: 2, RKey: 3}
		reply := Message{Op: m.Op, Seq: m.Seq, Body: Bytes(&rsp), FDs: []int{null}}
		if err := conn.Reply(&reply); err != nil {
			t.Errorf("reply: %v", err)
		}
	}()
	req := abi.HandleMsg{Handle: 7}
	rsp, fds, err := Call[abi.RegMRRsp](client, abi.OpRegMR, Bytes(&req), null, null)
	if err != nil || rsp.RKey != 3 || len(fds) != 1 {
		t.Fatalf("%+v, %v, %v", rsp, fds, err)
	}
	if flags, err := unix.FcntlInt(uintptr(fds[0]), unix.F_GETFD, 0); err != nil ||
		flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("descriptor flags %#x, %v: want FD_CLOEXEC", flags, err)
	}
	_ = unix.Close(fds[0])
}

func TestClient_Refused_BearsTheRefusal(t *testing.T) {
	client, conn := pair(t)
	go func() {
		var m Message
		_ = conn.Receive(&m)
		_ = conn.Reply(&Message{
			Op: m.Op, Seq: m.Seq, Status: int32(unix.EINVAL), Body: []byte("max_send_wr is 0"),
		})
	}()
	_, err := client.Do(abi.OpCreateQP, nil)
	var refused *Error
	var refusal *rdma.Refusal
	if !errors.As(err, &refused) || refused.Op != abi.OpCreateQP || !errors.As(err, &refusal) ||
		refusal.Reason != "max_send_wr is 0" || !errors.Is(err, unix.EINVAL) {
		t.Errorf("error %v", err)
	}
}

func TestClient_NICGone_EveryCallSaysSo(t *testing.T) {
	client, conn := pair(t)
	_ = conn.Close()
	for range 3 {
		if _, err := client.Do(abi.OpAllocPD, nil); !errors.Is(err, ErrGone) {
			t.Errorf("error %v, want ErrGone", err)
		}
	}
}

func TestClient_ForeignReply_EndsTheConversation(t *testing.T) {
	for name, reply := range map[string]Message{
		"other op":  {Op: abi.OpDeallocPD, Seq: 1},
		"other seq": {Op: abi.OpAllocPD, Seq: 9},
	} {
		client, conn := pair(t)
		go func() {
			var m Message
			_ = conn.Receive(&m)
			_ = conn.Send(&reply)
		}()
		if _, err := client.Do(abi.OpAllocPD, nil); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := client.Do(abi.OpAllocPD, nil); !errors.Is(err, ErrGone) {
			t.Errorf("%s, next call: %v", name, err)
		}
	}
}

func TestClient_ReplyOfWrongSize_ClosesItsDescriptors(t *testing.T) {
	client, conn := pair(t)
	null := devNull(t)
	before := countFDs(t)
	go func() {
		for {
			var m Message
			if conn.Receive(&m) != nil {
				return
			}
			_ = conn.Send(&Message{Op: m.Op, Seq: m.Seq, Body: make([]byte, 5), FDs: []int{null}})
		}
	}()
	if _, _, err := Call[abi.HandleMsg](client, abi.OpAllocPD, nil); !errors.Is(err, ErrMalformed) {
		t.Errorf("short reply: %v", err)
	}
	if _, _, err := CallFDs[[5]byte](client, abi.OpAllocPD, nil, 2); !errors.Is(err, ErrMalformed) {
		t.Errorf("one descriptor instead of two: %v", err)
	}
	if after := countFDs(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestConn_BrokenFraming_IsMalformedAndLeaksNothing(t *testing.T) {
	client, conn := pair(t)
	null := devNull(t)
	before := countFDs(t)
	header := func(length uint32) []byte {
		h := abi.Header{Op: uint16(abi.OpAllocPD), Seq: 4, Length: length}
		return append([]byte(nil), Bytes(&h)...)
	}
	for name, b := range map[string][]byte{
		"one byte":      {1},
		"short header":  make([]byte, headerBytes-1),
		"body missing":  header(8),
		"body too long": append(header(8), make([]byte, 9)...),
		"length wraps":  header(0xffffffff),
		"oversize":      append(header(requestBodyMax+8), make([]byte, requestBodyMax+8)...),
	} {
		raw(t, client, b, null, null)
		var m Message
		if err := conn.Receive(&m); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v, want ErrMalformed", name, err)
		}
	}
	many := make([]int, limits.MaxFDs+1)
	for i := range many {
		many[i] = null
	}
	raw(t, client, header(0), many...)
	var m Message
	if err := conn.Receive(&m); !errors.Is(err, ErrNoRoom) || m.Seq != 4 {
		t.Errorf("too many descriptors: %v, seq %d", err, m.Seq)
	}
	raw(t, client, header(0))
	if err := conn.Receive(&m); err != nil || m.Op != abi.OpAllocPD {
		t.Errorf("a good message after the bad: %+v, %v", m, err)
	}
	if after := countFDs(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	raw(t, client, nil) // looks like the end of the connection, and is it
	if err := conn.Receive(&m); !errors.Is(err, io.EOF) {
		t.Errorf("empty message: %v", err)
	}
}

func TestConn_UnreadReplies_DescriptorsDoNotPileUp(t *testing.T) {
	client, conn := pair(t)
	reply := Message{Op: abi.OpAllocPD, FDs: []int{devNull(t)}}
	if err := conn.Reply(&reply); err != nil {
		t.Fatal(err)
	}
	if err := conn.Reply(&reply); !errors.Is(err, ErrPipelined) {
		t.Errorf("second reply: %v, want ErrPipelined", err)
	}
	var m Message
	if err := client.conn.Receive(&m); err != nil {
		t.Fatal(err)
	}
	m.CloseFDs()
	if err := conn.Reply(&reply); err != nil {
		t.Errorf("after the first was read: %v", err)
	}
}

func TestConn_PeerOfPair_IsUs(t *testing.T) {
	_, conn := pair(t)
	p, err := conn.Peer()
	want := Peer{PID: os.Getpid(), UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	if err != nil || p != want {
		t.Errorf("%+v, %v; want %+v", p, err, want)
	}
	fd, err := conn.PeerPidFD()
	switch {
	case errors.Is(err, unix.ENOPROTOOPT), errors.Is(err, unix.ENODATA):
	case err != nil:
		t.Error(err)
	default:
		_ = unix.Close(fd)
	}
}

func listen(t *testing.T, path string) *Listener {
	t.Helper()
	l, err := Listen(ListenConfig{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestListener_DialAccept_Talk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nic.sock")
	if _, err := Dial(path); !errors.Is(err, ErrNoNIC) {
		t.Errorf("without a NIC: %v", err)
	}
	l := listen(t, path)
	client, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		var m Message
		var hello abi.HelloReq
		if conn.Receive(&m) != nil || !Decode(m.Body, &hello) || hello.Magic != abi.Magic ||
			!bytes.HasPrefix(hello.Name[:], []byte("test\x00")) {
			t.Errorf("hello %+v", m)
		}
		rsp := abi.HelloRsp{Version: abi.Version, NICPID: 42}
		_ = conn.Reply(&Message{Op: m.Op, Seq: m.Seq, Body: Bytes(&rsp), FDs: []int{0}})
	}()
	rsp, lane, err := client.Hello("test")
	if err != nil || rsp.NICPID != 42 {
		t.Fatalf("%+v, %v", rsp, err)
	}
	_ = unix.Close(lane)
	_, _ = l.Close(), conn.Close()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket outlives its listener: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after close: %v", err)
	}
}

func TestListener_RaceOfStarts_OneWins(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nic.sock")
	const starters = 8
	results := make(chan error, starters)
	for range starters {
		go func() {
			l, err := Listen(ListenConfig{Path: path})
			if err == nil {
				t.Cleanup(func() { _ = l.Close() })
			}
			results <- err
		}()
	}
	won := 0
	for range starters {
		switch err := <-results; {
		case err == nil:
			won++
		case !errors.Is(err, ErrRunning):
			t.Errorf("loser's error: %v", err)
		}
	}
	if won != 1 {
		t.Errorf("%d listeners on one path", won)
	}
}

func TestListener_StaleSocket_IsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nic.sock")
	dead, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	listen(t, path)
	client, err := Dial(path)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	_ = client.Close()
}

func TestListener_InTheWay_IsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Listen(ListenConfig{Path: file})
	if err == nil || !strings.Contains(err.Error(), "socket") {
		t.Errorf("a file in the way: %v", err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "mine" {
		t.Errorf("the file is now %q, %v", got, err)
	}
	// A server that does not take our lock is still a NIC.
	other := filepath.Join(dir, "other.sock")
	sock, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: other, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sock.Close() }()
	if _, err := Listen(ListenConfig{Path: other}); !errors.Is(err, ErrRunning) {
		t.Errorf("a socket that is served: %v", err)
	}
	long := filepath.Join(dir, strings.Repeat("x", 120))
	_, err = Listen(ListenConfig{Path: long})
	if err == nil || !strings.Contains(err.Error(), "longer") {
		t.Errorf("long path: %v", err)
	}
	if _, err := Listen(ListenConfig{Path: other, Group: "no such group"}); err == nil {
		t.Error("unknown group accepted")
	}
}

// Whoever cleans temporary directories takes the names of a NIC away, and another NIC takes them.
func TestListener_FilesRemoved_LeavesThoseOfTheNextNIC(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := Listen(ListenConfig{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(path), os.Remove(path+lockSuffix)); err != nil {
		t.Fatal(err)
	}
	second, err := Listen(ListenConfig{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, path + lockSuffix} {
		if _, err := os.Lstat(name); err != nil {
			t.Error(err)
		}
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

func TestListener_Group_SetsModeBeforeName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nic.sock")
	l, err := Listen(ListenConfig{Path: path, Group: "0"})
	if errors.Is(err, syscall.EPERM) {
		t.Skip("not a member of group 0")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestSocketPath_Rule(t *testing.T) {
	own := t.TempDir()
	for _, c := range []struct{ env, xdg, want string }{
		{"/somewhere/nic.sock", own, "/somewhere/nic.sock"},
		{"", own, filepath.Join(own, "rnic")},
		{"", "/nonexistent", "/tmp/rnic-"},
		{"", "relative", "/tmp/rnic-"},
		{"", "", "/tmp/rnic-"},
	} {
		t.Setenv(SocketEnv, c.env)
		t.Setenv("XDG_RUNTIME_DIR", c.xdg)
		got, err := SocketPath()
		if err != nil || !strings.HasPrefix(got, c.want) {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}

func TestRuntimeDir_NotPrivate_IsRefused(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", home)
	t.Setenv(SocketEnv, "")
	if _, err := DialDefault(); !errors.Is(err, ErrNoNIC) {
		t.Errorf("no directory yet: %v", err)
	}
	if err := EnsureRuntimeDir(); err != nil {
		t.Fatal(err)
	}
	if err := EnsureRuntimeDir(); err != nil {
		t.Fatalf("second time: %v", err)
	}
	dir := RuntimeDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := EnsureRuntimeDir(); !errors.Is(err, ErrUnsafeDir) {
		t.Errorf("world-writable: %v", err)
	}
	if _, err := DialDefault(); !errors.Is(err, ErrUnsafeDir) {
		t.Errorf("dial in a world-writable directory: %v", err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), dir); err != nil {
		t.Fatal(err)
	}
	if err := EnsureRuntimeDir(); !errors.Is(err, ErrUnsafeDir) {
		t.Errorf("symbolic link: %v", err)
	}
	if os.Geteuid() != 0 {
		return
	}
	_ = os.Remove(dir)
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	if err := EnsureRuntimeDir(); !errors.Is(err, ErrUnsafeDir) {
		t.Errorf("another user's: %v", err)
	}
}

func TestDecode_AnySize_OnlyTheRightOneFits(t *testing.T) {
	want := abi.GIDEntry{Index: 3, IfName: [16]byte{'e'}}
	list := []abi.GIDEntry{want, {Index: 4}}
	got, ok := DecodeList[abi.GIDEntry](ListBytes(list))
	if !ok || len(got) != 2 || got[0] != want {
		t.Errorf("list %+v, %v", got, ok)
	}
	var one abi.GIDEntry
	for n := range 2 * len(Bytes(&one)) {
		if ok := Decode(make([]byte, n), &one); ok != (n == len(Bytes(&one))) {
			t.Errorf("Decode of %d bytes: %v", n, ok)
		}
		if _, ok := DecodeHead(make([]byte, n), &one); ok != (n >= len(Bytes(&one))) {
			t.Errorf("DecodeHead of %d bytes: %v", n, ok)
		}
		if _, ok := DecodeList[abi.GIDEntry](make([]byte, n)); ok != (n%len(Bytes(&one)) == 0) {
			t.Errorf("DecodeList of %d bytes: %v", n, ok)
		}
	}
	if len(ListBytes[abi.GIDEntry](nil)) != 0 {
		t.Error("empty list has bytes")
	}
}
