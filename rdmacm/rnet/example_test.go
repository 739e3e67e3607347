package rnet_test

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/rdmacm/rnet"
)

// An HTTP server and its client, neither of which knows of RDMA.
func Example() {
	nic, err := softrnic.Start(context.Background(), softrnic.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nic.Close()
	cfg := rnet.Config{CM: rdmacm.Config{NIC: nic}}
	ln, err := rnet.Listen("rdma", ":8080", cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello, %s", r.URL.Query().Get("name"))
	})}
	go func() { _ = server.Serve(ln) }()
	defer server.Close()

	dialer := rnet.Dialer{Config: cfg}
	transport := &http.Transport{DialContext: dialer.DialContext}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport}
	rsp, err := client.Get("http://127.0.0.1:8080/?name=RDMA")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rsp.Body.Close()
	body, err := io.ReadAll(rsp.Body)
	fmt.Println(string(body), err)
	// Output: hello, RDMA <nil>
}
