package verbs

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"github.com/softrnic/softrnic/internal/rdma"
)

// Endpoint is what the two ends of a connection tell each other, by any means: it marshals as
// text. For datagrams it is the address of a queue pair.
type Endpoint struct {
	QPN QPN
	PSN PSN
	GID GID
	MTU MTU
	// QKey is what datagrams to this queue pair must carry.
	QKey QKey

	// Port and GIDIndex tell where GID stands; they mean something on this side only and do not
	// travel.
	Port     uint8
	GIDIndex uint8
}

// MarshalText writes QPN, PSN, MTU, Q_Key and GID, separated by slashes.
func (e Endpoint) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%06x/%06x/%d/%08x/%v",
		uint32(e.QPN), uint32(e.PSN), e.MTU.Bytes(), uint32(e.QKey), e.GID), nil
}

// UnmarshalText reads what MarshalText wrote.
func (e *Endpoint) UnmarshalText(text []byte) error {
	bad := func(what string) error {
		return fmt.Errorf("verbs: endpoint %q: bad %s", text, what)
	}
	part := strings.SplitN(string(text), "/", 5)
	if len(part) != 5 {
		return bad("form, not QPN/PSN/MTU/Q_KEY/GID")
	}
	qpn, err := strconv.ParseUint(part[0], 16, 24)
	if err != nil {
		return bad("QPN")
	}
	psn, err := strconv.ParseUint(part[1], 16, 24)
	if err != nil {
		return bad("PSN")
	}
	bytes, err := strconv.Atoi(part[2])
	mtu := rdma.MTUFromBytes(bytes)
	if err != nil || !mtu.IsValid() || mtu.Bytes() != bytes {
		return bad("MTU")
	}
	qkey, err := strconv.ParseUint(part[3], 16, 32)
	if err != nil {
		return bad("Q_Key")
	}
	addr, err := netip.ParseAddr(part[4])
	if err != nil {
		return bad("GID")
	}
	*e = Endpoint{
		QPN: QPN(qpn), PSN: PSN(psn), MTU: mtu, QKey: QKey(qkey), GID: rdma.GIDFromAddr(addr),
	}
	return nil
}

func (e Endpoint) String() string {
	text, _ := e.MarshalText() // never fails
	return string(text)
}

// SetPSN chooses where the packets of this side begin; it is random otherwise. Call it before
// Endpoint.
func (q *QP) SetPSN(psn PSN) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.psn = psn & rdma.PSNMask
}

// Endpoint returns this side's half of a connection: port 1, and its first GID.
func (q *QP) Endpoint() (Endpoint, error) {
	gids, err := q.pd.ctx.GIDs()
	if err != nil {
		return Endpoint{}, err
	}
	for _, g := range gids {
		if g.Port == 1 && g.Type != rdma.GIDTypeRoCEv1 {
			return q.EndpointOn(g)
		}
	}
	return Endpoint{}, refuse("describe the endpoint", rdma.Refuse(syscall.EADDRNOTAVAIL,
		"port 1 has no GID: the host has no address that the NIC uses"))
}

// EndpointOn is Endpoint with a GID of the caller's choice.
func (q *QP) EndpointOn(g GIDEntry) (Endpoint, error) {
	if g.Index > 0xff || g.Port > 0xff {
		return Endpoint{}, refuse("describe the endpoint", rdma.Refuse(syscall.EINVAL,
			"a GID index or port beyond 255 does not fit an address vector"))
	}
	port, err := q.pd.ctx.Port(g.Port)
	if err != nil {
		return Endpoint{}, err
	}
	e := Endpoint{
		QPN: q.qpn, GID: g.GID, MTU: port.ActiveMTU,
		Port: uint8(g.Port), GIDIndex: uint8(g.Index),
	}
	if q.cfg.Type == rdma.QPTypeUD {
		e.QKey = q.cfg.QKey
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	e.PSN = q.psn
	q.local = &e
	return e, nil
}

// DefaultQKey is the Q_Key of a UD queue pair that was not given another.
const DefaultQKey QKey = 0x11111111

// ConnectConfig are the choices of ConnectTo, see QPAttr.
type ConnectConfig struct {
	Access                       Access
	PathMTU                      MTU // the smaller of both ports' by default
	PKeyIndex                    uint16
	MaxRdAtomic, MaxDestRdAtomic uint8
	MinRNRTimer                  uint8
	Timeout, RetryCnt, RNRRetry  uint8
	TrafficClass, SL             uint8
	HopLimit                     uint8
}

// ConnectTo takes an RC or UC queue pair from RESET to RTS, connected to a peer that does the
// same with this side's Endpoint. By default the peer may do all that memory regions allow, 16
// READs or atomics may be in flight, packets are retried 7 times after 67 ms, and a receiver that
// is not ready is asked again for ever; adjust may change that.
func (q *QP) ConnectTo(peer Endpoint, adjust ...func(*ConnectConfig)) error {
	if q.cfg.Type == rdma.QPTypeUD {
		return refuse("connect queue pair", rdma.Refuse(syscall.EINVAL,
			"a UD QP has no peer: use Activate, and address each datagram"))
	}
	local, err := q.localEndpoint()
	if err != nil {
		return err
	}
	cfg := ConnectConfig{
		Access: AccessAll, PathMTU: min(local.MTU, peer.MTU), MaxRdAtomic: 16, MaxDestRdAtomic: 16,
		MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7, HopLimit: 64,
	}
	for _, f := range adjust {
		f(&cfg)
	}
	attr := QPAttr{
		Port: local.Port, PKeyIndex: cfg.PKeyIndex, Access: cfg.Access,
		Path: AHAttr{
			DGID: peer.GID, SGIDIndex: local.GIDIndex, Port: local.Port,
			HopLimit: cfg.HopLimit, TrafficClass: cfg.TrafficClass, SL: cfg.SL,
		},
		PathMTU: cfg.PathMTU, DestQPN: peer.QPN, RQPSN: peer.PSN, SQPSN: local.PSN,
		MaxDestRdAtomic: cfg.MaxDestRdAtomic, MinRNRTimer: cfg.MinRNRTimer,
		Timeout: cfg.Timeout, RetryCnt: cfg.RetryCnt, RNRRetry: cfg.RNRRetry,
		MaxRdAtomic: cfg.MaxRdAtomic,
	}
	if err := q.ToInit(attr); err != nil {
		return err
	}
	if err := q.ToRTR(attr); err != nil {
		return err
	}
	return q.ToRTS(attr)
}

// Activate takes a UD queue pair from RESET to RTS.
func (q *QP) Activate() error {
	local, err := q.localEndpoint()
	if err != nil {
		return err
	}
	attr := QPAttr{Port: local.Port, QKey: q.cfg.QKey, SQPSN: local.PSN}
	if err := q.ToInit(attr); err != nil {
		return err
	}
	if err := q.ToRTR(attr); err != nil {
		return err
	}
	return q.ToRTS(attr)
}

func (q *QP) localEndpoint() (Endpoint, error) {
	q.mu.Lock()
	local := q.local
	q.mu.Unlock()
	if local == nil {
		return q.Endpoint()
	}
	return *local, nil
}
