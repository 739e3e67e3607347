// Package mem holds memory regions: keys, protection domains, rights, bounds, scatter/gather, and
// the access to application memory behind an interface.
//
// Every access names a key and is checked anew (IBTA 10.6): nothing is resolved once and trusted
// later, so a deregistered key is dead at the next packet. An access that is refused yields a
// Fault, a value that the engines turn into a completion status or a NAK.
package mem
