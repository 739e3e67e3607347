package explain

import (
	"strings"
	"syscall"
	"testing"

	"github.com/softrnic/softrnic/internal/rdma"
)

// TestPostRefusal_EachKind_NamesTheVerb that the program has called.
func TestPostRefusal_EachKind_NamesTheVerb(t *testing.T) {
	for opcode, want := range map[uint32]string{
		uint32(rdma.WRRead):     "ibv_post_send of wr_id 7, READ, failed with EINVAL",
		uint32(rdma.WCOpRecv):   "ibv_post_recv of wr_id 7 failed with EINVAL",
		uint32(rdma.WCOpTagAdd): "ibv_post_srq_ops of wr_id 7 failed with EINVAL",
	} {
		got := PostRefusal(opcode, uint32(syscall.EINVAL), 7, 1, "the reason")
		if len(got) != 2 || !strings.HasPrefix(got[0], want) || got[1] != "the reason" {
			t.Errorf("opcode %d: %q", opcode, got)
		}
	}
}
