package softrnic_test

import (
	"context"
	"fmt"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/verbs"
)

// A NIC inside a test: no privilege, no process, no socket file.
func ExampleStart() {
	ctx := context.Background()
	nic, err := softrnic.Start(ctx, softrnic.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nic.Close()
	dev, err := nic.Open(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.Close()
	port, err := dev.Port(1)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(dev.Device().Name, port.State == verbs.PortActive)
	// Output: rnic0 true
}

// Two NICs on a wire in memory, which loses packets on purpose.
func ExampleNewNetwork() {
	ctx := context.Background()
	wire := softrnic.NewNetwork()
	for range 2 {
		nic, err := softrnic.Start(ctx, softrnic.Config{
			Network: wire, Fault: "loss=1%,reorder=2%,seed=1",
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer nic.Close()
		dev, err := nic.Open(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer dev.Close()
		gids, err := dev.GIDs()
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(gids[0].GID)
	}
	// Output:
	// ::ffff:198.18.0.1
	// ::ffff:198.18.0.2
}
