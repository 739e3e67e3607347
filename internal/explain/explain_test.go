package explain

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
)

// enums says which family explains the constants of which types.
var enums = map[string]map[string]Kind{
	"rdma": {
		"WCStatus": KindStatus, "EventType": KindEvent, "PortState": KindPortState,
		"QPState": KindQPState, "QPType": KindQPType, "Access": KindAccess, "WROpcode": KindOpcode,
		"WCOpcode": KindCompletion, "SendFlags": KindSendFlag, "WCFlags": KindWCFlag,
		"QPAttrMask": KindAttr, "MTU": KindMTU, "GIDType": KindGIDType,
		"MigrationState": KindMigration, "MWType": KindWindow, "AdviceMR": KindAdvice,
		"ReregMask": KindRereg, "TagOpcode": KindTagOpcode, "TagFlags": KindTagFlag,
	},
	"wire/iwarp": {"Code": KindTerminate},

	"wire/mad": {"Reason": KindReject, "SIDRStatus": KindService},
	"wire/ib":  {"NAKCode": KindNAK},
	"abi":      {"Vendor": KindEvidence},
	"mem":      {"Fault": KindFault},
}

// numbers are types of package rdma whose constants are single values, not enumerations.
var numbers = []string{"QPN", "QKey", "PKey", "LID", "GUID"}

// combined are constants that name several values, or the first one as a group's name.
var combined = []string{
	"AccessOptional", "AccessRemoteAny", "AccessWindow", "QPAttrAll", "ReregAll",
	"FaultNone",
}

// anyPackage stands for imports: constants do not need them.
type anyPackage struct{}

func (anyPackage) Import(path string) (*types.Package, error) {
	p := types.NewPackage(path, filepath.Base(path))
	p.MarkComplete()
	return p, nil
}

