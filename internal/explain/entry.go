package explain

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind says to what family of names an entry belongs.
type Kind string

// Kinds, in the order in which a bare number is looked up.
const (
	KindStatus     Kind = "completion status"
	KindErrno      Kind = "errno"
	KindEvent      Kind = "asynchronous event"
	KindCMEvent    Kind = "connection event"
	KindReject     Kind = "reject reason"
	KindService    Kind = "service status"
	KindNAK        Kind = "NAK code"
	KindSyndrome   Kind = "AETH syndrome"
	KindTerminate  Kind = "Terminate code"
	KindEvidence   Kind = "evidence code"
	KindFault      Kind = "memory fault"
	KindQPState    Kind = "queue pair state"
	KindPortState  Kind = "port state"
	KindQPType     Kind = "queue pair type"
	KindAccess     Kind = "access flag"
	KindOpcode     Kind = "operation"
	KindCompletion Kind = "completion opcode"
	KindSendFlag   Kind = "send flag"
	KindWCFlag     Kind = "completion flag"
	KindAttr       Kind = "queue pair attribute"
	KindMTU        Kind = "path MTU"
	KindGIDType    Kind = "GID type"
	KindMigration  Kind = "path migration state"
	KindWindow     Kind = "memory window type"
	KindAdvice     Kind = "memory advice"
	KindRereg      Kind = "re-registration flag"
	KindTagOpcode  Kind = "operation on a matching list"
	KindTagFlag    Kind = "flag of an operation on a matching list"
	KindCounter    Kind = "counter"
)

// Entry explains one thing.
type Entry struct {
	Kind Kind `json:"kind"`
	// Code is the number in its family. Flags are the bit itself.
	Code uint32 `json:"code"`
	// Name is the constant that programs use, Words what people and programs print for it.
	Name  string   `json:"name"`
	Words string   `json:"words"`
	Also  []string `json:"also,omitempty"` // other names under which it is met
	Means string   `json:"means"`
	// Causes are what usually stands behind it, the likeliest first; Look is where to look.
	Causes []string `json:"causes,omitempty"`
	Look   []string `json:"look_at,omitempty"`
	Source string   `json:"source,omitempty"` // standard or manual page
}

// section is one family in the table of contents.
type section struct {
	Kind  Kind
	Title string
	// words are what people write in front of a number: "wc status 12".
	words  []string
	source string // of rows that name none
	rows   []Entry
}

// sections is everything, in the order of the table of contents.
var sections = []section{
	{
		KindStatus, "Completion statuses (ibv_wc.status)",
		[]string{"status", "wc", "completion", "cqe"},
		"IBTA 11.6.2; ibv_poll_cq(3)", statuses,
	},
	{
		KindErrno, "Errnos, as verbs and rdma_cm use them",
		[]string{"errno", "error", "err"},
		"the verb's manual page", errnos,
	},
	{
		KindEvent, "Asynchronous events (ibv_get_async_event)",
		[]string{"event", "async", "asynchronous"},
		"IBTA 11.6.3; ibv_get_async_event(3)", events,
	},
	{
		KindCMEvent, "Connection events (rdma_get_cm_event)",
		[]string{"cm", "event", "connection", "rdma"},
		"rdma_get_cm_event(3)", cmEvents,
	},
	{
		KindReject, "Reject reasons (status of RDMA_CM_EVENT_REJECTED)",
		[]string{"reject", "rejected", "rej", "reason", "cm"},
		"IBTA 12.6.7.2", rejects,
	},
	{
		KindService, "Service statuses (datagrams: status of RDMA_CM_EVENT_UNREACHABLE)",
		[]string{"sidr", "service", "cm"},
		"IBTA 12.11.2.1", services,
	},
	{
		KindNAK, "NAK codes",
		[]string{"nak", "nack"},
		"IBTA 9.7.5.2", naks,
	},
	{
		KindSyndrome, "AETH syndromes",
		[]string{"syndrome", "syndrom", "aeth", "synd"},
		"IBTA 9.7.5.1", syndromes(),
	},
	{
		KindTerminate, "Terminate codes (iWARP: layer, error type and code)",
		terminateWords,
		"RFC 5040 4.8, RFC 5041 8.2", terminates,
	},
	{
		KindEvidence, "Evidence codes of SoftRNIC (ibv_wc.vendor_err, low byte)",
		[]string{"vendor", "err", "vend", "evidence"},
		"SoftRNIC, internal/abi/vendor.go", evidence,
	},
	{
		KindFault, "Memory faults, as SoftRNIC names them",
		[]string{"fault", "memory"},
		"IBTA 10.6.3, 9.7.4.1.5", faults,
	},
	{
		KindQPState, "Queue pair states",
		[]string{"state", "qp", "qps"},
		"IBTA 10.3.1; ibv_modify_qp(3)", states,
	},
	{
		KindPortState, "Port states",
		[]string{"port", "state"},
		"ibv_query_port(3)", portStates,
	},
	{KindQPType, "Queue pair types", []string{"type", "qpt"}, "ibv_create_qp(3)", qpTypes},
	{
		KindAccess, "Access flags",
		[]string{"access", "right", "flag"},
		"IBTA 10.6.3; ibv_reg_mr(3)", accessFlags,
	},
	{
		KindOpcode, "Operations (ibv_send_wr.opcode)",
		[]string{"opcode", "wr", "operation"},
		"IBTA 10.8.2; ibv_post_send(3)", opcodes,
	},
	{
		KindCompletion, "Completion opcodes (ibv_wc.opcode)",
		[]string{"opcode", "wc"},
		"ibv_poll_cq(3)", completions,
	},
	{KindSendFlag, "Send flags", []string{"flag", "send"}, "ibv_post_send(3)", sendFlags},
	{KindWCFlag, "Completion flags", []string{"flag", "wc"}, "ibv_poll_cq(3)", wcFlags},
	{
		KindAttr, "Queue pair attributes (mask of ibv_modify_qp)",
		[]string{"attr", "attribute", "mask"},
		"IBTA 11.2.5.2; ibv_modify_qp(3)", attributes,
	},
	{KindMTU, "Path MTUs", []string{"mtu"}, "ibv_query_port(3)", mtus},
	{KindGIDType, "GID types", []string{"gid"}, "ibv_query_gid_ex(3)", gidTypes},
	{
		KindMigration, "Path migration states",
		[]string{"mig", "migration"},
		"IBTA 17.2.8", migrations,
	},
	{KindWindow, "Memory window types", []string{"window", "mw", "type"}, "ibv_alloc_mw(3)", windows},
	{KindAdvice, "Advice about memory", []string{"advice", "advise"}, "ibv_advise_mr(3)", advices},
	{KindRereg, "Re-registration flags", []string{"rereg", "flag"}, "ibv_rereg_mr(3)", reregs},
	{
		KindTagOpcode, "Operations on matching lists (ibv_ops_wr.opcode)",
		[]string{"tag", "ops", "operation"},
		"ibv_post_srq_ops(3)", tagOpcodes,
	},
	{
		KindTagFlag, "Flags of operations on matching lists",
		[]string{"tag", "ops", "flag"},
		"ibv_post_srq_ops(3)", tagFlags,
	},
	{
		KindCounter, "Counters (rnic stat)",
		[]string{"counter"},
		"SoftRNIC; rdma-statistic(8)", counters,
	},
}

