package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/dropin"
)

// lifelineFD is the lowest number for the connection that the program keeps: programs and shell
// scripts use low ones.
const lifelineFD = 100

func newRun() *cobra.Command {
	var options runOptions
	command := &cobra.Command{
		Use:   "run [flags] -- PROGRAM [ARGUMENTS]",
		Short: "Run a program on the NIC, starting one if there is none",
		Long: "Run a program on the NIC of this user and network namespace. If there is none, one\n" +
			"is started in the background; it ends a few seconds after its last program. The flags\n" +
			"are for a NIC that has to be started.\n\n" +
			"The program finds the drop-in libraries by LD_LIBRARY_PATH, which the system ignores\n" +
			"for set-user-ID programs, and the NIC by RNIC_SOCKET. Signals, streams and the exit\n" +
			"status are its own.\n\n" +
			"With --rsockets the TCP connections of the program, and of those that it starts, go over\n" +
			"RDMA where the other end does the same, and over TCP else. The program needs no change.\n\n" +
			"With --device-files the devices have files below /dev/infiniband, as far as the program\n" +
			"can see: UCX, and what uses it, leaves out devices without.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no program given")
			}
			return nil
		},
		PreRunE: func(*cobra.Command, []string) error { return options.check() },
		RunE:    func(c *cobra.Command, args []string) error { return run(c, &options, args) },
	}
	command.Flags().SetInterspersed(false) // flags after the program's name are the program's
	options.register(command)
	command.Flags().BoolVar(&options.rsockets, "rsockets", false,
		"carry the program's TCP connections by RDMA")
	command.Flags().BoolVar(&options.deviceFiles, "device-files", false,
		"show the program device files, which UCX looks for")
	return command
}

type runOptions struct {
	upOptions
	rsockets    bool
	deviceFiles bool
}

func run(c *cobra.Command, options *runOptions, args []string) error {
	p, err := findProgram(args)
	if err != nil {
		return err
	}
	libraries, err := dropin.Install(dropin.Roots(ctl.RuntimeDir()))
	if err != nil {
		return fail(err)
	}
	nic, started, err := join(&options.upOptions)
	if err != nil {
		return fail(err)
	}
	say := func(format string, args ...any) {
		fmt.Fprintf(c.ErrOrStderr(), "rnic run: "+format+"\n", args...)
	}
	switch changed := options.changed(c); {
	case started == nil && changed != "":
		say("using the NIC that is running (pid %d): %s has no effect on it",
			nic.nic.NICPID, changed)
	case started != nil && started.LocalOnly != "" && !options.localOnly:
		say("the NIC serves only programs of this user: %s", started.LocalOnly)
	}
	if why := p.gainsPrivileges(); why != "" {
		say("%s %s: the system ignores LD_LIBRARY_PATH for it, so it will not find the NIC",
			p.path, why)
	}
	// The program inherits a connection, so that a NIC which ends when it is idle stays while the
	// program prepares, and between two uses.
	if _, err := nic.Inherit(lifelineFD); err != nil {
		return fail(err)
	}
	env := programEnvironment(os.Environ(), libraries, nic.socket)
	if options.rsockets {
		env = preload(env, filepath.Join(libraries, "librspreload.so"))
	}
	if options.deviceFiles {
		env = preload(env, filepath.Join(libraries, "librnicdevices.so"))
	}
	return p.exec(env)
}

// changed names the flags for a new NIC that the command line has set.
func (o *upOptions) changed(c *cobra.Command) string {
	var names []string
	for _, name := range nicFlags {
		if c.Flags().Changed(name) {
			names = append(names, "--"+name)
		}
	}
	return strings.Join(names, ", ")
}
