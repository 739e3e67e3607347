package sim

import "testing"

// BenchmarkRun plays worlds one after the other, as "rnic sim --jobs 1" does.
func BenchmarkRun(b *testing.B) {
	for _, world := range WorldNames {
		b.Run(world, func(b *testing.B) {
			var packets uint64
			for i := range b.N {
				r, err := Run(Config{Seed: uint64(i%200) + 1, World: world})
				if err != nil {
					b.Fatal(err)
				}
				packets += r.Packets + r.Local
			}
			b.ReportMetric(float64(packets)/b.Elapsed().Seconds(), "packets/s")
		})
	}
}
