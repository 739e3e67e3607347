// Package check judges a simulated run from outside: it knows what verbs promise and nothing of
// how the NIC keeps the promise. Each checker is told what an application did and what it saw, and
// reports a difference to a Court.
//
//	SendQueue, RecvQueue  every work request completes or flushes exactly once, in order
//	Stream                messages arrive as sent: all and in order (RC), or some (UC, UD)
//	Memory                no byte changes that nobody was allowed to write
//	Window                remote writes and reads equal a model memory
//	Counter, Chain        fetch-and-add and compare-and-swap linearise
//	Conversation          packets on the wire follow the rules of the RC service
//	Wire                  bytes of a TCP connection follow the rules of iWARP
package check
