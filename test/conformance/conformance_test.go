package conformance

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/test/netnstest"
	"github.com/softrnic/softrnic/verbs"
)

// serveEnv makes this program a NIC that serves at the socket it names.
const serveEnv = "SOFTRNIC_CONFORMANCE_NIC"

func TestMain(m *testing.M) {
	socket := os.Getenv(serveEnv)
	if socket == "" {
		os.Exit(m.Run())
	}
	nic, err := softrnic.Start(context.Background(), softrnic.Config{Socket: socket})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
	_ = nic.Close()
}

// startProcess runs a NIC in another process until the test ends.
func startProcess(t *testing.T, socket string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveEnv+"="+socket)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the NIC process: %v", err)
		}
	})
	if word, err := bufio.NewReader(out).ReadString('\n'); err != nil || word != "ready\n" {
		t.Fatalf("the NIC process says %q, %v", word, err)
	}
}

func start(t *testing.T, c softrnic.Config) *softrnic.NIC {
	t.Helper()
	nic, err := softrnic.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, nic)
	return nic
}

func open(t *testing.T, nic *softrnic.NIC) *verbs.Context {
	t.Helper()
	ctx, err := nic.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, ctx)
	return ctx
}

// Two programs, one NIC: packets pass by reference.
func TestConformance_GoVerbs_OneNIC(t *testing.T) {
	nic := start(t, softrnic.Config{})
	Run(t, NewGoFabric(t, open(t, nic), open(t, nic), nil))
}

// The same, with completions held back so that polls find many at once.
func TestConformance_GoVerbs_T20_CompletionsTogether(t *testing.T) {
	nic := start(t, softrnic.Config{Fault: "completions=500us"})
	Run(t, NewGoFabric(t, open(t, nic), open(t, nic), nil))
}

// iWARP: two programs of one NIC, with all that may be asked of a stream. Bytes pass in memory.
func TestConformance_GoVerbs_IWARP_OneNIC(t *testing.T) {
	runIWARP(t, "iwarp", "iwarp,markers=on", "iwarp,fpdu=mss,mpa=1")
}

// The same, with their bytes left to TCP.
func TestConformance_GoVerbs_IWARP_OneNIC_ByTCP(t *testing.T) {
	t.Setenv("RNIC_DISABLE_JOIN", "1")
	runIWARP(t,
		"iwarp", "iwarp,crc=off", "iwarp,markers=on", "iwarp,fpdu=large", "iwarp,mpa=1,crc=off",
	)
}

func runIWARP(t *testing.T, variants ...string) {
	for _, options := range variants {
		t.Run(options, func(t *testing.T) {
			nic := start(t, softrnic.Config{Devices: []string{"iwarp0=" + options}})
			const address = "127.0.0.1"
			Run(t, NewStreamFabric(t, streamSide(t, nic, address), streamSide(t, nic, address)))
		})
	}
}

// iWARP between two hosts, of which one asks for more than the other: over a veth link, by IPv4.
func TestConformance_GoVerbs_IWARP_TwoHosts(t *testing.T) {
	hostA, hostB := netnstest.Pair(t, 1500)
	var a, b *softrnic.NIC
	hostA.Do(func() {
		a = start(t, softrnic.Config{UDP: true, Devices: []string{"iwarp0=iwarp,crc=off"}})
	})
	hostB.Do(func() {
		b = start(t, softrnic.Config{
			UDP: true, Devices: []string{"iwarp0=iwarp,markers=on,fpdu=mss"},
		})
	})
	x, y := streamSide(t, a, hostA.V4.String()), streamSide(t, b, hostB.V4.String())
	Run(t, NewStreamFabric(t, x, y))
}

func streamSide(t *testing.T, nic *softrnic.NIC, address string) StreamSide {
	t.Helper()
	device, err := verbs.Open(t.Context(), "iwarp0", verbs.WithConnector(nic))
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, device)
	return StreamSide{NIC: nic, Device: device, Address: address}
}

