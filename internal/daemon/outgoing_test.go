package daemon

import (
	"testing"

	"github.com/softrnic/softrnic/internal/netio"
)

// What a lane takes for one segmented send is what the port makes one of.
func TestGroup_PacketsOfMessage_EndWhereSendsDo(t *testing.T) {
	for _, row := range []struct {
		size  int // of a packet in the middle of a message, with its ICRC
		whole int // packets that one send holds
	}{{1040, 62}, {4112, 15}, {272, netio.GroupDatagramsMax}, {66000, 1}} {
		var g group
		sizes := []int{row.size + 16} // the first packet has one more header
		for range 2*row.whole + 1 {
			sizes = append(sizes, row.size)
		}
		var ends []int
		for i, n := range sizes {
			if g.add(n); g.isWhole {
				ends = append(ends, i)
			}
		}
		want := []int{1, 1 + row.whole, 1 + 2*row.whole}
		if row.whole == 1 {
			want = []int{0, 1, 2, 3}
		}
		if len(ends) != len(want) {
			t.Fatalf("packets of %d bytes: groups end at %v, not %v", row.size, ends, want)
		}
		for i := range want {
			if ends[i] != want[i] {
				t.Errorf("packets of %d bytes: groups end at %v, not %v", row.size, ends, want)
			}
		}
	}
}

func TestOutgoing_EnoughPackets_GoWithAWholeGroup(t *testing.T) {
	var o outgoing
	o.init()
	for o.used < sendEnough-1040 {
		o.used += 1040
		if o.group.add(1040); o.isFull() {
			t.Fatalf("full with %d bytes", o.used)
		}
	}
	for n := 0; !o.isFull(); n++ {
		o.group.add(1040)
		if o.used += 1040; n > netio.GroupDatagramsMax {
			t.Fatal("no group is ever whole")
		}
	}
	if !o.group.isWhole || o.used > sendBatchBytes-packetBytesMax {
		t.Errorf("%d bytes go, whole group: %v", o.used, o.group.isWhole)
	}
	if o.clear(); o.isFull() || o.group.count != 0 {
		t.Error("what has gone still counts")
	}
}
