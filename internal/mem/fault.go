package mem

// Fault says why an access was refused; FaultNone is success.
type Fault uint8

// Faults in the order in which they are checked.
const (
	FaultNone   Fault = iota
	FaultKey          // no such key
	FaultPD           // the key belongs to another protection domain
	FaultRights       // the region does not grant the access
	FaultBounds       // the range leaves the region
	FaultMemory       // the process's memory could not be reached
)

func (f Fault) String() string {
	names := [...]string{
		"none", "unknown key", "key of another protection domain", "access right missing",
		"range outside the region", "process memory unreachable",
	}
	if int(f) < len(names) {
		return names[f]
	}
	return "unknown fault"
}
