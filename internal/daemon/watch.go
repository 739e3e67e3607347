package daemon

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/netio/tcp"
)

// watchKind says what a descriptor in the lane's epoll set is.
type watchKind uint8

const (
	watchWake   watchKind = iota // the lane's own eventfd: requests wait
	watchKick                    // an application rang a doorbell while the lane slept
	watchExit                    // pidfd: the process of a session has ended
	watchPort                    // packets, or reports that a peer is unreachable
	watchOutbox                  // an event pipe that was full has room
)

// watch is one descriptor in the epoll set.
type watch struct {
	kind    watchKind
	session *session
	port    netio.Port
	outbox  *outbox
}

// Descriptors that applications have copies of are watched edge-triggered and never read: whoever
// has a copy of an eventfd could read it first, or make the file blocking.
const edge = unix.EPOLLET

// addWatch puts a descriptor into the set. Lane.
func (l *lane) addWatch(fd int, events uint32, w watch) error {
	e := unix.EpollEvent{Events: events, Fd: int32(fd)}
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		return fmt.Errorf("daemon: watch a descriptor: %w", err)
	}
	l.watches[int32(fd)] = w
	return nil
}

// dropWatch must come before the descriptor is closed: an application may hold a copy, and then
// the kernel would keep the file in the set under a number that has been used again. Lane.
func (l *lane) dropWatch(fd int) {
	if _, known := l.watches[int32(fd)]; !known {
		return
	}
	delete(l.watches, int32(fd))
	_ = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, fd, nil)
}

// heed acts on what epoll reported.
func (l *lane) heed(events []unix.EpollEvent) {
	for i := range events {
		if tcp.Owns(&events[i]) {
			l.streams.HandleEvent(&events[i])
			continue
		}
		w, known := l.watches[events[i].Fd]
		if !known {
			continue
		}
		switch w.kind {
		case watchWake:
			l.clearWake()
		case watchKick:
			// The doorbells are looked at in every turn.
		case watchExit:
			w.session.hangUp("its process has ended")
		case watchPort:
			if events[i].Events&unix.EPOLLIN != 0 {
				l.heatUp()
				l.mute = false
			}
			if events[i].Events&unix.EPOLLERR != 0 {
				l.collectUnreachable(w.port)
			}
		case watchOutbox:
			w.outbox.flush()
		}
	}
}

func (l *lane) clearWake() {
	_, _ = unix.Read(l.wake, l.wakeBuf[:]) // nonblocking and ours alone
}
