// Package verbs is the RDMA verbs interface for Go programs, over a SoftRNIC network adapter.
//
// The NIC is either a process of this host (`rnic up`, `rnic run`), reached by the socket that
// RNIC_SOCKET or the default path names, or it lives inside the program itself (package softrnic).
// The calls are the same.
//
//	dev, err := verbs.Open(ctx, "")              // the first device
//	pd, err := dev.AllocPD()
//	mr, err := pd.AllocMemory(4096, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
//	cq, err := dev.CreateCQ(verbs.CQConfig{Entries: 64})
//	qp, err := pd.CreateQP(verbs.QPConfig{Type: verbs.QPTypeRC, SendCQ: cq})
//	local, err := qp.Endpoint()                  // tell the peer, learn the peer's
//	err = qp.ConnectTo(remote)
//	_, err = qp.PostSend(verbs.SendWR{ID: 1, Opcode: verbs.WRSend, SGE: mr.SGE(0, 64)})
//	err = cq.Wait(ctx)                           // sleeps; no thread is used up
//	n, err := cq.Poll(wcs[:])
//	err = wcs[0].Err()                           // nil, or a *StatusError that says what happened
//
// # Memory
//
// PD.AllocMemory maps memory that the NIC maps too: every access is one copy. PD.Register takes
// any slice; the NIC then reaches it by system calls on this process, which suits long transfers.
// A registered slice stays alive and in place until MR.Close, whatever becomes of other
// references. The NIC writes registered memory at any time that a posted receive or a remote right
// allows; a program that reads it before the completion sees what it would see with hardware.
//
// MR.Reregister gives a region other memory, rights or another domain under the same keys. A
// memory window (PD.AllocWindow, SendWR.Bind) lends a peer part of a region, and takes it back by a
// work request. PD.RegisterImplicit and AccessOnDemand are for memory that comes and goes,
// PD.AllocNull stands for parts of a message that nobody needs, and Context.AllocDeviceMemory is
// memory of the NIC.
//
// # Several processes
//
// A process hands Context.File to another, over a Unix socket or to a child, with the handles of
// what it shares. The other opens the same device by Import, and takes part by Context.ImportPD,
// PD.ImportMR and Context.ImportDM: its queue pairs use regions of the first process without a
// copy.
//
// # Tags
//
// A shared receive queue with SRQConfig.Tags sorts messages by the tag in their TagHeader into
// buffers of SRQ.AddTag, and the rest into ordinary receives. For large messages the sender sends a
// rendezvous request, and the receiver's NIC fetches the data (ibv_post_srq_ops(3)).
//
// # Concurrency
//
// Every method may be called from any goroutine. A queue pair has one lock for its send queue and
// one for its receive queue, a completion queue has one, and a context has one for its control
// requests, which are answered one at a time. PostSend, PostRecv, Poll and RequestNotify make no
// allocation, and no system call except to wake a NIC that sleeps.
//
// # Errors
//
// A verb that the NIC refuses returns an *OpError around the refusal: errors.Is finds the errno
// of the manual page (syscall.EINVAL and so on), the text names the argument at fault. A failed
// work request is not an error of a call, but a completion whose Err is a *StatusError: errors.Is
// finds the status (ErrRemoteAccess and its like), errors.As the *Cause, which holds what the NIC
// saw: peer, NAK, timeouts, key, address range, rights asked and held. Flushed requests carry the
// cause of the failure before them. QP.Cause tells the same of a queue pair, for failures without
// a completion on this side. When the NIC goes away every call returns an error that Is
// ErrDeviceFatal, and every waiter wakes.
package verbs
