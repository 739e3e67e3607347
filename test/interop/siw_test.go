package interop

import (
	"fmt"
	"strings"
	"testing"
)

// streamSizeRows are the programs of perftest as iWARP can have them: it connects by rdma_cm only,
// and the kernel's driver knows no atomics.
func streamSizeRows(every int) []row {
	var rows []row
	for i, tool := range messageTools {
		for j, size := range sizes {
			if (i+j)%every != 0 {
				continue
			}
			rows = append(rows, perftest(tool, fmt.Sprintf("-R -s %d -n %d", size, count(size))))
		}
	}
	return rows
}

// streamRows are programs that connect by rdma_cm, without those of datagrams and groups.
func streamRows() []row {
	rows := []row{
		cmRow("ucmatose -p PORT", "ucmatose -s ADDR -p PORT").prints("data transfers complete\n"),
		cmRow("ucmatose -p PORT -c 8 -C 20 -S 70000",
			"ucmatose -s ADDR -p PORT -c 8 -C 20 -S 70000").prints("return status 0\n"),
		cmRow("ucmatose -b BIND -f ipv6 -p PORT", "ucmatose -s ADDR -f ipv6 -p PORT").
			prints("return status 0\n").overV6(),
		cmRow("rdma_server -p PORT", "rdma_client -s ADDR -p PORT").prints(": end 0\n"),
		{
			name: "cmtime", server: "cmtime -p PORT -c 20", client: "cmtime -s ADDR -p PORT -c 20",
			meet: byCM, endless: true, clientWants: `disconnect +[:0-9]`,
		},
	}
	return append(rows, rpingRows()...)
}

// TestSiw_EveryProgram_BothWays is TestKernel_EveryProgram_BothWays over iWARP: the peer is
// Soft-iWARP.
func TestSiw_EveryProgram_BothWays(t *testing.T) {
	img := requireInterop(t, siw)
	for _, mtu := range []int{1500, 9000} {
		t.Run(fmt.Sprint(mtu), func(t *testing.T) {
			l := newLink(t, img, mtu, 0)
			t.Run("CM", func(t *testing.T) { l.run(t, streamRows()) })
			t.Run("Sizes", func(t *testing.T) { l.run(t, streamSizeRows(mtu/1500)) })
			t.Run("Rsockets", func(t *testing.T) { l.run(t, rsocketRows()) })
		})
	}
}

// TestSiw_StartUp_EveryKind begins connections in each way that MPA knows: without the checksum,
// with it by our wish or by the peer's, and with large FPDUs.
func TestSiw_StartUp_EveryKind(t *testing.T) {
	strict := siw
	strict.isCRCRequired = true
	for _, test := range []struct {
		name, options string
		peer          driver
	}{
		{"NoCRC", "crc=off", siw},
		{"CRC", "crc=on", siw},
		{"PeerWantsCRC", "crc=on", strict},
		{"LargeFPDU", "crc=off,fpdu=large", siw},
		{"LargeFPDUWithCRC", "crc=on,fpdu=large", siw},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLink(t, requireInterop(t, test.peer), 1500, 0,
				"--device", siw.ours+"=iwarp,"+test.options)
			const size = " -p PORT -C 5 -V -v -S 5000"
			l.run(t, append(startRows(),
				cmRow("rping -s"+size, "rping -c -a ADDR"+size).prints("ping data: rdma-ping-4:")))
		})
	}
}

func startRows() []row {
	return []row{
		cmRow("ucmatose -p PORT", "ucmatose -s ADDR -p PORT").prints("data transfers complete\n"),
		perftest("ib_write_bw", "-R -s 65536 -n 20"),
		perftest("ib_read_bw", "-R -s 65536 -n 20"),
		perftest("ib_send_bw", "-R -s 65537 -n 20"),
	}
}

// TestSiw_Revision1_KernelServes speaks MPA revision 1. The kernel's driver takes such requests; as
// a client it asks by revision 2 and ends a connection that is answered by another. It has no READs
// as a server then, so that rping cannot run.
func TestSiw_Revision1_KernelServes(t *testing.T) {
	l := newLink(t, requireInterop(t, siw), 1500, 0, "--device", siw.ours+"=iwarp,mpa=1")
	for _, r := range startRows() {
		t.Run(r.name, func(t *testing.T) { l.try(t, r, l.guest, l.host) })
	}
	t.Run("WeServe", func(t *testing.T) {
		serve := l.host.start(t, "rping", "-s", "-p", "7000")
		l.host.awaitCM(t, serve)
		r := l.guest.start(t, "rping", "-c", "-a", hostV4, "-p", "7000", "-C", "1").end(t)
		if !strings.Contains(r.Output, "RDMA_CM_EVENT_REJECTED") {
			t.Errorf("a client of revision 2 says %q", r.Output)
		}
	})
}

// TestSiw_Ping_WithRping lets rnic ping and rping measure each other.
func TestSiw_Ping_WithRping(t *testing.T) {
	l := newLink(t, requireInterop(t, siw), 1500, 0)
	pingRows(t, l)
}

// TestSiw_LossyLink_Recovers lets the cable lose, double and reorder packets; TCP repairs it.
func TestSiw_LossyLink_Recovers(t *testing.T) {
	l := newLink(t, requireInterop(t, siw), 1500, 0)
	p := l.guest.start(t, "guest", "disturb", "1")
	p.check(t, p.end(t))
	l.run(t, []row{
		perftest("ib_send_bw", "-R -s 65536 -n 20"),
		perftest("ib_write_bw", "-R -s 65536 -n 20"),
		perftest("ib_read_bw", "-R -s 65536 -n 20"),
		cmRow("rping -s -p PORT -C 20 -V -v -S 10000", "rping -c -a ADDR -p PORT -C 20 -V -v -S 10000").
			prints("ping data: rdma-ping-19:"),
	})
	// The kernel's driver, as a client, takes it for a fault when the reply was lost and comes
	// together with the first message of a server that speaks first, as this one does.
	t.Run("ucmatose/KernelServes", func(t *testing.T) {
		const args = " -p PORT -c 4 -C 10 -S 10000"
		l.try(t, cmRow("ucmatose"+args, "ucmatose -s ADDR"+args).prints("return status 0\n"),
			l.guest, l.host)
	})
}
