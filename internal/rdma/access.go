package rdma

// Access says what may be done to a memory region or by a QP's peer; values of
// enum ibv_access_flags.
type Access uint32

// Access flags.
const (
	AccessLocalWrite   Access = 1 << 0
	AccessRemoteWrite  Access = 1 << 1
	AccessRemoteRead   Access = 1 << 2
	AccessRemoteAtomic Access = 1 << 3
	AccessMWBind       Access = 1 << 4
	AccessZeroBased    Access = 1 << 5
	AccessOnDemand     Access = 1 << 6
	AccessHugeTLB      Access = 1 << 7
	AccessFlushGlobal  Access = 1 << 8
	AccessFlushPersist Access = 1 << 9
	AccessRelaxedOrder Access = 1 << 20
)

// AccessOptional is the range of flags that a device may ignore (IBV_ACCESS_OPTIONAL_RANGE).
const AccessOptional Access = 0x3ff00000

// AccessRemoteAny are the rights that a remote key can carry.
const AccessRemoteAny = AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic |
	AccessFlushGlobal | AccessFlushPersist

// AccessWindow are the flags that binding a memory window may carry (ibv_bind_mw(3)). Local write
// and bind, which the man page does not list, mean nothing there, but programs pass them.
const AccessWindow = AccessRemoteAny | AccessZeroBased | AccessLocalWrite | AccessMWBind |
	AccessOptional

// Has reports whether all of want is granted.
func (a Access) Has(want Access) bool { return a&want == want }

// String lists the flags by their short names.
func (a Access) String() string {
	names := [...]struct {
		bit  Access
		name string
	}{
		{AccessLocalWrite, "local_write"},
		{AccessRemoteWrite, "remote_write"},
		{AccessRemoteRead, "remote_read"},
		{AccessRemoteAtomic, "remote_atomic"},
		{AccessMWBind, "mw_bind"},
		{AccessZeroBased, "zero_based"},
		{AccessOnDemand, "on_demand"},
		{AccessHugeTLB, "hugetlb"},
		{AccessFlushGlobal, "flush_global"},
		{AccessFlushPersist, "flush_persistent"},
		{AccessRelaxedOrder, "relaxed_ordering"},
	}
	out := ""
	for _, n := range names {
		if a&n.bit == 0 {
			continue
		}
		if out != "" {
			out += "|"
		}
		out += n.name
	}
	if out == "" {
		return "local_read"
	}
	return out
}
