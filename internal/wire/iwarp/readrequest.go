package iwarp

import (
	"encoding/binary"
	"fmt"

	"github.com/softrnic/softrnic/internal/rdma"
)

// ReadRequestLen is the length of a READ request's content in bytes (RFC 5040 4.4).
const ReadRequestLen = 28

// ReadRequest asks the peer to write Length bytes from its Source buffer into the Sink buffer of
// the asker (RFC 5040 4.4).
type ReadRequest struct {
	SinkTO     uint64
	SourceTO   uint64
	SinkSTag   rdma.Key
	SourceSTag rdma.Key
	Length     uint32
}

// ParseReadRequest reads a READ request at the start of b.
func ParseReadRequest(b []byte) (ReadRequest, error) {
	var r ReadRequest
	if len(b) < ReadRequestLen {
		return r, ErrTruncated
	}
	r.SinkSTag = rdma.Key(binary.BigEndian.Uint32(b))
	r.SinkTO = binary.BigEndian.Uint64(b[4:])
	r.Length = binary.BigEndian.Uint32(b[12:])
	r.SourceSTag = rdma.Key(binary.BigEndian.Uint32(b[16:]))
	r.SourceTO = binary.BigEndian.Uint64(b[20:])
	return r, nil
}

// Append appends the ReadRequestLen bytes to b.
func (r *ReadRequest) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(r.SinkSTag))
	b = binary.BigEndian.AppendUint64(b, r.SinkTO)
	b = binary.BigEndian.AppendUint32(b, r.Length)
	b = binary.BigEndian.AppendUint32(b, uint32(r.SourceSTag))
	return binary.BigEndian.AppendUint64(b, r.SourceTO)
}

func (r ReadRequest) String() string {
	return fmt.Sprintf("ReadRequest{sink=%s+0x%x source=%s+0x%x len=%d}",
		r.SinkSTag, r.SinkTO, r.SourceSTag, r.SourceTO, r.Length)
}
