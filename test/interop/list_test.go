package interop

import "fmt"

// sizes are those of the messages: around what fits one packet and several. Empty ones, perftest
// does not do.
var sizes = []int{1, 2, 1023, 1024, 1025, 4095, 4096, 4097, 65536, 1 << 20}

var (
	messageTools = []string{
		"ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat", "ib_read_bw", "ib_read_lat",
	}
	atomicTools = []string{"ib_atomic_bw", "ib_atomic_lat"}
)

// sizeRows has every program with each size or, as a sample, with one in so many, yet each size
// with some program.
func sizeRows(more string, every int) []row {
	var rows []row
	for i, tool := range messageTools {
		for j, size := range sizes {
			if (i+j)%every != 0 {
				continue
			}
			args := fmt.Sprintf("%s-s %d -n %d", more, size, count(size))
			rows = append(rows, perftest(tool, args))
		}
	}
	for i, tool := range atomicTools {
		for j, kind := range []string{"FETCH_AND_ADD", "CMP_AND_SWAP"} {
			if every > 1 && i != j {
				continue
			}
			rows = append(rows, perftest(tool, fmt.Sprintf("%s-A %s -n 100", more, kind)))
		}
	}
	return rows
}

// count is how many messages of a size are enough.
func count(size int) int {
	switch {
	case size > 65536:
		return 5
	case size > 4097:
		return 20
	}
	return 100
}

func overV6(rows []row) []row {
	for i := range rows {
		rows[i] = rows[i].overV6()
	}
	return rows
}

// verbsRows are programs that exchange the addresses of their queue pairs over TCP.
func verbsRows() []row {
	return []row{
		pingpong("ibv_rc_pingpong -c -s 10000 -n 200"),
		pingpong("ibv_rc_pingpong -c -e -s 1 -n 200"),
		pingpong("ibv_rc_pingpong -c -s 5000 -n 200").overV6(),
		pingpong("ibv_uc_pingpong -c -s 5000 -n 200"),
		pingpong("ibv_uc_pingpong -c -s 5000 -n 200").overV6(),
		pingpong("ibv_ud_pingpong -s 0 -n 200"),
		pingpong("ibv_ud_pingpong -c -s 1000 -n 200"),
		pingpong("ibv_srq_pingpong -c -s 5000 -n 200 -q 3 -l 5"),
		pingpong("ibv_ud_pingpong -c -s 1000 -n 200").overV6(),
		perftest("ib_send_bw", "-s 5000 -n 200 -b -q 2"),
		perftest("ib_send_bw", "-s 8388608 -n 10"),
		perftest("ib_send_bw", "-c UC -s 1000 -n 50 -t 1 -r 200"),
		perftest("ib_send_bw", "-c UD -s 1000 -n 50 -t 1 -r 200"),
		perftest("ib_send_lat", "-c UC -s 1000 -n 50 -r 200"),
		perftest("ib_send_lat", "-c UD -s 1000 -n 50 -r 200"),
		perftest("ib_send_lat", "-s 64 -n 200 -I 64"),
		perftest("ib_send_lat", "-s 64 -n 200 -e"),
		perftest("ib_write_bw", "-s 5000 -n 200 -b"),
		perftest("ib_write_bw", "-c UC -s 5000 -n 100"),
		perftest("ib_write_lat", "-c UC -s 5000 -n 100"),
		perftest("ib_read_bw", "-s 5000 -n 200 -b"),
	}
}

// windowRows lend memory by windows and revoke them, from both ends.
func windowRows() []row {
	var rows []row
	for _, size := range []int{1, 1025, 70000} {
		args := fmt.Sprintf("window -d DEV -g GID -p PORT -n 20 -s %d", size)
		rows = append(rows, row{
			name: fmt.Sprint(size), server: args, client: args + " ADDR", meet: byTCP,
			wants: "20 windows lent and revoked",
		})
	}
	return rows
}

