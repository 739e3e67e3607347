package rnet

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/softrnic/softrnic/verbs"
)

// hello is what both sides tell each other as private data:
//
//	 0  "rnet"
//	 4  version, then 3 bytes of zeros
//	 8  address of the ring
//	16  its key
//	20  its size in bytes
//	24  receives that are posted at any time, controlReserve of them for control messages
type hello struct {
	addr     uint64
	rkey     verbs.Key
	ring     uint32
	receives uint32
}

const (
	helloMagic   = "rnet"
	helloVersion = 1
	helloBytes   = 28
)

var errNoHello = errors.New("the peer does not speak rnet")

func (h *hello) marshal() []byte {
	b := make([]byte, helloBytes)
	copy(b, helloMagic)
	b[4] = helloVersion
	binary.BigEndian.PutUint64(b[8:], h.addr)
	binary.BigEndian.PutUint32(b[16:], uint32(h.rkey))
	binary.BigEndian.PutUint32(b[20:], h.ring)
	binary.BigEndian.PutUint32(b[24:], h.receives)
	return b
}

// parseHello reads private data, which may be followed by zeros.
func parseHello(b []byte) (h hello, err error) {
	switch {
	case len(b) < helloBytes || string(b[:4]) != helloMagic:
		return h, errNoHello
	case b[4] != helloVersion:
		return h, fmt.Errorf("%w of version %d but of %d", errNoHello, helloVersion, b[4])
	}
	h = hello{
		addr: binary.BigEndian.Uint64(b[8:]), rkey: verbs.Key(binary.BigEndian.Uint32(b[16:])),
		ring: binary.BigEndian.Uint32(b[20:]), receives: binary.BigEndian.Uint32(b[24:]),
	}
	if h.ring < ringMin || h.ring > ringMax || h.receives <= 2*controlReserve ||
		h.receives > receivesMax {
		return h, fmt.Errorf("%w: a ring of %d bytes and %d receives", errNoHello, h.ring, h.receives)
	}
	return h, nil
}

// Messages. Data are a WRITE with immediate; the number is how many bytes came. Control messages
// are an empty SEND with immediate:
//
//	bit 31..30  kind
//	bit 29..22  receives given back (credit)
//	bit 21..0   bytes given back (credit)
const (
	kindShift   = 30
	slotsShift  = 22
	slotsMask   = 0xff
	bytesMask   = 1<<slotsShift - 1
	kindCredit  = 1
	kindFIN     = 2
	receivesMax = slotsMask
)

func creditMessage(slots, bytes int) uint32 {
	return kindCredit<<kindShift | uint32(slots)<<slotsShift | uint32(bytes)
}

const finMessage uint32 = kindFIN << kindShift

const (
	// receives is how many a side keeps posted.
	receives = 128
	// controlReserve is how many of them the peer keeps free of data. A side gives back at least a
	// quarter of the bytes or of the receives at once, so at most eight such messages are on their
	// way, and one more for the end of its data.
	controlReserve = 10
	// quota is the part that is given back at once.
	quota = 4
)
