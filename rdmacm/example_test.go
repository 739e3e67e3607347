package rdmacm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/rdmacm"
)

// A listener looks at who asks, and accepts some.
func Example() {
	ctx := context.Background()
	nic, err := softrnic.Start(ctx, softrnic.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nic.Close()
	ln, err := rdmacm.Listen(ctx, "rdma", ":7471", rdmacm.Config{NIC: nic})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ln.Close()
	go func() {
		for {
			req, err := ln.Accept(ctx)
			if err != nil {
				return
			}
			if !strings.HasPrefix(string(req.PrivateData()), "friend") {
				_ = req.Reject([]byte("friends only"))
				continue
			}
			conn, err := req.Accept(ctx, rdmacm.Config{PrivateData: []byte("welcome")})
			if err != nil {
				continue
			}
			<-conn.Done()
			_ = conn.Close()
		}
	}()

	for _, name := range []string{"friend", "stranger"} {
		conn, err := rdmacm.Dial(ctx, "rdma", "127.0.0.1:7471",
			rdmacm.Config{NIC: nic, PrivateData: []byte(name)})
		var no *rdmacm.RejectedError
		switch {
		case errors.As(err, &no):
			fmt.Printf("%s: %v: %s\n", name, no.Reason, strings.TrimRight(string(no.PrivateData), "\x00"))
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Printf("%s: %s\n", name, strings.TrimRight(string(conn.PrivateData()), "\x00"))
			_ = conn.Close()
		}
	}
	// Output:
	// friend: welcome
	// stranger: rejected by the application: friends only
}
