package check

import "fmt"

// courtMax bounds the failures that are kept: after the first the rest is mostly its echo.
const courtMax = 20

// Court collects failures.
type Court struct {
	failures []string
	count    int
}

// Failf records a failure.
func (c *Court) Failf(format string, args ...any) {
	c.count++
	if len(c.failures) < courtMax {
		c.failures = append(c.failures, fmt.Sprintf(format, args...))
	}
}

// HasFailed reports whether anything was wrong.
func (c *Court) HasFailed() bool { return c.count > 0 }

// Count returns how many failures there were; Failures keeps the first of them.
func (c *Court) Count() int { return c.count }

// Failures returns the first failures in the order in which they were seen.
func (c *Court) Failures() []string { return c.failures }
