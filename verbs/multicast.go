package verbs

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
)

// AttachMulticast makes a UD queue pair receive what is sent to a multicast group (IBTA 11.3.1).
// That packets of the group reach this host at all is the work of a join: rdmacm.Join does both.
func (q *QP) AttachMulticast(group GID) error {
	return q.multicast("attach to a multicast group", abi.OpAttachMulticast, group)
}

// DetachMulticast undoes AttachMulticast.
func (q *QP) DetachMulticast(group GID) error {
	return q.multicast("detach from a multicast group", abi.OpDetachMulticast, group)
}

func (q *QP) multicast(op string, code abi.Op, group GID) error {
	req := abi.AttachMulticastReq{GID: group, QP: q.handle}
	_, _, err := call[struct{}](q.pd.ctx, request{
		op: op, code: code, body: ctl.Bytes(&req), of: q,
	})
	return err
}
