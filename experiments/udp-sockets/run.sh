#!/usr/bin/env bash
# Runs the experiment: one command, as root, which writes result.json.
#
#   experiments/udp-sockets/run.sh          a few seconds of each load
#   experiments/udp-sockets/run.sh long     until 10,000,000 datagrams have arrived
#
# Eight senders, four receivers that take all, a tenth, a hundredth and nothing of what comes: behind
# a TAP and a veth card, on one host, on two, and on a Linux bridge. Then the fast receiver beside
# slow ones and beside fast ones, and the cost of the gate for each datagram. Three seconds of load
# each, a minute with SLUICE_SOAK=1. OUT=DIR (default: out/udp-sockets).
#
# The long form is the load behind veth cards, on one host and on two, with up to RATE (default
# 20,000) datagrams a second from each socket; DATAGRAMS=N takes another number.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${OUT:-out/udp-sockets}
mkdir -p "$out"
log=$out/log
: >"$log"

live() {
    cargo test --package sluice-daemon --test live -- \
        --ignored --nocapture --test-threads 1 "$@" | tee -a "$log"
}

cargo build --package sluice
case ${1:-} in
'')
    live slow_sockets
    cargo test --package sluice-ports --test rcvbuf -- \
        --ignored --nocapture cost_of_gate | tee -a "$log"
    ;;
long)
    export SLUICE_RATE=${RATE:-20000} SLUICE_DATAGRAMS=${DATAGRAMS:-10000000}
    live slow_sockets_behind_veth slow_sockets_of_other_host_behind_veth
    ;;
*)
    echo "usage: experiments/udp-sockets/run.sh [long]" >&2
    exit 2
    ;;
esac

commit=$(git rev-parse HEAD 2>/dev/null || echo unknown)
machine="$(nproc) processors, $(uname -sr)"
grep -o 'result: {.*' "$log" | sed 's/^result: //' |
    jq -s --arg commit "$commit" --arg machine "$machine" \
        '{name: "udp-sockets", commit: $commit, machine: $machine, rows: .}' >"$out/result.json"
cargo xtask results "$out/result.json"
