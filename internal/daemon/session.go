package daemon

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/netio/pcap"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/shm"
)

const (
	// helloTimeout ends connections that say nothing.
	helloTimeout = 10 * time.Second
	// malformedMax is how many messages out of shape a connection may send: a bug in a library
	// gets its answers, a fuzzer does not get for ever.
	malformedMax = 16
)

// session is one control connection and, once it has opened the device, a context of the NIC.
// Its goroutine runs serve. Fields without another remark belong to that goroutine.
type session struct {
	daemon *Daemon
	conn   *ctl.Conn
	peer   ctl.Peer
	name   string // of the program, printable
	pidfd  int    // −1 where the process is not watched
	greet  bool   // hello was said
	// keepsOut says that the program wants no part in the direct path.
	keepsOut bool
	// peerName is what the program's end of the connection is bound to; see importContext.
	peerName string
	// connects says that this connection is for connection management.
	connects bool

	space   *shm.Process
	noSpace *rdma.Refusal // why there is no space
	maps    foreignMaps
	torn    int // malformed messages so far
	capture *pcap.Capture
	ending  atomic.Pointer[string]

	// Lane.
	context  *nic.Context
	bells    *shm.Memory
	kick     int // eventfd; −1 without a context
	async    *outbox
	channels map[uint32]*outbox
	queues   map[*queueMemory]struct{}
	// queueBytes is what they take.
	queueBytes int64
	mapped     map[uint32][]mem.Segment // by region
	files      map[uint32][]segmentFile // by region, where its mapped segments lie
	evicted    error                    // why the device was taken away
	dmFDs      map[uint32]int           // of device memory, for who imports it
	cm         cmState
}

func newSession(d *Daemon, conn *ctl.Conn) (*session, error) {
	peer, err := conn.Peer()
	if err != nil {
		return nil, err
	}
	s := &session{
		daemon: d, conn: conn, peer: peer, pidfd: -1, kick: -1, peerName: conn.PeerName(),
		maps:     newForeignMaps(d.lane.budget),
		channels: map[uint32]*outbox{}, queues: map[*queueMemory]struct{}{},
		mapped: map[uint32][]mem.Segment{}, dmFDs: map[uint32]int{},
		files: map[uint32][]segmentFile{},
	}
	if peer.PID != d.pid {
		s.pidfd, err = conn.PeerPidFD()
		if err != nil {
			// Where it cannot be watched, the hang-up of its socket has to do.
			s.pidfd, _ = shm.PidFD(peer.PID)
		}
	}
	return s, nil
}

// serve answers requests until the connection ends.
func (s *session) serve() {
	defer s.end()
	if !s.join() {
		return
	}
	_ = s.conn.SetDeadline(time.Now().Add(helloTimeout))
	for {
		var m ctl.Message
		err := s.conn.Receive(&m)
		if err != nil && !s.tolerate(&m, err) {
			return
		}
		if err == nil && !s.answer(&m) {
			return
		}
	}
}

// join enters the session into the lane.
func (s *session) join() bool {
	return s.daemon.lane.do(func(clock.Time) {
		l := s.daemon.lane
		l.sessions[s] = struct{}{}
		if s.pidfd >= 0 {
			// Without the watch the hang-up of the socket has to do.
			_ = l.addWatch(s.pidfd, unix.EPOLLIN|edge, watch{kind: watchExit, session: s})
		}
	})
}

// tolerate answers a message that could not be read, and reports whether the connection goes on.
func (s *session) tolerate(m *ctl.Message, err error) bool {
	switch {
	case errors.Is(err, io.EOF):
		return false
	case errors.Is(err, ctl.ErrMalformed), errors.Is(err, ctl.ErrNoRoom):
	default:
		s.misbehaved("reading its requests failed", err)
		return false
	}
	s.misbehaved("it sent a message out of shape", err)
	s.torn++
	if s.torn > malformedMax {
		return false
	}
	r := rdma.Refuse(unix.EPROTO, err.Error())
	if errors.Is(err, ctl.ErrNoRoom) {
		r.Errno = unix.EMFILE
	}
	return s.reply(m, reply{}, r)
}

// answer executes one request, and reports whether the connection goes on.
func (s *session) answer(m *ctl.Message) bool {
	defer m.CloseFDs()
	if !s.greet {
		return s.answerHello(m)
	}
	r, refusal := s.execute(m)
	if refusal != nil {
		s.noteRefusal(m, refusal)
	}
	m.CloseFDs() // before the program goes on
	return s.reply(m, r, refusal)
}

// reply is the result of a request.
type reply struct {
	body  []byte
	fds   []int  // closed after the reply was sent
	after func() // nil, or runs then
}

