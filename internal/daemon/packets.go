package daemon

import (
	"slices"
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

const (
	// packetBytesMax holds the longest headers, payload, pad and the trailer.
	packetBytesMax = ib.HeadersLenMax + 4096 + 3 + netio.TrailerBytes
	// sendBatch and sendBatchBytes bound what one call hands to a port, and a batch of sendEnough
	// bytes goes once its last group is whole: a send costs the kernel some 5 µs, whatever its
	// size. It stays in a cache, and in the smallest socket buffer that Linux gives by default. The
	// rest is room for the longest packets there could be.
	sendBatch      = 512
	sendBatchBytes = 512 << 10
	sendEnough     = 160 << 10
	// retryDelay is when a full socket is tried again.
	retryDelay = 100 * time.Microsecond
	// blockedMax is how long packets wait for a full socket. After that they are dropped, as a
	// full queue of an adapter would: traffic that stays on this NIC must not wait for them.
	blockedMax = 2 * time.Millisecond
	// unreachableMax bounds the peers that one turn reports as unreachable.
	unreachableMax = 16
)

// laneStats counts what neither the NIC nor the ports count.
type laneStats struct {
	turns, sleeps  uint64
	moves          uint64 // to another processor
	prioritised    bool
	looped         uint64 // packets that stayed on this NIC
	malformed      uint64 // headers that do not parse
	badOpcode      uint64
	notForUs       uint64 // for an address that is not in the GID table
	spoofed        uint64 // from the wire, but with a source address of our own
	withoutNetwork uint64 // for another host, from a NIC without a network
	blocked        uint64 // dropped because the socket stayed full
	lostEvents     uint64 // asynchronous events that a program did not fetch
	evicted        uint64 // sessions ended for a fault in their memory
	gidsLeftOut    uint64 // addresses that found no place in the GID table now
	groupsMissed   uint64 // multicast groups that could not be joined on an interface
}

// outgoing is a batch of packets for one port.
type outgoing struct {
	batch   []netio.Datagram
	store   []byte     // the packets, one behind the other
	used    int        // bytes of store
	group   group      // at the end of the batch
	first   int        // batch[first:count] is not sent yet
	count   int        //
	since   clock.Time // when the port became full
	retryAt clock.Time // Never unless the port is full
}

func (o *outgoing) init() {
	o.retryAt = clock.Never
	o.batch = make([]netio.Datagram, sendBatch)
	o.store = make([]byte, sendBatchBytes)
}

// isFull reports that there may be no room for another packet, or that enough are there.
func (o *outgoing) isFull() bool {
	return o.count == len(o.batch) || len(o.store)-o.used < packetBytesMax ||
		o.used >= sendEnough && o.group.isWhole
}

// clear forgets all packets.
func (o *outgoing) clear() {
	o.first, o.count, o.used, o.retryAt = 0, 0, 0, clock.Never
	o.group = group{}
}

// group is packets that a port sends as one.
type group struct {
	size, bytes, count int
	isWhole            bool // no other packet fits in
}

// room is how many packets of the group's size may follow. Preconditions: count > 0.
func (g *group) room() int {
	return min((netio.GroupBytesMax-g.bytes)/g.size, netio.GroupDatagramsMax-g.count)
}

// add takes a packet of n bytes into the group, or into the next one.
func (g *group) add(n int) {
	if g.isWhole || n > g.size || g.bytes+n > netio.GroupBytesMax {
		*g = group{size: n}
	}
	g.bytes += n
	g.count++
	g.isWhole = n < g.size || g.bytes+n > netio.GroupBytesMax || g.count == netio.GroupDatagramsMax
}

// heatUp makes the next turns ask the ports for packets.
func (l *lane) heatUp() { l.hot = l.now().Add(hotTime) }

// receive takes packets off the ports.
func (l *lane) receive(now clock.Time) bool {
	worked := false
	if l.wire != nil {
		l.wire.Poll(now)
		if now < l.hot && !l.mute || l.owed || l.wire.NextDeadline() <= now {
			worked, l.owed = l.receiveFrom(now, l.wire, false)
		}
		l.mute = false
	}
	if l.mirror != nil {
		l.mirror.Poll(now)
		mirrored, _ := l.receiveFrom(now, l.mirror, true) // asked in each turn anyway
		worked = worked || mirrored
	}
	return worked
}

// receiveFrom takes a bounded number of packets. It reports whether there was any, and whether
// the port may hold more that it has taken off the socket already: no epoll tells of those.
func (l *lane) receiveFrom(now clock.Time, p netio.Port, own bool) (worked, more bool) {
	for range batchesPerTurn {
		n, err := p.Receive(l.in)
		if err != nil || n == 0 {
			return worked, false // a receive error is counted by the port
		}
		for i := range l.in[:n] {
			l.handleDatagram(now, &l.in[i], own)
		}
		worked = true
		l.hot = now.Add(hotTime)
		if n < len(l.in) {
			return worked, false
		}
	}
	return worked, true
}

// handleDatagram gives one datagram to the NIC. own says that it came from this NIC.
func (l *lane) handleDatagram(now clock.Time, d *netio.Datagram, own bool) {
	p := &l.rx
	payload, err := p.Headers.Parse(d.Buf)
	if err != nil {
		l.stats.malformed++
		if err == ib.ErrOpcode { //nolint:errorlint // a sentinel, on the path of every packet
			l.stats.badOpcode++
		}
		return
	}
	p.Payload = payload
	if known := l.paths.arrival(&d.Path); known != nil && !own {
		p.Address = *known
		l.nic.HandlePacket(now, p)
		return
	}
	p.Address = addressOf(&d.Path)
	isOurs := l.nic.IsLocal(p.DGID)
	if !isOurs && !l.nic.HasGroup(p.DGID) {
		l.stats.notForUs++
		return
	}
	if !own && (d.Path.Src.IsLoopback() || l.nic.IsLocal(p.SGID)) {
		// Packets between programs of this NIC never use the socket: this one is from a program
		// that poses as one of them.
		l.stats.spoofed++
		return
	}
	if isOurs && !own {
		l.paths.learn(&d.Path, &p.Address)
	}
	l.nic.HandlePacket(now, p)
}

// transmit moves what the NIC wants to send.
func (l *lane) transmit(now clock.Time) bool {
	if !l.flush(now, l.wire, &l.out[0]) || !l.flush(now, l.mirror, &l.out[1]) {
		return false
	}
	// Who captures packets, or disturbs them, gets them all.
	l.nic.HandOver(l.mirror == nil && !l.taps.IsOn())
	sent := 0
	for l.mayTransmit(sent) {
		l.tx.RunMax = l.runMax()
		if !l.nic.PollTransmit(now, &l.tx) {
			break
		}
		sent += 1 + int(l.tx.More)
		if !l.route(now) {
			break
		}
	}
	handed := l.nic.TakeHandedOver()
	l.stats.looped += uint64(handed)
	sent += handed
	l.flush(now, l.wire, &l.out[0])
	l.flush(now, l.mirror, &l.out[1])
	for _, peer := range l.gone {
		if peer.noPort {
			l.nic.HandleUnreachable(now, peer.gid)
		} else {
			l.nic.HandleNoHost(now, peer.gid)
		}
	}
	l.gone = l.gone[:0]
	return sent > 0
}

// mayTransmit reports that this turn, in which n packets were sent, takes one more. It does not end
// within a group.
func (l *lane) mayTransmit(n int) bool {
	g := &l.out[0].group
	return n < transmitPerTurn ||
		n < transmitPerTurn+netio.GroupDatagramsMax && g.count > 0 && !g.isWhole
}

// runMax is how many packets the lane takes as one: as many as the group that has begun has room
// for.
func (l *lane) runMax() uint32 {
	o := &l.out[0]
	if l.wire == nil || l.mirror != nil || o.group.count == 0 || o.group.isWhole {
		return 1
	}
	room := min(len(o.batch)-o.count, (len(o.store)-o.used)/packetBytesMax)
	return uint32(min(o.group.room(), room))
}

// route sends l.tx on its way. It reports false when no more packets can be taken now.
func (l *lane) route(now clock.Time) bool {
	port, o := l.wire, &l.out[0]
	if l.isGroupPacket() {
		return l.routeGroup(now)
	}
	l.departure()
	if l.paths.out.isLocal {
		if l.mirror == nil {
			l.loop(now)
			return true
		}
		port, o = l.mirror, &l.out[1]
	}
	if port == nil {
		l.stats.withoutNetwork++
		l.markUnreachable(lostPeer{l.tx.DGID, true})
		return true
	}
	l.stage(o)
	return !o.isFull() || l.flush(now, port, o)
}

// stage serialises l.tx, whose departure is known.
func (l *lane) stage(o *outgoing) {
	p := &l.tx
	part := len(p.Payload) / int(p.More+1)
	for rest := p.Payload; ; rest = rest[part:] {
		b := p.Headers.Append(o.store[o.used:o.used])
		b = append(b, rest[:part]...)
		b = ib.AppendPad(b, p.Headers.BTH.PadCount)
		o.used += len(b) + netio.TrailerBytes
		o.group.add(len(b) + netio.TrailerBytes)
		o.batch[o.count] = l.datagram(b[: len(b) : len(b)+netio.TrailerBytes])
		o.count++
		if p.More == 0 {
			return
		}
		p.More--
		p.Headers.BTH.PSN = p.Headers.BTH.PSN.Add(1)
	}
}

// loop gives l.tx, which stays on this NIC, to its queue pair. By reference: the payload is still
// the sender's memory.
func (l *lane) loop(now clock.Time) {
	p := &l.tx
	part := len(p.Payload) / int(p.More+1)
	for rest, more := p.Payload, p.More; ; rest, more = rest[part:], more-1 {
		p.Payload, p.More = rest[:part], 0
		if l.taps.IsOn() {
			l.tap()
		}
		l.stats.looped++
		l.nic.HandlePacket(now, p)
		if more == 0 {
			return
		}
		p.Headers.BTH.PSN = p.Headers.BTH.PSN.Add(1)
	}
}

// flush sends a batch and reports whether it is empty now.
func (l *lane) flush(now clock.Time, p netio.Port, o *outgoing) bool {
	if o.first == o.count {
		return true
	}
	if o.retryAt != clock.Never && now < o.retryAt {
		return false
	}
	sent, err := p.Send(o.batch[o.first:o.count])
	o.first += sent
	if err != nil || o.first == o.count {
		// A port that fails for good is like a cable that is cut: packets are lost.
		l.stats.blocked += uint64(o.count - o.first)
		o.clear()
		return true
	}
	if o.retryAt == clock.Never || sent > 0 {
		o.since = now
	}
	o.retryAt = now.Add(retryDelay)
	if now-o.since > clock.Time(blockedMax) {
		l.stats.blocked += uint64(o.count - o.first)
		o.clear()
		return true
	}
	return false
}

// markUnreachable remembers a peer for the end of the turn: the NIC must not be told while it is
// being polled.
func (l *lane) markUnreachable(peer lostPeer) {
	if len(l.gone) < unreachableMax && !slices.Contains(l.gone, peer) {
		l.gone = append(l.gone, peer)
	}
}

// lostPeer is a host that cannot be reached.
type lostPeer struct {
	gid    rdma.GID
	noPort bool // it is there, without a NIC
}

// collectUnreachable asks a port which hosts are not there or have no NIC.
func (l *lane) collectUnreachable(p netio.Port) {
	for _, u := range p.Unreachable() {
		l.markUnreachable(lostPeer{rdma.GIDFromAddr(u.Addr), u.NoPort})
	}
}
