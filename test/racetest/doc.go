// Package racetest tells tests whether they run with the race detector, which allocates, and takes
// five to twenty times as long.
package racetest
