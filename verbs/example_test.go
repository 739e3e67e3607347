package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/verbs"
)

// sides makes two queue pairs on a NIC of their own, connected to each other.
func sides(ctx context.Context) (nic *softrnic.NIC, a, b *verbs.QP, pd *verbs.PD, err error) {
	nic, err = softrnic.Start(ctx, softrnic.Config{})
	if err != nil {
		return
	}
	dev, err := nic.Open(ctx)
	if err != nil {
		return
	}
	if pd, err = dev.AllocPD(); err != nil {
		return
	}
	make1 := func() (*verbs.QP, verbs.Endpoint, error) {
		cq, err := dev.CreateCQ(verbs.CQConfig{Entries: 16})
		if err != nil {
			return nil, verbs.Endpoint{}, err
		}
		qp, err := pd.CreateQP(verbs.QPConfig{Type: verbs.QPTypeRC, SendCQ: cq, SignalAll: true})
		if err != nil {
			return nil, verbs.Endpoint{}, err
		}
		point, err := qp.Endpoint()
		return qp, point, err
	}
	a, pointA, err := make1()
	if err != nil {
		return
	}
	b, pointB, err := make1()
	if err != nil {
		return
	}
	err = errors.Join(a.ConnectTo(pointB), b.ConnectTo(pointA))
	return
}

// wait returns the next completion of a queue.
func wait(ctx context.Context, cq *verbs.CQ) (verbs.WC, error) {
	var wcs [1]verbs.WC
	if err := cq.Wait(ctx); err != nil {
		return wcs[0], err
	}
	_, err := cq.Poll(wcs[:])
	return wcs[0], errors.Join(err, wcs[0].Err())
}

// A message goes from one queue pair into the receive buffer of the other.
func ExampleQP_PostSend() {
	ctx := context.Background()
	nic, a, b, pd, err := sides(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nic.Close()
	defer pd.Context().Close()

	inbox, err := pd.Register(make([]byte, 64), verbs.AccessLocalWrite)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := b.PostRecv(verbs.RecvWR{ID: 1, SGE: inbox.SGE(0, 64)}); err != nil {
		fmt.Println(err)
		return
	}
	_, err = a.PostSend(verbs.SendWR{
		ID: 2, Opcode: verbs.WRSendWithImm, Inline: []byte("hello"), Imm: 7,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	wc, err := wait(ctx, b.Config().RecvCQ)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s, immediate %d\n", inbox.Bytes()[:wc.ByteLen], wc.Imm)
	// Output: hello, immediate 7
}

// A request that fails says what happened.
func ExampleStatusError() {
	ctx := context.Background()
	nic, a, _, pd, err := sides(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nic.Close()
	defer pd.Context().Close()

	_, err = a.PostSend(verbs.SendWR{ID: 5, Opcode: verbs.WRWrite, Inline: []byte("x")})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = wait(ctx, a.Config().SendCQ)
	var status *verbs.StatusError
	fmt.Println(errors.Is(err, verbs.ErrRemoteAccess), errors.As(err, &status))
	fmt.Println(status.ID, status.Status)
	fmt.Println(status.Evidence)
	// Output:
	// true true
	// 5 remote access error
	// the peer answered with a NAK: remote access error
}

// One process lets another use its protection domain and a region. Here both are one program; the
// descriptor and the handles would go over a Unix socket.
func ExampleImport() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "rnic-import")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "nic.sock")
	nic, err := softrnic.Start(ctx, softrnic.Config{Socket: socket})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nic.Close()

	// The first process.
	first, err := verbs.Open(ctx, "", verbs.WithSocket(socket))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer first.Close()
	pd, err := first.AllocPD()
	if err != nil {
		fmt.Println(err)
		return
	}
	mr, err := pd.AllocMemory(4096, verbs.AccessAll)
	if err != nil {
		fmt.Println(err)
		return
	}
	file, err := first.File()
	if err != nil {
		fmt.Println(err)
		return
	}

	// The second process.
	second, err := verbs.Import(ctx, file, verbs.WithSocket(socket))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer second.Close()
	_ = file.Close()
	shared, err := second.ImportPD(pd.Handle())
	if err != nil {
		fmt.Println(err)
		return
	}
	region, err := shared.ImportMR(mr.Handle())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(region.Len(), region.LKey() == mr.LKey(), region.Addr() == mr.Addr())
	// Output: 4096 true true
}

// A window lends a peer part of a region until it is invalidated.
func ExamplePD_AllocWindow() {
	ctx := context.Background()
	nic, a, b, pd, err := sides(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nic.Close()
	defer pd.Context().Close()

	shelf, err := pd.AllocMemory(4096, verbs.AccessLocalWrite|verbs.AccessMWBind)
	if err != nil {
		fmt.Println(err)
		return
	}
	window, err := pd.AllocWindow(verbs.MWType2)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer window.Close()
	for _, step := range []struct {
		who *verbs.QP
		wr  func() verbs.SendWR
	}{
		{b, func() verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRBindMW, Bind: &verbs.Bind{
				Window: window, Region: shelf, Addr: shelf.Addr() + 64, Length: 5,
				Access: verbs.AccessRemoteWrite,
			}}
		}},
		{a, func() verbs.SendWR {
			return verbs.SendWR{
				Opcode: verbs.WRWrite, Inline: []byte("hello"), RemoteAddr: shelf.Addr() + 64,
				RKey: window.RKey(),
			}
		}},
		{b, func() verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRLocalInvalidate, InvalidateKey: window.RKey()}
		}},
	} {
		if _, err := step.who.PostSend(step.wr()); err != nil {
			fmt.Println(err)
			return
		}
		if _, err := wait(ctx, step.who.Config().SendCQ); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Printf("%s\n", shelf.Bytes()[64:69])
	// Output: hello
}
