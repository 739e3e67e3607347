package softrnic_test

import (
	"fmt"
	"testing"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/verbs"
)

// benchPair returns two ends on an embedded NIC, and what each may use of the other's memory.
func benchPair(b *testing.B, size int) (x, y *end, src, dst *verbs.MR) {
	b.Helper()
	fail := func(err error) {
		if err != nil {
			b.Helper()
			b.Fatal(err)
		}
	}
	nic, err := softrnic.Start(b.Context(), softrnic.Config{})
	fail(err)
	b.Cleanup(func() { _ = nic.Close() })
	dev, err := nic.Open(b.Context())
	fail(err)
	b.Cleanup(func() { _ = dev.Close() })
	cfg := verbs.QPConfig{Type: verbs.QPTypeRC}
	x, err = newEnd(dev, cfg)
	fail(err)
	y, err = newEnd(dev, cfg)
	fail(err)
	fail(x.qp.ConnectTo(y.point))
	fail(y.qp.ConnectTo(x.point))
	src, err = x.pd.AllocMemory(size, verbs.AccessAll)
	fail(err)
	dst, err = y.pd.AllocMemory(size, verbs.AccessAll)
	fail(err)
	return x, y, src, dst
}

// BenchmarkWrite keeps 16 RDMA WRITEs in flight.
func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{8, 4096, 65536} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			x, _, src, dst := benchPair(b, size)
			wr := verbs.SendWR{
				Opcode: verbs.WRWrite, Flags: verbs.SendSignaled, SGE: src.SGE(0, size),
				RemoteAddr: dst.Addr(), RKey: dst.RKey(),
			}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			var wcs [16]verbs.WC
			for posted, done := 0, 0; done < b.N; {
				for posted < b.N && posted-done < len(wcs) {
					if _, err := x.qp.PostSend(wr); err != nil {
						b.Fatal(err)
					}
					posted++
				}
				n, err := x.cq.Poll(wcs[:])
				if err != nil || n > 0 && wcs[0].Status != verbs.WCSuccess {
					b.Fatal(err, wcs[0].Err())
				}
				done += n
			}
		})
	}
}

// BenchmarkWriteLatency waits for each RDMA WRITE before the next one.
func BenchmarkWriteLatency(b *testing.B) {
	for _, how := range []string{"Poll", "Wait"} {
		b.Run(how, func(b *testing.B) {
			x, _, src, dst := benchPair(b, 8)
			wr := verbs.SendWR{
				Opcode: verbs.WRWrite, Flags: verbs.SendSignaled, SGE: src.SGE(0, 8),
				RemoteAddr: dst.Addr(), RKey: dst.RKey(),
			}
			b.ReportAllocs()
			var wcs [1]verbs.WC
			for b.Loop() {
				if _, err := x.qp.PostSend(wr); err != nil {
					b.Fatal(err)
				}
				for n := 0; n == 0; {
					var err error
					if how == "Wait" {
						err = x.cq.Wait(b.Context())
					}
					if err == nil {
						n, err = x.cq.Poll(wcs[:])
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
