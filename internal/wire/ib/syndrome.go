package ib

import (
	"fmt"
	"math/bits"
	"time"
)

// Syndrome is the first byte of an AETH: a kind in the upper three bits, and a value of five bits
// whose meaning depends on the kind (IBTA 9.7.5.1.1 table 46, 9.7.5.2).
type Syndrome uint8

// SyndromeKind is what a syndrome says.
type SyndromeKind uint8

// Kinds of syndrome.
const (
	SyndromeACK SyndromeKind = iota
	SyndromeRNRNAK
	SyndromeNAK
	// SyndromeReserved is any other pattern; a requester drops such an acknowledge.
	SyndromeReserved
)

func (k SyndromeKind) String() string {
	return [...]string{"ACK", "RNR NAK", "NAK", "reserved"}[k&3]
}

const (
	syndromeKindMask  Syndrome = 0xe0
	syndromeValueMask Syndrome = 0x1f
	syndromeRNR       Syndrome = 0x20
	syndromeNAK       Syndrome = 0x60
)

// ACK returns an acknowledge with a credit code.
func ACK(c CreditCode) Syndrome { return Syndrome(c) & syndromeValueMask }

// RNRNAK returns a receiver-not-ready NAK with a timer code.
func RNRNAK(t RNRTimer) Syndrome { return syndromeRNR | Syndrome(t)&syndromeValueMask }

// NAK returns a NAK with a code.
func NAK(c NAKCode) Syndrome { return syndromeNAK | Syndrome(c)&syndromeValueMask }

// Kind says how to read the value.
func (s Syndrome) Kind() SyndromeKind {
	switch s & syndromeKindMask {
	case 0:
		return SyndromeACK
	case syndromeRNR:
		return SyndromeRNRNAK
	case syndromeNAK:
		return SyndromeNAK
	}
	return SyndromeReserved
}

// Credits returns the credit code of an ACK.
func (s Syndrome) Credits() CreditCode { return CreditCode(s & syndromeValueMask) }

// RNRTimer returns the timer code of an RNR NAK.
func (s Syndrome) RNRTimer() RNRTimer { return RNRTimer(s & syndromeValueMask) }

// NAKCode returns the code of a NAK.
func (s Syndrome) NAKCode() NAKCode { return NAKCode(s & syndromeValueMask) }

func (s Syndrome) String() string {
	switch s.Kind() {
	case SyndromeACK:
		return "ACK " + s.Credits().String()
	case SyndromeRNRNAK:
		return "RNR NAK " + s.RNRTimer().String()
	case SyndromeNAK:
		return "NAK " + s.NAKCode().String()
	default:
		return fmt.Sprintf("reserved syndrome 0x%02x", uint8(s))
	}
}

// CreditCode is the five-bit code of how many receive requests a responder has left
// (IBTA 9.7.7.2.4): codes go in steps of alternately 3/2 and 4/3, so that two codes double.
type CreditCode uint8

// CreditsInvalid means that the responder gives no credits: there is no end-to-end flow control.
const CreditsInvalid CreditCode = 31

// creditsMax is the largest code that means a number.
const creditsMax CreditCode = 30

// Decode returns the number of receive requests; ok is false where the code says nothing.
func (c CreditCode) Decode() (n int, ok bool) {
	if c >= CreditsInvalid {
		return 0, false
	}
	if c < 2 {
		return int(c), true
	}
	// Even code 2k is 2^k, odd code 2k+1 is 3·2^(k−1).
	k := uint(c / 2)
	if c%2 == 0 {
		return 1 << k, true
	}
	return 3 << (k - 1), true
}

// CreditsFor returns the largest code that promises no more than n receive requests.
func CreditsFor(n int) CreditCode {
	if n < 2 {
		return CreditCode(max(n, 0))
	}
	k := bits.Len(uint(n)) - 1
	c := 2 * k
	if n >= 3<<(k-1) {
		c++
	}
	return CreditCode(min(c, int(creditsMax)))
}

func (c CreditCode) String() string {
	n, ok := c.Decode()
	if !ok {
		return "no credits"
	}
	return fmt.Sprintf("credits=%d", n)
}

// RNRTimer is the five-bit code of how long a requester must wait after an RNR NAK
// (IBTA 9.7.5.2.8 table 45). Code 0 is the longest wait.
type RNRTimer uint8

// rnrTimers are the waits in units of 10 µs.
var rnrTimers = [32]time.Duration{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// Duration returns the wait.
func (t RNRTimer) Duration() time.Duration {
	return rnrTimers[t&RNRTimer(syndromeValueMask)] * (10 * time.Microsecond)
}

// IsValid reports a code of five bits.
func (t RNRTimer) IsValid() bool { return t <= RNRTimer(syndromeValueMask) }

func (t RNRTimer) String() string { return "timer=" + t.Duration().String() }

// NAKCode says why a responder refuses a request (IBTA 9.7.5.2 table 46).
type NAKCode uint8

// NAK codes.
const (
	NAKSequence       NAKCode = 0
	NAKInvalidRequest NAKCode = 1
	NAKRemoteAccess   NAKCode = 2
	NAKRemoteOp       NAKCode = 3
	NAKInvalidRD      NAKCode = 4
)

// IsKnown reports whether the code has a meaning.
func (c NAKCode) IsKnown() bool { return c <= NAKInvalidRD }

func (c NAKCode) String() string {
	names := [...]string{
		"PSN sequence error", "invalid request", "remote access error",
		"remote operational error", "invalid RD request",
	}
	if c.IsKnown() {
		return names[c]
	}
	return fmt.Sprintf("reserved code %d", uint8(c))
}
