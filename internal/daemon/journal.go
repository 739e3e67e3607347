package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
)

const (
	// journalBacklog bounds the lines that wait for a slow log; the lane never does.
	journalBacklog = 256
	// warningsPerMinute bounds what clients out of order can make us write.
	warningsPerMinute = 30
)

// journal writes what the lane has to tell, on a goroutine of its own, and bounds what others can
// cause to be written.
type journal struct {
	log   *slog.Logger
	lines chan nic.CauseRecord
	done  chan struct{}
	begun bool

	mu     sync.Mutex // guards the fields below
	minute time.Time  // when the current minute began
	count  int        // warnings in it
	muted  int
}

func newJournal(log *slog.Logger) *journal {
	return &journal{
		log: log, lines: make(chan nic.CauseRecord, journalBacklog), done: make(chan struct{}),
	}
}

func (j *journal) start() {
	j.begun = true
	go j.write()
}

func (j *journal) write() {
	defer close(j.done)
	for r := range j.lines {
		j.log.Log(context.Background(), levelOf(r.Kind), r.Text(), "why", r.Why(),
			"qpn", uint32(r.QPN), "program", r.Program, "pid", r.PID)
	}
}

// levelOf keeps low what programs and peers do all day without being in trouble.
func levelOf(k nic.ErrorKind) slog.Level {
	switch k {
	case nic.ErrorVerb, nic.ErrorPost, nic.ErrorTurnedAway:
		return slog.LevelDebug
	default:
		return slog.LevelInfo
	}
}

// noteRefusal lets the NIC remember a request that was refused, with what it was about. Not those
// of the direct path: no verb fails for them, since the library leaves the operation to the NIC.
func (s *session) noteRefusal(m *ctl.Message, refusal *rdma.Refusal) {
	if m.Op == abi.OpMapRemote {
		return
	}
	var about abi.HandleMsg
	_, _ = ctl.DecodeHead(m.Body, &about) // requests about an object begin with its handle
	s.daemon.lane.do(func(now clock.Time) {
		switch {
		case s.context != nil:
			s.context.NoteRefusal(now, m.Op, about.Handle, refusal)
		case s.cm.session != nil:
			s.cm.session.NoteRefusal(now, m.Op, refusal)
		}
	})
}

// causes takes errors of QPs from the lane; those that find no room are in the status still.
func (j *journal) causes(records []nic.CauseRecord) {
	for i := range records {
		select {
		case j.lines <- records[i]:
		default:
		}
	}
}

// warn writes a warning that a client caused.
func (j *journal) warn(text string, err error, args ...any) {
	j.mu.Lock()
	now := time.Now()
	if now.Sub(j.minute) > time.Minute {
		j.minute, j.count = now, 0
	}
	j.count++
	muted := j.muted
	if j.count > warningsPerMinute {
		j.muted++
		j.mu.Unlock()
		return
	}
	j.muted = 0
	j.mu.Unlock()
	if muted > 0 {
		args = append(args, "muted_before", muted)
	}
	j.log.Warn(text, append(args, "error", err)...)
}

// stop ends the goroutine. Nobody calls causes any more.
func (j *journal) stop() {
	close(j.lines)
	if j.begun {
		<-j.done
	}
}

// who identifies a session in the log.
func (s *session) who() slog.Attr {
	return slog.Group("client", "program", s.name, "pid", s.peer.PID, "uid", s.peer.UID)
}

// misbehaved logs a breach of the protocol, within bounds.
func (s *session) misbehaved(what string, err error) {
	s.daemon.misbehaviour.Add(1)
	s.daemon.journal.warn("program out of order: "+what, err, s.who())
}

// noteWait answers abi.OpWaits. Who looks for the cause of a program that hangs looks here.
func (s *session) noteWait(m *ctl.Message) (reply, *rdma.Refusal) {
	var req abi.WaitsReq
	if !ctl.Decode(m.Body, &req) {
		return reply{}, badBody(m)
	}
	s.daemon.journal.warn("program waits for itself", fmt.Errorf("%s waits for %s of %s",
		printable(req.Call[:]), printable(req.Ack[:]), printable(req.Event[:])),
		s.who(), "events", req.Count)
	return reply{}, nil
}

// discard closes what newSession opened; serve was not started.
func (s *session) discard() {
	if s.pidfd >= 0 {
		_ = unix.Close(s.pidfd)
	}
	_ = s.conn.Close()
}
