// Package conformance is one suite of what verbs promise, run over any API and any transport.
//
// A Fabric makes pairs of connected queue pairs; an End is one of them, reached through whatever
// API the fabric stands for. The cases are tables over these two: operations by size, memory and
// scatter/gather; errors with the completions and states that they must give; order, flush and
// events. A fabric that lacks a Feature says so, and the case is skipped by that reason.
//
//	func TestConformance(t *testing.T) { conformance.Run(t, fabric) }
package conformance
