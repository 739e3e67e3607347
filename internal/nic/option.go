package nic

import (
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Options of rdma_set_option(3).
const (
	optionLevelID = 0

	optionTOS        = 0
	optionReuse      = 1
	optionAFOnly     = 2
	optionAckTimeout = 3
)

// option says how long a value is and what it does; the values of an identifier change only where
// they still can have an effect.
type option struct {
	name  string
	bytes uint32
	set   func(i *identifier, value uint64) *rdma.Refusal
}

var options = map[uint32]option{
	optionTOS: {"tos", 1, func(i *identifier, v uint64) *rdma.Refusal {
		i.options.tos = uint8(v)
		return nil
	}},
	optionReuse: {"reuseaddr", 4, func(i *identifier, v uint64) *rdma.Refusal {
		on := uint32(v) != 0
		if i.state != idIdle && (!on || i.state == idListening) {
			return refusef(syscall.EINVAL, "reuseaddr: the identifier is %v", i.state)
		}
		i.options.reuse = on
		return nil
	}},
	optionAFOnly: {"afonly", 4, func(i *identifier, v uint64) *rdma.Refusal {
		if i.state != idIdle && i.state != idBound {
			return refusef(syscall.EINVAL, "afonly: the identifier is %v", i.state)
		}
		i.options.afOnly, i.options.afOnlySet = uint32(v) != 0, true
		return nil
	}},
	optionAckTimeout: {"ack_timeout", 1, func(i *identifier, v uint64) *rdma.Refusal {
		if i.isDatagram() || i.qpType == rdma.QPTypeUC {
			return refusef(syscall.EINVAL, "ack_timeout: a %v queue pair gets no acknowledges",
				i.qpType)
		}
		if uint8(v) > timeoutMax {
			return refusef(syscall.EINVAL, "ack_timeout %d is over %d", uint8(v), timeoutMax)
		}
		i.options.ackTimeout, i.options.isAckTimeoutSet = uint8(v), true
		return nil
	}},
}

// SetOption sets an option of an identifier.
func (s *CMSession) SetOption(req *abi.CMOptionReq) *rdma.Refusal {
	i, r := s.find(req.ID)
	if r != nil {
		return r
	}
	o, known := options[req.Name]
	switch {
	case req.Level != optionLevelID || !known:
		return refusef(syscall.ENOSYS, "option %d of level %d is not supported", req.Name, req.Level)
	case req.Len != o.bytes:
		return refusef(syscall.EINVAL, "%s: a value of %d bytes; it takes %d", o.name, req.Len, o.bytes)
	}
	return o.set(i, req.Value)
}
