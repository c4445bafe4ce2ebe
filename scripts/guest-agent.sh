#!/usr/bin/env bash
# Builds `sluice guest` as one static file that runs in any Linux machine of this architecture.
#
#   scripts/guest-agent.sh [--debug]        target/guest/sluice-guest
#
# With the C library of musl where rustup has that target, else with glibc linked in, which the
# agent needs for nothing that is only there dynamically (it resolves no names).
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
machine=$(uname -m)
profile=(--release) folder=release
[ "${1:-}" != --debug ] || profile=() folder=debug

has() { rustup target list --installed 2>/dev/null | grep -qx "$1"; }
triple=$machine-unknown-linux-musl
has "$triple" || triple=$machine-unknown-linux-gnu
# With a target named, the flag is not for build scripts and macros, which cannot be static.
RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static -C strip=symbols" \
    cargo build "${profile[@]}" --package sluice-guest --target "$triple" --target-dir "$target/static"
mkdir -p "$target/guest"
cp "$target/static/$triple/$folder/sluice-guest" "$target/guest/sluice-guest"
if ldd "$target/guest/sluice-guest" 2>/dev/null | grep -q '=>'; then
    echo "$target/guest/sluice-guest is linked dynamically: $triple cannot link it statically" >&2
    exit 1
fi
ls -l "$target/guest/sluice-guest"
