// Package ib is the transport headers of the InfiniBand architecture (IBTA volume 1, chapters 5, 8
// and 9) as they travel inside RoCE v2 datagrams and InfiniBand packets.
//
// There are two levels. A view (Packet, BTHView, GRHView) lies over bytes, shows any packet, and
// keeps reserved bits and unknown values; it is for tools. A value (BTH, RETH, AETH, …, and
// Headers, which is all of them) can hold legal headers only and is what engines use. Headers in
// which every bit pattern is legal have a value only.
//
// Each header has a file with its length, parser, appender and String. Which headers follow a BTH
// is a row of the opcode table in opcode.go.
//
// The receive path of an engine:
//
//	var h ib.Headers
//	payload, err := h.Parse(datagram[:len(datagram)-4]) // the ICRC was checked and cut off
//	if err != nil { … count it, drop the packet … }
//	switch h.BTH.Opcode.Info().Operation { … }
//
// and its transmit path:
//
//	h.BTH.PadCount = ib.PadCount(len(payload))
//	b = h.Append(b[:0])
//	b = append(b, payload...)
//	b = ib.AppendPad(b, h.BTH.PadCount)
//
// No function here allocates except the String methods, and none panics on bytes from a peer.
package ib
