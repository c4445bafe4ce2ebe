#!/usr/bin/env bash
# Everything that a change must pass, on a developer's machine and in CI alike.
#
#   scripts/test.sh [STEP...]      (default: all steps, in their order)
#
#   fmt      formatting
#   clippy   lints, warnings are errors
#   doc      the API documentation builds without a broken link
#   tidy     crate edges, sizes, no_std, unsafe, banned words, links (cargo xtask tidy); types of the
#            Python client and of Neutron's driver (mypy)
#   book     the pages build as a book, and each of its links leads to a page and an anchor of it
#   deny     licenses, sources and banned crates of what comes from outside
#   unit     cargo test of every crate; tests under #[ignore] are left to `live`
#   fuzz     every fuzz target, FUZZ_SECONDS each (default 6)
#   planted  planted faults that a change touches, and a draw of the rest, are caught by their
#            tests (cargo xtask planted); every patch applies
#   heavy    live tests that load every core or compare rates, one at a time
#   live     tests in network namespaces, but for those that heavy has run: the modules of
#            crates/daemon/tests/live, and crates/*/tests/live_*.rs; needs root
#
# LIVE=trace runs only these of the live tests (a module, or a program without its `live_`).
#
# tidy, unit, planted, heavy and live share one build: all of them select the whole workspace, so that
# every package has the same features in each.
#
# planted and fuzz run beside live, where they are asked for just before it: the live tests that
# heavy has left wait for most of their time, and what they leave of the cores goes to the others.
#
# SETUP_DONE=FILE: what the steps need is still being installed by the process SETUP_PID, and FILE
# will have the status of that. fmt, clippy and doc need none of it; the others wait for it.
#
# Every step is run, even after one has failed. A step that cannot run here is skipped aloud. Its
# output is kept in target/test/STEP.log, and shown as it comes with VERBOSE=1. When a step fails,
# its failures are shown (what each failed test printed, at most PANIC_LINES of it; else the last
# LOG_LINES), and named again in the last 15 lines of all.
set -euo pipefail
cd "$(dirname "$0")/.."

PATH=$PATH:/usr/sbin:/sbin
target=${CARGO_TARGET_DIR:-target}
logs=$target/test
mkdir -p "$logs"
passed=0
failed=()
skipped=()

step_fmt() {
    cargo fmt --all --check
    cargo fmt --manifest-path fuzz/Cargo.toml --check
}

step_clippy() { cargo clippy --workspace --all-targets -- -D warnings; }

step_doc() { RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items; }

# As `cargo xtask`, which would build its dependencies with features of their own.
xtask() {
    cargo build --quiet --workspace --bin xtask
    "$target/debug/xtask" "$@"
}

step_tidy() {
    xtask tidy
    if ! mypy --version >/dev/null 2>&1; then
        echo "mypy is not installed: the types of the Python client are not checked"
        return
    fi
    (cd python && MYPYPATH=src mypy --strict --cache-dir "$target/mypy" src/sluice_client tests \
        generate_types.py)
    (cd python/neutron && MYPYPATH=src:../src:tests mypy --strict --cache-dir "$target/mypy-neutron" \
        src/sluice_neutron tests bench.py)
}

skip_book() { scripts/docs.sh --can || true; }
step_book() {
    scripts/docs.sh
    xtask book "$target/book"
}

skip_deny() { cargo deny --version >/dev/null 2>&1 || echo "cargo-deny is not installed"; }
step_deny() { cargo deny check bans licenses sources; }

# The same cases in each run, so that a change is judged by what it changed; `make soak` draws
# others.
step_unit() {
    local kinds all=()
    export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-1}
    cargo test --workspace --no-run
    # Programs run one after the other, and some of them are one long test, or sleep: in three rows,
    # they fill the cores.
    for kinds in '--lib --bins' '--test [a-k]*' '--test [!a-k]*' --doc; do
        set -f
        # shellcheck disable=SC2086
        in_row "unit-${#all[@]}" cargo test --workspace --no-fail-fast $kinds &
        set +f
        all+=("unit-${#all[@]}")
    done
    wait
    end_rows "${all[@]}"
}

