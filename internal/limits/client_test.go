package limits

import (
	"strings"
	"testing"
)

func TestParseClient_NamesWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"qps": "qps=", "qps=0": "1 to", "qps=99999999": "1 to", "qps=-1": "1 to", "qps=x": "1 to",
		"queues=5": "none of pds, cqs, qps",
	} {
		if _, err := ParseClient(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestParseClient_KeepsDefaults(t *testing.T) {
	got, err := ParseClient("qps=7, device-memory=4096,cm-ids=9")
	want := DefaultClient()
	want.QPs, want.DeviceMemory, want.CMIDs = 7, 4096, 9
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ParseClient(""); err != nil || got != DefaultClient() {
		t.Errorf("%+v, %v", got, err)
	}
}
