//go:build race

package rnet_test

const raceEnabled = true
