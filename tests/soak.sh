#!/usr/bin/env bash
# Runs for long what ordinary tests run briefly: all tests at full scale (a thousand simulated years, a thousand
# killed nights, the whole attack suite), then each fuzz target and the mutations of recent changes.
# usage: tests/soak.sh
#   RUNNER_TEST_SCALE    scale of all of it, 1 by default
#   RUNNER_MUTANTS_BASE  commit whose later changes are mutated, by default ten commits ago
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/steps.sh
trap table EXIT
export RUNNER_TEST_SCALE=${RUNNER_TEST_SCALE:-1}

step "tests at scale $RUNNER_TEST_SCALE" cargo test --locked --workspace

if cargo +nightly fuzz --version > /dev/null 2>&1; then
    seconds=$(awk "BEGIN { print int(300 * $RUNNER_TEST_SCALE) + 1 }")
    for target in $(cargo +nightly fuzz list); do
        step "fuzz $target" cargo +nightly fuzz run "$target" -- -max_total_time="$seconds"
    done
else
    echo "skipped: fuzzing needs a nightly toolchain and cargo-fuzz"
fi

if cargo mutants --version > /dev/null 2>&1; then
    git diff "${RUNNER_MUTANTS_BASE:-HEAD~10}" -- '*.rs' > "$STEPS/changes.diff"
    # A mutant needs no long tests to be caught.
    RUNNER_TEST_SCALE=0.01 step "mutations of recent changes" cargo mutants --in-diff "$STEPS/changes.diff" \
        --output "$STEPS" -- --locked --workspace
else
    echo "skipped: mutations need cargo-mutants"
fi
