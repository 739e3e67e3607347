#!/usr/bin/env bash
# Installs the Debian packages that a target needs, and says which. Does nothing, and needs no
# privilege, when all is there.
#
#   scripts/deps.sh [--check] GROUP...     groups: build demo test bench lint interop
#
# --check only lists what is missing; the exit status is 1 if anything is.
set -euo pipefail

usage() {
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

# A row of needs: what must be there (a command, or an absolute path; * matches any), the package
# that brings it, and what for.
needs() {
    case $1 in
    build)
        echo 'gcc gcc the drop-in library'
        echo 'make make this Makefile and the drop-in library'
        echo '/usr/include/infiniband/verbs.h libibverbs-dev types of the drop-in library'
        echo '/usr/include/rdma/rdma_cma.h librdmacm-dev types of the connection library'
        echo '/usr/include/stdlib.h libc6-dev headers of the C library'
        ;;
    demo)
        echo 'ib_write_bw perftest the programs of the demo'
        ;;
    test)
        needs demo
        echo 'ibv_devinfo ibverbs-utils programs of the end-to-end tests'
        echo 'rping rdmacm-utils programs of the end-to-end tests'
        echo 'qperf qperf one of them'
        echo 'fio fio one of them'
        echo 'fi_pingpong libfabric-bin one of them'
        echo 'ucx_perftest ucx-utils one of them'
        echo 'curl curl a client of HTTP where none belongs'
        echo 'ip iproute2 network namespaces, two hosts on one machine'
        echo '/usr/lib/python3/dist-packages/pyverbs python3-pyverbs the tests of rdma-core'
        echo '/usr/share/doc/rdma-core/tests rdma-core the tests of rdma-core'
        needs lint
        echo 'clang clang the drop-in library also builds with it'
        echo 'setpriv util-linux runs as an ordinary user'
        ;;
    bench)
        needs demo
        echo 'ip iproute2 the path between two namespaces'
        echo 'qperf qperf TCP on the same paths'
        echo 'iperf3 iperf3 TCP on the same paths'
        echo 'ucx_perftest ucx-utils UCX over TCP and shared memory'
        echo 'fi_pingpong libfabric-bin libfabric over TCP and shared memory'
        echo 'cmtime rdmacm-utils connections per second'
        echo 'qemu-system-x86_64 qemu-system-x86 the machine with the kernel driver in it'
        echo '/etc/libibverbs.d/rxe.driver ibverbs-providers the driver, as programs see it'
        echo 'xz xz-utils modules of newer kernels are packed'
        ;;
    lint)
        echo 'git git the list of files that are ours'
        ;;
    interop)
        needs test
        echo 'qemu-system-x86_64 qemu-system-x86 the machine with the kernel driver in it'
        echo '/etc/libibverbs.d/rxe.driver ibverbs-providers the driver, as programs see it'
        echo '/lib/*-linux-gnu/libgcc_s.so.1 libgcc-s1 what rping needs in that machine'
        echo 'xz xz-utils modules of newer kernels are packed'
        echo 'tshark tshark the judge of the packets'
        ;;
    *)
        echo "$0: unknown group $1" >&2
        usage
        ;;
    esac
}

present() {
    case $1 in
    /*) compgen -G "$1" >/dev/null ;;
    *) PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null ;;
    esac
}

check_only=false
if [ "${1:-}" = --check ]; then
    check_only=true
    shift
fi
[ $# -gt 0 ] || usage
rows=$(for group in "$@"; do needs "$group" || exit 2; done)

# Go cannot come from here: distributions lag behind the version that go.mod asks for, which the
# go command itself would fetch where it is allowed to.
if ! present go; then
    wanted=$(sed -n 's/^go //p' "$(dirname "$0")/../go.mod")
    echo "$0: no go command; install Go $wanted or later: https://go.dev/doc/install" >&2
    exit 1
fi

packages=()
while read -r what package why; do
    present "$what" && continue
    case " ${packages[*]-} " in *" $package "*) continue ;; esac
    packages+=("$package")
    echo "missing: $package, for $why ($what)"
done <<<"$rows"

[ ${#packages[@]} -gt 0 ] || exit 0
if $check_only; then
    exit 1
fi
if ! command -v apt-get >/dev/null; then
    echo "$0: this system has no apt-get; install what is missing with its package manager" >&2
    exit 1
fi
sudo=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "$0: neither root nor sudo; as root: apt-get install ${packages[*]}" >&2
        exit 1
    fi
    sudo=(sudo)
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt_get() {
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" >"$log" 2>&1 </dev/null ||
        { cat "$log" >&2; echo "$0: apt-get $* failed" >&2; return 1; }
}
echo "installing: ${packages[*]}"
# Images of containers may leave documentation out, where rdma-core has its tests.
options=(-y --no-install-recommends --reinstall
    -o 'Dpkg::Options::=--path-include=/usr/share/doc/rdma-core/tests/*')
# Package lists may be absent (a fresh container) or old; refresh them only when they do not do.
apt_get install "${options[@]}" "${packages[@]}" 2>/dev/null || {
    apt_get update
    apt_get install "${options[@]}" "${packages[@]}"
}
echo "installed: ${packages[*]}"
