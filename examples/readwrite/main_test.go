package main

import (
	"testing"
)

func TestReadwrite_RunsOnANICOfItsOwn(t *testing.T) {
	t.Setenv("RNIC_SOCKET", "")
	if err := run(t.Context()); err != nil {
		t.Error(err)
	}
}
