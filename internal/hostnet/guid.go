package hostnet

import (
	"crypto/sha256"
	"encoding/binary"
)

// GUID is an EUI-64 in network order, as node and port GUIDs are (IBTA 4.1).
type GUID [8]byte

// EUI64 returns the modified EUI-64 of a MAC (RFC 4291 appendix A), which is also how the
// link-local address and the GUID of an Ethernet adapter come about.
func EUI64(mac MAC) GUID {
	return GUID{mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]}
}

// NodeGUID returns a GUID that is never zero, stays the same while the host's first adapter and
// the instance do, and differs between namespaces. It is the EUI-64 of the interface with the
// first address in GID order that has a MAC, else of the first interface with one. Without any
// MAC, or for an instance other than 0 (several adapters in one namespace), it is a hash of
// identity and instance, marked as locally administered.
func NodeGUID(s Snapshot, identity []byte, instance uint32) GUID {
	mac := firstMAC(s)
	if !mac.IsZero() && instance == 0 {
		return EUI64(mac)
	}
	h := sha256.New()
	_, _ = h.Write(mac[:]) // a hash never fails
	_, _ = h.Write(binary.BigEndian.AppendUint32(nil, instance))
	_, _ = h.Write(identity)
	var g GUID
	copy(g[:], h.Sum(nil))
	// A modified EUI-64 shows local administration by a clear universal bit and is no group
	// address; a bit outside the two keeps the value from being all zero.
	g[0] &^= 3
	g[7] |= 1
	return g
}

func firstMAC(s Snapshot) MAC {
	for _, a := range s.Addresses {
		link, ok := s.InterfaceByIndex(a.Interface)
		if ok && isStation(link.MAC) {
			return link.MAC
		}
	}
	for _, link := range s.Interfaces {
		if isStation(link.MAC) {
			return link.MAC
		}
	}
	return MAC{}
}

func isStation(mac MAC) bool { return !mac.IsZero() && !mac.IsMulticast() }
