#!/usr/bin/env bash
# Runs all tests at full scale (1,000 simulated years, 1,000 killed nights, all sandbox attempts), then each
# fuzz target for a minute and mutations of recent changes.
# usage: tests/soak.sh
#   RUNNER_TEST_SCALE    scale of the tests and the fuzzing time (default: 1)
#   RUNNER_MUTANTS_BASE  mutates the changes since this commit (default: HEAD~10)
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/steps.sh
trap table EXIT
export RUNNER_TEST_SCALE=${RUNNER_TEST_SCALE:-1}

step "tests at scale $RUNNER_TEST_SCALE" cargo test --locked --workspace

if cargo +nightly fuzz --version > /dev/null 2>&1; then
    seconds=$(awk "BEGIN { print int(60 * $RUNNER_TEST_SCALE) + 1 }")
    for target in $(cargo +nightly fuzz list); do
        step "fuzz $target" cargo +nightly fuzz run "$target" -- -max_total_time="$seconds"
    done
else
    echo "skipped: fuzzing needs a nightly toolchain and cargo-fuzz"
fi

if cargo mutants --version > /dev/null 2>&1; then
    git diff "${RUNNER_MUTANTS_BASE:-HEAD~10}" -- '*.rs' > "$STEPS/changes.diff"
    # Short tests are sufficient to detect a mutant.
    RUNNER_TEST_SCALE=0.01 step "mutations of recent changes" cargo mutants --in-diff "$STEPS/changes.diff" \
        --output "$STEPS" -- --locked --workspace
else
    echo "skipped: mutations need cargo-mutants"
fi
