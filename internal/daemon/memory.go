package daemon

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/shm"
)

// foreignMapsMax bounds the memfds of one application that the NIC keeps mapped: the kernel allows
// a process 65530 mappings by default, and others want some too. What finds no room is reached as
// process memory, more slowly.
const foreignMapsMax = 2048

// queueAllocator makes the memory of queues (nic.Allocator). Lane.
type queueAllocator struct {
	lane    *lane
	owner   *session // of the request that the lane executes
	most    int64    // bytes that a session may have
	garbage []*shm.Memory
}

// queueMemory is one queue, shared with the application of a session.
type queueMemory struct {
	*shm.Memory
	allocator *queueAllocator
	owner     *session
}

// Alloc implements nic.Allocator.
func (a *queueAllocator) Alloc(bytes int) (nic.Shared, error) {
	if r := a.mayOwn(int64(bytes)); r != nil {
		return nil, r
	}
	if err := a.lane.budget.take(int64(bytes)); err != nil {
		return nil, err
	}
	m, err := shm.Create("rnic-queue", bytes)
	if err != nil {
		a.lane.budget.give(int64(bytes))
		return nil, err
	}
	q := &queueMemory{Memory: m, allocator: a, owner: a.owner}
	if a.owner != nil {
		a.owner.queues[q] = struct{}{}
		a.owner.queueBytes += int64(bytes)
	}
	return q, nil
}

// mayOwn refuses memory that would be too much for one program. One gets half of the mappings that
// there are, at most.
func (a *queueAllocator) mayOwn(bytes int64) error {
	switch {
	case a.owner == nil:
	case bytes > a.most-a.owner.queueBytes:
		return fmt.Errorf("limit of %d bytes a program", a.most)
	case int64(len(a.owner.queues)) >= a.lane.budget.mapsMax/2:
		return fmt.Errorf("limit of %d queues a program (sysctl vm.max_map_count bounds them)",
			a.lane.budget.mapsMax/2)
	}
	return nil
}

// Release implements nic.Shared. The unmapping is left to who asked for it.
func (q *queueMemory) Release() {
	if q.owner != nil {
		delete(q.owner.queues, q)
		q.owner.queueBytes -= int64(len(q.Bytes()))
	}
	q.allocator.lane.budget.give(int64(len(q.Bytes())))
	q.allocator.garbage = append(q.allocator.garbage, q.Memory)
}

// foreignMap is a memfd of an application, mapped once however many regions lie in it.
type foreignMap struct {
	*shm.Memory
	key   foreignKey
	users int
	fd    int // for who may map the memory himself (ADR 0026), or −1
}

type foreignKey struct {
	shm.Identity
	writable bool
}

// foreignMaps are the mappings of one session.
type foreignMaps struct {
	budget *budget
	bytes  int64
	byKey  map[foreignKey]*foreignMap
	byMR   map[uint32][]*foreignMap
}

func newForeignMaps(b *budget) foreignMaps {
	return foreignMaps{
		budget: b, byKey: map[foreignKey]*foreignMap{}, byMR: map[uint32][]*foreignMap{},
	}
}

// get returns the mapping of a checked memfd with one more user, or nil where there can be none.
func (f *foreignMaps) get(file *shm.Foreign, writable bool) *foreignMap {
	key := foreignKey{file.Identity, writable}
	m := f.byKey[key]
	if m != nil && uint64(len(m.Bytes())) >= file.Size {
		m.users++
		return m
	}
	// A memfd that has grown is mapped anew; regions in the old mapping keep it.
	bytes := int64(file.Size)
	if len(f.byKey) >= foreignMapsMax || bytes > sessionBytesMax-f.bytes ||
		f.budget.take(bytes) != nil {
		return nil
	}
	mapped, err := file.Map(writable)
	if err != nil {
		f.budget.give(bytes)
		return nil
	}
	f.bytes += bytes
	m = &foreignMap{Memory: mapped, key: key, users: 1, fd: -1}
	f.byKey[key] = m
	return m
}

// put gives mappings back.
func (f *foreignMaps) put(maps []*foreignMap) {
	for _, m := range maps {
		m.users--
		if m.users > 0 {
			continue
		}
		if f.byKey[m.key] == m {
			delete(f.byKey, m.key)
		}
		f.bytes -= int64(len(m.Bytes()))
		f.budget.give(int64(len(m.Bytes())))
		m.Release()
		if m.fd >= 0 {
			_ = unix.Close(m.fd)
		}
	}
}

// release unmaps everything. The NIC has no region of the session any more.
func (f *foreignMaps) release() {
	for _, maps := range f.byMR {
		f.put(maps)
	}
	f.byMR = nil
}

// holds reports whether a fault address lies in memory shared with the session. Lane.
func (s *session) holds(addr uintptr) bool {
	in := func(b []byte) bool {
		at := shm.AddressOf(b)
		return addr >= at && addr-at < uintptr(len(b))
	}
	if s.bells != nil && in(s.bells.Bytes()) {
		return true
	}
	for q := range s.queues {
		if in(q.Bytes()) {
			return true
		}
	}
	for _, segs := range s.mapped {
		for i := range segs {
			if in(segs[i].Mapped) {
				return true
			}
		}
	}
	return false
}

var errFault = errors.New("its shared memory could not be accessed (SIGBUS)")

// survive ends the session in whose memory the lane faulted. Any other panic is a bug of ours.
func (l *lane) survive(x any) {
	fault, ok := x.(interface{ Addr() uintptr })
	if !ok {
		panic(x)
	}
	for s := range l.sessions {
		if s.holds(fault.Addr()) {
			l.evict(s, errFault)
			return
		}
	}
	panic(x)
}

// evict takes the device away from a session. Lane.
func (l *lane) evict(s *session, why error) {
	l.stats.evicted++
	s.evicted = why
	s.hangUp(why.Error())
	s.closeContext(l.now())
}

// segmentsOf is kept per region for holds; only mapped ones matter.
func segmentsOf(segs []mem.Segment) []mem.Segment {
	for i := range segs {
		if segs[i].Mapped != nil {
			return segs
		}
	}
	return nil
}
