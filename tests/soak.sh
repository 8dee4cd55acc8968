#!/usr/bin/env bash
# Runs all tests at full scale (1,000 simulated years, 1,000 killed runs, all sandbox attempts), then the hosts of a
# fleet while their processes, networks and database fail, each fuzz target for a minute, mutations of recent changes,
# and a sample of mutations of the code that limits jobs.
# usage: tests/soak.sh
#   RUNNER_TEST_SCALE    scale of the tests and the fuzzing time (default: 1)
#   RUNNER_MUTANTS_BASE  mutates the changes since this commit (default: HEAD~10)
#   RUNNER_MUTANTS_SHARD the sample of the other mutations (default: 0/15, about 100 of them)
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/steps.sh
trap table EXIT
export RUNNER_TEST_SCALE=${RUNNER_TEST_SCALE:-1}

step "tests at scale $RUNNER_TEST_SCALE" cargo test --locked --workspace

fleet_soak() {
    local target=${CARGO_TARGET_DIR:-target}
    cargo build --locked --features fault-injection,fleet
    cargo build --locked --package runner-fleet --example soak_worker
    python3 tests/real/fleet_soak.py "$target/debug/runner" "$target/debug/examples/soak_worker"
}

step "fleet at scale $RUNNER_TEST_SCALE" fleet_soak

if cargo +nightly fuzz --version > /dev/null 2>&1; then
    seconds=$(awk "BEGIN { print int(60 * $RUNNER_TEST_SCALE) + 1 }")
    # The targets are safe code, so they need no sanitizer, and the debug build has all assertions.
    for target in $(cargo +nightly fuzz list); do
        step "fuzz $target" cargo +nightly fuzz run --dev --sanitizer none "$target" -- -max_total_time="$seconds"
    done
else
    echo "skipped: fuzzing needs a nightly toolchain and cargo-fuzz"
fi

# Makes a sample of the mutations of the guard, admission, publication and budget code. Fails if fewer than 95 % of them
# are detected.
limits_mutated() {
    local code=0 counts=$STEPS/limits/mutants.out/outcomes.json
    cargo mutants --output "$STEPS/limits" --sharding round-robin --shard "${RUNNER_MUTANTS_SHARD:-0/15}" \
        --workspace --test-workspace=true \
        -f 'src/guard/**' -f src/project/trust.rs -f src/budget.rs -f jobs/src/reserved.rs -f engine/src/work.rs \
        -f engine/src/launch/view.rs -f 'engine/src/git/private/**' -f 'engine/src/sandbox/**' \
        -f engine/src/admission.rs -f 'engine/src/policy/**' -f 'engine/src/publish/**' \
        -f 'engine/src/store/{admit,reserve,usage,grants,limits}.rs' \
        -f jobs/src/spender/ask.rs -f jobs/src/request_usage.rs -f jobs/src/usage_meter.rs \
        -- --locked || code=$?
    # 2: some were not detected; 3: some made a test hang.
    [[ $code = [023] ]] || return "$code"
    python3 - "$counts" << 'END'
import json
import sys
counts = json.load(open(sys.argv[1]))
found, missed = counts["caught"] + counts["timeout"], counts["missed"]
print(f"mutations: {found} of {found + missed} detected")
sys.exit(found * 100 < (found + missed) * 95)
END
}

if cargo mutants --version > /dev/null 2>&1; then
    git diff "${RUNNER_MUTANTS_BASE:-HEAD~10}" -- '*.rs' > "$STEPS/changes.diff"
    # Short tests are sufficient to detect a mutant.
    RUNNER_TEST_SCALE=0.01 step "mutations of recent changes" cargo mutants --in-diff "$STEPS/changes.diff" \
        --output "$STEPS" -- --locked --workspace
    RUNNER_TEST_SCALE=0.01 step "mutations of the code that limits jobs" limits_mutated
else
    echo "skipped: mutations need cargo-mutants"
fi
