// Package udp is the port that anybody may open: RoCE v2 over ordinary UDP sockets of Linux, no
// privilege needed.
//
// One socket per IP version is bound to port 4791 and only receives. A small pool of sockets
// bound to high ports only sends; the source port spreads flows over equal-cost paths. None is
// connected, because that is what makes the IPv4 identification known: with DF set the kernel
// writes 0, or i in the i-th packet of a segmented send, and the ICRC covers that field.
//
//	Send     consecutive equal-sized packets of a path ──▶ one message with UDP_SEGMENT
//	         messages of one source port              ──▶ one sendmmsg
//	Receive  one recvmmsg ──▶ messages, each split again by the size that UDP_GRO reports
//
// Offloads are probed, may be disabled by RNIC_DISABLE_GSO=1 and RNIC_DISABLE_GRO=1, and one that
// fails later is switched off once with a notice.
package udp
