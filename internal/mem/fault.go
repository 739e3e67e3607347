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
	FaultWindow        // a window's type, state or key does not allow the bind or invalidate
	FaultGone          // the process has ended, and its memory with it
)

func (f Fault) String() string {
	names := [...]string{
		"none", "unknown key", "key of another protection domain",
		"memory window of another queue pair", "memory window is not bound",
		"access right missing", "range outside the region", "process memory unreachable",
		"memory window of a type or in a state that does not allow it", "process has ended",
	}
	if int(f) < len(names) {
		return names[f]
	}
	return "unknown fault"
}
