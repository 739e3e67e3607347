package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// Chain tells a failure in sentences: what the program sees, what the adapter saw, the evidence,
// and the likeliest cause. Each explains the one before.
func Chain(c *abi.Cause) []string {
	out := []string{headline(c)}
	for _, link := range []func(*abi.Cause) string{
		seen, memory, room, attempts, lastNak, state, likely,
	} {
		if text := link(c); text != "" {
			out = append(out, text)
		}
	}
	return out
}

// Line is the chain in one line.
func Line(c *abi.Cause) string { return strings.Join(Chain(c), "; ") }

func isOfPeer(c *abi.Cause) bool { return c.Flags&abi.CauseOfPeer != 0 }

func hasTerminate(c *abi.Cause) bool { return c.Flags&abi.CauseHasTerminate != 0 }

func vendorOf(c *abi.Cause) abi.Vendor { return abi.Vendor(c.Vendor & 0xff) }

// statusName is the status with its constant, as people search for it.
func statusName(code uint32) string {
	e, ok := Of(KindStatus, code)
	if !ok {
		return fmt.Sprintf("status %d", code)
	}
	return fmt.Sprintf("%s (%s, %d)", e.Words, e.Name, code)
}

func headline(c *abi.Cause) string {
	switch {
	case vendorOf(c) == abi.VendorCQOverrun:
		return fmt.Sprintf("a completion queue of %d entries overran, which ended the queue pair",
			c.Length)
	case vendorOf(c) == abi.VendorModified:
		return "the program itself moved the queue pair to ERR (ibv_modify_qp or rdma_disconnect)"
	case isOfPeer(c) && hasTerminate(c) && iwarp.Code(c.Terminate).Layer() == iwarp.LayerLLP:
		return "the stream of the peer was refused"
	case isOfPeer(c):
		text := fmt.Sprintf("a request of the peer was refused: %s, PSN %d",
			ib.Opcode(c.Opcode).Info().Name, c.PSN)
		switch {
		case hasTerminate(c) && !iwarp.Opcode(c.Opcode).IsKnown():
			text = "what the peer has sent was refused, for it is no message that there is"
		case hasTerminate(c):
			text = fmt.Sprintf("a message of the peer was refused: %v", iwarp.Opcode(c.Opcode))
		}
		if c.Flags&abi.CauseTookReceive != 0 && c.Status != 0 {
			text += fmt.Sprintf("; the receive wr_id %d completed with %s",
				c.WRID, statusName(c.Status))
		}
		return text
	case hasTerminate(c) && c.Status == uint32(rdma.WCSuccess):
		return "the connection ended with a Terminate"
	case isEnd(c) && c.Status == uint32(rdma.WCSuccess):
		return "the connection ended, with no request of this side under way"
	case c.Status == uint32(rdma.WCSuccess):
		return "the queue that the program shares with the NIC is damaged: an index in it is impossible"
	}
	return fmt.Sprintf("wr_id %d, %v: %s", c.WRID, rdma.WROpcode(c.Opcode), statusName(c.Status))
}

// isEnd reports evidence of a connection of iWARP that ended without a Terminate.
func isEnd(c *abi.Cause) bool {
	return vendorOf(c) == abi.VendorPeerEnded || vendorOf(c) == abi.VendorStreamLost
}

// peerName is the other end, as far as it is known.
func peerName(c *abi.Cause) string {
	if c.Flags&abi.CauseHasPath == 0 {
		return "the peer"
	}
	return fmt.Sprintf("the peer, %s,", farEnd(c))
}

// farEnd names the other end by addresses. Preconditions: CauseHasPath.
func farEnd(c *abi.Cause) string {
	peer := rdma.GID(c.Peer).Addr()
	if c.Flags&abi.CauseOfStream != 0 {
		return fmt.Sprintf("%v TCP port %d", peer, c.PeerQPN)
	}
	return fmt.Sprintf("%v QP %v", peer, rdma.QPN(c.PeerQPN))
}

// seen is what the adapter saw or did.
func seen(c *abi.Cause) string {
	switch code := iwarp.Code(c.Terminate); {
	case !hasTerminate(c):
	case c.Flags&abi.CauseIsTold != 0:
		return fmt.Sprintf("%s terminated the connection: %v", peerName(c), code)
	case isOfPeer(c):
		return fmt.Sprintf("it was answered with a Terminate: %v", code)
	default:
		return fmt.Sprintf("this end terminated the connection: %v", code)
	}
	if isOfPeer(c) {
		if c.Syndrome == 0 {
			return ""
		}
		return fmt.Sprintf("it was answered with %v (syndrome %#02x)", ib.Syndrome(c.Syndrome),
			c.Syndrome)
	}
	switch v := vendorOf(c); v {
	case abi.VendorNone, abi.VendorCQOverrun, abi.VendorModified:
		return ""
	case abi.VendorNak:
		return fmt.Sprintf("%s answered PSN %d with %v (syndrome %#02x)", peerName(c), c.PSN,
			ib.Syndrome(c.Syndrome), c.Syndrome)
	case abi.VendorAckTimeout:
		return fmt.Sprintf("%s did not acknowledge PSN %d within timeout × (retry_cnt + 1)",
			peerName(c), c.PSN)
	case abi.VendorPeerEnded:
		return peerName(c) + " ended the connection"
	case abi.VendorNoNIC:
		return fmt.Sprintf("the host of %s said that nothing listens on UDP port 4791"+
			" (ICMP port unreachable)", strings.TrimSuffix(peerName(c), ","))
	case abi.VendorAddressHandle:
		if mem.Fault(c.Fault) == mem.FaultPD {
			return fmt.Sprintf("address handle %d belongs to another protection domain", c.Key)
		}
		return fmt.Sprintf("there is no address handle %d", c.Key)
	default:
		e, ok := Of(KindEvidence, uint32(v))
		if !ok {
			return fmt.Sprintf("vendor error %#x", c.Vendor)
		}
		return e.Words
	}
}

