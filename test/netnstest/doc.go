// Package netnstest gives tests network namespaces of their own: throw-away ones without a name,
// which the kernel removes with the last descriptor, so that a test that is killed leaves nothing
// behind. Tests that cannot have one (no root, a sandbox) are skipped with the reason.
//
//	a, b := netnstest.Pair(t, 4200)
//	a.Do(func() { … sockets opened here live in a … })
package netnstest
