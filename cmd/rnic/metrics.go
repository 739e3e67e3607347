package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/internal/telemetry"
)

// metricsHeaderTimeout ends connections that say nothing.
const metricsHeaderTimeout = 10 * time.Second

// metricsDoor is where Prometheus fetches counters; nil when nobody asked for it.
type metricsDoor struct {
	listener net.Listener
	server   *http.Server
}

// listenMetrics opens the port before there is a NIC, so that a port that is taken is found first.
func listenMetrics(ctx context.Context, address string) (*metricsDoor, error) {
	if address == "" {
		return nil, nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--metrics: %w", err)
	}
	return &metricsDoor{listener: listener}, nil
}

// serve answers with what status returns.
func (m *metricsDoor) serve(status func() (daemon.Status, bool)) {
	if m == nil {
		return
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", telemetry.Handler(func() (telemetry.Snapshot, error) {
		s, ok := status()
		if !ok {
			return telemetry.Snapshot{}, errors.New("the NIC is shutting down")
		}
		return telemetry.Of(&s), nil
	}))
	m.server = &http.Server{Handler: mux, ReadHeaderTimeout: metricsHeaderTimeout}
	go func() { _ = m.server.Serve(m.listener) }() // until close
}

func (m *metricsDoor) close() {
	if m == nil {
		return
	}
	if m.server != nil {
		_ = m.server.Close()
	}
	_ = m.listener.Close()
}
