#!/usr/bin/env bash
# Runs the built program against the real programs that it works with: host schedulers, agents, model servers,
# a browser, and file readers that share no code with runner. Lanes are independent and run in parallel; a lane
# runs its steps in order. The first two lanes mostly wait for a scheduled time.
# usage: tests/real/all.sh RUNNER [NAME...]   (a name selects the steps whose names contain it)
#   RUNNER_AGENTS  folder with an npm installation of the agents (default: programs in PATH only)
#   RUNNER_JUDGES  folder for the Python and npm packages that check model APIs
#   RUNNER_DATA    folder with real sessions and notes for the curator (optional)
#   RUNNER_SKIPS   file that records what was skipped (see tests/skips.sh)
set -uo pipefail
runner=$(realpath "$1")
shift
cd "$(dirname "$0")/../.." || exit 1
. tests/steps.sh
selected=("$@")
agents=${RUNNER_AGENTS:-/nonexistent}/node_modules/.bin
judges=${RUNNER_JUDGES:-$PWD/target/judges}
readers=$PWD/target/readers
data=()
[ -z "${RUNNER_DATA:-}" ] || data=("$RUNNER_DATA")

# one NAME COMMAND...: runs a step if it is selected; a failed step does not end its lane.
one() {
    local name=$1 word
    [ "${#selected[@]}" -gt 0 ] || { logged "$@"; return 0; }
    for word in "${selected[@]}"; do
        if [[ $name == *"$word"* ]]; then
            logged "$@"
            return 0
        fi
    done
}

install_readers() {
    python3 -m venv "$readers" &&
        "$readers/bin/pip" install --quiet --disable-pip-version-check jsonschema openapi-spec-validator \
            tree-sitter tree-sitter-pwsh
}

cron_lane() {
    one "real cron" tests/real/cron.sh "$runner"
    one "first hour with cron" tests/real/cron.sh "$runner" cron_hour.sh
    one "cron across clock changes" tests/real/cron_dst.sh "$runner"
}
systemd_lane() {
    one "systemd --user" tests/real/systemd_user.sh "$runner"
    one "logind" tests/real/logind.sh "$runner"
    one "doctor's walk" tests/real/doctor_walk.sh "$runner"
    one "Prometheus" tests/real/prometheus.sh "$runner"
}
agents_lane() {
    one "agents" python3 tests/real/agents.py "$runner" "$agents"
    one "agents' commits" python3 tests/real/commits.py "$runner" "$agents"
    one "memory" python3 tests/real/memory.py "$runner" "$agents"
    one "memory walk" python3 tests/real/memory_walk.py "$runner" "$agents"
    one "sessions" python3 tests/real/sessions.py "$runner" "$agents"
    one "lifecycle" python3 tests/real/lifecycle.py "$runner" "$agents"
    one "first hour" tests/real/first_hour.sh "$runner" "$agents"
    one "page in Chromium" python3 tests/real/page.py "$runner"
    one "curator's walk" tests/real/curator_walk.sh "$runner"
    one "fleet" python3 tests/real/fleet.py "$runner"
}
# The curator and the council use the small model, whose packages the step "model APIs" installs.
models_lane() {
    one "readers" install_readers
    one "schemas" "$readers/bin/python" tests/schema_check.py "$runner"
    one "overnight artifacts" "$readers/bin/python" tests/overnight_reader.py "$runner"
    one "scheduler files" "$readers/bin/python" tests/setup_check.py "$runner"
    one "model APIs" python3 tests/real/apis.py "$runner" "$judges"
    one "curator" python3 tests/real/curator.py "$runner" "$judges" "${data[@]}"
    one "council" python3 tests/real/council.py "$runner" "$agents" "$judges"
}

cron_lane &
systemd_lane &
agents_lane &
models_lane &
wait
table
