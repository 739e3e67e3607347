package netio

import "fmt"

// Features tells what a port can do, as found at run time.
type Features struct {
	IPv4, IPv6   bool
	SegmentSend  bool // several packets in one send (UDP_SEGMENT)
	CoalesceRecv bool // several packets in one receive (UDP_GRO)
	// ReceiveBuffer and SendBuffer are what the kernel granted for a socket, in bytes of its own
	// accounting.
	ReceiveBuffer, SendBuffer int
	SourcePorts               int // source ports that flows are spread over, per IP version
}

// Feature names one offload or ability that a port may lose.
type Feature uint8

// Features that may be missing.
const (
	FeatureIPv4 Feature = iota
	FeatureIPv6
	FeatureSegmentSend
	FeatureCoalesceRecv
	FeatureUnreachable
	FeatureOverflowCount
	FeatureCapture
)

var featureNames = [...]string{
	FeatureIPv4:          "IPv4",
	FeatureIPv6:          "IPv6",
	FeatureSegmentSend:   "segmented send (UDP_SEGMENT)",
	FeatureCoalesceRecv:  "coalesced receive (UDP_GRO)",
	FeatureUnreachable:   "reports of unreachable peers (IP_RECVERR)",
	FeatureOverflowCount: "count of socket overflows (SO_RXQ_OVFL)",
	FeatureCapture:       "packet capture",
}

func (f Feature) String() string {
	if int(f) < len(featureNames) {
		return featureNames[f]
	}
	return "unknown feature"
}

// Notice tells that a feature is off and why. It is an error so that it can be matched and
// logged as one, but the port goes on without the feature.
type Notice struct {
	Feature Feature
	Cause   error
}

func (n Notice) Error() string { return fmt.Sprintf("%v is off: %v", n.Feature, n.Cause) }

// Unwrap returns the cause.
func (n Notice) Unwrap() error { return n.Cause }
