package ib

import (
	"math"
	"testing"
	"time"
)

func TestSyndrome_All256_Kinds(t *testing.T) {
	count := map[SyndromeKind]int{}
	for i := range 256 {
		s := Syndrome(i)
		count[s.Kind()]++
		var again Syndrome
		switch s.Kind() {
		case SyndromeACK:
			again = ACK(s.Credits())
		case SyndromeRNRNAK:
			again = RNRNAK(s.RNRTimer())
		case SyndromeNAK:
			again = NAK(s.NAKCode())
		case SyndromeReserved:
			again = s
		}
		if again != s {
			t.Errorf("syndrome %#02x is rebuilt as %#02x", i, uint8(again))
		}
		if s.String() == "" || s.Kind().String() == "" {
			t.Errorf("syndrome %#02x has no text", i)
		}
	}
	want := map[SyndromeKind]int{
		SyndromeACK: 32, SyndromeRNRNAK: 32, SyndromeNAK: 32, SyndromeReserved: 160,
	}
	for k, n := range want {
		if count[k] != n {
			t.Errorf("%d syndromes are %v, want %d", count[k], k, n)
		}
	}
}

func TestSyndrome_Bytes(t *testing.T) {
	tests := []struct {
		s    Syndrome
		want uint8
		text string
	}{
		{ACK(CreditsInvalid), 0x1f, "ACK no credits"},
		{ACK(CreditsFor(16)), 0x08, "ACK credits=16"},
		{RNRNAK(12), 0x2c, "RNR NAK timer=640µs"},
		{NAK(NAKSequence), 0x60, "NAK PSN sequence error"},
		{NAK(NAKInvalidRequest), 0x61, "NAK invalid request"},
		{NAK(NAKRemoteAccess), 0x62, "NAK remote access error"},
		{NAK(NAKRemoteOp), 0x63, "NAK remote operational error"},
		{NAK(NAKInvalidRD), 0x64, "NAK invalid RD request"},
		{NAK(9), 0x69, "NAK reserved code 9"},
		{0x40, 0x40, "reserved syndrome 0x40"},
	}
	for _, tt := range tests {
		if uint8(tt.s) != tt.want || tt.s.String() != tt.text {
			t.Errorf("got %#02x %q, want %#02x %q", uint8(tt.s), tt.s, tt.want, tt.text)
		}
	}
}

// creditTable is the standard's, written out.
var creditTable = []int{
	0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
	3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
}

func TestCreditCode_Table(t *testing.T) {
	for i, want := range creditTable {
		c := CreditCode(i)
		if n, ok := c.Decode(); n != want || !ok {
			t.Errorf("code %d means %d (%t), want %d", i, n, ok, want)
		}
		if got := CreditsFor(want); got != c {
			t.Errorf("%d credits have code %d, want %d", want, got, i)
		}
	}
	if n, ok := CreditsInvalid.Decode(); ok {
		t.Errorf("code 31 means %d credits, want none", n)
	}
}

func TestCreditsFor_NeverPromisesTooMuch(t *testing.T) {
	for n := range 70000 {
		c := CreditsFor(n)
		got, ok := c.Decode()
		if !ok || got > n {
			t.Fatalf("CreditsFor(%d) is code %d, which means %d", n, c, got)
		}
		if next, ok := (c + 1).Decode(); ok && next <= n {
			t.Fatalf("CreditsFor(%d) is code %d, but code %d fits as well", n, c, c+1)
		}
	}
	if got := CreditsFor(-1); got != 0 {
		t.Errorf("CreditsFor(-1) is %d, want 0", got)
	}
	if got := CreditsFor(math.MaxInt); got != creditsMax {
		t.Errorf("CreditsFor(MaxInt) is %d, want %d", got, creditsMax)
	}
}

func TestRNRTimer_Table(t *testing.T) {
	want := []string{
		"655.36ms", "10µs", "20µs", "30µs", "40µs", "60µs", "80µs", "120µs", "160µs", "240µs",
		"320µs", "480µs", "640µs", "960µs", "1.28ms", "1.92ms", "2.56ms", "3.84ms", "5.12ms",
		"7.68ms", "10.24ms", "15.36ms", "20.48ms", "30.72ms", "40.96ms", "61.44ms", "81.92ms",
		"122.88ms", "163.84ms", "245.76ms", "327.68ms", "491.52ms",
	}
	for i, w := range want {
		d, err := time.ParseDuration(w)
		if err != nil {
			t.Fatal(err)
		}
		if got := RNRTimer(i).Duration(); got != d {
			t.Errorf("timer %d is %v, want %v", i, got, d)
		}
		if !RNRTimer(i).IsValid() {
			t.Errorf("timer %d is not valid", i)
		}
	}
	if RNRTimer(32).IsValid() {
		t.Error("timer 32 is valid")
	}
}
