//go:build !race

package racetest

// Enabled reports the race detector.
const Enabled = false
