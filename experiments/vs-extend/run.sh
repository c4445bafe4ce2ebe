#!/usr/bin/env bash
# Runs parts of the experiment; each is one command, and writes a page, a result.json, or both.
#
#   experiments/vs-extend/run.sh [fit | predict | keep | compare | vary | live | bucket | cost]...
#
#   fit       four parameters from Table 4 of the paper (seconds)
#   predict   every cell of Tables 4 to 7 beside the paper's (seconds)
#   keep      the same, as the files that are kept here; prints the tables of the page (seconds)
#   compare   rss, rss++, the paper's rule and adaptive, 2 to 8 VMs (two minutes)
#   vary      the same, each parameter less and more by half (minutes)
#   live      two real cores, by the kernel and by Sluice's worker (half an hour; root, quiet machine)
#   bucket    a bucket that moves every millisecond for a minute, in the kernel's path and in
#             Sluice's (five minutes; root)
#   cost      what deciding costs (a minute)
#
# Without words: those of the model. OUT=DIR (default: out/vs-extend), SLUICE=PROGRAM.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${OUT:-out/vs-extend}
sluice=${SLUICE:-${CARGO_TARGET_DIR:-target}/release/sluice}
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(fit predict compare vary)

bench() {
    make bench PART="$1"
    mkdir -p "$out/$1"
    cp "${CARGO_TARGET_DIR:-target}/bench/$1."* "$out/$1/"
}

model() {
    [ -x "$sluice" ] || cargo build --release --package sluice
    "$sluice" sim cpu "$@"
}

for part in "${parts[@]}"; do
    echo "$part"
    case $part in
    fit | predict | compare | vary)
        model "$part" --out "$out/$part"
        cargo xtask results "$out/$part/result.json"
        ;;
    keep)
        model predict --out "$out/predict"
        cargo xtask results "$out/predict/result.json"
        cp "$out/predict/result.json" experiments/vs-extend/
        model draw experiments/vs-extend/result.json --out experiments/vs-extend
        ;;
    live) bench steer ;;
    cost) bench placement ;;
    bucket)
        SLUICE_MOVE_SECONDS=60 cargo test --package sluice-daemon --lib \
            -- buckets_moving_under_load --nocapture
        cargo build --package sluice
        SLUICE_SOAK=1 cargo test --package sluice-daemon --test live \
            -- --include-ignored --nocapture bucket_moves_every_millisecond
        ;;
    *)
        echo "there is no part $part; the first lines of $0 say what there is" >&2
        exit 2
        ;;
    esac
done
