package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/softrnic/softrnic/internal/explain"
)

// Case E09, T14: what a status means, what causes it, and where to look, in plain words.
func TestExplain_E09_T14_SaysWhatWhyAndWhere(t *testing.T) {
	for query, wants := range map[string][]string{
		"retry exceeded": {
			"IBV_WC_RETRY_EXC_ERR", "12", "Usually because", "Look at", "UDP port 4791", "IBTA 11.6.2",
			"ibv_poll_cq(3)",
		},
		"wc status 13":        {"IBV_WC_RNR_RETRY_EXC_ERR", "no receive posted", "rnr_retry"},
		"errno EINVAL":        {"EINVAL", "RNIC_VERBOSE=1"},
		"reject 28":           {"IB_CM_REJ_CONSUMER_DEFINED", "rdma_reject"},
		"syndrome 0x2c":       {"640µs", "min_rnr_timer"},
		"IBV_EVENT_CQ_ERR":    {"overran", "fewer entries"},
		"terminate 0x1202":    {"(Terminate code 0x1202)", "no receive was posted", "RFC 5041 8.2"},
		"terminate 0x2102":    {"its 0x2102 is the 0x1202 of the standards", "siw"},
		"remote access error": {"IBV_WC_REM_ACCESS_ERR", "NAK_REMOTE_ACCESS_ERROR", "rkey"},
	} {
		status, out, errOut := try(t, append([]string{"explain"}, strings.Fields(query)...)...)
		if status != 0 || errOut != "" {
			t.Errorf("%s: status %d, %s", query, status, errOut)
		}
		for _, want := range wants {
			if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
				t.Errorf("%s does not say %q:\n%s", query, want, out)
			}
		}
		for _, line := range strings.Split(out, "\n") {
			if strings.HasPrefix(line, "  ") && utf8.RuneCountInString(line) > textColumns {
				t.Errorf("%s: a long line: %s", query, line)
			}
		}
	}
}

func try(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	root := newRoot()
	var stdout, stderr bytes.Buffer
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	status = execute(root, args)
	return status, stdout.String(), stderr.String()
}

func TestExplain_NumberThatIsNone_SaysWhichThereAre(t *testing.T) {
	for query, want := range map[string]string{
		"terminate 0x12345":             "0x12345 is out of range: a Terminate code has four hexa",
		"terminate 99999":               "99999 is out of range: a Terminate code has four hexa",
		"terminate ffffffffffffffffff":  "is out of range",
		"terminate 0x3000":              "no Terminate code 0x3000: they go from 0x0000 to 0x2007",
		"terminate 3000":                "no Terminate code 3000: they go from 0x0000 to 0x2007",
		"wc status 99":                  "no completion status 99: they go from 0 to 2",
		"status 99999999999999999999":   "no completion status 99999999999999999999: they go",
		"syndrome 0x1ff":                "no AETH syndrome 0x1ff: they go from 0x0 to 0x",
		"cm event 99":                   "no connection event 99: they go from 0 to",
		"terminate of some other thing": "nothing is called",
	} {
		status, out, errOut := try(t, append([]string{"explain"}, strings.Fields(query)...)...)
		if status != exitFailure || out != "" || !strings.Contains(errOut, want) ||
			strings.Count(errOut, "\n") != 1 {
			t.Errorf("%s: status %d, %q, %q", query, status, out, errOut)
		}
	}
}

func TestExplain_BareNumber_TellsTheOtherMeanings(t *testing.T) {
	_, out, _ := try(t, "explain", "12")
	if !strings.HasPrefix(out, "IBV_WC_RETRY_EXC_ERR") || !strings.Contains(out, "ENOMEM") {
		t.Errorf("12 is\n%s", out)
	}
}

// TestExplain_NegativeNumber_IsAnErrno: as the kernel, verbs and events write them; no flag.
func TestExplain_NegativeNumber_IsAnErrno(t *testing.T) {
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"-110"}, "ETIMEDOUT"},
		{[]string{"-1"}, "EPERM"},
		{[]string{"-0x16"}, "EINVAL"},
		{[]string{"--", "-110"}, "ETIMEDOUT"},
		{[]string{"errno", "-22"}, "EINVAL"},
		{[]string{"ibv_modify_qp", "returned", "-22"}, "EINVAL"},
		{[]string{"--json", "-12"}, "[\n  {\n    \"kind\": \"errno\",\n    \"code\": 12,"},
		{[]string{"-12", "--json"}, "[\n  {\n    \"kind\": \"errno\",\n    \"code\": 12,"},
		{[]string{"-110", "--help"}, "Say what a status"},
		{[]string{"-h"}, "Say what a status"},
	} {
		status, out, errOut := try(t, append([]string{"explain"}, row.args...)...)
		if status != 0 || errOut != "" || !strings.HasPrefix(out, row.want) {
			t.Errorf("%q: status %d, %s%s", row.args, status, errOut, out)
		}
	}
	status, _, errOut := try(t, "explain", "-x")
	if status != exitUsage || !strings.Contains(errOut, "-x") {
		t.Errorf("-x: status %d, %s", status, errOut)
	}
}

func TestExplain_NoArgument_ListsEverything(t *testing.T) {
	_, out, _ := try(t, "explain")
	for _, s := range explain.All() {
		if !strings.Contains(out, s.Title) {
			t.Errorf("%s is missing", s.Title)
		}
		for _, e := range s.Entries {
			if !strings.Contains(out, e.Name) {
				t.Errorf("%s is missing", e.Name)
			}
		}
	}
}

func TestExplain_UnknownName_SuggestsAndFails(t *testing.T) {
	status, out, errOut := try(t, "explain", "IBV_WC_RETRY_EXEC_ER")
	if status != exitFailure || out != "" || !strings.Contains(errOut, "IBV_WC_RETRY_EXC_ERR") {
		t.Errorf("status %d, %q, %q", status, out, errOut)
	}
	status, _, errOut = try(t, "explain", "qwertzuiopasdfghjkl", "yxcvbnm")
	if status != exitFailure || !strings.Contains(errOut, "rnic explain") {
		t.Errorf("status %d, %q", status, errOut)
	}
}

func TestExplain_JSON_IsForTools(t *testing.T) {
	_, out, _ := try(t, "explain", "--json", "wc", "status", "12")
	var entries []explain.Entry
	if err := json.Unmarshal([]byte(out), &entries); err != nil || len(entries) != 1 ||
		entries[0].Name != "IBV_WC_RETRY_EXC_ERR" || len(entries[0].Causes) == 0 {
		t.Errorf("%v: %s", err, out)
	}
	_, out, _ = try(t, "explain", "--json")
	var all []explain.Section
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != len(explain.All()) {
		t.Errorf("%v: %d sections", err, len(all))
	}
}
