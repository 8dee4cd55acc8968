# Functions that run the steps of a longer check and print a table of them at the end.
# Source this file. $STEPS names the folder for the logs; the default is a temporary folder that is removed at
# exit unless the script sets another trap on EXIT.
# shellcheck shell=bash
if [ -z "${STEPS:-}" ]; then
    STEPS=$(mktemp -d)
    trap 'rm -rf "$STEPS"' EXIT
fi
mkdir -p "$STEPS"

# attempt COMMAND...: sets $code to the exit code of a command or a function. A function stops at its first
# failure. Bash ignores `set -e` before `||` and in conditions, so do not call `step` or `logged` there.
attempt() {
    local options=$-
    set +e
    (set -e; "$@")
    code=$?
    [[ $options != *e* ]] || set -e
}

# record NAME BEGAN CODE: adds a row to the table.
record() {
    printf '%s\t%s\t%s\n' "$1" "$((SECONDS - $2))" "$([ "$3" = 0 ] && echo ok || echo "failed ($3)")" >> "$STEPS/table"
}

# step NAME COMMAND...: runs a command and shows its output.
step() {
    local name=$1 began=$SECONDS code
    shift
    printf '\n== %s\n' "$name"
    attempt "$@"
    record "$name" "$began" "$code"
    return "$code"
}

# logged NAME COMMAND...: runs a command, and shows its output when it has ended, so that parallel steps do not
# mix their lines. Standard input is empty, because a step in the background has no terminal.
logged() {
    local name=$1 began=$SECONDS code log=$STEPS/${1//[^a-zA-Z0-9]/-}.log
    shift
    attempt "$@" > "$log" 2>&1 < /dev/null
    record "$name" "$began" "$code"
    printf '\n== %s (%ss)%s\n%s\n' "$name" "$((SECONDS - began))" "$([ "$code" = 0 ] || echo ": failed ($code)")" \
        "$(cat "$log")"
    return "$code"
}

# table: prints the steps with their durations; fails if a step failed.
table() {
    [ -s "$STEPS/table" ] || return 0
    printf '\n%8s  %-12s %s\n' seconds result step
    awk -F '\t' '{ printf "%8s  %-12s %s\n", $2, $3, $1; bad += $3 != "ok" } END { exit bad > 0 }' "$STEPS/table"
}
