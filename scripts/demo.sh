#!/usr/bin/env bash
# Two unmodified perftest programs, a server and a client, on a SoftRNIC: no RDMA hardware, no
# kernel module, no root. What is printed between the lines is their own report.
set -euo pipefail
cd "$(dirname "$0")/.."

port=${DEMO_PORT:-18515}
log=$(mktemp)
server=
# shellcheck disable=SC2317  # called by the trap
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -f "$log"
}
trap finish EXIT

listening() {
    # The local address and port, in hexadecimal, of a socket in state LISTEN (0A).
    grep -qiE "^ *[0-9]+: [0-9A-F]+:$(printf '%04X' "$port") [0-9A-F]+:0000 0A" \
        /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

if listening; then
    echo "$0: TCP port $port is taken; choose another: DEMO_PORT=… make demo" >&2
    exit 1
fi
if [ -e /sys/class/infiniband ] && [ -n "$(ls /sys/class/infiniband)" ]; then
    echo "This host also has RDMA devices of its own; the demo does not use them."
fi

echo "server: bin/rnic run -- ib_write_bw -p $port"
bin/rnic run -- ib_write_bw -p "$port" >"$log" 2>&1 </dev/null &
server=$!
for _ in $(seq 100); do
    listening && break
    if ! kill -0 "$server" 2>/dev/null; then
        cat "$log" >&2
        echo "$0: the server ended before it listened" >&2
        exit 1
    fi
    sleep 0.1
done

echo "client: bin/rnic run -- ib_write_bw -p $port 127.0.0.1"
bin/rnic run -- ib_write_bw -p "$port" 127.0.0.1
status=0
wait "$server" || status=$?
server=
if [ $status -ne 0 ]; then
    echo "the server failed with status $status; it said:" >&2
    cat "$log" >&2
fi
exit $status
