package headertest

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"
)

// Header is what every header can do.
type Header interface {
	Append(b []byte) []byte
	String() string
}

// Case is a header with its bytes, what it is printed as, and how it is parsed.
type Case struct {
	Header Header
	Wire   string // in hexadecimal
	Text   string
	Length int
	Parse  func(b []byte) (Header, error)
}

// Pointer is a pointer to T that is a header.
type Pointer[T any] interface {
	*T
	Header
}

// Parser turns a Parse function of a value type into one of Case.
func Parser[T any, P Pointer[T]](parse func([]byte) (T, error)) func([]byte) (Header, error) {
	return func(b []byte) (Header, error) {
		h, err := parse(b)
		return P(&h), err
	}
}

// Run runs a test of a case; truncated is the error of a header that is cut.
func Run(t *testing.T, c Case, truncated error) {
	t.Run(fmt.Sprintf("%T", c.Header), func(t *testing.T) {
		wire, err := hex.DecodeString(c.Wire)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Header.Append([]byte{0xee}); !bytes.Equal(got[1:], wire) || got[0] != 0xee {
			t.Errorf("appended %x, want ee%x", got, wire)
		}
		if len(wire) != c.Length {
			t.Errorf("length constant is %d, want %d", c.Length, len(wire))
		}
		if got := c.Header.String(); got != c.Text {
			t.Errorf("prints %q, want %q", got, c.Text)
		}
		got, err := c.Parse(append(wire, 0xff))
		if err != nil || got.String() != c.Text {
			t.Errorf("parsed %v (%v), want %v", got, err, c.Text)
		}
		for n := range wire {
			if _, err := c.Parse(wire[:n]); !errors.Is(err, truncated) {
				t.Errorf("%d bytes: error is %v, want %v", n, err, truncated)
			}
		}
	})
}
