// Package work is what the transport engines have in common: how they take work requests out of
// queues that they share with applications, gather the bytes of messages, complete, count, and keep
// the evidence of errors. It knows no wire.
package work
