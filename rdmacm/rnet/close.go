package rnet

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// CloseWrite ends this direction: the peer reads what was written, then io.EOF. A Write that waits
// ends with EPIPE.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.wrap("close", net.ErrClosed)
	}
	c.out.ending = true
	c.writes.signal()
	c.mu.Unlock()
	c.wmu.Lock() // a Write that is copying comes first
	defer c.wmu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.endLocked(); err != nil {
		return c.wrap("close", err)
	}
	return nil
}

// Close ends the connection. It waits until the peer's NIC has put all that was written into the
// peer's memory, at most Config.Linger; an error says that it could not. Calls that wait end with
// net.ErrClosed.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.wrap("close", net.ErrClosed)
	}
	c.closed, c.out.ending = true, true
	if c.probe != nil {
		c.probe.Stop()
	}
	c.reads.signal()
	c.writes.signal()
	c.mu.Unlock()
	// When they have left, nobody uses the memory.
	c.rmu.Lock()
	defer c.rmu.Unlock()
	c.wmu.Lock()
	defer c.wmu.Unlock()
	err := c.linger()
	c.release()
	if err != nil {
		return c.wrap("close", err)
	}
	return nil
}

// linger sends the end and waits until all is delivered. A peer that has left does not want it.
func (c *Conn) linger() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drainLocked()
	_ = c.endLocked() // where that fails there is an error, or no end to wait for
	c.setDeadlineLocked(&c.writes, time.Now().Add(c.lingerTime))
	for c.out.ended && !c.isDeliveredLocked() {
		switch {
		case c.err != nil:
			if errors.Is(c.err, syscall.ECONNRESET) {
				return nil
			}
			return c.err
		case c.writes.expired:
			return os.ErrDeadlineExceeded
		}
		c.waitLocked(&c.writes)
	}
	return nil
}

// release gives everything back. No call is under way.
func (c *Conn) release() {
	_ = c.rc.Close()
	c.pump.remove(c)
	c.mu.Lock()
	for _, s := range []*side{&c.reads, &c.writes} {
		if s.timer != nil {
			s.timer.Stop()
		}
	}
	c.mu.Unlock()
	_ = c.cq.Close()
	_ = c.mr.Close()
	c.pump.release()
}
