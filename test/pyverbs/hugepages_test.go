package pyverbs

import (
	"os"
	"strings"
	"testing"
)

// hugePages is how many pages of 2 MiB the kernel keeps; who is root may say.
const hugePages = "/proc/sys/vm/nr_hugepages"

// lendHugePages has the kernel keep some huge pages for the tests that want them, where it keeps
// none and lets us. Without them those tests skip themselves.
func lendHugePages(t *testing.T) {
	t.Helper()
	before, err := os.ReadFile(hugePages)
	if err != nil || strings.TrimSpace(string(before)) != "0" {
		return
	}
	if err := os.WriteFile(hugePages, []byte("16"), 0); err != nil {
		t.Logf("no huge pages: %v", err)
		return
	}
	t.Cleanup(func() {
		if err := os.WriteFile(hugePages, before, 0); err != nil {
			t.Errorf("give the huge pages back: %v", err)
		}
	})
}
