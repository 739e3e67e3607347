// Package rping measures round trips over RDMA and checks that bytes survive them, with the
// messages of rping(1), so that either side may be rping on another host.
//
// In each round the client names a buffer, the server reads it by RDMA READ and says so, the client
// names another buffer, and the server writes what it read there by RDMA WRITE and says so:
//
//	client                           server
//	SEND (source) ─────────────────► RDMA READ of the source
//	               ◄──────────────── SEND
//	SEND (sink)   ─────────────────► RDMA WRITE into the sink
//	               ◄──────────────── SEND
//
// A message is sixteen bytes: address, rkey and length, big-endian; of the server's messages only
// the arrival counts.
//
//	c, err := rping.Dial(ctx, "server:7174", rping.Config{Size: 64})
//	took, err := c.Round(ctx)
package rping
