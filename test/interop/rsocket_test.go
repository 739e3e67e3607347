package interop

import "testing"

// rsocketRows are programs on rsockets: rdma-core's at the kernel's end, ours at the other.
func rsocketRows() []row {
	var rows []row
	for _, args := range []string{
		"-T v -I 20 -C 5 -S 1",
		"-T v -I 10 -C 10 -S 1000",
		"-T v -T b -I 5 -C 10 -S 65536",
		"-T v -T b -i 0 -B 8192 -I 5 -C 5 -S 100000",
		"-T v -T r -I 5 -C 500 -S 16",
	} {
		rows = append(rows, streamRow("rstream", args))
	}
	for _, args := range []string{
		"-T v -I 5 -C 2 -S 64", "-T v -T a -I 3 -C 2 -S 5000", "-T v -T b -I 3 -C 2 -S 100000",
	} {
		rows = append(rows, streamRow("riostream", args))
	}
	six := streamRow("rstream", "-T v -I 5 -C 10 -S 5000").overV6()
	six.server += " -b BIND"
	const file = "/lib64/ld-linux-x86-64.so.2" // is at both ends
	return append(rows, six, row{
		name:    "rcopy",
		server:  "rcopy -p PORT",
		client:  "rcopy " + file + " ADDR:/tmp/rcopy-PORT -p PORT",
		meet:    byCM,
		endless: true, clientWants: "done",
	})
}

func streamRow(program, args string) row {
	return row{
		name:   program + " " + args,
		server: program + " -p PORT " + args,
		client: program + " -s ADDR -p PORT " + args,
		meet:   byCM,
		wants:  "custom",
	}
}

// TestKernel_Rsockets_BothWays is the proof of the wire: an implementation that nobody here wrote
// is at the other end.
func TestKernel_Rsockets_BothWays(t *testing.T) {
	img := requireInterop(t, rxe)
	l := newLink(t, img, 1500, 1024)
	l.run(t, rsocketRows())
	// rdma-core's client that polls takes the server's end for an error, whatever there is left to
	// read, if it comes soon enough; between two of its own as well.
	t.Run("Polling/KernelServes", func(t *testing.T) {
		l.try(t, streamRow("rstream", "-T v -T a -I 5 -C 10 -S 30001"), l.guest, l.host)
	})
	t.Run("Datagrams", func(t *testing.T) {
		l.try(t, lacking(cmRow("udpong -b BIND", "udpong -s ADDR -C 10"),
			"datagram sockets of rdma-core do not work on the kernel's driver",
			"rconnect: No such file or directory"), l.host, l.guest)
	})
}
