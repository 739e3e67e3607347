// Package rdmacm connects Go programs over RDMA by the host names and ports that they know from
// sockets, as rdma_cm(7) does for C.
//
//	ln, err := rdmacm.Listen(ctx, "rdma", ":7471", rdmacm.Config{})
//	req, err := ln.Accept(ctx)                     // who asks, and its private data
//	conn, err := req.Accept(ctx, rdmacm.Config{})  // or req.Reject
//
//	conn, err := rdmacm.Dial(ctx, "rdma", "server:7471", rdmacm.Config{PrivateData: hello})
//	_, err = conn.QP().PostSend(…)                 // the queue pair is ready
//	<-conn.Done()                                  // the peer has disconnected, or died
//
// Dial and Listen make RC queue pairs. DialUD and ListenUD find the queue pair behind a datagram
// service, Join makes one a member of a multicast group. Package rnet below this one has net.Conn
// and net.Listener instead of queue pairs.
//
// # Networks and addresses
//
// The network is "rdma", or "rdma4" or "rdma6" for one family only. An address is "host:port" as
// for package net; the host's own addresses and loopback reach this host's NIC. Ports of
// connections are those of the port space TCP (RDMA_PS_TCP), ports of datagrams those of UDP
// (IBTA annex A11), and have nothing to do with the ports of sockets.
//
// # Where the NIC is
//
// Config.NIC names the NIC: a *softrnic.NIC of the program itself, Socket(path), or nil for the NIC
// process that RNIC_SOCKET or the default path leads to. All connections of a program on one NIC
// share a Session, which ends with the last of them. A program that connects often keeps one by
// Share; one that wants more of its own makes it by Open.
//
// A NIC may have several devices, such as rnic0 of RoCE and iwarp0 of iWARP. An address belongs to
// the first that has it, RoCE before iWARP; Config.Device, or else the environment variable
// RNIC_DEVICE, chooses another. A listener at a wildcard listens on all of them, and a connection
// uses the device that its request came by.
//
// # Receives come first
//
// A peer may send as soon as it is connected. Config.Prepare runs while the queue pair cannot
// receive yet: post receives there. A message that meets no receive is repeated after 655 ms.
//
// # Errors
//
// Every failure is an *OpError. errors.As finds a *RejectedError with the peer's reason and
// private data; errors.Is finds ErrUnreachable, ErrNoRoute, ErrDisconnected, net.ErrClosed,
// verbs.ErrDeviceFatal, the errno of a refusal, and the error of a context that ended. A context
// bounds every wait for the network; requests to the NIC itself are answered at once.
package rdmacm
