#!/usr/bin/env bash
# Runs "go generate" and fails if that changes any file: what is generated must be what is
# committed. It compares contents, so it also works in a checkout with other changes.
set -euo pipefail
cd "$(dirname "$0")/.."

sums() { git ls-files -z -co --exclude-standard | xargs -0 sha256sum 2>/dev/null || true; }

before=$(mktemp)
after=$(mktemp)
trap 'rm -f "$before" "$after"' EXIT
sums >"$before"
go generate ./...
sums >"$after"
if ! changed=$(diff "$before" "$after" | sed -n 's/^> [0-9a-f]*  //p' && cmp -s "$before" "$after"); then
    echo "$0: go generate changed these files; commit them:" >&2
    echo "$changed" >&2
    exit 1
fi
