package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = ""

// Exit statuses besides a program's own.
const (
	exitFailure       = 1
	exitUsage         = 2
	exitNotExecutable = 126
	exitNotFound      = 127
)

// failure is an error of a command that was understood. Any other error that a command returns is
// about the command line.
type failure struct {
	status int
	err    error
}

func (f *failure) Error() string { return f.err.Error() }

func (f *failure) Unwrap() error { return f.err }

func fail(err error) error { return &failure{exitFailure, err} }

func failf(format string, args ...any) error { return fail(fmt.Errorf(format, args...)) }

// "rnic run" becomes its program on the first thread: what belongs to a thread rather than to the
// process, such as the signal at the death of the parent (prctl(2), PR_SET_PDEATHSIG), is lost when
// another one executes it.
func init() { runtime.LockOSThread() }

func main() {
	root := newRoot()
	root.SetOut(os.Stdout)
	os.Exit(execute(root, os.Args[1:]))
}

// output remembers that something could not be written, so that what prints need not look at every
// line: a full disk must not look like success.
type output struct {
	to  io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// execute runs one command line and returns the exit status.
func execute(root *cobra.Command, args []string) int {
	out := &output{to: root.OutOrStdout()}
	root.SetOut(out)
	root.SetArgs(args)
	command, err := root.ExecuteC()
	if out.err != nil {
		err = failf("write: %w", out.err)
	}
	if err == nil {
		return 0
	}
	var f *failure
	if errors.As(err, &f) {
		fmt.Fprintf(root.ErrOrStderr(), "%s: %v\n", command.CommandPath(), userText(f.err))
		return f.status
	}
	fmt.Fprintf(root.ErrOrStderr(), "%s: %v; see %q\n",
		command.CommandPath(), err, command.CommandPath()+" --help")
	return exitUsage
}

// userText is an error as people want it: without the package that found it in front.
func userText(err error) string {
	text := err.Error()
	for _, layer := range []string{"daemon: ", "ctl: ", "hostnet: ", "netio: ", "rping: "} {
		text = strings.TrimPrefix(text, layer)
	}
	return text
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "rnic",
		Short: "An RDMA network adapter made of software, in user space",
		Long: "SoftRNIC is an RDMA network adapter (RoCE v2) made of software, in user space:\n" +
			"no RDMA hardware, no kernel module, no root.\n\n" +
			"  rnic run -- ib_write_bw &\n" +
			"  rnic run -- ib_write_bw localhost",
		Version:       versionText(),
		SilenceErrors: true, // execute prints them, in one line
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("rnic {{.Version}}\n")
	root.DisableSuggestions = true // one line
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newRun(), newUp(), newDown(), newDevinfo(), newPs(), newStat(), newCapture(),
		newPing(), newExplain(), newSim(), newBench(), newVersion())
	return root
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run: func(c *cobra.Command, _ []string) {
			fmt.Fprintln(c.OutOrStdout(), "rnic", versionText())
		},
	}
}

// versionText is the version of the build, or the best that the Go toolchain knows of it.
func versionText() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return info.Main.Version
}
