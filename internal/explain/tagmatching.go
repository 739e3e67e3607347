package explain

import "github.com/softrnic/softrnic/internal/rdma"

//tidy:table
var tagOpcodes = []Entry{
	{Code: uint32(rdma.TagAdd), Name: "IBV_WR_TAG_ADD", Words: "add a tagged buffer", Means: "Append a buffer to the matching list: the next message is for it whose tag fits."},
	{Code: uint32(rdma.TagDel), Name: "IBV_WR_TAG_DEL", Words: "delete a tagged buffer", Means: "Take a buffer out of the matching list. It fails with IBV_WC_TM_ERR where a message has matched it meanwhile."},
	{Code: uint32(rdma.TagSync), Name: "IBV_WR_TAG_SYNC", Words: "count unexpected messages", Means: "Tell the NIC how many unexpected messages the program has handled, with IBV_OPS_TM_SYNC."},
}

//tidy:table
var tagFlags = []Entry{
	{Code: uint32(rdma.TagSignaled), Name: "IBV_OPS_SIGNALED", Words: "signaled", Means: "Make a completion also in case of success."},
	{Code: uint32(rdma.TagCounted), Name: "IBV_OPS_TM_SYNC", Words: "unexpected_cnt is valid", Means: "The operation carries the number of unexpected messages that the program has handled. Where it is the NIC's, buffers that wait for that are matched from now on."},
}
