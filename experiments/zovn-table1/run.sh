#!/usr/bin/env bash
# Runs every configuration, then puts them beside each other.
#
#   experiments/zovn-table1/run.sh [DIR]        (default: out/table1; SLUICE=PROGRAM)
#
# It needs root, QEMU, Open vSwitch, and both kernels of scripts/guest.sh. Ten minutes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
out=${1:-out/table1}
target=${CARGO_TARGET_DIR:-target}
sluice=${SLUICE:-$target/release/sluice}
scripts/guest.sh
scripts/guest.sh full
[ -x "$sluice" ] || cargo build --release --package sluice
folders=()
for name in c1 c2 c6 c7 ll zz zz-paced; do
    echo "$name"
    # A configuration that loses where it must not says so and is shown all the same.
    "$sluice" lab run "$here/$name.toml" --out "$out/$name" --quiet || [ -s "$out/$name/result.json" ]
    folders+=("$out/$name")
done
"$sluice" lab points "${folders[@]}" --out "$out" | tee "$out/table.md"
