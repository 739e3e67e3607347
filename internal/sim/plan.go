package sim

import (
	"fmt"
	"math"
	"time"

	"github.com/softrnic/softrnic/internal/netio/faulty"
	"github.com/softrnic/softrnic/internal/rdma"
)

// plan is what one seed makes of the world. Each feature is present in a part of the seeds only:
// worlds with everything on hide bugs that need something to be off.
type plan struct {
	hosts, apps, connections, datagrams int
	domains                             int // XRC connections
	vandals                             int // pairs of hostile applications

	duration time.Duration
	profile  faulty.Profile
	marks    float64 // congestion marks
	picky    int     // kind of packet that gets lost more often; see pickyKinds
	pickLoss float64
	mtu      rdma.MTU

	burst      int           // packets per turn of a host
	packetCost time.Duration // what one costs a host
	lag        time.Duration // a host notices things that much later
	lateTimers float64
	// localSegment is the size of packets that stay on a NIC; 0: the path MTU.
	localSegment uint32
	lostBells    float64

	pause      time.Duration // of an application between two looks
	posts      int           // work requests per look at most
	quota      uint64        // work requests in all
	maxMessage int
	// areaBytes is the size of the regions for buffers; windowsRoom what windows are cut from.
	areaBytes, windowsRoom int
	// receiveBudget bounds the bytes of the receives that one queue has posted, so that no queue takes
	// the memory that another needs to go on.
	receiveBudget int
	isSlow        bool // applications post receives late
	bad           float64
	events        float64 // chance that a CQ is waited for instead of polled
	shared        float64 // chance that an application has a shared receive queue
	remote        float64 // chance that a region is not mapped
	strips        float64 // chance that an XRC connection loses a queue or a window
	doors         float64 // share of requests that open and shut memory windows

	partitions, clogs, restarts, deaths, deregs, cycles, overruns, ports bool
	mishapGap                                                            time.Duration
}

// Profiles of faults by name. The empty name lets the seed choose.
const (
	FaultsNone  = "none"
	FaultsLight = "light"
	FaultsHeavy = "heavy"
	FaultsChaos = "chaos"
)

// FaultNames lists the profiles that Config.Faults may name.
var FaultNames = []string{FaultsNone, FaultsLight, FaultsHeavy, FaultsChaos}

func (w *World) makePlan() {
	p := &w.plan
	p.hosts = w.between(1, 4)
	if w.cfg.Hosts > 0 {
		p.hosts = w.cfg.Hosts
	}
	p.apps = p.hosts + w.between(1, 2)
	p.connections = w.between(1, 6)
	p.datagrams = w.pick(0, 0, 2, 3)
	p.domains = w.pick(0, 0, 1, 2, 3)
	p.duration = w.delay(5*time.Millisecond, time.Duration(w.pick(20, 100, 600))*time.Millisecond)
	p.quota = 4000
	if w.cfg.Duration > 0 {
		p.duration, p.quota = w.cfg.Duration, math.MaxUint64
	}
	p.mtu = rdma.MTU(w.between(1, 5))
	p.burst = w.pick(1, 4, 16, 64)
	p.packetCost = time.Duration(w.pick(50, 200, 200, 1000, 1000, 20000)) * time.Nanosecond
	p.lag = time.Duration(w.pick(0, 1, 3, 50)) * time.Microsecond
	p.lateTimers = w.pickFloat(0, 0, 0.2)
	p.lostBells = w.pickFloat(0, 0, 0.02)
	p.localSegment = uint32(w.pick(0, 0, 5000, 32<<10))
	p.overruns = w.chance(0.1)
	p.vandals = w.pick(0, 0, 0, 0, 1, 2)
	p.pause = time.Duration(w.pick(5, 20, 100, 400)) * time.Microsecond
	p.posts = w.pick(1, 4, 16)
	p.maxMessage = w.pick(64, 1000, 9000, 40000, 100000)
	p.isSlow = w.chance(0.3)
	p.bad = w.pickFloat(0, 0, 0.005, 0.02)
	p.events = w.pickFloat(0, 0.5, 1)
	p.shared = w.pickFloat(0, 0.5, 1)
	p.remote = w.pickFloat(0, 0.5, 1)
	p.profile.Delay = time.Duration(w.pick(1, 5, 5, 20, 20, 200, 200, 8000)) * time.Microsecond
	p.marks = w.pickFloat(0, 0, 0, 0.05)
	p.areaBytes, p.windowsRoom, p.receiveBudget = 640<<10, 640<<10, 64<<10
	w.planFaults(w.cfg.Faults)
	if w.chance(0.03) && !p.isMany() {
		w.planLarge()
	}
	p.doors = w.pickFloat(0, 0, 0.05, 0.3)
}

