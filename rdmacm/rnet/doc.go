// Package rnet gives RDMA connections the shape of package net: net.Conn and net.Listener over RC
// queue pairs, so that an unmodified net/http or gRPC server runs on them.
//
//	ln, err := rnet.Listen("rdma", ":8080", rnet.Config{})
//	err = http.Serve(ln, handler)
//
//	d := rnet.Dialer{}
//	client := http.Client{Transport: &http.Transport{DialContext: d.DialContext}}
//
// Both ends have to be rnet; others are refused by what they say in the connection request.
//
// # How it works
//
// Each side offers the other a ring of memory. Write copies into a mirror of the peer's ring and
// the NIC moves the bytes by RDMA WRITE with immediate, whose number says how many came; Read
// copies them out. A sender never writes more than the ring has room for, and never more messages
// than the receiver has posted receives for: the receiver gives both back as it goes (RNR NAKs do
// not happen). No goroutine belongs to a connection, and one waits for all connections of a
// device. Neither Read nor Write allocates.
//
// # What it promises
//
// Bytes arrive in order, once, or an error comes. CloseWrite ends one direction: the peer reads
// what was sent, then io.EOF. Close waits until the peer's memory has all that was written, at
// most Config.Linger, so that a program may end right after it. When the peer's program or NIC
// dies, Read returns what had arrived and then an error; a peer that is silent is tried every
// Config.KeepAlive.
package rnet
