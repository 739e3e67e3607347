package softrnic_test

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/test/nictest"
	"github.com/softrnic/softrnic/verbs"
)

// Goroutines that share a queue pair and a completion queue lose no request and see none twice.
func TestQP_ManyGoroutines_EveryRequestCompletesOnce(t *testing.T) {
	nic := nictest.Start(t, softrnic.Config{})
	dev := open(t, verbs.WithConnector(nic))
	x, y := pair(t, dev, dev, verbs.QPConfig{Type: verbs.QPTypeRC, MaxSendWR: 32})
	sum, err := y.pd.AllocMemory(8, verbs.AccessAll)
	if err != nil {
		t.Fatal(err)
	}
	results, err := x.pd.Register(make([]byte, 8), verbs.AccessLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	const posters, each = 4, 300
	seen := make([]atomic.Bool, posters*each)
	var done atomic.Int64
	// The send queue frees an entry before its completion is polled, so that programs bound by
	// themselves what their completion queue has to hold.
	room := make(chan struct{}, 48)
	var wg sync.WaitGroup
	for p := range posters {
		wg.Go(func() {
			for i := 0; i < each; {
				room <- struct{}{}
				_, err := x.qp.PostSend(verbs.SendWR{
					ID: uint64(p*each + i), Opcode: verbs.WRFetchAdd, CompareAdd: 1,
					SGE: results.SGE(0, 8), RemoteAddr: sum.Addr(), RKey: sum.RKey(),
					Flags: verbs.SendSignaled,
				})
				switch {
				case err == nil:
					i++
				case errors.Is(err, verbs.ErrQueueFull):
					<-room
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	for range 3 {
		wg.Go(func() {
			var wcs [5]verbs.WC
			for done.Load() < posters*each {
				n, err := x.cq.Poll(wcs[:])
				if err != nil {
					t.Error(err)
					return
				}
				for i := range wcs[:n] {
					<-room
					if err := wcs[i].Err(); err != nil || seen[wcs[i].ID].Swap(true) {
						t.Errorf("completion %+v: twice, or %v", wcs[i], err)
					}
				}
				done.Add(int64(n))
			}
		})
	}
	wg.Wait()
	if got := binary.NativeEndian.Uint64(sum.Bytes()); got != posters*each {
		t.Errorf("%d of %d additions arrived", got, posters*each)
	}
}
