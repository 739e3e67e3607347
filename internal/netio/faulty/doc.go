// Package faulty makes a good network bad, by seed: it loses, doubles, damages, delays, reorders
// and slows packets, so that people can test their programs before the real network does.
//
// A Profile says how bad, as text or as a value:
//
//	profile, err := faulty.Parse("loss=1%,dup=0.5%,reorder=2%,corrupt=0.1%,delay=200us,seed=7")
//
// A Decider turns it into one Verdict per packet and is all that a simulator or a loopback path
// needs; it knows nothing of packets but their size. Port is a decorator of netio.Port that
// carries verdicts out on a live NIC:
//
//	packet ──▶ rate (queue, tail drop) ──▶ loss ──▶ damage ──▶ delay ± jitter ──▶ ───▶ wire
//	                                                    └─ held back: others overtake ─┘
//
// Without reordering, packets keep their order whatever the jitter, as in the queue of a switch.
package faulty
