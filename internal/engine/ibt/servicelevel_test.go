package ibt

// ServiceLevel implements Host.
func (n *node) ServiceLevel(p *Packet) uint8 { return p.SL }
