package limits

import (
	"fmt"
	"strconv"
	"strings"
)

// Client bounds what one client of a NIC may have. ibv_query_device(3) reports it. A field that is
// 0 stands for the default.
type Client struct {
	PDs, CQs, QPs, SRQs, AHs, MRs, MWs uint64
	// Channels are those of completions. With what follows, but for DeviceMemory, they are told by
	// "rnic devinfo -v" alone: verbs have no attribute for them.
	Channels, XRCDs uint64
	// EventChannels and CMIDs are those of rdma_cm.
	EventChannels, CMIDs uint64
	// DeviceMemory is in bytes, over all pieces.
	DeviceMemory uint64
	// QueueMemory is what all queues and device memory take, in bytes. Pages that nobody has
	// touched count, although they are not there.
	QueueMemory uint64
}

// DefaultClient are the bounds unless an operator chooses others. A single client can have half of
// most things that there are, which leaves something to others.
func DefaultClient() Client {
	return Client{
		PDs: MaxPD / 2, CQs: MaxCQ / 2, QPs: MaxQPPerContext, SRQs: MaxSRQ / 2, AHs: MaxAH / 2,
		MRs: MaxMR / 2, MWs: MaxMW / 2, Channels: MaxCompChannels / 2, XRCDs: MaxXRCD / 2,
		EventChannels: MaxEventChannels / 2, CMIDs: MaxCMIDs, DeviceMemory: 64 << 20,
		QueueMemory: 64 << 30,
	}
}

// clientBound is a field of Client with its name for people and what it cannot exceed.
type clientBound struct {
	name  string
	most  uint64
	field func(*Client) *uint64
}

//tidy:table
var clientBounds = []clientBound{
	{"pds", MaxPD, func(c *Client) *uint64 { return &c.PDs }},
	{"cqs", MaxCQ, func(c *Client) *uint64 { return &c.CQs }},
	{"qps", MaxQPPerContext, func(c *Client) *uint64 { return &c.QPs }},
	{"srqs", MaxSRQ, func(c *Client) *uint64 { return &c.SRQs }},
	{"ahs", MaxAH, func(c *Client) *uint64 { return &c.AHs }},
	{"mrs", MaxMR, func(c *Client) *uint64 { return &c.MRs }},
	{"mws", MaxMW, func(c *Client) *uint64 { return &c.MWs }},
	{"channels", MaxCompChannels, func(c *Client) *uint64 { return &c.Channels }},
	{"xrcds", MaxXRCD, func(c *Client) *uint64 { return &c.XRCDs }},
	{"event-channels", MaxEventChannels, func(c *Client) *uint64 { return &c.EventChannels }},
	{"cm-ids", MaxCMIDs, func(c *Client) *uint64 { return &c.CMIDs }},
	{"queue-memory", MaxQueueBytes, func(c *Client) *uint64 { return &c.QueueMemory }},
	{"device-memory", MaxDMBytes, func(c *Client) *uint64 { return &c.DeviceMemory }},
}

// WithDefaults fills the fields that are 0.
func (c Client) WithDefaults() Client {
	d := DefaultClient()
	for _, b := range clientBounds {
		if p := b.field(&c); *p == 0 {
			*p = *b.field(&d)
		}
	}
	return c
}

// Each tells the bounds by the names that ParseClient knows.
func (c Client) Each(f func(name string, value uint64)) {
	for _, b := range clientBounds {
		f(b.name, *b.field(&c))
	}
}

// ParseClient reads bounds such as "qps=100,mrs=5000"; what is not named keeps its default. Device
// and queue memory are in bytes.
func ParseClient(text string) (Client, error) {
	var c Client
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		b := findBound(strings.TrimSpace(name))
		if b == nil {
			return c, fmt.Errorf("limits: %q is none of %s", name, boundNames())
		}
		n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		if err != nil || n == 0 || n > b.most {
			return c, fmt.Errorf("limits: %s=%s: a number from 1 to %d is wanted", b.name, value, b.most)
		}
		*b.field(&c) = n
	}
	return c.WithDefaults(), nil
}

func findBound(name string) *clientBound {
	for i := range clientBounds {
		if clientBounds[i].name == name {
			return &clientBounds[i]
		}
	}
	return nil
}

func boundNames() string {
	var names []string
	for i := range clientBounds {
		names = append(names, clientBounds[i].name)
	}
	return strings.Join(names, ", ")
}
