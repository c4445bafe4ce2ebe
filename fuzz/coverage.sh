#!/usr/bin/env bash
# Prints which lines of a crate its fuzz target reaches, file by file.
#
#   fuzz/coverage.sh TARGET [SOURCES]
#
# It builds fuzz target TARGET with source coverage, replays fuzz/seeds/TARGET and what
# `cargo fuzz run` has collected in fuzz/corpus/TARGET, and counts the lines of SOURCES (default:
# crates/TARGET/src). It fails below COVERAGE_PERCENT_MIN (default 90) percent of the lines.
# SEEDS_ONLY=1 leaves the collected corpus out, so that the figure is the same on every machine.
#
# Needs cargo-fuzz, and the llvm-cov of rustc's own LLVM version: `apt-get install llvm-22` for
# rustc 1.95, or `rustup component add llvm-tools`. An older llvm-cov cannot read the profile.
set -euo pipefail

cd "$(dirname "$0")/.."
target=${1:?usage: fuzz/coverage.sh TARGET [SOURCES]}
sources=${2:-crates/$target/src}
percent_min=${COVERAGE_PERCENT_MIN:-90}

major=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
triple=$(rustc -vV | sed -n 's/^host: //p')
for tools in "$(rustc --print sysroot)/lib/rustlib/$triple/bin" "/usr/lib/llvm-$major/bin" ""; do
    [ -x "$tools/llvm-cov" ] && [ -x "$tools/llvm-profdata" ] && break
done
if [ -z "$tools" ]; then
    echo "no llvm-cov for LLVM $major: apt-get install llvm-$major" >&2
    exit 2
fi

corpora=("fuzz/seeds/$target")
if [ -z "${SEEDS_ONLY:-}" ] && [ -d "fuzz/corpus/$target" ]; then
    corpora+=("fuzz/corpus/$target")
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cargo fuzz coverage "$target" "${corpora[@]}" --sanitizer none --llvm-path "$tools" \
    --target-dir fuzz/target/coverage >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi

# Unit tests are no part of the build, so what is left of the crate is its production lines.
report=$("$tools/llvm-cov" report "fuzz/target/coverage/$triple/release/$target" \
    --instr-profile "fuzz/coverage/$target/coverage.profdata" --sources "$sources" \
    --show-region-summary=false --show-branch-summary=false)
inputs=$(find "${corpora[@]}" -type f | wc -l)
echo "$report"
percent=$(awk '$1 == "TOTAL" { sub("%", "", $NF); print $NF }' <<<"$report")
echo "$target: $percent % of the lines of $sources are reached by $inputs inputs"
awk -v percent="$percent" -v min="$percent_min" 'BEGIN { exit !(percent >= min) }' || {
    echo "$target: below $percent_min %" >&2
    exit 1
}
