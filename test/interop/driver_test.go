package interop

import "github.com/softrnic/softrnic/test/vmtest"

// driver is one of the kernel's software devices, the peer of ours.
type driver struct {
	link   string // its name for netlink, and that of its provider
	device string // in the guest
	ours   string // the device of ours that talks to it
	// isCRCRequired asks for a module that refuses connections without MPA's CRC.
	isCRCRequired bool
}

var (
	rxe = driver{link: "rxe", device: "rxe0", ours: "rnic0"}
	siw = driver{link: "siw", device: "siw0", ours: "iwarp0"}
)

// inGuest is what brings the driver into a guest.
func (d *driver) inGuest() vmtest.Driver {
	in := vmtest.Rxe
	if d.link == siw.link {
		in = vmtest.Siw
	}
	in.IsCRCRequired = d.isCRCRequired
	return in
}
