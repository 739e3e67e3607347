// Package ctl is the control connection between an application and its NIC: where the socket is,
// who may use it, and how messages of package abi travel over it.
//
// A connection is SOCK_SEQPACKET, so that a message is a message: abi.Header, a body in host byte
// order, and descriptors by SCM_RIGHTS. The application sends a request and waits for its reply;
// a second request before the reply is a breach of the protocol.
//
//	client                                      NIC
//	c, err := ctl.Dial(path)                    l, err := ctl.Listen(ctl.ListenConfig{Path: path})
//	rsp, fds, err := ctl.Call[abi.HandleMsg](   conn, err := l.Accept()
//	        c, abi.OpAllocPD, nil)              err = conn.Receive(&msg); conn.Reply(&msg)
//
// An application inside the NIC's own process uses the two ends of Pair.
package ctl
