#!/usr/bin/env bash
# Runs every fuzz target below the given directories (default: all), each for a time.
#
#   scripts/fuzz.sh TIME [DIRECTORY...]     e.g. scripts/fuzz.sh 60s internal/wire
#
# A finding is written by "go test" below the package's testdata/fuzz; commit it with the fix.
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
time=$1
shift
[ $# -gt 0 ] || set -- internal verbs

targets=$(grep -rnoE '^func Fuzz[A-Za-z0-9_]+' --include='*_test.go' "$@" || true)
if [ -z "$targets" ]; then
    echo "$0: no fuzz target below $*" >&2
    exit 1
fi
failed=0
while IFS=: read -r file _ name; do
    name=${name#func }
    echo "== $name in $(dirname "$file"), $time"
    go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "./$(dirname "$file")" || failed=1
done <<<"$targets"
exit $failed
