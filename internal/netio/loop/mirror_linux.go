package loop

// OpenMirror returns a port that hears itself: whatever it sends, it receives. A NIC on a network
// that is bad on purpose sends packets between its own queue pairs through one, so that they meet
// the same faults.
func OpenMirror(config Config) (*Port, error) {
	h := NewHub(config)
	p, err := h.Open("self")
	h.mirror = p
	return p, err
}