# Waits until fewer than so many background jobs run.
wait_for_row() {
    while [ "$(jobs -rp | wc -l)" -ge "$1" ]; do
        wait -n || true
    done
}

# Runs a command for end_rows, in the background or not: its output and its status go to files of
# its name. The shell's own memory of them does not do: `wait PID` forgets a process once another has
# its number, which comes round within a run, and calls it failed.
in_row() {
    local name=$1 status=0
    rm -f "$logs/$name.status"
    "${@:2}" >"$logs/$name.log" 2>&1 || status=$?
    echo "$status" >"$logs/$name.status"
}

# Shows what rows printed, and fails if one of them did.
end_rows() {
    local name status failed=0
    for name in "$@"; do
        cat "$logs/$name.log"
        status=$(cat "$logs/$name.status" 2>/dev/null || echo nothing)
        if [ "$status" != 0 ]; then
            echo "row $name ended with $status"
            failed=1
        fi
    done
    return "$failed"
}

# What libFuzzer learns of a run: the edges that it took, and the values that it compared. These are
# the flags of cargo-fuzz, but for its one unit of code for each crate, which leaves one core idle
# while the other builds the largest.
fuzz_flags='--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=16
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares
    -Cllvm-args=-sanitizer-coverage-stack-depth'
fuzz_triple=$(rustc -vV | sed -n 's/^host: //p')

# With the output of each in a file, since several run at the same time.
fuzz_one() {
    echo "fuzz target $1"
    "fuzz/target/$fuzz_triple/release/$1" -artifact_prefix="fuzz/artifacts/$1/" \
        -max_total_time="${FUZZ_SECONDS:-6}" -print_final_stats=1 "fuzz/corpus/$1" "fuzz/seeds/$1"
}

step_fuzz() {
    local source name all=()
    # With a target named, build scripts and macros have none of these flags.
    RUSTFLAGS="${fuzz_flags//$'\n'/ } ${RUSTFLAGS:-}" cargo build --release --bins \
        --manifest-path fuzz/Cargo.toml --target-dir fuzz/target --target "$fuzz_triple"
    # A target is one thread: as many at a time as there are cores.
    for source in fuzz/fuzz_targets/*.rs; do
        name=$(basename "$source" .rs)
        all+=("fuzz-$name")
        mkdir -p "fuzz/corpus/$name" "fuzz/seeds/$name" "fuzz/artifacts/$name"
        wait_for_row "$(nproc)"
        in_row "fuzz-$name" fuzz_one "$name" &
    done
    wait
    end_rows "${all[@]}"
}

# Where `unit` has passed before, its tests need no second run without a fault.
step_planted() {
    if [ -n "${UNIT_PASSED:-}" ]; then
        xtask planted --tested
    else
        xtask planted
    fi
}

skip_live() {
    local probe=sluice-probe-$$
    if [ "$(id -u)" -ne 0 ]; then
        echo "live tests need root: they make network namespaces"
    elif ! ip netns add "$probe" 2>/dev/null; then
        echo "this machine lets nobody make network namespaces"
    else
        ip netns delete "$probe"
    fi
}
skip_heavy() { skip_live; }
# In a mount namespace with a /run/netns of its own: names of others are neither seen nor taken.
step_live() {
    mkdir -p /run/netns
    exec unshare --mount bash "$0" --live-alone "${HEAVY_RAN:-}"
}
step_heavy() {
    mkdir -p /run/netns
    exec unshare --mount bash "$0" --live-alone alone
}
# Those that load every core, or compare rates: one at a time, and before the others.
live_heavy='dpdk isolation offload parity pfc random_drill steer stuck'
# A module of the daemon's program, or a program of another package.
live_one() {
    local program=live_$1 filter=()
    if [ -e "crates/daemon/tests/live/$1.rs" ]; then
        program=live
        filter=("$1::")
    fi
    cargo test --workspace --no-fail-fast --test "$program" -- --include-ignored --test-threads=1 \
        "${filter[@]}"
}
# `alone`: only the heavy ones; `ran`: all but them.
live_alone() {
    local which=$1 is_heavy file name left status=0 all=() light=()
    mount -t tmpfs -o mode=755 sluice-live /run/netns
    # Those of one package do not make the programs of another.
    cargo build --workspace --bins
    cargo test --workspace --no-run --test 'live*'
    for file in crates/daemon/tests/live/*.rs crates/*/tests/live_*.rs; do
        name=$(basename "$file" .rs)
        name=${name#live_}
        # shellcheck disable=SC2053 # LIVE may be a pattern.
        [[ $name == ${LIVE:-*} && " main ${all[*]} " != *" $name "* ]] || continue
        is_heavy=$([[ " $live_heavy " == *" $name "* ]] && echo yes || echo no)
        [ "$which $is_heavy" != "alone no" ] && [ "$which $is_heavy" != "ran yes" ] || continue
        all+=("$name")
    done
    case ${#all[@]} in
    0)
        [ -z "$which" ] || return 0
        echo "error: there are no live tests of the name $LIVE"
        return 1
        ;;
    # One alone is seen as it runs.
    1)
        live_one "${all[0]}" || status=1
        all=()
        ;;
    esac
    for name in "${all[@]}"; do
        if [[ " $live_heavy " == *" $name "* ]]; then
            in_row "live-$name" live_one "$name"
        else
            light+=("$name")
        fi
    done
    # The others wait for most of their time: two at a time. Three were not faster on two cores, and
    # an emulated machine did not end in time.
    for name in "${light[@]}"; do
        wait_for_row 2
        in_row "live-$name" live_one "$name" &
    done
    wait
    end_rows "${all[@]/#/live-}" || status=1
    left=$(ip netns list)
    if [ -n "$left" ]; then
        printf 'the live tests left namespaces behind:\n%s\n' "$left"
        status=1
    fi
    return "$status"
}

