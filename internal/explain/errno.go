package explain

import "syscall"

//tidy:table
var errnos = []Entry{
	{
		Code: uint32(syscall.EPERM), Name: "EPERM", Words: "operation not permitted",
		Means:  "The program lacks a privilege.",
		Causes: []string{"rdma_bind_addr to a port below net.ipv4.ip_unprivileged_port_start", "ibv_modify_qp to a controlled Q_Key, or a raw queue pair, on hardware without CAP_NET_RAW"},
	},
	{Code: uint32(syscall.ENOENT), Name: "ENOENT", Words: "no such file or directory", Means: "What was named does not exist.", Causes: []string{"no NIC listens at RNIC_SOCKET", "ibv_query_gid: the GID entry is empty"}, Look: []string{"rnic up, or rnic run -- PROGRAM"}},
	{
		Code: uint32(syscall.EINTR), Name: "EINTR", Words: "interrupted system call",
		Means: "A signal came while the call waited (ibv_get_cq_event, rdma_get_cm_event). Call it again.",
	},
	{
		Code: uint32(syscall.EIO), Name: "EIO", Words: "input/output error",
		Means:  "The device cannot be reached any more.",
		Causes: []string{"the NIC process ended (rnic down, a crash, no program left)"},
		Look:   []string{"the log of the NIC; rnic devinfo"},
	},
	{
		Code: uint32(syscall.EAGAIN), Name: "EAGAIN", Words: "resource temporarily unavailable",
		Means: "Nothing is there now: a descriptor that does not block has no event.",
		Look:  []string{"poll(2) the channel's descriptor first"},
	},
	{
		Code: uint32(syscall.ENOMEM), Name: "ENOMEM", Words: "cannot allocate memory",
		Means: "Room ran out, in one of several places.",
		Causes: []string{
			"ibv_post_send, ibv_post_recv: the queue is full; poll completions first (unsignaled sends give their slot back only when a later signaled one was polled)",
			"ibv_create_*, ibv_reg_mr: a limit of the NIC is reached; the message under RNIC_VERBOSE=1 names it",
			"ibv_reg_mr on hardware: RLIMIT_MEMLOCK (SoftRNIC locks no memory)",
		},
		Look: []string{"RNIC_VERBOSE=1", "rnic devinfo -v: limits"},
	},
	{
		Code: uint32(syscall.EACCES), Name: "EACCES", Words: "permission denied",
		Means:  "The object exists but not for this program.",
		Causes: []string{"the control socket belongs to another user", "rdma_bind_addr: a privileged port"},
	},
	{
		Code: uint32(syscall.EFAULT), Name: "EFAULT", Words: "bad address",
		Means:  "ibv_reg_mr: part of the range is not mapped, or mapped without the right that the access flags need.",
		Causes: []string{"a wrong pointer or length", "local write access to memory that is read-only"},
		Look:   []string{"/proc/PID/maps"},
	},
	{
		Code: uint32(syscall.EBUSY), Name: "EBUSY", Words: "device or resource busy",
		Means:  "The object is in use by others, which have to go first.",
		Causes: []string{"ibv_dealloc_pd with regions, queue pairs or address handles in it", "ibv_destroy_cq, ibv_destroy_srq, ibv_dealloc_xrcd with queue pairs on them", "ibv_dereg_mr with memory windows bound to it"},
		Look:   []string{"rnic ps: what the program still has"},
	},
	{Code: uint32(syscall.EEXIST), Name: "EEXIST", Words: "file exists", Means: "There is one already.", Causes: []string{"ibv_open_xrcd with O_EXCL", "ibv_attach_mcast twice (some devices)"}},
	{
		Code: uint32(syscall.ENODEV), Name: "ENODEV", Words: "no such device",
		Means:  "No RDMA device has what was asked for.",
		Causes: []string{"rdma_resolve_addr, rdma_bind_addr: the address is of no interface that an RDMA device serves; containers have their own", "no NIC is running"},
		Look:   []string{"rnic devinfo: its addresses; ip addr in the same network namespace"},
	},
	{
		Code: uint32(syscall.EINVAL), Name: "EINVAL", Words: "invalid argument",
		Means: "An argument is not what the verb takes. SoftRNIC says which: RNIC_VERBOSE=1 prints the sentence, rnic ps --errors keeps it.",
		Causes: []string{
			"ibv_modify_qp: a transition that does not exist, a required attribute missing from the mask, or one too many; a stale GID index; a path MTU above the port's",
			"ibv_post_send: the state is before RTS, too many scatter/gather entries, too much inline data, an operation that the type lacks",
			"ibv_create_qp, ibv_create_cq, ibv_create_srq: more than the limits of ibv_query_device",
			"ibv_reg_mr: remote write or atomic without local write",
			"rdma_connect, rdma_accept: the identifier is in another state, or the private data is too long",
		},
		Look: []string{"RNIC_VERBOSE=1 PROGRAM", "rnic ps --errors", "rnic devinfo -v: limits"},
	},
	{Code: uint32(syscall.EMFILE), Name: "EMFILE", Words: "too many open files", Means: "The program or the NIC has no descriptor left.", Causes: []string{"each context, completion channel and queue needs one or more"}, Look: []string{"ulimit -n of both"}},
	{Code: uint32(syscall.ENOSPC), Name: "ENOSPC", Words: "no space left on device", Means: "A table or a buffer is too small for what was asked.", Causes: []string{"a limit of the device is reached", "shared memory ran out (/dev/shm, cgroup)"}},
	{Code: uint32(syscall.EPROTO), Name: "EPROTO", Words: "protocol error", Means: "Library and NIC do not understand each other.", Causes: []string{"they are of different releases"}, Look: []string{"rnic version; which libibverbs.so.1 the program loads (ldd)"}},
	{Code: uint32(syscall.EOVERFLOW), Name: "EOVERFLOW", Words: "value too large", Means: "ibv_poll_cq: the completion queue overran and is in error.", Causes: []string{"too few entries for the requests in flight"}, Look: []string{"rnic explain IBV_EVENT_CQ_ERR"}},
	{
		Code: uint32(syscall.EOPNOTSUPP), Name: "EOPNOTSUPP", Words: "operation not supported",
		Also:   []string{"ENOTSUP"},
		Means:  "The device does not have the operation, and its capability bits say so.",
		Causes: []string{"flow steering, raw packets, vendor verbs, dma-buf: a software RoCE device has none", "an option of rdma_set_option that does not apply"},
		Look:   []string{"docs/conformance.md: what works where"},
	},
	{Code: uint32(syscall.EADDRINUSE), Name: "EADDRINUSE", Words: "address already in use", Means: "rdma_bind_addr, rdma_listen: another identifier has the port.", Causes: []string{"another server, or an earlier one that has not ended"}, Look: []string{"rnic ps: the CM ID table"}},
	{Code: uint32(syscall.EADDRNOTAVAIL), Name: "EADDRNOTAVAIL", Words: "cannot assign requested address", Means: "rdma_bind_addr, rdma_resolve_addr: the local address is of no interface here.", Causes: []string{"the address went away, or belongs to another network namespace"}, Look: []string{"ip addr in the network namespace of the NIC"}},
	{Code: uint32(syscall.ENETUNREACH), Name: "ENETUNREACH", Words: "network is unreachable", Means: "rdma_resolve_addr: no route leads to the address.", Causes: []string{"there is no default route, or the interface is down"}, Look: []string{"ip route get ADDRESS"}},
	{Code: uint32(syscall.ECONNRESET), Name: "ECONNRESET", Words: "connection reset by peer", Means: "The other side ended the connection without a good-bye.", Causes: []string{"its process or host died"}},
	{Code: uint32(syscall.ENOTCONN), Name: "ENOTCONN", Words: "not connected", Means: "The identifier has no connection (any more).", Causes: []string{"a call before ESTABLISHED or after DISCONNECTED"}},
	{
		Code: uint32(syscall.ETIMEDOUT), Name: "ETIMEDOUT", Words: "connection timed out",
		Means:  "Nobody answered: status of UNREACHABLE, ADDR_ERROR and DISCONNECTED events.",
		Causes: []string{"packets to UDP port 4791 are dropped on the way", "the peer's host is down", "the neighbour does not answer ARP"},
		Look:   []string{"rnic capture: does anything come back?"},
	},
	{
		Code: uint32(syscall.ECONNREFUSED), Name: "ECONNREFUSED", Words: "connection refused",
		Means:  "The host answered and wants nothing: no adapter listens on UDP port 4791 there, or (in Go) the connection was rejected.",
		Causes: []string{"SoftRNIC or rdma_rxe is not running on the peer", "nobody listens on the service (reason 8)"},
		Look:   []string{"rnic devinfo and rnic ps on the peer's host"},
	},
	{Code: uint32(syscall.EHOSTUNREACH), Name: "EHOSTUNREACH", Words: "no route to host", Means: "The network says that the host is not there.", Causes: []string{"the host is down, or the neighbour does not answer"}, Look: []string{"ip neigh; ping"}},
}
