package rdmacm

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
)

// recordsPerRead is how many events one read of the pipe can bring.
const recordsPerRead = 8

// readEvents runs as a goroutine of the core: it hands events to their identifiers, and the end of
// the pipe tells that the NIC is gone.
func (c *core) readEvents() {
	defer close(c.done)
	size := len(ctl.Bytes(&abi.CMEvent{}))
	buf := make([]byte, recordsPerRead*size)
	have := 0
	for {
		n, err := c.pipe.Read(buf[have:])
		if err != nil {
			break
		}
		rest := buf[:have+n]
		var e abi.CMEvent
		for {
			after, ok := ctl.DecodeHead(rest, &e)
			if !ok {
				break
			}
			rest = after
			c.dispatch(&e)
		}
		have = copy(buf, rest)
	}
	c.mu.Lock()
	close(c.dead)
	ids := make([]*identifier, 0, len(c.ids))
	for _, i := range c.ids {
		ids = append(ids, i)
	}
	c.mu.Unlock()
	for _, i := range ids {
		i.deliver(&abi.CMEvent{ID: i.handle, Event: uint32(EventDeviceRemoval)})
	}
}

// dispatch hands an event to its identifier. One that is gone gets none.
func (c *core) dispatch(e *abi.CMEvent) {
	if EventType(e.Event) != EventConnectRequest {
		if i := c.find(e.ID); i != nil {
			i.deliver(e)
		}
		return
	}
	listener := c.find(e.ListenID)
	// From here on the request has a place for what may happen to it, such as the peer's change
	// of mind.
	i := c.adopt(e.ID)
	if listener == nil || !listener.admit(e) {
		_ = i.destroy()
	}
}

// admit queues a request for a listener. It reports false if the listener is closed. Requests that
// nobody has taken count against the backlog in the NIC, so there need be no bound here.
func (i *identifier) admit(e *abi.CMEvent) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.over {
		return false
	}
	i.events = append(i.events, *e)
	i.wake()
	return true
}
