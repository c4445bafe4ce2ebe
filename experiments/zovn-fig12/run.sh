#!/usr/bin/env bash
# Runs sweeps of the experiment, or draws what they have found.
#
#   experiments/zovn-fig12/run.sh [NAME | keep]...
#
#   NAME   a sweep of this folder, without .toml; a sweep that was stopped goes on where it was
#   keep   the results of all sweeps as the files that are kept here: copies those that OUT has,
#          draws each, and prints its table for the page (seconds)
#
# Without words: every sweep (hours), then keep. OUT=DIR (default: out/zovn-fig12), SLUICE=PROGRAM,
# THREADS=N (default: the number of cores).
set -euo pipefail
cd "$(dirname "$0")/../.."
here=experiments/zovn-fig12
out=${OUT:-out/zovn-fig12}
sluice=${SLUICE:-${CARGO_TARGET_DIR:-target}/release/sluice}
all=(none light-tcp heavy-udp-2 heavy-udp-2-fast heavy-udp-5 heavy-udp-10 heavy-udp-10-fast
    classes drop slop output)
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=("${all[@]}" keep)
[ -x "$sluice" ] || cargo build --release --package sluice

keep() {
    local name
    for name in "${all[@]}"; do
        [ ! -e "$out/$name/sweep.jsonl" ] || cp "$out/$name/sweep.jsonl" "$here/$name.jsonl"
        echo "$name"
        "$sluice" sim draw "$here/$name.jsonl" --out "$here"
    done
}

for part in "${parts[@]}"; do
    case $part in
    keep) keep ;;
    *)
        [ -e "$here/$part.toml" ] || {
            echo "there is no sweep $part; they are: ${all[*]}" >&2
            exit 2
        }
        echo "$part"
        "$sluice" sim sweep "$here/$part.toml" --out "$out/$part" ${THREADS:+--threads "$THREADS"}
        ;;
    esac
done