// memory is what was asked for and what there was.
func memory(c *abi.Cause) string {
	isAbsent := c.Key == 0 && c.Length == 0 || c.Flags&abi.CauseHasRoom != 0
	isOther := vendorOf(c) == abi.VendorCQOverrun || vendorOf(c) == abi.VendorAddressHandle
	if isAbsent || isOther {
		return ""
	}
	asked := wanted(c)
	fault := mem.Fault(c.Fault)
	if fault == mem.FaultNone {
		return "it named " + asked
	}
	text := fmt.Sprintf("%v: %s", fault, asked)
	if fault == mem.FaultBounds && c.Window != 0 {
		text = "range outside the memory window: " + asked
	}
	if c.Flags&abi.CauseHasRegion != 0 {
		text += fmt.Sprintf("; the %s is %s and grants %v", opened(c),
			span(c.RegionAddr, c.RegionLength), rdma.Access(c.Granted))
	}
	if isOfPeer(c) && fault == mem.FaultRights {
		text += fmt.Sprintf("; the queue pair grants its peer %v", rdma.Access(c.QPAccess))
	}
	return text
}

// wanted is what a request named, and what for.
func wanted(c *abi.Cause) string {
	key := fmt.Sprintf("key %v", rdma.Key(c.Key))
	switch {
	case isInvalidate(c):
		return key + " to be invalidated"
	case isBind(c) && c.Asked == 0:
		return fmt.Sprintf("%s to be bound to %s without any access", key, span(c.Addr, c.Length))
	case isBind(c):
		return fmt.Sprintf("%s to be bound to %s for %v", key, span(c.Addr, c.Length),
			rdma.Access(c.Asked))
	case mem.Fault(c.Fault) == mem.FaultNone:
		return fmt.Sprintf("%s, %s for %v", key, span(c.Addr, c.Length), rdma.Access(c.Asked))
	}
	return fmt.Sprintf("%s, %s for %v asked", key, span(c.Addr, c.Length), rdma.Access(c.Asked))
}

// opened is what RegionAddr and RegionLength describe.
func opened(c *abi.Cause) string {
	if c.Window != 0 {
		return fmt.Sprintf("memory window (type %d)", c.Window)
	}
	return "region"
}

func span(addr, length uint64) string {
	return fmt.Sprintf("%#x…%#x (%d bytes)", addr, addr+length, length)
}

// room is a length that did not fit.
func room(c *abi.Cause) string {
	if c.Flags&abi.CauseHasRoom == 0 {
		return ""
	}
	switch {
	case isExact(c):
		return fmt.Sprintf("the local list has %d bytes, and should have %d", c.Length,
			c.RegionLength)
	case !isOfPeer(c):
		return fmt.Sprintf("the message has %d bytes, at most %d are allowed", c.Length,
			c.RegionLength)
	}
	return fmt.Sprintf("the message has %d bytes or more, there is room for %d",
		c.Length, c.RegionLength)
}

// attempts is how often it was tried.
func attempts(c *abi.Cause) string {
	if isOfPeer(c) {
		return ""
	}
	var tries []string
	add := func(format string, args ...any) { tries = append(tries, fmt.Sprintf(format, args...)) }
	if c.Timeouts > 0 {
		add("%d ACK timeouts of %v (timeout %d)", c.Timeouts, ackTimeout(c.Timeout), c.Timeout)
	}
	if c.Retries > 0 {
		add("%d retries spent of retry_cnt %d", min(c.Retries, uint32(c.RetryCnt)), c.RetryCnt)
	}
	if c.RNRTries > 0 {
		add("%d receiver-not-ready answers, rnr_retry %d", c.RNRTries, c.RNRRetry)
	}
	return strings.Join(tries, ", ")
}

func ackTimeout(code uint8) time.Duration { return 4096 * time.Nanosecond << (code & 0x1f) }

// lastNak tells the last NAK where it is not the end itself.
func lastNak(c *abi.Cause) string {
	if c.Naks == 0 || vendorOf(c) == abi.VendorNak || isOfPeer(c) {
		if c.Naks == 0 && vendorOf(c) == abi.VendorAckTimeout {
			return "no NAK ever came on this queue pair"
		}
		return ""
	}
	return fmt.Sprintf("the last NAK was %v for PSN %d (%d in all)", ib.Syndrome(c.LastNak),
		c.LastNakPSN, c.Naks)
}

// state is where the queue pair stood.
func state(c *abi.Cause) string {
	text := fmt.Sprintf("the %v queue pair was in %v", rdma.QPType(c.QPType), rdma.QPState(c.State))
	if c.Flags&abi.CauseHasPath != 0 {
		text += fmt.Sprintf(", %v → %s", rdma.GID(c.Local).Addr(), farEnd(c))
	}
	return text
}