// cmRows are programs that connect by rdma_cm.
func cmRows() []row {
	rows := []row{
		cmRow("ucmatose -p PORT", "ucmatose -s ADDR -p PORT").prints("data transfers complete\n"),
		cmRow("ucmatose -p PORT -c 8 -C 20 -S 70000 -t 32",
			"ucmatose -s ADDR -p PORT -c 8 -C 20 -S 70000 -t 32").prints("return status 0\n"),
		cmRow("ucmatose -p PORT -c 4 -m", "ucmatose -s ADDR -p PORT -c 4 -m").
			prints("return status 0\n"),
		cmRow("ucmatose -b BIND -f ipv6 -p PORT", "ucmatose -s ADDR -f ipv6 -p PORT").
			prints("return status 0\n").overV6(),
		cmRow("udaddy -c 3 -C 10 -S 1000", "udaddy -s ADDR -c 3 -C 10 -S 1000").
			prints("return status 0\n"),
		cmRow("udaddy -b BIND -f ipv6", "udaddy -s ADDR -f ipv6").
			prints("return status 0\n").overV6(),
		groupRow(10, "mckey -m 239.1.1.1 -b BIND -C 10", "mckey -m 239.1.1.1 -b BIND -s -C 10"),
		groupRow(20, "mckey -m 239.1.1.2 -b BIND -C 10 -c 2 -S 1000",
			"mckey -m 239.1.1.2 -b BIND -s -o -C 10 -c 2 -S 1000"),
		lacking(groupRow(10, "mckey -m ff0e::4242 -b BIND -C 10",
			"mckey -m ff0e::4242 -b BIND -s -C 10").overV6(),
			"the kernel's rdma_cm joins no group of IPv6", "failure joining: Unknown error 524"),
		{
			name: "cmtime", server: "cmtime -p PORT -c 20", client: "cmtime -s ADDR -p PORT -c 20",
			meet: byCM, endless: true, clientWants: `disconnect +[:0-9]`,
		},
		cmRow("rdma_server -p PORT", "rdma_client -s ADDR -p PORT").prints(": end 0\n"),
		cmRow("rdma_xserver -p PORT", "rdma_xclient -s ADDR -p PORT").prints(": end 0\n"),
		lacking(cmRow("rdma_xserver -p PORT -c x", "rdma_xclient -s ADDR -p PORT -c x"),
			"the kernel's driver has no XRC", "rdma_create_ep: Operation not supported"),
	}
	const shared = " -p PORT -C 5 -V -v"
	return append(append(rows, rpingRows()...),
		// With -q the program says itself when its queue pair is ready, which iWARP in the kernel
		// does not let it.
		cmRow("rping -s -q"+shared, "rping -c -q -a ADDR"+shared).prints("ping data"))
}

func rpingRows() (rows []row) {
	for _, size := range []int{23, 64, 1023, 1024, 1025, 4095, 4096, 4097, 65535} {
		args := fmt.Sprintf(" -p PORT -C 5 -V -v -S %d", size)
		rows = append(rows, cmRow("rping -s"+args, "rping -c -a ADDR"+args).
			prints("ping data: rdma-ping-4:"))
	}
	const six = " -p PORT -C 5 -V -v"
	return append(rows,
		cmRow("rping -s -a ADDR"+six, "rping -c -a ADDR"+six).prints("ping data").overV6())
}

// cmRow makes the row of two programs of which one listens for connections of rdma_cm.
func cmRow(server, client string) row {
	return row{name: client, server: server, client: client, meet: byCM}
}

// groupRow makes the row of two programs that meet in a multicast group.
func groupRow(datagrams int, server, client string) row {
	r := cmRow(server, client).prints("return status 0\n")
	r.meet, r.datagrams = inGroup, datagrams
	return r
}

func (r row) prints(wants string) row {
	r.wants = wants
	return r
}

func lacking(r row, why, refusal string) row {
	r.lacks, r.refusal = why, refusal
	return r
}

// lossyRows are short: a loss that no NAK reports costs the kernel's driver seconds when it
// connected by rdma_cm, for it then waits 2 s for an acknowledgement. There is no pingpong: it goes
// when it has what it wants, and if the acknowledgement of the other's last message is lost then,
// the kernel's driver repeats that message for ever.
func lossyRows() []row {
	return []row{
		perftest("ib_send_bw", "-s 65536 -n 20 -u 16"),
		perftest("ib_send_lat", "-s 4097 -n 50 -u 16"),
		perftest("ib_write_bw", "-s 65536 -n 20 -u 16"),
		perftest("ib_read_bw", "-s 65536 -n 20 -u 16"),
		perftest("ib_read_bw", "-s 65536 -n 20 -u 16").overV6(),
		perftest("ib_atomic_bw", "-A FETCH_AND_ADD -n 200 -u 16"),
		perftest("ib_write_bw", "-R -s 65536 -n 10"),
		cmRow("rping -s -p PORT -C 20 -V -v -S 10000", "rping -c -a ADDR -p PORT -C 20 -V -v -S 10000").
			prints("ping data: rdma-ping-19:"),
		cmRow("ucmatose -p PORT -c 4 -C 10 -S 10000", "ucmatose -s ADDR -p PORT -c 4 -C 10 -S 10000").
			prints("return status 0\n"),
		{
			name: "cmtime", server: "cmtime -p PORT -c 20", client: "cmtime -s ADDR -p PORT -c 20",
			meet: byCM, endless: true, clientWants: `disconnect +[:0-9]`,
		},
	}
}
