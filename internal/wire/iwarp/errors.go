package iwarp

import "errors"

// Why bytes are no MPA frame, or no content of a message. They are sentinels, so that a receive
// path decides by comparing and never allocates.
var (
	// ErrTruncated: fewer bytes than the header.
	ErrTruncated = errors.New("iwarp: message is shorter than its header")
	// ErrKey: the stream does not begin with the key of an MPA frame (RFC 5044 7.1.1); the peer
	// speaks something else.
	ErrKey = errors.New("iwarp: stream does not begin with an MPA frame")
	// ErrRevision: an MPA revision other than 1 and 2 (RFC 5044 7.1.1, RFC 6581 6).
	ErrRevision = errors.New("iwarp: unknown MPA revision")
	// ErrPrivateData: more private data than RFC 5044 7.1.1 allows.
	ErrPrivateData = errors.New("iwarp: more than 512 bytes of private data")
	// ErrSetup: the frame announces the word of RFC 6581 and is too short to have it.
	ErrSetup = errors.New("iwarp: enhanced MPA frame without IRD and ORD")
)

// fault is why an ULPDU is refused, with the code that its sender is told.
type fault struct {
	code Code
	text string
}

func (f *fault) Error() string { return f.text }

// Faults of Header.Parse.
var (
	errShort = &fault{CodeDDPLocal, "iwarp: DDP segment is shorter than its header"}

	errTaggedVersion   = &fault{CodeTaggedVersion, "iwarp: unknown DDP version"}
	errUntaggedVersion = &fault{CodeUntaggedVersion, "iwarp: unknown DDP version"}
	errRDMAPVersion    = &fault{CodeRDMAPVersion, "iwarp: unknown RDMAP version"}

	errOpcode = &fault{CodeOpcode, "iwarp: unknown opcode, or on the wrong queue"}
	errQueue  = &fault{CodeUntaggedQN, "iwarp: unknown queue number"}
)

// CodeOf returns what Terminate a refusal of Header.Parse asks for.
func CodeOf(err error) (Code, bool) {
	f, ok := err.(*fault) //nolint:errorlint // never wrapped, and errors.As would allocate
	if !ok {
		return 0, false
	}
	return f.code, true
}
