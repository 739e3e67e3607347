// Package bench runs measurements of SoftRNIC and of its peers in turn, several rounds in one run,
// and reports medians, spreads and ratios:
//
//	run := bench.Measure(ctx, figures, bench.Options{Rounds: 5})
//	err := run.Store("docs/bench")
//
// A Gauge is one way to measure, with one program or a pair of them. A Row sets the gauge of
// SoftRNIC beside those of peers, each with the ratio that is aimed at. Several rows may name one
// gauge, which then runs once a round for all of them. Figures are rows of one unit that belong
// together; each gets a table and a plot. A Stage is what gauges need around them, hosts or a
// virtual machine; gauges that stand together share it.
//
// On a machine that is shared or virtual only ratios mean anything. That is why a round runs
// everything once, instead of one gauge after the other as often as is wanted: a change of weather
// meets them all. For the same reason Compare, which finds regressions, looks at a value beside
// those of its peers, in both runs.
package bench
