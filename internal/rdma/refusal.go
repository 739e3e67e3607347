package rdma

import "syscall"

// Refusal is the answer to a verb that cannot be granted: the errno of the man page and a
// sentence that names the argument at fault. It is a value, not an error of ours: nil means
// granted. At the public Go API it becomes an error.
type Refusal struct {
	Errno  syscall.Errno
	Reason string
}

// Refuse makes a refusal.
func Refuse(errno syscall.Errno, reason string) *Refusal { return &Refusal{errno, reason} }

// Error makes a Refusal usable as an error where one is wanted.
func (r *Refusal) Error() string { return r.Reason + ": " + r.Errno.Error() }

// Unwrap lets errors.Is find the errno.
func (r *Refusal) Unwrap() error { return r.Errno }
