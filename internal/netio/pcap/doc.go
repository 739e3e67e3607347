// Package pcap writes what passes through a port into a pcapng file that Wireshark and tshark
// read, with Ethernet, IP and UDP headers made to match: Port from the beginning of a port to its
// end, Tap with Capture for as long as somebody wants, also packets that pass no port.
//
// Either belongs directly on the port that owns the sockets, below a fault injector: then the file
// has what is on the wire. What a UDP port cannot know is made up and says so by its values:
// Ethernet addresses are 02:00 and the last four bytes of the IP address; the identification of a
// received IPv4 packet is the one that the port assumed, and its ICRC is made to fit.
// Packets between queue pairs of one NIC have the headers that they would have on a wire, but they
// may be longer than any path MTU: up to 32 KiB of payload (docs/adr/0011-local-segments.md).
// A packet that the kernel refuses to send is in the file all the same.
//
// Streams shows connections of TCP. Sockets give bytes: segments are made up around them, with
// sequence numbers that count from the handshake, of up to 64 KiB. A connection between two queue
// pairs of one NIC is shown once. Whoever captures from the middle of a connection gets a made-up
// beginning, without private data, and in each direction what follows from an FPDU on.
package pcap
