package rdma

import "fmt"

// QPN is a 24-bit queue pair number (IBTA 3.5.1). 0 is the SMI, 1 the GSI, and 0xffffff the
// multicast QPN.
type QPN uint32

// Special queue pair numbers (IBTA 3.9.4, 10.5).
const (
	QPNSMI       QPN = 0
	QPNGSI       QPN = 1
	QPNMulticast QPN = 0xffffff
	QPNMask      QPN = 0xffffff
)

func (n QPN) String() string { return fmt.Sprintf("0x%06x", uint32(n)) }

// PSN is a 24-bit packet sequence number with serial arithmetic (IBTA 9.2, 9.7.1).
type PSN uint32

// PSNMask keeps the 24 bits of a PSN.
const PSNMask = 0xffffff

// Add returns p advanced by n packets, modulo 2^24.
func (p PSN) Add(n uint32) PSN { return PSN((uint32(p) + n) & PSNMask) }

// Sub returns the signed distance p−q in [−2^23, 2^23).
func (p PSN) Sub(q PSN) int32 { return int32((uint32(p)-uint32(q))<<8) >> 8 }

// Less reports whether p comes before q in the 2^23 window around q.
func (p PSN) Less(q PSN) bool { return p.Sub(q) < 0 }

// LessEq reports whether p comes before q or equals it.
func (p PSN) LessEq(q PSN) bool { return p.Sub(q) <= 0 }

func (p PSN) String() string { return fmt.Sprintf("%d", uint32(p)) }

// MSN is a 24-bit message sequence number as carried in the AETH (IBTA 9.7.7).
type MSN uint32

// Add returns m advanced by n messages, modulo 2^24.
func (m MSN) Add(n uint32) MSN { return MSN((uint32(m) + n) & PSNMask) }

// Sub returns the signed distance m−o in [−2^23, 2^23).
func (m MSN) Sub(o MSN) int32 { return PSN(m).Sub(PSN(o)) }

// Key is a local or remote memory key: a 24-bit index and an 8-bit variant that the consumer may
// change when it binds a window (IBTA 10.6.3).
type Key uint32

// Index returns the upper 24 bits, which select the table entry.
func (k Key) Index() uint32 { return uint32(k) >> 8 }

func (k Key) String() string { return fmt.Sprintf("0x%08x", uint32(k)) }

// PKey is a partition key: bit 15 says full membership, the rest names the partition (IBTA 10.9).
type PKey uint16

// PKeyDefault is the default partition with full membership.
const PKeyDefault PKey = 0xffff

// IsFull reports full membership.
func (k PKey) IsFull() bool { return k&0x8000 != 0 }

// Matches reports whether packets with key o may reach a QP with key k: the same partition, and
// at least one of both a full member (IBTA 10.9.3).
func (k PKey) Matches(o PKey) bool {
	return k&0x7fff == o&0x7fff && k&0x7fff != 0 && (k.IsFull() || o.IsFull())
}

// QKey is a queue key; one with the top bit set is controlled: a send that names one uses the
// QP's own instead (IBTA 10.2.5).
type QKey uint32

// IsControlled reports whether the top bit is set.
func (k QKey) IsControlled() bool { return k&0x80000000 != 0 }

// QKeyGSI is the queue key of QP1 (IBTA 3.9.4).
const QKeyGSI QKey = 0x80010000

// LID is a local identifier of an InfiniBand subnet; 0 on Ethernet.
type LID uint16

// GUID is an EUI-64.
type GUID uint64

func (g GUID) String() string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", uint16(g>>48), uint16(g>>32), uint16(g>>16), uint16(g))
}
