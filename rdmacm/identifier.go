package rdmacm

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/verbs"
)

// Port spaces (enum rdma_port_space).
const (
	spaceTCP = 0x0106
	spaceUDP = 0x0111
)

// eventsKept bounds the events of one identifier that nobody has taken. A connection has few in
// its life; the oldest are dropped.
const eventsKept = 64

// identifier is a communication identifier (struct rdma_cm_id) of the NIC.
type identifier struct {
	core   *core
	handle uint32
	device string // known by query

	// news has a token while events may wait; gone is closed by destroy.
	news, gone chan struct{}

	mu     sync.Mutex
	events []abi.CMEvent // guarded by mu
	over   bool          // destroy was called; guarded by mu
	// hook, when not nil, sees every event as it comes, in the reader's goroutine; guarded by mu.
	hook func(*abi.CMEvent)
}

// createID makes an identifier.
func (c *core) createID(space uint32, t verbs.QPType, cfg *Config) (*identifier, error) {
	req := abi.CreateIDReq{Channel: c.channel, PortSpace: space, QPType: uint32(t)}
	copy(req.Device[:], cfg.insistsOn())
	rsp, err := call[abi.HandleMsg](c, abi.OpCreateID, ctl.Bytes(&req))
	if err != nil {
		return nil, err
	}
	return c.adopt(rsp.Handle), nil
}

// adopt enters an identifier into the table, so that it gets its events.
func (c *core) adopt(handle uint32) *identifier {
	i := &identifier{
		core: c, handle: handle, news: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids[handle] = i
	return i
}

func (c *core) find(handle uint32) *identifier {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ids[handle]
}

// destroyHandle ends an identifier of the NIC. With a NIC that is gone it is gone, too.
func (c *core) destroyHandle(handle uint32) error {
	err := c.order(abi.OpDestroyID, handle)
	if errors.Is(err, verbs.ErrDeviceFatal) {
		return nil
	}
	return err
}

// order is a request that names nothing but an object.
func (c *core) order(op abi.Op, handle uint32) error {
	req := abi.HandleMsg{Handle: handle}
	_, err := call[struct{}](c, op, ctl.Bytes(&req))
	return err
}

// destroy ends the identifier with its connection; the peer is told. Whoever waits for an event
// wakes.
func (i *identifier) destroy() error {
	i.mu.Lock()
	over := i.over
	i.over = true
	i.mu.Unlock()
	if over {
		return nil
	}
	close(i.gone)
	i.core.mu.Lock()
	delete(i.core.ids, i.handle)
	i.core.mu.Unlock()
	return i.core.destroyHandle(i.handle)
}

// deliver queues an event. Only the reader calls it.
func (i *identifier) deliver(e *abi.CMEvent) {
	i.mu.Lock()
	if len(i.events) == eventsKept {
		i.events = slices.Delete(i.events, 0, 1)
	}
	i.events = append(i.events, *e)
	hook := i.hook
	i.mu.Unlock()
	i.wake()
	if hook != nil {
		hook(e)
	}
}

func (i *identifier) setHook(f func(*abi.CMEvent)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.hook = f
}

func (i *identifier) wake() {
	select {
	case i.news <- struct{}{}:
	default:
	}
}

func (i *identifier) take(e *abi.CMEvent) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.events) == 0 {
		return false
	}
	*e = i.events[0]
	i.events = slices.Delete(i.events, 0, 1)
	if len(i.events) > 0 {
		i.wake() // there is something for the next one who waits, too
	}
	return true
}

// next waits for an event.
func (i *identifier) next(ctx context.Context, e *abi.CMEvent) error {
	for {
		if i.take(e) {
			return nil
		}
		select {
		case <-i.news:
		case <-ctx.Done():
			return ctx.Err()
		case <-i.gone:
			return net.ErrClosed
		case <-i.core.dead:
			if i.take(e) {
				return nil
			}
			return verbs.ErrDeviceFatal
		}
	}
}

// expect waits for an event of a type; one that reports a failure is an error.
func (i *identifier) expect(ctx context.Context, want EventType, e *abi.CMEvent) error {
	return i.expectAny(ctx, e, want)
}

// expectAny waits for an event of one of several types.
func (i *identifier) expectAny(ctx context.Context, e *abi.CMEvent, wanted ...EventType) error {
	for {
		if err := i.next(ctx, e); err != nil {
			return err
		}
		if slices.Contains(wanted, EventType(e.Event)) {
			return nil
		}
		if err := failureOf(e); err != nil {
			return err
		}
	}
}

