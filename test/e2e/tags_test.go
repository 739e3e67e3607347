package e2e

import (
	"strings"
	"testing"
)

var tags = ownProgram{name: "tags", libraries: "-libverbs"}

// TestTags_CProgram_MatchesAndFetches lets an unmodified program use tag matching to the full, in
// memory that the NIC maps and in memory that it does not.
func TestTags_CProgram_MatchesAndFetches(t *testing.T) {
	want := []string{
		"caps 1 1 1 1 1",
		"without sizes 0 Invalid argument",
		"id 1 status 0 opcode 133 flags 0x60 bytes 100 tag 0x11 0xc0de",
		"data 1",
		"id 2 status 0 opcode 133 flags 0x20 bytes 0 tag 0x12 0xc0de",
		"id 2 status 0 opcode 133 flags 0x40 bytes 150000 tag 0 0",
		"data 1",
		"id 3 status 0 opcode 133 flags 0x20 bytes 0 tag 0x13 0xc0de",
		"id 3 status 0 opcode 133 flags 0x40 bytes 900000 tag 0 0",
		"data 1",
		"fin 1",
		"id 4 status 23 opcode 133 flags 0x60 bytes 32 tag 0x14 0xc0de",
		"data 1",
		"fin 1",
		"id 20 status 0 opcode 133 flags 0 bytes 48 tag 0 0",
		"id 21 status 0 opcode 134 flags 0 bytes 48 tag 0 0",
		"id 50 status 0 opcode 132 flags 0 bytes 0 tag 0 0",
		"id 51 status 0 opcode 131 flags 0 bytes 0 tag 0 0",
		"id 51 status 22 opcode 131 flags 0 bytes 0 tag 0 0",
		"ordinary queue: 22",
		"opcode: 22",
		"flags: 22",
		"entries: 22",
		"one too many: 12",
		"destroy with a QP: 16",
		"destroy with tags: 0",
	}
	for _, mapped := range []string{"always", "never"} {
		t.Run(mapped, func(t *testing.T) {
			m := anyMachine(t)
			m.env = append(m.env, "RNIC_MAPPED="+mapped)
			out := m.run(t, tags.build(t)).end(t)
			if out.status != 0 || out.stderr != "" {
				t.Errorf("status %d, %s", out.status, out.stderr)
			}
			got := strings.Split(strings.TrimSpace(out.stdout), "\n")
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) || got[i] != want[i] {
					t.Fatalf("line %d:\n%s\nwant\n%s", i+1, out.stdout, strings.Join(want, "\n"))
				}
			}
		})
	}
}
