package verbs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
)

// request is one control request. op says in an error what was tried.
type request struct {
	op   string
	code abi.Op
	body []byte
	send []int // descriptors that go with it; they stay the caller's
	fds  int   // descriptors that the reply must bring
	// of is what the request is about, or in: nothing is asked of what is closed.
	of interface{ isClosed() bool }
}

// exchange sends a request and returns its reply, whose descriptors the caller owns.
func (c *Context) exchange(r request) (*ctl.Message, error) {
	if r.of != nil && r.of.isClosed() {
		return nil, &OpError{Op: r.op, Err: ErrClosed}
	}
	msg, err := c.client.DoFDs(r.fds, r.code, r.body, r.send...)
	if err != nil {
		return nil, c.explain(r.op, err)
	}
	if len(msg.FDs) != r.fds {
		msg.CloseFDs()
		return nil, c.explain(r.op, ctl.ErrMalformed)
	}
	return msg, nil
}

// call is exchange for a reply that is one structure; struct{} for an empty one.
func call[Rsp any](c *Context, r request) (rsp Rsp, fds []int, err error) {
	msg, err := c.exchange(r)
	if err != nil {
		return rsp, nil, err
	}
	if !ctl.Decode(msg.Body, &rsp) {
		msg.CloseFDs()
		return rsp, nil, c.explain(r.op, ctl.ErrMalformed)
	}
	return rsp, msg.FDs, nil
}

// callWithFile is call for a request with the descriptor of a file, which stays open meanwhile. A
// file that is closed or nil is told from a NIC that is gone.
func callWithFile[Rsp any](c *Context, r request, file *os.File) (rsp Rsp, err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return rsp, &OpError{Op: r.op, Err: err}
	}
	closed := raw.Control(func(fd uintptr) {
		r.send = []int{int(fd)}
		rsp, _, err = call[Rsp](c, r)
	})
	if closed != nil {
		return rsp, &OpError{Op: r.op, Err: os.ErrClosed}
	}
	return rsp, err
}

// callList is call for a reply that is an array.
func callList[T any](c *Context, r request) ([]T, error) {
	msg, err := c.exchange(r)
	if err != nil {
		return nil, err
	}
	list, ok := ctl.DecodeList[T](msg.Body)
	if !ok {
		return nil, c.explain(r.op, ctl.ErrMalformed)
	}
	return list, nil
}

// destroy asks for the end of an object. With a NIC that is gone the object is, too.
func (c *Context) destroy(op string, code abi.Op, handle uint32) error {
	req := abi.HandleMsg{Handle: handle}
	_, err := c.exchange(request{op: op, code: code, body: ctl.Bytes(&req)})
	if errors.Is(err, ErrDeviceFatal) || errors.Is(err, ErrClosed) {
		return nil
	}
	return err
}

// explain makes an error of ours from one of the control connection.
func (c *Context) explain(op string, err error) error {
	var refused *ctl.Error
	if errors.As(err, &refused) {
		return refuse(op, refused.Refusal)
	}
	if !errors.Is(err, ctl.ErrGone) {
		return &OpError{Op: op, Err: err}
	}
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return &OpError{Op: op, Err: ErrClosed}
	}
	c.die()
	return &OpError{Op: op, Err: ErrDeviceFatal}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
