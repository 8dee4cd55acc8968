#!/usr/bin/env bash
# Called by cron.sh in the namespaces that it created: the first hour of a new user whose nights Debian's cron starts,
# from `runner init` on a terminal to the report of the first unattended night, and back to a machine without runner.
# usage: cron_hour.sh RUNNER
set -euo pipefail
check="first hour with cron"
. "$(dirname "$0")/../skips.sh"
need tmux git jq
runner=$(realpath "$1")
. "$(dirname "$0")/new_user.sh"

crontab -l > "$outer/before"
new_home cron
open_terminal
type_line "$(in_readme 'runner init')"
shown 'When does the night open?'
type_line ''
shown 'How many model calls'
type_line ''
shown 'sample note'
type_line ''
shown 'Set up a timer'
type_line ''
shown 'runner dream review'
crontab -l | grep --quiet 'runner tick' || fail "there is no timer"
runner status > "$HOME/status"
if grep --quiet 'runner setup' "$HOME/status"; then cat "$HOME/status" >&2; fail "the status advises a setup after the setup"; fi

# A scheduled pass waits for an idea that has just changed.
touch -d '1 hour ago' ideas/*.md
# A minute that is at least 20 seconds ahead.
at=$(date -u -d "now + $(($(date -u +%S | sed 's/^0//') > 40 ? 2 : 1)) minutes" +%H:%M)
# The terminal also shows the typed line, so that line contains `$?` instead of the expected exit code.
type_line "clear; $(in_readme 'runner setup --at 02:30 --apply' | sed "s/02:30/$at/"); echo \"setup ended with \$?\""
shown 'setup ended with 0' 60
type_line "clear; $(in_readme 'runner doctor --as-scheduler'); echo \"doctor ended with \$?\""
shown 'doctor ended with 0' 60
[ "$(runner config get night.at)" = "$at" ] || fail "the night does not open at $at"
type_line "clear; $(in_readme 'runner status') --watch"
shown "2026" 60
shown '1 succeeded' 150
type_key q
runner runs --json | jq --exit-status --arg at "$at" \
    '[.[] | select(.job == "dream")] | length == 1 and (.[0].due | contains($at))' > /dev/null ||
    { runner runs >&2; fail "the night did not start once at $at"; }
runner report | grep --quiet 'try-runner.md' || fail "the report does not name the note"
id=$(runner dream list --json | jq --raw-output '.[0].id')
runner dream accept "$id" > /dev/null
[ -e specs/try-runner.md ] || fail "the accepted idea was not promoted"

$(in_readme 'runner setup --remove --all') --quiet
crontab -l | diff "$outer/before" - || fail "the crontab differs from the one before"
echo "first hour with cron: ok"
