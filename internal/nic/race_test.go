//go:build race

package nic

const raceEnabled = true
