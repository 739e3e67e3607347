// Package programtest starts programs for tests: in a network namespace, with an environment of
// their own, and not for longer than the test.
package programtest
