package rdma

import "strconv"

// MTU is a path MTU by its encoding in verbs and in CM messages: 1…5 for 256…4096 bytes.
type MTU uint8

// Path MTUs (enum ibv_mtu).
const (
	MTU256  MTU = 1
	MTU512  MTU = 2
	MTU1024 MTU = 3
	MTU2048 MTU = 4
	MTU4096 MTU = 5
)

// IsValid reports one of the five MTUs.
func (m MTU) IsValid() bool { return m >= MTU256 && m <= MTU4096 }

// Bytes returns the payload bytes of a full packet; 0 for an invalid MTU.
func (m MTU) Bytes() int {
	if !m.IsValid() {
		return 0
	}
	return 128 << m
}

// MTUFromBytes returns the largest MTU that is at most n bytes, or 0 where n is below 256.
func MTUFromBytes(n int) MTU {
	m := MTU4096
	for m > 0 && m.Bytes() > n {
		m--
	}
	return m
}

func (m MTU) String() string { return strconv.Itoa(m.Bytes()) }
