package daemon

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/shm"
)

// Values of Config.Direct (ADR 0026).
const (
	// DirectAuto lets programs of one user reach each other's registered memory themselves, unless
	// the system keeps programs of one user apart (Yama's ptrace_scope).
	DirectAuto = "auto"
	DirectOn   = "on"
	DirectOff  = "off"
)

// CheckDirect refuses what Config.Direct cannot be.
func CheckDirect(mode string) error {
	if mode == "" || slices.Contains([]string{DirectAuto, DirectOn, DirectOff}, mode) {
		return nil
	}
	return fmt.Errorf("daemon: the direct path is %s, %s or %s, not %q",
		DirectAuto, DirectOn, DirectOff, mode)
}

// goesDirect reports that programs may go direct. Faults are for packets, which all have to meet
// them.
func (d *Daemon) goesDirect() bool {
	switch {
	case d.cfg.Direct == DirectOff, !d.profile.IsZero(), d.profile.Completions > 0:
		return false
	case d.cfg.Direct == DirectOn:
		return true
	}
	if yamaScope() > 0 {
		d.log.Info("operations between programs of this host go through the NIC, which is slower:" +
			" the system keeps programs of one user apart (kernel.yama.ptrace_scope);" +
			" --direct=on has it otherwise")
		return false
	}
	return true
}

// yamaScope is how far the system restricts who may look into whose memory; 0 is not at all.
func yamaScope() int {
	text, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if err != nil {
		return 0
	}
	scope, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return scope
}

const (
	// libraryPatience is how long a library may take for what it has begun in memory that is not its
	// peer's any more: it copies for microseconds, unless it is kept from the processor.
	libraryPatience = 5 * time.Second
	libraryPause    = 20 * time.Microsecond
	libraryPauseMax = 5 * time.Millisecond
)

var errStoppedInside = errors.New("it was stopped while it moved bytes from or to memory of" +
	" another program, which has taken that memory back; a part of one operation may still follow")

// doRevoking is do for what may take rights of the direct path back. It returns when no library
// uses them any more.
func (l *lane) doRevoking(f func(now clock.Time)) bool {
	var waits []nic.DirectWait
	ok := l.do(func(now clock.Time) {
		_ = l.nic.TakeDirectWaits() // nobody has promised anything about those
		f(now)
		waits = l.nic.TakeDirectWaits()
	})
	return ok && l.awaitLibraries(waits, libraryPatience)
}

// awaitLibraries waits for libraries that may still use what was taken back, and takes the device
// away from those that do not come out in time.
func (l *lane) awaitLibraries(waits []nic.DirectWait, patience time.Duration) bool {
	ok, end := true, time.Now().Add(patience)
	for pause := libraryPause; ok && len(waits) > 0; pause = min(2*pause, libraryPauseMax) {
		time.Sleep(pause)
		isLate := time.Now().After(end)
		ok = l.do(func(clock.Time) {
			waits = slices.DeleteFunc(waits, nic.DirectWait.IsOver)
			for i := range waits {
				// Evicting one may end others of the same program.
				if s, known := waits[i].Owner().(*session); known && isLate && !waits[i].IsOver() {
					l.evict(s, errStoppedInside)
				}
			}
		})
	}
	return ok
}

// holdDirect sends everything through the NIC while captures want to see it. Lane.
func (l *lane) holdDirect(hold bool) {
	l.held = hold
	l.nic.HoldDirect(hold)
}

// segmentFile is where a mapped segment of a region lies, for who may map it himself.
type segmentFile struct {
	bytes  []byte // the NIC's view, by which it is found
	fd     int    // of the foreignMap, which closes it after the region is gone
	offset uint64
}

// addFile notes where a mapped segment lies.
func (p *prepared) addFile(s *mem.Segment, fd int, offset uint64) {
	if fd >= 0 {
		p.files = append(p.files, segmentFile{s.Mapped, fd, offset})
	}
}

// keepFile keeps a descriptor of a memfd whose memory peers may ask for, and returns it; −1 where
// none is to be had, and they go through the NIC.
func (s *session) keepFile(m *foreignMap, fd int, access rdma.Access) int {
	if m.fd >= 0 || s.keepsOut || s.daemon.lane.tickets == nil ||
		access&rdma.AccessRemoteAny == 0 {
		return m.fd
	}
	kept, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	if mayKeep(kept) != nil {
		_ = unix.Close(kept)
		return -1
	}
	m.fd = kept
	return kept
}

// mapRemote answers abi.OpMapRemote.
func (s *session) mapRemote(m *ctl.Message) (reply, *rdma.Refusal) {
	var req abi.MapRemoteReq
	if !ctl.Decode(m.Body, &req) {
		return reply{}, badBody(m)
	}
	var rsp abi.MapRemoteRsp
	var refusal *rdma.Refusal
	fds := []int{-1, -1}
	r := s.do(func(clock.Time) {
		var part nic.RemotePart
		if rsp, part, refusal = s.context.MapRemote(&req); refusal == nil {
			rsp.FDOffset, refusal = s.handOut(&part, fds)
		}
	})
	if r == nil {
		r = refusal
	}
	if r != nil {
		(&ctl.Message{FDs: fds}).CloseFDs()
		return reply{}, r
	}
	return reply{body: ctl.Bytes(&rsp), fds: fds}, nil
}

// handOut copies the descriptors of the tickets and of the memfd that a part lies in, and returns
// where in it. Lane.
func (s *session) handOut(part *nic.RemotePart, fds []int) (offset uint64, r *rdma.Refusal) {
	owner, ok := part.Owner.(*session)
	if !ok || !owner.isReadable() {
		return 0, rdma.Refuse(unix.EPERM, "the peer's program keeps others of its user out")
	}
	for _, f := range owner.files[part.Handle] {
		if &f.bytes[0] != &part.Bytes[0] {
			continue
		}
		var err error
		for i, fd := range []int{s.daemon.lane.tickets.FD(), f.fd} {
			if fds[i], err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
				return 0, rdma.Refuse(unix.EMFILE, "the NIC has no descriptor left (ulimit -n)")
			}
		}
		return f.offset, nil
	}
	return 0, rdma.Refuse(unix.EOPNOTSUPP, "there is no descriptor of the peer's memory")
}

// isReadable reports that the kernel, too, lets programs of its user look into the session's
// process: what belongs to one that is not dumpable belongs to root in /proc.
func (s *session) isReadable() bool {
	if s.peer.PID == s.daemon.pid {
		return true
	}
	var st syscall.Stat_t
	err := syscall.Stat("/proc/"+strconv.Itoa(s.peer.PID), &st)
	return err == nil && st.Uid == s.peer.UID
}

// openTickets makes the memory that tells which keys are good. Without it nobody goes direct.
func (l *lane) openTickets(wanted bool) {
	if !wanted {
		return
	}
	if tickets, err := shm.CreateReadOnly("rnic-tickets", abi.TicketBytes); err == nil {
		l.tickets = tickets
	}
}
