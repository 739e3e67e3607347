package rdma

// TagOpcode is an operation on a matching list; values of enum ibv_ops_wr_opcode.
type TagOpcode uint8

// Operations on a matching list (ibv_post_srq_ops(3)).
const (
	TagAdd  TagOpcode = 0
	TagDel  TagOpcode = 1
	TagSync TagOpcode = 2
)

// TagFlags modify an operation on a matching list; values of enum ibv_ops_flags.
type TagFlags uint8

// Flags of operations on a matching list.
const (
	// TagSignaled asks for a completion also in case of success.
	TagSignaled TagFlags = 1 << 0
	// TagCounted says that the operation carries the count of unexpected messages handled.
	TagCounted TagFlags = 1 << 1
)

// Completion opcodes of tag matching.
const (
	WCOpTagAdd  WCOpcode = 130
	WCOpTagDel  WCOpcode = 131
	WCOpTagSync WCOpcode = 132
	// WCOpTagRecv is a message with a tag: matched, as its flags say, or else unexpected.
	WCOpTagRecv WCOpcode = 133
	// WCOpTagNone is a message without a tag.
	WCOpTagNone WCOpcode = 134
)

// Completion flags of tag matching.
const (
	// WCTagSyncWanted says that the two counts of unexpected messages differ.
	WCTagSyncWanted WCFlags = 1 << 4
	// WCTagMatch says that the message has found its buffer.
	WCTagMatch WCFlags = 1 << 5
	// WCTagDataValid says that the message's data are in its buffer.
	WCTagDataValid WCFlags = 1 << 6
)

// Completion statuses of tag matching.
const (
	// WCTagErr is an operation on the list that could not be carried out.
	WCTagErr WCStatus = 22
	// WCTagIncomplete is a rendezvous that was matched and whose data the program has to fetch.
	WCTagIncomplete WCStatus = 23
)
