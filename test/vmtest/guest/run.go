package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"time"
)

// Request asks for a program, or, with "guest" for its name, for something that this one does. The
// connection is its life line: the program is killed when the other side closes it.
type Request struct {
	Args []string
}

// Response tells how it ended. Status is −1 when it did not start or was killed.
type Response struct {
	Status int
	Output string // standard output and standard error as they came
	Error  string
}

func handle(conn *net.TCPConn) {
	defer conn.Close()
	var request Request
	if err := json.NewDecoder(conn).Decode(&request); err != nil || len(request.Args) == 0 {
		return
	}
	response := answer(conn, request.Args)
	_ = json.NewEncoder(conn).Encode(response) // or nobody is there to be told
}

func answer(conn *net.TCPConn, args []string) Response {
	var err error
	switch {
	case args[0] != "guest":
		return run(conn, args)
	case len(args) > 1 && args[1] == "await":
		err = await(args[2:])
	case len(args) > 1 && args[1] == "disturb":
		err = disturb(args[2:])
	default:
		err = fmt.Errorf("%v: unknown", args)
	}
	if err != nil {
		return Response{Status: 1, Error: err.Error()}
	}
	return Response{}
}

func run(conn *net.TCPConn, args []string) Response {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		var b [1]byte
		_, _ = conn.Read(b[:]) // returns when the other side is gone: nothing more is to come
		cancel()
	}()
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	command.WaitDelay = time.Second
	output, err := command.CombinedOutput()
	response := Response{Status: command.ProcessState.ExitCode(), Output: string(output)}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		response.Error = err.Error()
	}
	return response
}