// planLarge makes a world of few messages with thousands of packets each.
func (w *World) planLarge() {
	p := &w.plan
	if w.cfg.Hosts == 0 {
		p.hosts = 2
	}
	p.apps, p.connections, p.domains = 2, w.between(1, 2), 0
	p.datagrams, p.vandals = 0, 0
	p.mtu, p.maxMessage = rdma.MTU(w.between(1, 2)), w.pick(500_000, 1_500_000)
	p.areaBytes, p.windowsRoom = 6<<20, 8<<20
	p.quota = min(p.quota, 60)
}

func (w *World) planFaults(name string) {
	if name == "" {
		name = FaultNames[w.between(0, len(FaultNames)-1)]
	}
	p := &w.plan
	p.mishapGap = p.duration / time.Duration(w.between(2, 6))
	switch name {
	case FaultsLight:
		w.planNetwork(0.01)
	case FaultsHeavy:
		w.planNetwork(0.15)
	case FaultsChaos:
		w.planNetwork(w.pickFloat(0, 0.01, 0.05))
		p.partitions, p.clogs = w.chance(0.4), w.chance(0.3)
		p.restarts, p.deaths = w.chance(0.3), w.chance(0.3)
		p.deregs, p.ports = w.chance(0.3), w.chance(0.2)
	}
	p.cycles = w.chance(0.5)
	if p.domains > 0 {
		p.strips = w.pickFloat(0, 0.02, 0.1)
	}
}

// planNetwork gives the links faults, each kind in some seeds.
func (w *World) planNetwork(most float64) {
	f := &w.plan.profile
	roll := func(share float64) float64 {
		if !w.chance(share) {
			return 0
		}
		return w.random.Float64() * most
	}
	f.Loss, f.Dup, f.Reorder, f.Corrupt = roll(0.7), roll(0.5), roll(0.5), roll(0.4)
	f.Gap = time.Duration(w.pick(10, 100, 1000, 20000)) * time.Microsecond
	if w.chance(0.4) {
		w.plan.picky = w.between(0, len(pickyKinds)-1)
		w.plan.pickLoss = w.random.Float64() * min(0.5, 5*most)
	}
	if w.chance(0.3) {
		f.Jitter = time.Duration(w.random.Float64() * float64(f.Delay))
	}
	if w.chance(0.2) {
		f.Rate = uint64(w.pick(1, 10)) * 1e9
	}
}

// loss is the chance that a packet does not arrive.
func (p *plan) loss() float64 { return p.profile.Loss + p.profile.Corrupt + p.pickLoss }

func (p *plan) String() string {
	s := fmt.Sprintf("%d hosts, %d applications, %d connections, %d of XRC, %d datagram QPs, %v, "+
		"MTU %v, messages up to %d B, network %v", p.hosts, p.apps, p.connections, p.domains, p.datagrams,
		p.duration.Round(time.Microsecond), p.mtu, p.maxMessage, p.profile)
	if p.pickLoss > 0 {
		s += fmt.Sprintf(", %.0f%% of %s lost", 100*p.pickLoss, pickyKinds[p.picky].name)
	}
	for _, f := range []struct {
		on   bool
		name string
	}{
		{p.isSlow, "slow applications"},
		{p.bad > 0, "bad requests"},
		{p.partitions, "partitions"},
		{p.clogs, "clogs"},
		{p.restarts, "NIC restarts"},
		{p.deaths, "deaths"},
		{p.deregs, "deregistrations"},
		{p.cycles, "state cycles"},
		{p.overruns, "CQ overruns"},
		{p.lostBells > 0, "late bells"},
		{p.vandals > 0, "vandals"},
		{p.doors > 0, "memory windows"},
		{p.strips > 0, "lost targets"},
	} {
		if f.on {
			s += ", " + f.name
		}
	}
	return s
}
