# Functions for checks that need a real program. Source this file after setting `check` to the check's name.
# A skipped check is printed and, if RUNNER_SKIPS names a file, appended to it as a line of two columns that
# a tab separates: the missing program, or `host` if this machine cannot run the check, and the reason.
# shellcheck shell=bash

# skip PROGRAM|host REASON: ends the check successfully and records why.
skip() {
    echo "${check:?}: skipped 1: $2"
    [ -z "${RUNNER_SKIPS:-}" ] || printf '%s\t%s: %s\n' "$1" "$check" "$2" >> "$RUNNER_SKIPS"
    exit 0
}

# need PROGRAM...: skips the check unless each program is installed.
need() {
    local program
    for program in "$@"; do
        command -v "$program" > /dev/null || skip "$program" "$program is not installed"
    done
}
