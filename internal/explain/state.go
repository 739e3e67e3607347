package explain

import "github.com/softrnic/softrnic/internal/rdma"

//tidy:table
var states = []Entry{
	{Code: uint32(rdma.QPStateReset), Name: "IBV_QPS_RESET", Words: "RESET", Means: "New or reset: nothing can be posted, packets are dropped. Next: INIT.", Look: []string{"to INIT: pkey_index, port_num, and qp_access_flags (RC, UC) or qkey (UD)"}},
	{Code: uint32(rdma.QPStateInit), Name: "IBV_QPS_INIT", Words: "INIT", Means: "Receives can be posted; packets are dropped still. Post them now, before the peer can send. Next: RTR.", Look: []string{"to RTR (RC): ah_attr, path_mtu, dest_qp_num, rq_psn, max_dest_rd_atomic, min_rnr_timer"}},
	{Code: uint32(rdma.QPStateRTR), Name: "IBV_QPS_RTR", Words: "RTR", Also: []string{"ready to receive"}, Means: "Ready to receive: packets are taken and answered, sends cannot be posted yet. Next: RTS.", Look: []string{"to RTS (RC): timeout, retry_cnt, rnr_retry, sq_psn, max_rd_atomic"}},
	{Code: uint32(rdma.QPStateRTS), Name: "IBV_QPS_RTS", Words: "RTS", Also: []string{"ready to send"}, Means: "Ready to send: everything works."},
	{Code: uint32(rdma.QPStateSQD), Name: "IBV_QPS_SQD", Words: "SQD", Also: []string{"send queue drained", "draining"}, Means: "Send queue drained or draining: what was begun is finished, nothing new is. Receiving goes on. Some attributes can be changed only here. Back: RTS."},
	{Code: uint32(rdma.QPStateSQE), Name: "IBV_QPS_SQE", Words: "SQE", Also: []string{"send queue error"}, Means: "Send queue error (UC, UD): a send failed and the following ones are flushed; receiving goes on. The program goes back to RTS.", Causes: []string{"a failed send: its completion says why"}},
	{Code: uint32(rdma.QPStateError), Name: "IBV_QPS_ERR", Words: "ERR", Also: []string{"error state"}, Means: "Error: everything posted is flushed, packets are dropped, and the peer gets no answer (it will see IBV_WC_RETRY_EXC_ERR). Only RESET or the end lead out.", Causes: []string{"a failed request, the peer's forbidden request, or the program's own ibv_modify_qp"}, Look: []string{"rnic ps --errors; the first failed completion"}},
	{Code: 7, Name: "IBV_QPS_UNKNOWN", Words: "unknown state", Means: "No state: a placeholder of libraries for queue pairs whose state does not matter. SoftRNIC never reports it."},
}

//tidy:table
var portStates = []Entry{
	{Code: uint32(rdma.PortNOP), Name: "IBV_PORT_NOP", Words: "no state change (NOP)", Means: "No state; devices do not report it."},
	{Code: uint32(rdma.PortDown), Name: "IBV_PORT_DOWN", Words: "port down", Also: []string{"PORT_DOWN"}, Means: "The port carries nothing.", Causes: []string{"the network interface is down or has no address"}, Look: []string{"ip link; rnic devinfo"}},
	{Code: uint32(rdma.PortInit), Name: "IBV_PORT_INIT", Words: "port init", Means: "InfiniBand: the link is up, the subnet manager has not configured the port.", Causes: []string{"no subnet manager runs"}},
	{Code: uint32(rdma.PortArmed), Name: "IBV_PORT_ARMED", Words: "port armed", Means: "InfiniBand: configured, not yet active."},
	{Code: uint32(rdma.PortActive), Name: "IBV_PORT_ACTIVE", Words: "port active", Also: []string{"PORT_ACTIVE"}, Means: "The port carries traffic."},
	{Code: uint32(rdma.PortActiveDefer), Name: "IBV_PORT_ACTIVE_DEFER", Words: "port active, deferring", Means: "InfiniBand: the link has trouble and waits for it to end."},
}
