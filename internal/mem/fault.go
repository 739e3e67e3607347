package mem

// Fault says why an access was refused; FaultNone is success.
type Fault uint8

// Faults in the order in which they are checked.
const (
	FaultNone    Fault = iota
	FaultKey           // no such key
	FaultPD            // the key belongs to another protection domain
	FaultQP            // the window was bound by another queue pair
	FaultUnbound       // the window is not bound
	FaultRights        // the region does not grant the access
	FaultBounds        // the range leaves the region
	FaultMemory        // the process's memory could not be reached
	FaultWindow        // a window of type 1 cannot be invalidated
	FaultGone          // the process has ended, and its memory with it
	// Why a window is not bound or a key not invalidated.
	FaultWindowBound  // a window of type 2 is bound already
	FaultWindowKey    // the new key is the one that the window has
	FaultWindowEmpty  // a window of type 2 of no bytes
	FaultWindowAccess // access flags that no window of the type can have
	FaultNotWindow    // the key to invalidate is a region's
	FaultRegionKey    // no region has the lkey
	FaultRegionPD     // the region belongs to another protection domain
	FaultRegionBased  // the region is zero-based
)

func (f Fault) String() string {
	names := [...]string{
		"none", "unknown key", "key of another protection domain",
		"memory window of another queue pair", "memory window is not bound",
		"access right missing", "range outside the region", "process memory unreachable",
		"memory window of type 1", "process has ended", "memory window is bound already",
		"the memory window has that key now", "memory window of no bytes",
		"access flags that the memory window cannot have", "key of a region",
		"unknown lkey of the region", "region of another protection domain",
		"region is zero-based",
	}
	if int(f) < len(names) {
		return names[f]
	}
	return "unknown fault"
}
