package main

import (
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// agentPort is where the guest takes requests.
const agentPort = 2

func main() {
	err := boot()
	if err == nil {
		err = serve()
	}
	// The kernel panics, and the machine ends, when its first process does. The console has the
	// reason.
	fmt.Println("guest:", err)
}

func boot() error {
	if err := mountAll(); err != nil {
		return err
	}
	if err := os.Setenv("PATH", "/usr/bin"); err != nil {
		return err
	}
	// The kernel's driver pins memory.
	unlimited := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unlimited); err != nil {
		return fmt.Errorf("raise the memory lock limit: %w", err)
	}
	if err := loadModules("/modules"); err != nil {
		return err
	}
	options, err := readOptions("/proc/cmdline")
	if err != nil {
		return err
	}
	return bringUp(options)
}

// options are what the kernel's command line says to the guest.
type options struct {
	addresses []string
	mtu       int
	driver    string
}

func readOptions(name string) (options, error) {
	line, err := os.ReadFile(name)
	if err != nil {
		return options{}, fmt.Errorf("read the command line: %w", err)
	}
	o := options{mtu: 1500, driver: "rxe"}
	for _, word := range strings.Fields(string(line)) {
		if list, ok := strings.CutPrefix(word, "guest.addr="); ok {
			o.addresses = strings.Split(list, ",")
		}
		if name, ok := strings.CutPrefix(word, "guest.driver="); ok {
			o.driver = name
		}
		if text, ok := strings.CutPrefix(word, "guest.mtu="); ok {
			if _, err := fmt.Sscan(text, &o.mtu); err != nil {
				return options{}, fmt.Errorf("option %s: %w", word, err)
			}
		}
	}
	return o, nil
}

func serve() error {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{Port: agentPort})
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	fmt.Println("guest: ready")
	for {
		conn, err := listener.AcceptTCP()
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		go handle(conn)
	}
}
