package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/daemon"
)

// clientOptions are the flags of commands that talk to a NIC.
type clientOptions struct {
	socket string
	json   bool
}

func registerSocket(c *cobra.Command, socket *string) {
	c.Flags().StringVar(socket, "socket", "",
		"control `path` (default: $RNIC_SOCKET, else one of this user and network namespace)")
}

func (o *clientOptions) register(c *cobra.Command) {
	registerSocket(c, &o.socket)
	c.Flags().BoolVar(&o.json, "json", false, "print JSON")
}

// setSocket makes a path from the command line what the environment would have said, so that one
// rule finds the socket for us, for a NIC that we start, and for the program that we run. The last
// two have working directories of their own, so it makes the path absolute.
func setSocket(path string) error {
	if path == "" {
		path = os.Getenv(ctl.SocketEnv)
	}
	if path == "" {
		return nil
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("find the directory of the socket %s: %w", path, err)
	}
	return os.Setenv(ctl.SocketEnv, absolute)
}

// connection is a control connection that has said hello.
type connection struct {
	*ctl.Client
	nic    abi.HelloRsp
	socket string
}

// answerTimeout bounds how long a NIC may take to answer what a person waits for. It is long:
// machines are busy.
const answerTimeout = 15 * time.Second

// greet says hello. A NIC that is there but does not answer, for example because it is stopped, is
// none that is gone: nobody should start another.
func greet(c *ctl.Client, patience time.Duration) (hello abi.HelloRsp, lane int, err error) {
	who := "the NIC"
	if peer, err := c.Peer(); err == nil && peer.PID != 0 {
		who = fmt.Sprintf("the NIC (pid %d)", peer.PID)
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return hello, -1, err
	}
	hello, lane, err = c.Hello("rnic")
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return hello, -1, fmt.Errorf("%s has not answered for %v: is it stopped?", who, patience)
	}
	return hello, lane, err
}

// dial connects to the NIC that the environment and the flag --socket name.
func dial(socket string) (*connection, error) {
	if err := setSocket(socket); err != nil {
		return nil, err
	}
	path, err := ctl.SocketPath()
	if err != nil {
		return nil, err
	}
	client, err := ctl.DialDefault()
	if err != nil {
		return nil, err
	}
	hello, lane, err := greet(client, answerTimeout)
	if err != nil {
		_ = client.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	_ = unix.Close(lane) // this is no data path
	return &connection{client, hello, path}, nil
}

// status asks a NIC for everything that it knows of itself.
func (o *clientOptions) status() (daemon.Status, error) {
	c, err := dial(o.socket)
	if err != nil {
		return daemon.Status{}, fail(startHint(err))
	}
	defer func() { _ = c.Close() }()
	status, err := c.status()
	if err != nil {
		return status, fail(err)
	}
	return status, nil
}

// startHint adds what to do when there is no NIC.
func startHint(err error) error {
	if errors.Is(err, ctl.ErrNoNIC) {
		return fmt.Errorf("%w; start one with \"rnic up\" or \"rnic run -- PROGRAM\"", err)
	}
	return err
}

func (c *connection) status() (daemon.Status, error) {
	var status daemon.Status
	rsp, fds, err := ctl.CallFDs[abi.StatusRsp](c.Client, abi.OpStatus, nil, 1)
	if err != nil {
		return status, err
	}
	file := os.NewFile(uintptr(fds[0]), "status")
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.NewSectionReader(file, 0, int64(rsp.Bytes)))
	if err == nil {
		err = json.Unmarshal(text, &status)
	}
	if err != nil {
		return status, fmt.Errorf("read the status of the NIC at %s (is it of another version?): %w",
			c.socket, err)
	}
	return status, nil
}

func printJSON(out io.Writer, v any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		return failf("write: %w", err)
	}
	return nil
}