// terminateWords stand in front of codes of Terminates.
var terminateWords = []string{"terminate", "terminated", "term", "iwarp", "rdmap", "ddp", "mpa"}

// Section is one family of names.
type Section struct {
	Kind    Kind    `json:"kind"`
	Title   string  `json:"title"`
	Entries []Entry `json:"entries"`
}

// All returns every entry, by family.
func All() []Section {
	out := make([]Section, 0, len(sections))
	for i := range sections {
		s := &sections[i]
		out = append(out, Section{Kind: s.Kind, Title: s.Title, Entries: s.entries()})
	}
	return out
}

// entries returns the rows, complete.
func (s *section) entries() []Entry {
	out := make([]Entry, len(s.rows))
	for i, e := range s.rows {
		e.Kind = s.Kind
		if e.Source == "" {
			e.Source = s.source
		}
		out[i] = e
	}
	return out
}

// Of returns the entry of a family with a number.
func Of(kind Kind, code uint32) (Entry, bool) {
	for i := range sections {
		s := &sections[i]
		if s.Kind != kind {
			continue
		}
		for j := range s.rows {
			if s.rows[j].Code == code {
				e := s.rows[j]
				e.Kind = kind
				if e.Source == "" {
					e.Source = s.source
				}
				return e, true
			}
		}
	}
	return Entry{}, false
}

// LikelyCause is the likeliest cause of an entry, or "".
func LikelyCause(kind Kind, code uint32) string {
	e, ok := Of(kind, code)
	if !ok || len(e.Causes) == 0 {
		return ""
	}
	return e.Causes[0]
}

// Number is how the code of an entry is written; nothing for counters, whose numbers are nobody's.
func (e *Entry) Number() string {
	switch e.Kind {
	case KindSyndrome, KindAccess, KindAttr:
		return fmt.Sprintf("%#x", e.Code)
	case KindTerminate:
		return fmt.Sprintf("0x%04x", e.Code)
	case KindCounter:
		return ""
	default:
		return strconv.FormatUint(uint64(e.Code), 10)
	}
}

// names are all names of an entry, plain.
func (e *Entry) names() []string {
	out := []string{plain(e.Name), plain(e.Words)}
	for _, a := range e.Also {
		out = append(out, plain(a))
	}
	for _, prefix := range prefixes {
		if short, ok := strings.CutPrefix(e.Name, prefix); ok {
			out = append(out, plain(short))
		}
	}
	return out
}

// prefixes are what people leave away from constants.
var prefixes = []string{
	"IBV_WC_", "IBV_EVENT_", "RDMA_CM_EVENT_", "IBV_QPS_", "IBV_PORT_", "IBV_QPT_", "IBV_ACCESS_",
	"IBV_WR_", "IBV_SEND_", "IBV_QP_", "IBV_", "RDMA_", "RNIC_", "TERM_",
}
