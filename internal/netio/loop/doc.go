// Package loop is a wire in memory: a Hub that joins ports by IP address, for tests of whatever
// drives a netio.Port. Packets are real ones, ICRC and all, copied from the sender to the
// receiver; order is kept and nothing is lost but what a full queue loses.
//
//	hub := loop.NewHub(loop.Config{})
//	a, err := hub.Open("a", netip.MustParseAddr("192.0.2.1"))
//	b, err := hub.Open("b", netip.MustParseAddr("192.0.2.2"))
//
// Each port may be driven by a thread of its own.
package loop
