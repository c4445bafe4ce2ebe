#!/usr/bin/env bash
# Everything that a change must pass, on a developer's machine and in CI alike.
#
#   scripts/test.sh [STEP...]      (default: all steps, in their order)
#
#   fmt      formatting
#   clippy   lints, warnings are errors
#   doc      the API documentation builds without a broken link
#   tidy     crate edges, sizes, no_std, unsafe, banned words, links (cargo xtask tidy)
#   deny     licenses, sources and banned crates of what comes from outside
#   unit     cargo test of every crate; tests under #[ignore] are left to `live`
#   fuzz     every fuzz target, FUZZ_SECONDS each (default 30)
#   planted  every planted fault is caught by its test (cargo xtask planted)
#   live     crates/*/tests/live*.rs in network namespaces; needs root
#
# Every step is run, even after one has failed. A step that cannot run here is skipped aloud. Its
# output is kept in target/test/STEP.log and shown when it fails, or as it comes with VERBOSE=1.
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

step_tidy() { cargo xtask tidy; }

skip_deny() { cargo deny --version >/dev/null 2>&1 || echo "cargo-deny is not installed"; }
step_deny() { cargo deny check bans licenses sources; }

# The same cases in each run, so that a change is judged by what it changed; `make soak` draws
# others.
step_unit() {
    PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-1} cargo test --workspace --no-fail-fast
}

fuzz_not_run="targets compiled, NOT run: cargo-fuzz is not installed"
step_fuzz() {
    local source name
    if ! cargo fuzz --version >/dev/null 2>&1; then
        cargo check --manifest-path fuzz/Cargo.toml --target-dir fuzz/target
        echo "$fuzz_not_run"
        return
    fi
    for source in fuzz/fuzz_targets/*.rs; do
        name=$(basename "$source" .rs)
        mkdir -p "fuzz/corpus/$name" "fuzz/seeds/$name"
        echo "fuzz target $name"
        cargo fuzz run --sanitizer none "$name" "fuzz/corpus/$name" "fuzz/seeds/$name" -- \
            -max_total_time="${FUZZ_SECONDS:-30}" -print_final_stats=1
    done
}

step_planted() { cargo xtask planted; }

live_tests() { find crates -path '*/tests/live*.rs' -not -path '*/src/*' | sort; }
skip_live() {
    if [ -z "$(live_tests)" ]; then
        echo "there are no live tests"
    elif [ "$(id -u)" -ne 0 ]; then
        echo "live tests need root: they make network namespaces"
    elif ! ip netns add sluice-probe 2>/dev/null; then
        echo "this machine lets nobody make network namespaces"
    else
        ip netns delete sluice-probe
    fi
}
step_live() {
    local source package before after
    before=$(ip netns list | sort)
    cargo build --package sluice
    for source in $(live_tests); do
        package=$(sed -n 's/^name = "\(.*\)"/\1/p' "${source%%/tests/*}/Cargo.toml" | head -n 1)
        echo "live tests $source"
        cargo test --package "$package" --test "$(basename "$source" .rs)" -- \
            --include-ignored --test-threads=1
    done
    after=$(ip netns list | sort)
    if [ "$before" != "$after" ]; then
        echo "the live tests left namespaces behind:"
        diff <(echo "$before") <(echo "$after")
    fi
}

# What the output of a step says in a few words, for its line of the summary.
remark() {
    case $1 in
    unit | live)
        awk '/^test result:/ { ok += $4; ignored += $8 }
             END { printf ", %d tests passed, %d ignored", ok, ignored }' "$2"
        ;;
    fuzz)
        if grep -qxF "$fuzz_not_run" "$2"; then
            printf ', %s' "$fuzz_not_run"
            return
        fi
        awk '/^stat::number_of_executed_units:/ { runs += $2; targets++ }
             END { printf ", %d targets, %d inputs", targets, runs }' "$2"
        ;;
    tidy) sed -n 's/^tidy no_std: ok, .*: \(.*\)/, \1/p' "$2" | tail -n 1 ;;
    planted) sed -n 's/^planted: \(.*\)/, \1/p' "$2" | tail -n 1 ;;
    esac
}

run_step() {
    local name=$1 log=$logs/$1.log begin=$SECONDS why="" status=0
    if declare -F "skip_$name" >/dev/null; then
        why=$("skip_$name")
    fi
    if [ -n "$why" ]; then
        echo "$name: SKIPPED, $why"
        skipped+=("$name")
        return
    fi
    # In a shell of its own, so that the step ends at its first failure.
    if [ -n "${VERBOSE:-}" ]; then
        echo "$name: begins"
        bash "$0" --inside "$name" 2>&1 </dev/null | tee "$log" || status=$?
    else
        TERM=dumb bash "$0" --inside "$name" >"$log" 2>&1 </dev/null || status=$?
    fi
    local seconds=$((SECONDS - begin))
    if [ "$status" -eq 0 ]; then
        echo "$name: ok, $seconds s$(remark "$name" "$log")"
        passed=$((passed + 1))
    else
        [ -n "${VERBOSE:-}" ] || tail -n "${LOG_LINES:-100}" "$log"
        echo "$name: FAILED, $seconds s, all of its output is in $log"
        failed+=("$name")
    fi
}

if [ "${1:-}" = --inside ]; then
    "step_$2"
    exit
fi
steps=("$@")
if [ ${#steps[@]} -eq 0 ]; then
    steps=(fmt clippy doc tidy deny unit fuzz planted live)
fi
for step in "${steps[@]}"; do
    if ! declare -F "step_$step" >/dev/null; then
        echo "there is no step $step; they are: $(declare -F | sed -n 's/.* step_//p' | xargs)" >&2
        exit 2
    fi
done
for step in "${steps[@]}"; do
    run_step "$step"
done
[ ${#skipped[@]} -eq 0 ] || echo "skipped: ${skipped[*]}"
[ ${#failed[@]} -eq 0 ] || echo "FAILED: ${failed[*]}"
echo "$SECONDS seconds"
echo "$passed passed, ${#failed[@]} failed, ${#skipped[@]} skipped"
[ ${#failed[@]} -eq 0 ]
