package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Request asks for a program. The connection is its life line: the program is killed when the
// other side closes it.
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
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		var b [1]byte
		_, _ = conn.Read(b[:]) // returns when the other side is gone: nothing more is to come
		cancel()
	}()
	command := exec.CommandContext(ctx, request.Args[0], request.Args[1:]...)
	command.WaitDelay = time.Second
	output, err := command.CombinedOutput()
	response := Response{Status: command.ProcessState.ExitCode(), Output: string(output)}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		response.Error = err.Error()
	}
	_ = json.NewEncoder(conn).Encode(response) // or nobody is there to be told
}

// awaitPort looks a listening socket up rather than connecting: the programs under test accept
// one connection only.
func awaitPort(text string) (status int) {
	port, err := strconv.Atoi(text)
	if err != nil {
		return 2
	}
	for range 500 {
		if listens(port) {
			return 0
		}
		time.Sleep(20 * time.Millisecond)
	}
	return 1
}

func listens(port int) bool {
	const listening = "0A"
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue // no IPv6
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) > 3 && fields[3] == listening &&
				strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", port)) {
				return true
			}
		}
	}
	return false
}