// Two NICs on a wire, at each path MTU that RoCE has.
func TestConformance_GoVerbs_TwoNICs(t *testing.T) {
	for _, mtu := range []verbs.MTU{verbs.MTU256, verbs.MTU1024, verbs.MTU4096} {
		t.Run(mtu.String(), func(t *testing.T) {
			wire := softrnic.NewNetwork()
			a := start(t, softrnic.Config{Network: wire, MTU: mtu})
			b := start(t, softrnic.Config{Network: wire, MTU: mtu})
			Run(t, NewGoFabric(t, open(t, a), open(t, b), nil))
		})
	}
}

// Two hosts: NICs in two network namespaces, over UDP and a veth link.
func TestConformance_GoVerbs_TwoHosts(t *testing.T) {
	hostA, hostB := netnstest.Pair(t, 1500)
	var a, b *softrnic.NIC
	hostA.Do(func() { a = start(t, softrnic.Config{UDP: true, Interfaces: []string{hostA.Link}}) })
	hostB.Do(func() { b = start(t, softrnic.Config{UDP: true, Interfaces: []string{hostB.Link}}) })
	for _, nic := range []*softrnic.NIC{a, b} {
		if why := nic.LocalOnly(); why != "" {
			t.Fatalf("a host of its own, but no network: %s", why)
		}
	}
	Run(t, NewGoFabric(t, open(t, a), open(t, b), nil))
}

// A NIC process: the one that RNIC_SOCKET names, else one that this program becomes again.
func TestConformance_GoVerbs_NICProcess(t *testing.T) {
	socket := os.Getenv(ctl.SocketEnv)
	if socket == "" {
		socket = filepath.Join(t.TempDir(), "nic.sock")
		startProcess(t, socket)
	}
	var ctx [2]*verbs.Context
	for i := range ctx {
		var err error
		if ctx[i], err = verbs.Open(t.Context(), "", verbs.WithSocket(socket)); err != nil {
			t.Fatal(err)
		}
		closeAtEnd(t, ctx[i])
	}
	Run(t, NewGoFabric(t, ctx[0], ctx[1], nil))
}

// ends builds the C program of ends, and returns how it finds the drop-in libraries.
func ends(t *testing.T) (program, libraries string) {
	t.Helper()
	libraries, err := filepath.Abs(filepath.Join("..", "..", "build", "clib"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(libraries, "librdmacm.so.1")); err != nil {
		t.Skipf("no drop-in libraries: make clib: %v", err)
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed: scripts/deps.sh build")
	}
	var sources []string
	inputs, err := filepath.Glob("testdata/*.[ch]")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(inputs, filepath.Join(libraries, "libibverbs.so.1")) {
		if _, err := os.ReadFile(name); err != nil { // now "go test" knows what it depends on
			t.Fatal(err)
		}
		if filepath.Ext(name) == ".c" {
			sources = append(sources, name)
		}
	}
	program = filepath.Join(t.TempDir(), "ends")
	args := []string{"-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-Wall", "-Wextra", "-Werror"}
	args = append(append(args, sources...), "-o", program, "-libverbs", "-lrdmacm")
	build := exec.Command("gcc", args...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the C program: %v\n%s", err, out)
	}
	return program, libraries
}

// A C program on the drop-in libibverbs.so.1, which connects its queue pairs itself.
func TestConformance_CLibrary_OneNIC(t *testing.T) {
	program, libraries := ends(t)
	socket := filepath.Join(t.TempDir(), "nic.sock")
	start(t, softrnic.Config{Socket: socket})
	Run(t, NewCFabric(t, CConfig{
		Program: program, Device: "rnic0",
		Environment: []string{"LD_LIBRARY_PATH=" + libraries, "RNIC_SOCKET=" + socket},
	}))
}

// The same over iWARP, where librdmacm.so.1 connects.
func TestConformance_CLibrary_IWARP_OneNIC(t *testing.T) {
	program, libraries := ends(t)
	for _, options := range []string{"iwarp", "iwarp,crc=off,fpdu=large"} {
		t.Run(options, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "nic.sock")
			start(t, softrnic.Config{Socket: socket, Devices: []string{"iwarp0=" + options}})
			Run(t, NewCFabric(t, CConfig{
				Program: program, Device: "iwarp0", Address: "127.0.0.1", Lacks: streamLacks,
				Environment: []string{
					"LD_LIBRARY_PATH=" + libraries, "RNIC_SOCKET=" + socket, "RNIC_DEVICE=iwarp0",
				},
			}))
		})
	}
}
