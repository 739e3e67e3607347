// Package softrnic hosts a SoftRNIC network adapter inside a Go program or test: no NIC process,
// no socket file, no privilege. Programs use it through package verbs, as they use a NIC process.
//
//	nic, err := softrnic.Start(ctx, softrnic.Config{})
//	defer nic.Close()
//	dev, err := nic.Open(ctx) // a *verbs.Context
//
// By default the NIC serves its own contexts only and leaves the host's network alone. With
// Config.UDP it is a RoCE v2 adapter on UDP port 4791 of the host's addresses, and with
// Config.Network several NICs of one program meet on a wire in memory.
package softrnic
