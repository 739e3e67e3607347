// Package rdma is the vocabulary of the project: numbers and enumerations of the InfiniBand
// architecture (IBTA volume 1) and of the verbs interface, each with a type of its own.
//
// Enumerations that cross the verbs interface have the numeric values of <infiniband/verbs.h>
// (IBV_*), so that the drop-in libraries, the shared queues and the core need no translation.
// The package has no behaviour beyond arithmetic, naming and predicates, and imports nothing of
// the project.
package rdma