# What the output of a step says in a few words, for its line of the summary.
remark() {
    case $1 in
    unit | heavy | live)
        awk '/^test result:/ { ok += $4; ignored += $8 }
             END { printf ", %d tests passed, %d ignored", ok, ignored }' "$2"
        ;;
    fuzz)
        awk '/^stat::number_of_executed_units:/ { runs += $2; targets++ }
             END { printf ", %d targets, %d inputs", targets, runs }' "$2"
        ;;
    book) sed -n 's/^book: ok\(.*\)/\1/p' "$2" | tail -n 1 ;;
    tidy) sed -n 's/^tidy no_std: ok, .*: \(.*\)/, \1/p' "$2" | tail -n 1 ;;
    planted) sed -n 's/^planted: \(.*\)/, \1/p' "$2" | tail -n 1 ;;
    esac
}

# What failed in a step, in at most so many lines.
what_failed() {
    local step=$1 log=$2 most=$3 all left width=160
    all=$(awk -v step="$step" -f scripts/failures.awk "$log" | cut -c -$width)
    if [ -z "$all" ]; then
        # A step that ended without a word of its kind: its own last one.
        all=$(awk 'NF { last = $0 } END { print last }' "$log" | cut -c -$width)
    fi
    left=$(($(wc -l <<<"$all") - most))
    head -n "$most" <<<"$all" | sed "s/^/$step: /; $([ "$left" -le 0 ] || echo "\$s/\$/ (and $left more)/")"
}

# The tests' own words and names for tests; the end of the output for what else there is.
show_failure() {
    local name=$1 log=$2
    case $name in
    unit | heavy | live)
        awk -v step="$name" -v want=panics -v lines="${PANIC_LINES:-60}" \
            -f scripts/failures.awk "$log"
        ;;
    *) tail -n "${LOG_LINES:-100}" "$log" ;;
    esac
    what_failed "$name" "$log" 100
}

# Returns, with a word for it, if a step cannot run here.
is_skipped() {
    local name=$1 why=""
    if declare -F "skip_$name" >/dev/null; then
        why=$("skip_$name")
    fi
    [ -n "$why" ] || return 1
    echo "$name: SKIPPED, $why"
    skipped+=("$name")
}

