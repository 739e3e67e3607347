package explain

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// verbs are the requests of the control connection as programs know them.
//
//tidy:table
var verbs = map[abi.Op]string{
	abi.OpHello:       "connecting to the NIC",
	abi.OpListDevices: "ibv_get_device_list", abi.OpOpenDevice: "ibv_open_device",
	abi.OpQueryDevice: "ibv_query_device", abi.OpQueryPort: "ibv_query_port",
	abi.OpQueryGIDTable: "ibv_query_gid_table", abi.OpQueryPKey: "ibv_query_pkey",
	abi.OpAllocPD: "ibv_alloc_pd", abi.OpDeallocPD: "ibv_dealloc_pd",
	abi.OpRegMR: "ibv_reg_mr", abi.OpDeregMR: "ibv_dereg_mr",
	abi.OpCreateCompChannel:  "ibv_create_comp_channel",
	abi.OpDestroyCompChannel: "ibv_destroy_comp_channel",
	abi.OpCreateCQ:           "ibv_create_cq", abi.OpDestroyCQ: "ibv_destroy_cq",
	abi.OpCreateQP: "ibv_create_qp", abi.OpModifyQP: "ibv_modify_qp",
	abi.OpQueryQP: "ibv_query_qp", abi.OpDestroyQP: "ibv_destroy_qp",
	abi.OpCreateAH: "ibv_create_ah", abi.OpDestroyAH: "ibv_destroy_ah",
	abi.OpCreateSRQ: "ibv_create_srq", abi.OpModifySRQ: "ibv_modify_srq",
	abi.OpQuerySRQ: "ibv_query_srq", abi.OpDestroySRQ: "ibv_destroy_srq",
	abi.OpCreateEventChannel:  "rdma_create_event_channel",
	abi.OpDestroyEventChannel: "rdma_destroy_event_channel",
	abi.OpCreateID:            "rdma_create_id", abi.OpDestroyID: "rdma_destroy_id",
	abi.OpBindAddr: "rdma_bind_addr", abi.OpResolveAddr: "rdma_resolve_addr",
	abi.OpResolveRoute: "rdma_resolve_route", abi.OpListen: "rdma_listen",
	abi.OpConnect: "rdma_connect", abi.OpAccept: "rdma_accept", abi.OpReject: "rdma_reject",
	abi.OpDisconnect: "rdma_disconnect", abi.OpEstablish: "rdma_establish",
	abi.OpNotify: "rdma_notify", abi.OpInitQPAttr: "rdma_init_qp_attr",
	abi.OpSetOption: "rdma_set_option", abi.OpMigrateID: "rdma_migrate_id",
	abi.OpJoinMulticast: "rdma_join_multicast", abi.OpLeaveMulticast: "rdma_leave_multicast",
	abi.OpAttachMulticast: "ibv_attach_mcast", abi.OpDetachMulticast: "ibv_detach_mcast",
	abi.OpAllocMW: "ibv_alloc_mw", abi.OpDeallocMW: "ibv_dealloc_mw",
	abi.OpReregMR: "ibv_rereg_mr", abi.OpAllocNullMR: "ibv_alloc_null_mr",
	abi.OpAdviseMR: "ibv_advise_mr", abi.OpAllocDM: "ibv_alloc_dm", abi.OpFreeDM: "ibv_free_dm",
	abi.OpRegDeviceMR: "ibv_reg_dm_mr", abi.OpResizeCQ: "ibv_resize_cq",
	abi.OpModifyCQ: "ibv_modify_cq", abi.OpOpenXRCD: "ibv_open_xrcd",
	abi.OpCloseXRCD: "ibv_close_xrcd", abi.OpOpenQP: "ibv_open_qp",
	abi.OpImportContext: "ibv_import_device", abi.OpImportPD: "ibv_import_pd",
	abi.OpImportMR: "ibv_import_mr", abi.OpImportDM: "ibv_import_dm",
	abi.OpMapRemote: "ibv_post_send",
	abi.OpResizeSRQ: "ibv_modify_srq",
}

// Verb is the name under which programs call a request.
func Verb(op abi.Op) string {
	if name, ok := verbs[op]; ok {
		return name
	}
	return strings.ToLower(op.String())
}

// ErrnoName is the constant of an errno, or its number.
func ErrnoName(errno syscall.Errno) string {
	if e, ok := Of(KindErrno, uint32(errno)); ok {
		return e.Name
	}
	return strconv.Itoa(int(errno))
}