// constantsOf returns the exported constants of a package below internal that have a type of it.
func constantsOf(t *testing.T, dir string) []*types.Const {
	t.Helper()
	fset := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(fset, name, source, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	conf := types.Config{Importer: anyPackage{}, Error: func(error) {}}
	pkg, _ := conf.Check(dir, fset, files, nil) // what uses the imports is in error
	var out []*types.Const
	for _, name := range pkg.Scope().Names() {
		c, ok := pkg.Scope().Lookup(name).(*types.Const)
		if ok && c.Exported() {
			out = append(out, c)
		}
	}
	return out
}

func TestTables_EveryValue_HasARow(t *testing.T) {
	rows := 0
	for dir, kinds := range enums {
		for _, c := range constantsOf(t, dir) {
			named, ok := c.Type().(*types.Named)
			if !ok || slices.Contains(combined, c.Name()) {
				continue
			}
			kind, known := kinds[named.Obj().Name()]
			if !known {
				if dir == "rdma" && !slices.Contains(numbers, named.Obj().Name()) {
					t.Errorf("rdma.%s: no family explains the type %s", c.Name(), named.Obj().Name())
				}
				continue
			}
			code, _ := constant.Uint64Val(c.Val())
			if _, ok := Of(kind, uint32(code)); !ok {
				t.Errorf("%s.%s = %#x has no row among the %ss", dir, c.Name(), code, kind)
			}
			rows++
		}
	}
	if rows < 150 {
		t.Errorf("only %d constants were looked at", rows)
	}
}

func TestTables_EveryRow_IsComplete(t *testing.T) {
	seen := map[string]string{}
	for _, s := range All() {
		codes := map[uint32]bool{}
		for _, e := range s.Entries {
			if e.Name == "" || e.Words == "" || e.Means == "" || e.Source == "" {
				t.Errorf("%s %d is incomplete: %+v", s.Kind, e.Code, e)
			}
			if codes[e.Code] {
				t.Errorf("%s %d is there twice", s.Kind, e.Code)
			}
			codes[e.Code] = true
			if other, ok := seen[e.Name]; ok {
				t.Errorf("%s is a %s and a %s", e.Name, other, s.Kind)
			}
			seen[e.Name] = string(s.Kind)
			if found := Find(e.Name); len(found) == 0 || found[0].Name != e.Name {
				t.Errorf("%s finds %v", e.Name, namesOf(found))
			}
			for _, text := range append(append([]string{e.Means}, e.Causes...), e.Look...) {
				if strings.TrimSpace(text) != text || text == "" {
					t.Errorf("%s: %q", e.Name, text)
				}
			}
		}
		if len(s.Entries) == 0 {
			t.Errorf("%s is empty", s.Kind)
		}
	}
	// What goes wrong says why and where to look.
	for _, kind := range []Kind{KindStatus, KindErrno, KindNAK, KindTerminate} {
		for _, e := range sectionOf(kind) {
			isNews := e.Means == reserved || strings.Contains(e.Means, "never says") ||
				e.Name == "IBV_WC_SUCCESS" || e.Name == "EINTR" || e.Name == "EAGAIN"
			if len(e.Causes) == 0 && !isNews {
				t.Errorf("%s has no causes", e.Name)
			}
		}
	}
}

func sectionOf(kind Kind) []Entry {
	for _, s := range All() {
		if s.Kind == kind {
			return s.Entries
		}
	}
	return nil
}

func namesOf(list []Entry) []string {
	var out []string
	for _, e := range list {
		out = append(out, e.Name)
	}
	return out
}

// Case E09: whatever form somebody meets a status in leads to its explanation.
func TestFind_E09_EveryFormThatPeopleMeet(t *testing.T) {
	rows := []struct{ query, want string }{
		{"IBV_WC_RETRY_EXC_ERR", "IBV_WC_RETRY_EXC_ERR"},
		{"retry_exc_err", "IBV_WC_RETRY_EXC_ERR"},
		{"retry exceeded", "IBV_WC_RETRY_EXC_ERR"},
		{"transport retry counter exceeded", "IBV_WC_RETRY_EXC_ERR"},
		{"Transport retry count exceeded", "IBV_WC_RETRY_EXC_ERR"},
		{"12", "IBV_WC_RETRY_EXC_ERR"},
		{"wc status 12", "IBV_WC_RETRY_EXC_ERR"},
		{"status=12", "IBV_WC_RETRY_EXC_ERR"},
		{"retries exceeded", "IBV_WC_RETRY_EXC_ERR"},
		{"status 13", "IBV_WC_RNR_RETRY_EXC_ERR"},
		{"receiver not ready", "IBV_WC_RNR_RETRY_EXC_ERR"},
		{"work request flushed error", "IBV_WC_WR_FLUSH_ERR"},
		{"flush error", "IBV_WC_WR_FLUSH_ERR"},
		{"errno 22", "EINVAL"},
		{"einval", "EINVAL"},
		{"errno EINVAL", "EINVAL"},
		{"event device fatal", "IBV_EVENT_DEVICE_FATAL"},
		{"invalid argument", "EINVAL"},
		{"-110", "ETIMEDOUT"},
		{"PSN sequence error", "NAK_PSN_SEQUENCE_ERROR"},
		{"nak 1", "NAK_INVALID_REQUEST"},
		{"remote operational error", "IBV_WC_REM_OP_ERR"},
		{"nak remote operational error", "NAK_REMOTE_OPERATIONAL_ERROR"},
		{"0x62", "SYNDROME_0x62"},
		{"syndrome 0x2c", "SYNDROME_0x2c"},
		{"min_rnr_timer 12", "SYNDROME_0x2c"},
		{"reject 28", "IB_CM_REJ_CONSUMER_DEFINED"},
		{"reject reason 8", "IB_CM_REJ_INVALID_SERVICE_ID"},
		{"consumer reject", "IB_CM_REJ_CONSUMER_DEFINED"},
		{"stale connection", "IB_CM_REJ_STALE_CONN"},
		{"RDMA_CM_EVENT_REJECTED", "RDMA_CM_EVENT_REJECTED"},
		{"cm event 7", "RDMA_CM_EVENT_UNREACHABLE"},
		{"IBV_EVENT_QP_ACCESS_ERR", "IBV_EVENT_QP_ACCESS_ERR"},
		{"async event 0", "IBV_EVENT_CQ_ERR"},
		{"vendor_err 0x6201", "RNIC_VENDOR_NAK"},
		{"0x6201", "RNIC_VENDOR_NAK"},
		{"out_of_seq_request", "out_of_seq_request"},
		{"packet_seq_err", "rcvd_seq_err"},
		{"terminate 0x1101", "TERM_DDP_BASE_OR_BOUNDS"},
		{"terminate 1101", "TERM_DDP_BASE_OR_BOUNDS"},
		{"terminate code 2006", "TERM_MPA_INSUFFICIENT_IRD"},
		{"terminate 2102", "TERM_DDP_NO_BUFFER"}, // siw's
		{"term 02ff", "TERM_RDMAP_OPERATION_UNSPECIFIED"},
		{"0x1101", "TERM_DDP_BASE_OR_BOUNDS"},
		{"iwarp terminate code 0x0206", "TERM_RDMAP_OPCODE"},
		{"term 0x0", "TERM_RDMAP_LOCAL_CATASTROPHIC"},
		{"got TERMINATE. layer 1, type 2, code 2", "TERM_DDP_NO_BUFFER"},
		{"terminate 0x2102", "TERM_DDP_NO_BUFFER"}, // as siw has it on the wire
		{"terminate layer 2 etype 1 code 2", "TERM_DDP_NO_BUFFER"},
		{"layer=0x0 etype=0x1 ecode=0x2", "TERM_RDMAP_ACCESS_RIGHTS"},
		{"mpa crc error", "TERM_MPA_CRC"},
		{"DDP Message too long for available buffer", "TERM_DDP_TOO_LONG"},
		{"no matching RTR option", "TERM_MPA_NO_RTR"},
		{"RTS", "IBV_QPS_RTS"},
		{"qp state 6", "IBV_QPS_ERR"},
		{"access right missing", "FAULT_RIGHTS"},
		{"max_rd_atomic", "IBV_QP_MAX_QP_RD_ATOMIC"},
		{"Failed status 12: wr_id 0 syndrom 0x81", "IBV_WC_RETRY_EXC_ERR"},
		{"Got completion with error: transport retry counter exceeded, wr_id 7", "IBV_WC_RETRY_EXC_ERR"},
	}
	for _, r := range rows {
		found := Find(r.query)
		if len(found) == 0 || found[0].Name != r.want {
			t.Errorf("%q finds %v, want %s first", r.query, namesOf(found), r.want)
		}
	}
}

func TestFind_Nonsense_FindsNothing(t *testing.T) {
	for _, nonsense := range []string{"", "   ", "xyzzy", "12 monkeys", "_"} {
		if found := Find(nonsense); len(found) > 0 {
			t.Errorf("%q finds %v", nonsense, namesOf(found))
		}
	}
}

func TestFind_BareNumber_TellsAllFamilies(t *testing.T) {
	kinds := map[Kind]bool{}
	for _, e := range Find("8") {
		kinds[e.Kind] = true
	}
	for _, want := range []Kind{KindStatus, KindEvent, KindCMEvent, KindReject, KindEvidence} {
		if !kinds[want] {
			t.Errorf("8 tells no %s", want)
		}
	}
	if found := Find("errno 12"); len(found) != 1 || found[0].Name != "ENOMEM" {
		t.Errorf("errno 12 finds %v", namesOf(found))
	}
}

func TestFind_LineOfALog_TellsEventAndStatus(t *testing.T) {
	for line, want := range map[string][]string{
		"cma event RDMA_CM_EVENT_REJECTED, error 8": {
			"RDMA_CM_EVENT_REJECTED", "IB_CM_REJ_INVALID_SERVICE_ID",
		},
		"event RDMA_CM_EVENT_REJECTED, status -104":    {"RDMA_CM_EVENT_REJECTED", "ECONNRESET"},
		"event RDMA_CM_EVENT_UNREACHABLE, status -110": {"RDMA_CM_EVENT_UNREACHABLE", "ETIMEDOUT"},
		"Got completion from peer 10.0.0.1 with error 12, opcode 0, len 0, vendor err 129": {
			"IBV_WC_RETRY_EXC_ERR",
		},
		"Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)": {
			"IBV_WC_RETRY_EXC_ERR",
		},
		"Failed to modify QP to RTR: Invalid argument": {"EINVAL"},
		"Failed status 10: wr_id 0 syndrom 0x88":       {"IBV_WC_REM_ACCESS_ERR"},
	} {
		if got := namesOf(Find(line)); !slices.Equal(got, want) {
			t.Errorf("%q finds %v, want %v", line, got, want)
		}
	}
}

func TestFind_Verb_TellsItsErrnosAndCauses(t *testing.T) {
	found := Find("ibv_modify_qp EINVAL")
	if len(found) != 1 || found[0].Name != "EINVAL" || len(found[0].Causes) != 1 ||
		!strings.HasPrefix(found[0].Causes[0], "ibv_modify_qp: ") {
		t.Errorf("found %+v", found)
	}
	found = Find("ibv_post_send()")
	for _, want := range []string{"EINVAL", "ENOMEM"} {
		if names := namesOf(found); !slices.Contains(names, want) {
			t.Errorf("ibv_post_send finds %v", names)
		}
	}
	if found = Find("ibv_dealloc_pd failed: 16"); len(found) != 1 || found[0].Name != "EBUSY" {
		t.Errorf("found %v", namesOf(found))
	}
	if found = Find("ibv_no_such_verb"); len(found) > 0 {
		t.Errorf("found %v", namesOf(found))
	}
}

func TestClosest_Misspelled_SuggestsWhatWasMeant(t *testing.T) {
	for query, want := range map[string]string{
		"IBV_WC_RETRY_ERR": "IBV_WC_RETRY_EXC_ERR",
		"EINVL":            "EINVAL",
		"remot acess eror": "IBV_WC_REM_ACCESS_ERR",
		"stale connction":  "IB_CM_REJ_STALE_CONN",
	} {
		if got := Closest(query); !slices.Contains(got, want) {
			t.Errorf("%q suggests %v, not %s", query, got, want)
		}
	}
	if got := Closest("something entirely different from all of that"); len(got) > closestMax {
		t.Errorf("%d suggestions", len(got))
	}
}

func FuzzFind_AnyQuery_Answers(f *testing.F) {
	for _, seed := range []string{"12", "wc status 12", "-22", "0x62", "retry", "IBV_", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		for _, e := range Find(query) {
			if e.Name == "" || e.Kind == "" {
				t.Errorf("%q finds an empty entry", query)
			}
		}
		if n := len(Closest(query)); n > closestMax {
			t.Errorf("%d suggestions for %q", n, query)
		}
	})
}

func TestVerb_EveryRequest_HasAName(t *testing.T) {
	internal := []string{
		"OpStatus", "OpShutdown", "OpCapture", "OpEndCapture", "OpOpenCM", "OpQueryID",
		"OpWaits",
	}
	for _, c := range constantsOf(t, "abi") {
		named, ok := c.Type().(*types.Named)
		if !ok || named.Obj().Name() != "Op" || slices.Contains(internal, c.Name()) {
			continue
		}
		code, _ := constant.Uint64Val(c.Val())
		if _, ok := verbs[abi.Op(code)]; !ok {
			t.Errorf("abi.%s has no verb", c.Name())
		}
	}
}
