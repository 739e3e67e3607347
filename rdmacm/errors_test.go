package rdmacm_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/softrnic/softrnic/rdmacm"
)

// Case E09: a rejection says why, and what is likely behind it.
func TestRejectedError_E09_SaysReasonAndLikelyCause(t *testing.T) {
	for _, tc := range []struct {
		err  rdmacm.RejectedError
		want []string
	}{
		{
			rdmacm.RejectedError{Reason: rdmacm.ReasonInvalidServiceID},
			[]string{"nobody listens", "reason 8", "the server is not running"},
		},
		{
			rdmacm.RejectedError{Reason: rdmacm.ReasonConsumer},
			[]string{"rejected by the application", "reason 28", "private data"},
		},
		{
			rdmacm.RejectedError{Service: 1},
			[]string{"status 1", "the server is not running"},
		},
	} {
		err := &rdmacm.OpError{Op: "dial", Network: "rdma", Err: &tc.err}
		if !errors.Is(err, rdmacm.ErrRejected) || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%v is no rejection", err)
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not say %q", err, want)
			}
		}
	}
}
