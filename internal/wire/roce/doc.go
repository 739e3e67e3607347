// Package roce is the framing of RoCE v2 (IBTA annex A17): Ethernet, IPv4 or IPv6, UDP to port
// 4791, a transport packet of package ib, and the invariant CRC that ends it.
//
//	+----------+-----------+-----+---------------------------------------+------+
//	| Ethernet | IPv4/IPv6 | UDP | BTH, extended headers, payload, pad   | ICRC |
//	+----------+-----------+-----+---------------------------------------+------+
//	           '------------ covered by the ICRC, some fields masked ----'
//
// A port that is a UDP socket sends and receives the UDP payload only. Path says what the headers
// around it hold, so that the ICRC can be computed and checked all the same:
//
//	b = roce.AppendICRC(&path, b)              // b = BTH … pad
//	switch roce.CheckICRC(&path, datagram) { … }
//
// A port that sees frames, and tools that read captures, use Frame.
//
// No function here allocates except the String methods, and none panics on bytes from a peer.
package roce
