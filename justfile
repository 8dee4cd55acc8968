# The project's development commands. CONTRIBUTING.md describes when to use each; `.ci/run` calls the same
# recipes.
set shell := ["bash", "-euo", "pipefail", "-c"]

export CARGO_TARGET_DIR := env("CARGO_TARGET_DIR", justfile_directory() / "target")
runner := CARGO_TARGET_DIR / "debug/runner"
dist := CARGO_TARGET_DIR / "dist"

# List the recipes
default:
    @just --list --unsorted

# Run all checks except the tests, cheapest first
check: format spelling words scripts dependencies lints documentation fuzz-targets

# Check the formatting
format:
    cargo fmt --all --check

# Check the spelling
spelling:
    typos

# Check the vocabulary
words:
    python3 tests/check_words.py

# Check the scripts and the README's commands
scripts:
    shellcheck --severity=warning --external-sources --source-path=SCRIPTDIR .ci/run tests/*.sh tests/real/*.sh
    python3 tests/readme_commands.py --self-test
    python3 tests/readme_commands.py test

# Check the bans, licences and sources of dependencies
dependencies:
    cargo deny --locked --log-level error check bans licenses sources

# Run clippy, without and with optional features
lints:
    cargo clippy --locked --quiet --workspace -- --deny warnings
    cargo clippy --locked --quiet --workspace --all-targets --all-features -- --deny warnings

# Build the documentation of the crates
documentation:
    RUSTDOCFLAGS="--deny warnings" cargo doc --locked --quiet --workspace --no-deps

# Check that the fuzz targets, which are in a separate workspace, compile
fuzz-targets:
    RUSTFLAGS="--cfg fuzzing" CARGO_TARGET_DIR={{ CARGO_TARGET_DIR }}/fuzz \
        cargo check --locked --quiet --manifest-path fuzz/Cargo.toml --bins

# Build the program
build:
    cargo build --locked

# Run the tests at their default scale (RUNNER_TEST_SCALE changes it)
test *args:
    $(python3 tests/readme_commands.py test) --locked {{ args }}

# Run runner against real programs (a name selects the checks whose names contain it)
real *names:
    cargo build --locked --features fault-injection,fleet,mcp
    tests/real/all.sh {{ runner }} {{ names }}

# Run all tests and the fleet soak test at full scale, then fuzzing and mutation tests if their tools are installed
soak:
    tests/soak.sh

# Compare the release build with well-known programs
bench: release
    tests/bench.sh {{ CARGO_TARGET_DIR }}/release/runner
    cargo build --locked --release --package runner-fleet --example claims
    tests/bench_fleet.sh {{ CARGO_TARGET_DIR }}/release/examples/claims

# Build the release program
release:
    cargo build --locked --release

# Put the release build, manual pages, completions and checksums into target/dist
dist: release
    rm -rf {{ dist }}
    mkdir -p {{ dist }}/man {{ dist }}/completions
    cp {{ CARGO_TARGET_DIR }}/release/runner README.md CHANGELOG.md LICENSE-* {{ dist }}
    {{ dist }}/runner man {{ dist }}/man
    for shell in bash elvish fish powershell zsh; do \
        {{ dist }}/runner completions "$shell" > "{{ dist }}/completions/runner.$shell"; \
    done
    cd {{ dist }} && find . -type f -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum > "$CARGO_TARGET_DIR/SHA256SUMS"
    mv {{ CARGO_TARGET_DIR }}/SHA256SUMS {{ dist }}
