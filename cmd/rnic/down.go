package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
)

func newDown() *cobra.Command {
	var socket string
	command := &cobra.Command{
		Use:   "down",
		Short: "End the NIC; programs on it see their device fail",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			nic, err := dial(socket)
			if err != nil {
				return fail(err)
			}
			defer func() { _ = nic.Close() }()
			if err := nic.shutDown(); err != nil {
				return fail(err)
			}
			fmt.Fprintf(c.OutOrStdout(), "the NIC at %s has ended\n", nic.socket)
			return nil
		},
	}
	registerSocket(command, &socket)
	return command
}

// shutDown tells the NIC to end, and waits until its process has.
func (c *connection) shutDown() error {
	process, err := unix.PidfdOpen(int(c.nic.NICPID), 0)
	if err != nil {
		process = -1 // in another PID namespace, or gone: then its answer has to do
	} else {
		defer func() { _ = unix.Close(process) }()
	}
	_, err = c.Do(abi.OpShutdown, nil)
	// A NIC that has gone before it answered is what was asked for.
	if err != nil && !errors.Is(err, ctl.ErrGone) {
		return err
	}
	if process < 0 {
		return nil
	}
	for {
		fds := []unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
