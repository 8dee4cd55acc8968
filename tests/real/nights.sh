#!/usr/bin/env bash
# Called by cron.sh and systemd_user.sh in the namespaces that they created: runs `runner setup --apply`, waits
# for the scheduled minute, and checks that the host scheduler started the night once, also while a daemon runs.
# usage: nights.sh RUNNER KIND FOLDER
set -euo pipefail
runner=$1 kind=$2 folder=$3
export HOME=$folder/home TZ=UTC GIT_CONFIG_NOSYSTEM=1
unset XDG_STATE_HOME XDG_CONFIG_HOME
mkdir -p "$HOME"
cd "$folder"

crontab_now() { crontab -l 2>/dev/null || echo "none at all"; }
units_now() { find "$HOME/.config/systemd" 2>/dev/null | sort || true; }

# Prints a minute that is at least 20 s ahead.
soon() { date -u -d "now + $(($(date -u +%S | sed 's/^0//') > 40 ? 2 : 1)) minutes" +%H:%M; }

# Waits until the project's night is over and has its report.
night_of() {
    timeout 240 "$runner" -C "$1" status --watch --json | python3 -c '
import json, sys
for line in sys.stdin:
    night = json.loads(line)["projects"][0]["last_night"]
    if night and night["closed"] and night["report"]:
        sys.exit(0)
sys.exit("the night never came")'
}

runs_of() {
    "$runner" -C "$1" runs --json | python3 -c '
import json, sys
runs = [run for run in json.load(sys.stdin) if run["job"] == "dream"]
wanted = sys.argv[1]
assert len(runs) == 1, runs
assert wanted in runs[0]["due"], (wanted, runs)
print("  one run, due", runs[0]["due"], "started", runs[0].get("started"))' "$2"
}

project() {
    git init -q "$1"
    "$runner" -C "$1" init --quiet
    printf 'Maybe use a shorter name?\n' > "$1/ideas/note.md"
    # A pass skips ideas that have just changed.
    touch -d '1 hour ago' "$1/ideas/note.md"
}

before=$(crontab_now; units_now)
project alone
at=$(soon)
"$runner" -C alone setup --scheduler "$kind" --at "$at" --apply
"$runner" -C alone setup --verify || true
echo "$kind: waiting for $at"
night_of alone
runs_of alone "$at"

project beside
at=$(soon)
"$runner" -C beside setup --scheduler "$kind" --at "$at" --apply --quiet
"$runner" daemon --quiet 2>/dev/null &
daemon=$!
echo "$kind, beside a daemon: waiting for $at"
night_of beside
runs_of beside "$at"
runs_of alone :
kill -TERM "$daemon"
wait "$daemon" || true

"$runner" -C alone doctor --as-scheduler > doctor.txt || true
grep -q 'error: environment' doctor.txt && { cat doctor.txt; exit 1; }
"$runner" -C alone setup --remove --quiet
[ "$(crontab_now; units_now)" != "$before" ] || { echo "the other project lost its timer"; exit 1; }
"$runner" -C beside setup --remove --quiet
after=$(crontab_now; units_now)
[ "$after" = "$before" ] || { printf 'before:\n%s\nafter:\n%s\n' "$before" "$after"; exit 1; }
echo "$kind: two nights on the minute, each once, and nothing is left"
