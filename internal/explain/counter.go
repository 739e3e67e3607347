package explain

// counters are what rnic stat shows under these names. Their codes are only their places here.
//
//tidy:table
var counters = numbered([]Entry{
	{Name: "sent_pkts", Words: "packets sent", Means: "Packets that queue pairs sent, repetitions included."},
	{Name: "rcvd_pkts", Words: "packets received", Means: "Packets that came for queue pairs."},
	{Name: "sent_bytes", Words: "payload bytes sent", Means: "Payload of the packets sent."},
	{Name: "rcvd_bytes", Words: "payload bytes received", Means: "Payload of the packets received."},
	{Name: "duplicate_request", Words: "duplicate requests", Means: "Requests that came a second time: the peer repeats because it misses an acknowledge.", Causes: []string{"acknowledges are lost or late", "the peer's timeout is shorter than the round trip"}, Look: []string{"local_ack_timeout_err of the peer"}},
	{Name: "out_of_seq_request", Words: "requests out of sequence", Also: []string{"out_of_sequence"}, Means: "Requests ahead of the expected one: something before them was lost or overtaken. Each gap is answered with a sequence NAK.", Causes: []string{"packets lost on the network or in a full socket buffer", "reordering"}, Look: []string{"udp_rx_socket_dropped; socket buffers in rnic devinfo (net.core.rmem_max)"}},
	{Name: "rcvd_rnr_err", Words: "receiver-not-ready NAKs received", Also: []string{"rnr_nak_retry_err"}, Means: "The peer had no receive posted.", Causes: []string{"the peer posts its receives too late, or too few"}},
	{Name: "send_rnr_err", Words: "receiver-not-ready NAKs sent", Means: "A message came and this side had no receive posted.", Causes: []string{"post more receives, or earlier"}},
	{Name: "rcvd_seq_err", Words: "sequence NAKs received", Also: []string{"packet_seq_err"}, Means: "The peer reported a gap; packets were sent again from there.", Causes: []string{"packets of this side are lost on the way"}},
	{Name: "send_nak", Words: "NAKs sent", Means: "Requests of peers that were refused, or gaps that were reported; receiver-not-ready is counted apart.", Look: []string{"rnic ps --errors"}},
	{Name: "local_ack_timeout_err", Words: "local ACK timeouts", Means: "No acknowledge came within the timeout; packets were sent again.", Causes: []string{"the peer is gone, stopped or busy", "packets or acknowledges are lost and nothing followed that would have shown it"}, Look: []string{"timeout of the queue pair; rnic explain IBV_WC_RETRY_EXC_ERR"}},
	{Name: "retry_exceeded_err", Words: "work requests failed by retry_cnt", Also: []string{"req_transport_retries_exceeded"}, Means: "Work requests that failed with IBV_WC_RETRY_EXC_ERR.", Look: []string{"rnic explain IBV_WC_RETRY_EXC_ERR; rnic ps --errors"}},
	{Name: "retry_rnr_exceeded_err", Words: "work requests failed by rnr_retry", Also: []string{"req_rnr_retries_exceeded"}, Means: "Work requests that failed with IBV_WC_RNR_RETRY_EXC_ERR.", Look: []string{"rnic explain IBV_WC_RNR_RETRY_EXC_ERR"}},
	{Name: "ack_deferred", Words: "acknowledges saved", Means: "Acknowledges that were not sent since a later one answered for them too. Good news."},
	{Name: "completer_retry_err", Words: "implied NAKs", Means: "An answer came that skipped an earlier READ or atomic: its answer was lost, and it was asked for again."},
	{Name: "dropped_pkts", Words: "packets dropped in silence", Means: "Packets that the standard says to drop without an answer: for a wrong state, an unexpected acknowledge, a datagram without a receive.", Causes: []string{"late packets of an old connection", "UD or UC: no receive was posted"}},
	{Name: "out_of_buffer", Words: "messages without a receive", Means: "Messages that came while no receive was posted.", Causes: []string{"too few receives, or too late"}},
	{Name: "np_ecn_marked_roce_packets", Words: "packets with a congestion mark", Means: "Packets that a switch marked for congestion (ECN)."},
	{Name: "np_cnp_sent", Words: "congestion notifications sent", Means: "Notifications to senders of marked packets (CNP)."},
	{Name: "rp_cnp_handled", Words: "congestion notifications handled", Means: "Notifications that came from receivers of marked packets (CNP)."},
	{Name: "rdma_sends", Words: "messages sent", Means: "SENDs completed."},
	{Name: "rdma_recvs", Words: "messages received", Means: "Receives completed."},
	{Name: "cqe_flush_error", Words: "work requests flushed", Means: "Work requests completed with IBV_WC_WR_FLUSH_ERR; usual at the end of connections."},
	{Name: "bad_pkey", Words: "packets with a wrong P_Key", Means: "Packets dropped for their partition key.", Causes: []string{"the two sides are in different partitions"}},
	{Name: "bad_qkey", Words: "datagrams with a wrong Q_Key", Means: "Datagrams dropped for their queue key.", Causes: []string{"remote_qkey of the send is not the qkey of the receiver's queue pair"}},
	{Name: "sent_terminate", Words: "Terminates sent", Means: "Connections of iWARP that this NIC ended with a Terminate message: the peer broke a rule, named memory that it may not use or sent what no receive was posted for, or a work request failed here.", Look: []string{"rnic ps --errors"}},
	{Name: "rcvd_terminate", Words: "Terminates received", Means: "Connections of iWARP that the peer ended with a Terminate message.", Look: []string{"rnic ps --errors", "rnic explain terminate CODE"}},
	{Name: "bad_fpdu", Words: "damaged FPDUs", Means: "Frames of iWARP whose CRC or marker is wrong. Each ended its connection.", Causes: []string{"something between the hosts changes the bytes of TCP connections", "a peer that computes them otherwise"}},
	{Name: "direct_ops", Words: "operations done directly", Means: "READs, WRITEs and atomics that the library of a program carried out itself in memory of the peer, which is a program of the same user on the same NIC. They took no packets; their bytes are among sent_bytes and rcvd_bytes of both ends.", Look: []string{"rnic up --direct=off sends them through the NIC"}},
	{Name: "direct_bytes", Words: "bytes moved directly", Means: "What the operations of direct_ops moved, there and back."},
	{Name: "no_such_qp", Words: "packets for no queue pair", Means: "Packets for a queue pair number that nobody has.", Causes: []string{"the queue pair was destroyed while its peer still sends", "a wrong dest_qp_num"}},
	{Name: "port_unreachable", Words: "ICMP port unreachable", Means: "Hosts that said that nothing listens on their UDP port 4791.", Causes: []string{"no NIC runs on the peer"}},
	{Name: "stray_doorbells", Words: "doorbells of nobody", Means: "Doorbells for queue pairs that do not exist.", Causes: []string{"a program that writes where it should not"}},
	{Name: "cq_overruns", Words: "completion queue overruns", Means: "Completion queues that had no entry for a completion.", Look: []string{"rnic explain IBV_EVENT_CQ_ERR"}},
	{Name: "rcvd_mads", Words: "management datagrams received", Means: "Messages of connection managers that came."},
	{Name: "sent_mads", Words: "management datagrams sent", Means: "Messages of this NIC's connection manager."},
	{Name: "bad_mads", Words: "malformed management datagrams", Means: "Packets for QP1 that are no management datagrams.", Causes: []string{"somebody probes, or a peer is broken"}},
	{Name: "cm_requests_turned_away", Words: "connection requests turned away", Means: "Requests that reached no program.", Look: []string{"rnic ps --errors"}},
	{Name: "tcp_connected", Words: "TCP connections made", Means: "Connections that this NIC made to peers for iWARP."},
	{Name: "tcp_accepted", Words: "TCP connections taken", Means: "Connections that came to listeners of iWARP."},
	{Name: "tcp_refused", Words: "TCP connections refused", Means: "Connections that came and were reset at once: nobody listens any more, or there is no room.", Causes: []string{"more connections at once than the limits allow", "a listener that has just ended"}},
	{Name: "tcp_displaced", Words: "TCP connections given up for others", Means: "Connections that had not yet said anything that makes sense when others needed their place.", Causes: []string{"somebody connects and says nothing", "a client of another protocol is at the port"}, Look: []string{"rnic ps --errors"}},
	{Name: "tcp_no_mpa", Words: "TCP connections without an MPA request", Means: "Connections that came to listeners of iWARP and said something else, or did not say what they want in time.", Causes: []string{"a client of another protocol is pointed at the port", "somebody probes", "a peer whose packets are lost"}},
	{Name: "retries", Words: "times gone back", Means: "How often a queue pair sent again from the first packet without an acknowledge."},
	{Name: "retransmitted_pkts", Words: "packets sent again", Means: "Packets that a queue pair sent more than once."},
	{Name: "rcvd_naks", Words: "NAKs received", Means: "NAKs that a queue pair received, receiver-not-ready included."},
	{Name: "errors", Words: "errors of a queue pair", Means: "Failures of a queue pair.", Look: []string{"rnic ps --errors"}},
	{Name: "udp_rx_icrc_bad", Words: "packets with a wrong ICRC", Means: "Packets dropped because their invariant CRC is wrong.", Causes: []string{"damage on the way", "a middlebox that rewrites addresses or ports", "a peer that computes it otherwise"}},
	{Name: "udp_rx_icrc_partial", Words: "packets checked in part", Means: "Packets whose ICRC is right but for the IPv4 identification, which an unprivileged socket does not see. Usual with rdma_rxe as the peer."},
	{Name: "udp_rx_socket_dropped", Words: "datagrams that the kernel dropped", Means: "The socket's receive buffer was full.", Causes: []string{"net.core.rmem_max is small for an ordinary user", "the NIC does not get a processor in time"}, Look: []string{"sysctl net.core.rmem_max; rnic devinfo: socket buffers"}},
	{Name: "udp_tx_too_long", Words: "packets longer than the path", Means: "Packets dropped because they exceed the path's MTU.", Causes: []string{"a smaller MTU on the way than on the interface"}},
	{Name: "udp_tx_forbidden", Words: "packets that a local firewall forbids", Means: "Sending was refused with EPERM.", Causes: []string{"iptables or nftables drop UDP port 4791 on output"}},
	{Name: "udp_tx_unreachable", Words: "packets without a route", Means: "Packets dropped for want of a route or an address.", Look: []string{"ip route"}},
	{Name: "udp_unreachable_reports", Words: "ICMP reports", Means: "Reports that a peer has no NIC or cannot be reached."},
	{Name: "spoofed_packets", Words: "packets with our own address", Means: "Packets from the network that claim to come from this host; they are dropped."},
	{Name: "packets_not_for_us", Words: "packets for other addresses", Means: "Packets whose destination is none of the NIC's addresses; they are dropped."},
	{Name: "tx_dropped_socket_full", Words: "packets dropped because the socket stayed full", Means: "The kernel did not take packets for too long.", Causes: []string{"the interface is slower than what is sent"}},
	{Name: "evicted_sessions", Words: "programs whose device was taken away", Means: "Programs whose memory could not be used any more.", Causes: []string{"the kernel ran out of memory for their mapped pages"}},
})

// numbered gives rows without numbers of their own their places as numbers.
func numbered(rows []Entry) []Entry {
	for i := range rows {
		rows[i].Code = uint32(i)
	}
	return rows
}
