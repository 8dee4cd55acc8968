# Functions for checks that need a real program. Source this file after setting `check` to the check's name.
# Each skipped check is printed. If RUNNER_SKIPS names a file, the check is also appended to that file as two columns,
# separated by a tab: the missing program (or `host` if this machine cannot run the check), and the reason.
# shellcheck shell=bash

# skip PROGRAM|host REASON: ends the check successfully and records why.
skip() {
    echo "${check:?}: skipped 1: $2"
    [ -z "${RUNNER_SKIPS:-}" ] || printf '%s\t%s: %s\n' "$1" "$check" "$2" >> "$RUNNER_SKIPS"
    exit 0
}

# need PROGRAM...: skips the check unless every program is installed.
need() {
    local program
    for program in "$@"; do
        command -v "$program" > /dev/null || skip "$program" "$program is not installed"
    done
}
