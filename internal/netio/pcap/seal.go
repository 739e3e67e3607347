package pcap

import (
	"github.com/softrnic/softrnic/internal/netio/tcp"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// sealer puts CRCs into a direction of a stream that stays within the NIC. Its ends agree on them
// and do without (ADR 0025); a file without them would look like one of damaged FPDUs. It is zero
// at the beginning of an FPDU.
type sealer struct {
	length [iwarp.ULPDULenLen]byte
	have   int // bytes of length
	left   int // bytes of the FPDU to come, after its length
	crc    uint32
}

// mustSeal reports a stream whose FPDUs are to have CRCs, and have none. With markers its ends
// compute them.
func mustSeal(f *tcp.Flow) bool {
	flags := f.FirstSent[frameFlagsAt] | f.FirstReceived[frameFlagsAt]
	return f.Joined && flags&frameCRC != 0 && flags&frameMarkers == 0
}

// seal changes the next bytes of the stream.
func (s *sealer) seal(b []byte) {
	for len(b) > 0 {
		var n int
		switch {
		case s.have < len(s.length):
			n = copy(s.length[s.have:], b)
			s.have += n
			s.crc = iwarp.UpdateCRC(s.crc, b[:n])
			if s.have == len(s.length) {
				ulpdu, _ := iwarp.ParseULPDULen(s.length[:])
				s.left = iwarp.FPDULen(ulpdu) - len(s.length)
			}
		case s.left > iwarp.CRCLen:
			n = min(len(b), s.left-iwarp.CRCLen)
			s.crc = iwarp.UpdateCRC(s.crc, b[:n])
			s.left -= n
		default:
			var sum [iwarp.CRCLen]byte
			iwarp.AppendCRC(sum[:0], s.crc)
			n = copy(b, sum[iwarp.CRCLen-s.left:])
			s.left -= n
		}
		b = b[n:]
		if s.have == len(s.length) && s.left == 0 {
			*s = sealer{}
		}
	}
}