func (s *session) reply(m *ctl.Message, r reply, refusal *rdma.Refusal) bool {
	out := ctl.Message{Op: m.Op, Seq: m.Seq, Body: r.body, FDs: r.fds}
	if refusal != nil {
		out.Status, out.Body = int32(refusal.Errno), []byte(refusal.Reason)
		s.daemon.log.Debug("request refused", s.who(), "request", m.Op.String(),
			"errno", refusal.Errno.Error(), "reason", refusal.Reason)
	}
	err := s.conn.Reply(&out)
	out.CloseFDs()
	if r.after != nil {
		r.after()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		s.misbehaved("it could not be answered", err)
	}
	return err == nil
}

// answerHello lets an application in that speaks our version.
func (s *session) answerHello(m *ctl.Message) bool {
	var req abi.HelloReq
	var why string
	switch {
	case m.Op != abi.OpHello:
		why = fmt.Sprintf("%v before %v", m.Op, abi.OpHello)
	case !ctl.Decode(m.Body, &req) || req.Magic != abi.Magic:
		why = "this is the control socket of a SoftRNIC, which speaks another protocol"
	case req.Version != abi.Version:
		why = fmt.Sprintf("the program's library speaks version %d of the protocol, the NIC %d: "+
			"install both from one release", req.Version, abi.Version)
	}
	if why != "" {
		s.misbehaved("no hello", errors.New(why))
		s.reply(m, reply{}, rdma.Refuse(unix.EPROTO, why))
		return false
	}
	s.greet = true
	s.name = printable(req.Name[:])
	s.keepsOut = req.Flags&abi.HelloKeepsOut != 0
	rsp := abi.HelloRsp{
		Version: abi.Version, NICPID: uint32(s.daemon.pid), Devices: uint32(len(s.daemon.devices)),
	}
	lane, err := unix.FcntlInt(uintptr(s.daemon.lane.page.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		r := rdma.Refuse(unix.EMFILE, "the NIC has no descriptor left (ulimit -n)")
		s.reply(m, reply{}, r)
		return false
	}
	_ = s.conn.SetDeadline(time.Time{})
	return s.reply(m, reply{body: ctl.Bytes(&rsp), fds: []int{lane}}, nil)
}

// printable makes a name fit for a terminal.
func printable(name []byte) string {
	text, _, _ := strings.Cut(string(name), "\x00")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}

// hangUp ends the connection from another goroutine, which serve then notices.
func (s *session) hangUp(why string) {
	s.ending.CompareAndSwap(nil, &why)
	_ = s.conn.Close()
}

// end makes the session vanish with all that was made through it.
func (s *session) end() {
	s.closeCapture()
	s.daemon.lane.do(func(now clock.Time) {
		l := s.daemon.lane
		s.closeContext(now)
		s.closeCM(now)
		if s.pidfd >= 0 {
			l.dropWatch(s.pidfd)
		}
		delete(l.sessions, s)
	})
	s.maps.release()
	if s.bells != nil {
		s.bells.Release()
	}
	if s.pidfd >= 0 {
		_ = unix.Close(s.pidfd)
	}
	if s.space != nil {
		s.space.Close()
	}
	_ = s.conn.Close()
	if s.evicted != nil {
		s.misbehaved("its device was taken away", s.evicted)
	} else if why := s.ending.Load(); why != nil {
		s.daemon.log.Debug("connection cut off", s.who(), "reason", *why)
	}
	s.daemon.forget(s)
}

// closeContext destroys the objects of the session and its event pipes; their readers see the end.
// Lane.
func (s *session) closeContext(now clock.Time) {
	if s.context == nil {
		return
	}
	l := s.daemon.lane
	context := s.context
	s.context = nil // whatever happens below, not twice
	l.nic.CloseContext(now, context)
	for _, o := range s.channels {
		o.close()
	}
	s.async.close()
	l.dropWatch(s.kick)
	_ = unix.Close(s.kick)
	for h := range s.dmFDs {
		s.forgetDM(h)
	}
	clear(s.channels)
	clear(s.mapped)
	clear(s.files)
}

// do lets the lane run f for this session, whose context is open. It refuses when the NIC or the
// session ends.
func (s *session) do(f func(now clock.Time)) *rdma.Refusal {
	refusal := rdma.Refuse(syscall.EIO, "the NIC is shutting down")
	s.daemon.lane.doRevoking(func(now clock.Time) {
		if s.context == nil {
			refusal.Reason = "the context has been closed"
			return
		}
		refusal = nil
		s.daemon.lane.memory.owner = s
		defer func() { s.daemon.lane.memory.owner = nil }() // also after a fault
		f(now)
	})
	return refusal
}
