#!/usr/bin/env bash
# Runs the experiment: one command, as root, which writes result.json.
#
#   experiments/udp-sockets/run.sh
#
# Eight senders, four receivers that take all, a tenth, a hundredth and nothing of what comes: on one
# host, on two, and on a Linux bridge. Then the cost of the gate for each datagram. Three seconds of
# load each, a minute with SLUICE_SOAK=1. OUT=DIR (default: out/udp-sockets).
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${OUT:-out/udp-sockets}
mkdir -p "$out"
log=$out/log
: >"$log"

cargo build --package sluice
cargo test --package sluice-daemon --test live_sockets -- --ignored --nocapture --test-threads 1 \
    slow_sockets | tee -a "$log"
cargo test --package sluice-ports --test rcvbuf -- --ignored --nocapture cost_of_gate | tee -a "$log"

commit=$(git rev-parse HEAD 2>/dev/null || echo unknown)
machine="$(nproc) processors, $(uname -sr)"
grep -o 'result: {.*' "$log" | sed 's/^result: //' |
    jq -s --arg commit "$commit" --arg machine "$machine" \
        '{name: "udp-sockets", commit: $commit, machine: $machine, rows: .}' >"$out/result.json"
cargo xtask results "$out/result.json"
