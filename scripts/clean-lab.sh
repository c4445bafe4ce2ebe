#!/usr/bin/env bash
# Takes down every lab that is still up, for example after a power failure in the middle of a run.
set -euo pipefail
cd "$(dirname "$0")/.."

sluice=
for build in release debug; do
    candidate=${CARGO_TARGET_DIR:-target}/$build/sluice
    if [ -x "$candidate" ]; then
        sluice=$candidate
        break
    fi
done
root=()
[ "$(id -u)" -eq 0 ] || root=(sudo)
found=
for folder in /run/sluice-lab/*/; do
    [ -d "$folder" ] || continue
    found=yes
    if [ -z "$sluice" ]; then
        echo "build the program first: cargo build --release" >&2
        exit 1
    fi
    "${root[@]}" "$sluice" lab down "$(basename "$folder")"
done
[ -n "$found" ] || echo "no lab is up"
