package verbs

import (
	"fmt"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/explain"
)

// Evidence is what the NIC saw when a work request failed: the vendor_err of a completion. The
// low byte is a code of SoftRNIC; bits 8–15 hold the AETH syndrome of the peer's NAK, if one came.
type Evidence uint32

// Syndrome returns the AETH syndrome of the peer's NAK (IBTA 9.7.5.1), or 0.
func (e Evidence) Syndrome() uint8 { return uint8(e >> 8) }

func (e Evidence) vendor() abi.Vendor { return abi.Vendor(e & 0xff) }

// syndromeNAK is the kind of syndrome that carries a NAK code (IBTA 9.7.5.1).
const syndromeNAK = 3

// String says it in plain words; it is empty where there is no evidence.
func (e Evidence) String() string {
	v := e.vendor()
	if v == abi.VendorNone {
		return ""
	}
	row, ok := explain.Of(explain.KindEvidence, uint32(v))
	if !ok {
		return fmt.Sprintf("vendor error %#x", uint32(e))
	}
	s := e.Syndrome()
	if nak, ok := explain.Of(explain.KindNAK, uint32(s&0x1f)); ok && s>>5 == syndromeNAK {
		return row.Words + ": " + nak.Words
	}
	return row.Words
}

// LikelyCause says what most often stands behind the status; empty where that says nothing more.
func (e *StatusError) LikelyCause() string {
	return explain.LikelyCauseOf(e.Status, uint32(e.Evidence))
}
