package abi

import "strconv"

var opNames = map[Op]string{
	OpHello: "HELLO", OpListDevices: "LIST_DEVICES", OpOpenDevice: "OPEN_DEVICE",
	OpQueryDevice: "QUERY_DEVICE", OpQueryPort: "QUERY_PORT", OpQueryGIDTable: "QUERY_GID_TABLE",
	OpQueryPKey: "QUERY_PKEY", OpAllocPD: "ALLOC_PD", OpDeallocPD: "DEALLOC_PD",
	OpRegMR: "REG_MR", OpDeregMR: "DEREG_MR", OpCreateCompChannel: "CREATE_COMP_CHANNEL",
	OpDestroyCompChannel: "DESTROY_COMP_CHANNEL", OpCreateCQ: "CREATE_CQ",
	OpDestroyCQ: "DESTROY_CQ", OpCreateQP: "CREATE_QP", OpModifyQP: "MODIFY_QP",
	OpQueryQP: "QUERY_QP", OpDestroyQP: "DESTROY_QP", OpCreateAH: "CREATE_AH",
	OpDestroyAH: "DESTROY_AH", OpCreateSRQ: "CREATE_SRQ", OpModifySRQ: "MODIFY_SRQ",
	OpQuerySRQ: "QUERY_SRQ", OpDestroySRQ: "DESTROY_SRQ", OpStatus: "STATUS",
	OpShutdown: "SHUTDOWN", OpCapture: "CAPTURE", OpEndCapture: "END_CAPTURE", OpWaits: "WAITS",
	OpOpenCM: "OPEN_CM", OpCreateEventChannel: "CREATE_EVENT_CHANNEL",
	OpDestroyEventChannel: "DESTROY_EVENT_CHANNEL", OpCreateID: "CREATE_ID",
	OpDestroyID: "DESTROY_ID", OpBindAddr: "BIND_ADDR", OpResolveAddr: "RESOLVE_ADDR",
	OpResolveRoute: "RESOLVE_ROUTE", OpQueryID: "QUERY_ID", OpListen: "LISTEN",
	OpConnect: "CONNECT", OpAccept: "ACCEPT", OpReject: "REJECT", OpDisconnect: "DISCONNECT",
	OpEstablish: "ESTABLISH", OpNotify: "NOTIFY", OpInitQPAttr: "INIT_QP_ATTR",
	OpSetOption: "SET_OPTION", OpMigrateID: "MIGRATE_ID", OpJoinMulticast: "JOIN_MULTICAST",
	OpLeaveMulticast: "LEAVE_MULTICAST", OpAttachMulticast: "ATTACH_MULTICAST",
	OpAllocMW: "ALLOC_MW", OpDeallocMW: "DEALLOC_MW", OpReregMR: "REREG_MR",
	OpAllocNullMR: "ALLOC_NULL_MR", OpAdviseMR: "ADVISE_MR", OpAllocDM: "ALLOC_DM",
	OpFreeDM: "FREE_DM", OpRegDeviceMR: "REG_DEVICE_MR",
	OpDetachMulticast: "DETACH_MULTICAST", OpResizeCQ: "RESIZE_CQ", OpModifyCQ: "MODIFY_CQ",
	OpOpenXRCD: "OPEN_XRCD", OpCloseXRCD: "CLOSE_XRCD", OpOpenQP: "OPEN_QP",
	OpImportContext: "IMPORT_CONTEXT", OpImportPD: "IMPORT_PD", OpImportMR: "IMPORT_MR",
	OpImportDM: "IMPORT_DM", OpResizeSRQ: "RESIZE_SRQ", OpMapRemote: "MAP_REMOTE",
}

func (o Op) String() string {
	if s, ok := opNames[o]; ok {
		return s
	}
	return "request " + strconv.Itoa(int(o))
}