# Runs a step, in a shell of its own, so that it ends at its first failure. Words behind its name
# go before its command. The outcome goes to a file, since a step may run in the background.
do_step() {
    local name=$1 log=$logs/$1.log begin=$SECONDS status=0
    local TIMEFORMAT='%U %S'
    if [ -n "${VERBOSE:-}" ]; then
        echo "$name: begins"
        { time "${@:2}" bash "$0" --inside "$name" 2>&1 </dev/null | tee "$log"; } \
            2>"$logs/$name.cpu" || status=$?
    else
        { time TERM=dumb "${@:2}" bash "$0" --inside "$name" >"$log" 2>&1 </dev/null; } \
            2>"$logs/$name.cpu" || status=$?
    fi
    echo "$status $((SECONDS - begin)) $(awk '{ print int($1 + $2) }' "$logs/$name.cpu")" \
        >"$logs/$name.outcome"
}

# Says how a step ended.
end_step() {
    local name=$1 log=$logs/$1.log status seconds cpu
    # There is none if the shell of the step was killed.
    read -r status seconds cpu <"$logs/$name.outcome" || true
    if [ "${status:-nothing}" = 0 ]; then
        echo "$name: ok, $seconds s ($cpu s of CPU)$(remark "$name" "$log")"
        passed=$((passed + 1))
        [ "$name" != unit ] || export UNIT_PASSED=1
    else
        [ -n "${VERBOSE:-}" ] || show_failure "$name" "$log"
        echo "$name: FAILED, ${seconds:-?} s, all of its output is in $log"
        failed+=("$name")
    fi
}

run_step() {
    if ! is_skipped "$1"; then
        : >"$logs/$1.outcome"
        do_step "$1"
        end_step "$1"
        [ "$1" != heavy ] || export HEAVY_RAN=ran
    fi
}

# Runs a step while others, one after the other, get what it leaves of the cores.
run_before() {
    local name idle=(chrt --idle 0)
    "${idle[@]}" true 2>/dev/null || idle=(nice -n 19)
    for name in "${@:2}"; do
        : >"$logs/$name.outcome"
        : >"$logs/$name.log"
    done
    for name in "${@:2}"; do
        do_step "$name" "${idle[@]}"
    done &
    run_step "$1"
    wait
    for name in "${@:2}"; do
        end_step "$name"
    done
}

# Waits for what is being installed.
wait_for_setup() {
    local begin=$SECONDS
    [ -n "${SETUP_DONE:-}" ] || return 0
    until [ -s "$SETUP_DONE" ] || ! kill -0 "${SETUP_PID:-$$}" 2>/dev/null; do sleep 0.2; done
    echo "setup: waited for $((SECONDS - begin)) s"
    if [ "$(cat "$SETUP_DONE" 2>/dev/null)" != 0 ]; then
        echo "setup has failed" >&2
        exit 1
    fi
    SETUP_DONE=
}

case ${1:-} in
--inside)
    "step_$2"
    exit
    ;;
--live-alone)
    live_alone "$2"
    exit
    ;;
esac
steps=("$@")
if [ ${#steps[@]} -eq 0 ]; then
    steps=(fmt clippy doc tidy book deny unit heavy planted fuzz live)
fi
for step in "${steps[@]}"; do
    if ! declare -F "step_$step" >/dev/null; then
        echo "there is no step $step; they are: $(declare -F | sed -n 's/.* step_//p' | xargs)" >&2
        exit 2
    fi
done
idlers=()
run_idlers() {
    local step
    for step in "${idlers[@]}"; do
        run_step "$step"
    done
    idlers=()
}
for step in "${steps[@]}"; do
    [[ " fmt clippy doc " == *" $step "* ]] || wait_for_setup
    case $step in
    planted | fuzz) idlers+=("$step") ;;
    # Some of the heavy ones compare rates.
    live) [ -n "${HEAVY_RAN:-}" ] || run_idlers
        run_before live "${idlers[@]}"
        idlers=()
        ;;
    *) run_step "$step" ;;
    esac
done
run_idlers
[ ${#skipped[@]} -eq 0 ] || echo "skipped: ${skipped[*]}"
# Some keep only the last lines of an output: what failed is among the last 15.
for step in "${failed[@]}"; do
    what_failed "$step" "$logs/$step.log" $((10 / ${#failed[@]}))
done
[ ${#failed[@]} -eq 0 ] || echo "FAILED: ${failed[*]}"
echo "$SECONDS seconds"
echo "$passed passed, ${#failed[@]} failed, ${#skipped[@]} skipped"
[ ${#failed[@]} -eq 0 ]
