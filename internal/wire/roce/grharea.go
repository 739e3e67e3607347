package roce

import (
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// GRHArea is the first 40 bytes of a UD receive buffer.
type GRHArea [ib.GRHLen]byte

// Fill writes what a datagram with an n-byte UDP payload leaves in the area: its IPv6 header, or
// its IPv4 header in the last 20 bytes and zeros before it (IBTA A17.4.5.2). Applications find the
// sender's address there when they make an address handle from a completion.
func (a *GRHArea) Fill(p *Path, n int) {
	if !p.Is4() {
		AppendIPv6(a[:0], p, n)
		return
	}
	clear(a[:ib.GRHLen-IPv4Len])
	AppendIPv4(a[ib.GRHLen-IPv4Len:ib.GRHLen-IPv4Len], p, n)
}