// errnoName is an errno with its constant and words.
func errnoName(errno syscall.Errno) string {
	e, ok := Of(KindErrno, uint32(errno))
	if !ok {
		return fmt.Sprintf("errno %d (%v)", uint32(errno), errno)
	}
	return fmt.Sprintf("%s (%d, %s)", e.Name, e.Code, e.Words)
}

// Refusal tells in sentences that a verb was refused, and why.
func Refusal(op abi.Op, r *rdma.Refusal) []string {
	return []string{Verb(op) + " failed with " + errnoName(r.Errno), r.Reason}
}

// PostRefusal tells that a library refused to post a work request; text is the library's.
func PostRefusal(opcode, errno uint32, id uint64, count uint32, text string) []string {
	verb := "ibv_post_send of wr_id %d, %v,"
	operation := any(rdma.WROpcode(opcode))
	switch opcode {
	case uint32(rdma.WCOpRecv):
		verb, operation = "ibv_post_recv of wr_id %d%v", ""
	case uint32(rdma.WCOpTagAdd):
		verb, operation = "ibv_post_srq_ops of wr_id %d%v", ""
	}
	out := []string{
		fmt.Sprintf(verb, id, operation) + " failed with " + errnoName(syscall.Errno(errno)), text,
	}
	if count > 1 {
		out = append(out, fmt.Sprintf("%d posts were refused on this queue pair", count))
	}
	return out
}

// ConnectionFailure tells in sentences what a connection event with its status means; nil for an
// event that reports no failure. who is the connection in words.
func ConnectionFailure(event uint32, status int32, who string) []string {
	e, ok := Of(KindCMEvent, event)
	isFailure := ok && (len(e.Causes) > 0 && event != cmEventDisconnected || status != 0)
	if !isFailure || event == cmEventAddrChange {
		return nil
	}
	out := []string{fmt.Sprintf("%s: %s (%s), status %d", who, e.Words, e.Name, status)}
	kind, code := KindErrno, uint32(-status)
	switch {
	case event == cmEventRejected && status >= 0:
		kind, code = KindReject, uint32(status)
	case status > 0:
		kind, code = KindService, uint32(status)
	}
	why, ok := Of(kind, code)
	switch {
	case !ok && status < 0:
		return append(out, errnoName(syscall.Errno(-status)))
	case !ok:
		return out
	}
	said := fmt.Sprintf("%s (%s)", why.Words, why.Name)
	if kind != KindErrno {
		said = "the peer answered: " + said
	}
	out = append(out, said)
	cause := LikelyCause(kind, code)
	switch text, isOfStream := streamRejects[syscall.Errno(code)]; {
	case kind == KindErrno && event == cmEventRejected && isOfStream:
		cause = text
	case kind == KindErrno:
		cause = LikelyErrno(syscall.Errno(code))
	}
	if cause != "" {
		out = append(out, "likely: "+cause)
	}
	return out
}

// streamRejects are the likeliest causes where iWARP rejects: its events carry an errno where those
// of RoCE and InfiniBand have a reason.
var streamRejects = map[syscall.Errno]string{
	syscall.ECONNRESET:   "the program at the other side said no (rdma_reject), or its host gave up",
	syscall.ECONNREFUSED: "nobody listens on that TCP port (a server may listen on RoCE alone)",
}

// Events with rules of their own.
const (
	cmEventRejected     = 8
	cmEventDisconnected = 10
	cmEventAddrChange   = 14
)

// LikelyErrno is the likeliest cause of an errno that a connection event carries, or "".
func LikelyErrno(errno syscall.Errno) string {
	text := LikelyCause(KindErrno, uint32(errno))
	if strings.HasPrefix(text, "ibv_") {
		return "" // of a verb, not of a network
	}
	return text
}

// Rejection tells in sentences that a request was rejected here. request is what was asked for.
func Rejection(request string, reason uint32) []string {
	out := []string{request}
	e, ok := Of(KindReject, reason)
	if !ok {
		return append(out, fmt.Sprintf("it was rejected with reason %d", reason))
	}
	out = append(out, fmt.Sprintf("it was rejected: %s (%s, %d)", e.Words, e.Name, e.Code))
	if len(e.Causes) > 0 {
		out = append(out, "likely: "+e.Causes[0])
	}
	return out
}