// whyNot says why a request was refused: an event that ended the connection tells more.
func (i *identifier) whyNot(err error) error {
	var e abi.CMEvent
	for err != nil && i.take(&e) {
		if why := failureOf(&e); why != nil {
			return why
		}
	}
	return err
}

// query learns what the NIC knows of the identifier, its device above all.
func (i *identifier) query() (abi.CMRoute, error) {
	req := abi.HandleMsg{Handle: i.handle}
	route, err := call[abi.CMRoute](i.core, abi.OpQueryID, ctl.Bytes(&req))
	i.device, _, _ = strings.Cut(string(route.Device[:]), "\x00")
	return route, err
}

// Options of rdma_set_option(3).
const (
	optionTOS        = 0
	optionReuse      = 1
	optionAFOnly     = 2
	optionAckTimeout = 3
)

func (i *identifier) setOption(name, bytes uint32, value uint64) error {
	req := abi.CMOptionReq{ID: i.handle, Name: name, Len: bytes, Value: value}
	_, err := call[struct{}](i.core, abi.OpSetOption, ctl.Bytes(&req))
	return err
}

// configure sets the options that a configuration names.
func (i *identifier) configure(cfg *Config, f family) error {
	var err error
	if cfg.TOS != 0 {
		err = errors.Join(err, i.setOption(optionTOS, 1, uint64(cfg.TOS)))
	}
	if cfg.ReuseAddress {
		err = errors.Join(err, i.setOption(optionReuse, 4, 1))
	}
	if cfg.AckTimeout != 0 {
		err = errors.Join(err, i.setOption(optionAckTimeout, 1, uint64(cfg.AckTimeout)))
	}
	if f == family6 {
		err = errors.Join(err, i.setOption(optionAFOnly, 4, 1))
	}
	return err
}

// command is a request that connects, accepts or rejects.
func (i *identifier) command(op abi.Op, p *abi.CMParam, reason Reason) error {
	req := abi.CMConnReq{ID: i.handle, Reason: uint32(reason), Param: *p}
	_, err := call[struct{}](i.core, op, ctl.Bytes(&req))
	return err
}

// attributes asks for what moves the queue pair to a state.
func (i *identifier) attributes(to verbs.QPState) (verbs.QPAttr, verbs.QPAttrMask, error) {
	req := abi.CMInitQPAttrReq{ID: i.handle, State: uint32(to)}
	rsp, err := call[abi.CMInitQPAttrRsp](i.core, abi.OpInitQPAttr, ctl.Bytes(&req))
	if err != nil {
		return verbs.QPAttr{}, 0, err
	}
	a := &rsp.Attr
	return verbs.QPAttr{
		State: verbs.QPState(a.State), PathMTU: verbs.MTU(a.PathMTU), QKey: verbs.QKey(a.QKey),
		RQPSN: verbs.PSN(a.RQPSN), SQPSN: verbs.PSN(a.SQPSN), DestQPN: verbs.QPN(a.DestQPN),
		Access: verbs.Access(a.AccessFlags), Path: pathOf(&a.AH), PKeyIndex: a.PKeyIndex,
		Port: a.Port, MaxRdAtomic: a.MaxRdAtomic, MaxDestRdAtomic: a.MaxDestRdAtomic,
		MinRNRTimer: a.MinRNRTimer, Timeout: a.Timeout, RetryCnt: a.RetryCnt,
		RNRRetry: a.RNRRetry,
	}, verbs.QPAttrMask(rsp.Mask), nil
}

func pathOf(a *abi.AHAttr) verbs.AHAttr {
	return verbs.AHAttr{
		DGID: a.DGID, SGIDIndex: a.SGIDIndex, FlowLabel: a.FlowLabel, HopLimit: a.HopLimit,
		TrafficClass: a.TrafficClass, SL: a.SL, Port: a.Port, DLID: verbs.LID(a.DLID),
	}
}

// setPrivate puts private data into a request. How much a message has room for the NIC knows; here
// is as much as a request can carry.
func setPrivate(p *abi.CMParam, data []byte) error {
	if len(data) > 255 {
		return rdma.Refuse(syscall.EINVAL, "no message has room for more than 255 bytes of private data")
	}
	p.PrivateDataLen = uint8(copy(p.PrivateData[:], data))
	return nil
}
