package cm

import (
	"encoding/binary"

	"github.com/softrnic/softrnic/internal/wire/mad"
)

// messageKinds is the number of attributes that are messages: REQ to APR.
const messageKinds = int(mad.AttributeAPR-mad.AttributeREQ) + 1

// MessageCounts counts messages of each kind; the index is the attribute less AttributeREQ.
type MessageCounts [messageKinds]uint64

// Of returns the count of a kind.
func (m *MessageCounts) Of(a mad.Attribute) uint64 {
	if i := int(a) - int(mad.AttributeREQ); i >= 0 && i < messageKinds {
		return m[i]
	}
	return 0
}

// Stats is what an engine has counted.
type Stats struct {
	Sent       MessageCounts // repetitions too
	Resent     MessageCounts // because no answer came in time
	Received   MessageCounts
	Duplicates MessageCounts
	Ignored    uint64 // MADs that mean nothing here, or now
	Dropped    uint64 // messages that the bounds left no room for
}

// Stats returns the counts.
func (e *Engine) Stats() Stats { return e.stats }

func (m *MessageCounts) add(a mad.Attribute) {
	if i := int(a) - int(mad.AttributeREQ); i >= 0 && i < messageKinds {
		m[i]++
	}
}

// addMAD counts a MAD by its bytes.
func (m *MessageCounts) addMAD(b []byte) {
	m.add(mad.Attribute(binary.BigEndian.Uint16(b[16:])))
}
