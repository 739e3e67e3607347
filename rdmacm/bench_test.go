package rdmacm_test

import (
	"sync"
	"testing"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/test/nictest"
)

// BenchmarkDial connects and disconnects, one after the other and many at once.
func BenchmarkDial(b *testing.B) {
	nic := nictest.Start(b, softrnic.Config{})
	keep := session(b, nic)
	l := listen(b, "rdma", ":7471", rdmacm.Config{Session: keep})
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			r, err := l.Accept(b.Context())
			if err != nil {
				return
			}
			serving.Go(func() {
				c, err := r.Accept(nictest.Soon(b), rdmacm.Config{Session: keep})
				if err != nil {
					b.Error(err)
					return
				}
				<-c.Done()
				_ = c.Close()
			})
		}
	})
	dial := func() {
		c, err := rdmacm.Dial(nictest.Soon(b), "rdma", "127.0.0.1:7471", rdmacm.Config{Session: keep})
		if err != nil {
			b.Error(err)
			return
		}
		_ = c.Close()
	}
	b.Run("one by one", func(b *testing.B) {
		for b.Loop() {
			dial()
		}
	})
	b.Run("at once", func(b *testing.B) {
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				dial()
			}
		})
	})
	_ = l.Close()
	serving.Wait()
}
