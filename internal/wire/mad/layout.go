package mad

import (
	"encoding/binary"

	"github.com/softrnic/softrnic/internal/rdma"
)

// Lengths in bytes (IBTA 13.4.2).
const (
	Len     = 256             // a whole MAD
	DataLen = Len - HeaderLen // what follows the header: the content of each message here
)

// extend lengthens b by n zero bytes, and returns them too.
func extend(b []byte, n int) (whole, tail []byte) {
	var zeros [Len]byte
	whole = append(b, zeros[:n]...)
	return whole, whole[len(whole)-n:]
}

// put24 writes a 24-bit number and the byte after it, which the messages use for small fields.
func put24(b []byte, n uint32, last uint8) {
	binary.BigEndian.PutUint32(b, n<<8|uint32(last))
}

func get24(b []byte) uint32 { return binary.BigEndian.Uint32(b) >> 8 }

func getQPN(b []byte) rdma.QPN { return rdma.QPN(get24(b)) }

// CommID is a communication ID: local or remote is seen from the sender (IBTA 12.6.5).
type CommID uint32

func getID(b []byte) CommID { return CommID(binary.BigEndian.Uint32(b)) }

func putID(b []byte, id CommID) { binary.BigEndian.PutUint32(b, uint32(id)) }

// bit returns v where on, else 0.
func bit(on bool, v uint8) uint8 {
	if on {
		return v
	}
	return 0
}
