// Package invariant holds the assertions that stay on in production. They guard against bugs of
// ours only: no byte of a peer or of an application may decide whether one fires.
package invariant

// Assert panics with the message when cond is false.
func Assert(cond bool, message string) {
	if !cond {
		panic("softrnic: invariant broken: " + message)
	}
}
