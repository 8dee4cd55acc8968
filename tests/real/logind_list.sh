#!/usr/bin/env bash
# Called by logind.sh as a unit of the systemd that it started: runs a job and lists logind's locks.
# usage: logind_list.sh RUNNER FOLDER
set -euo pipefail
runner=$1 folder=$2
code=1
trap 'echo "$code" > "$folder/over"' EXIT
export HOME=$folder/home TZ=UTC GIT_CONFIG_NOSYSTEM=1
mkdir "$HOME"
cd "$folder"
locks() { busctl call org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager ListInhibitors; }
if ! timeout 20 busctl call org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager ListInhibitors >/dev/null; then
    code=none
    exit
fi
fail() { echo "logind: $1"; locks; "$runner" -C project runs show --json "$(last)" || true; exit 1; }
last() { "$runner" -C project runs --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["id"])'; }
git init -q project
"$runner" -C project init --quiet
cat >> project/runner.toml <<'IN'

[jobs.wait]
kind = "command"
program = "sh"
args = ["-c", "echo begun > \"$RUNNER_OUT/begun\"; cat \"$GATE\" > \"$RUNNER_OUT/a\""]
env = ["GATE"]
artifacts = [{ from = "a", to = "a" }]
trigger = "manual"
sandbox = "off"
IN
"$runner" -C project trust --yes --quiet
export GATE=$folder/gate
mkfifo "$GATE"
has_lock() { locks | grep -q '"sleep:idle" "runner" "wait of '; }
none() { [ "$(locks)" = "a(ssssuu) 0" ]; }

none || fail "there is a lock before anything runs"
# Opening the pipe blocks until the job's program reads it, so the program is running then.
"$runner" -C project run wait --keep-awake --quiet &
run=$!
exec 3>"$GATE"
has_lock || fail "no lock during a run"
systemd-inhibit --list --no-pager
echo over >&3
exec 3>&-
wait "$run"
none || fail "the lock is still there after the run"
"$runner" -C project runs show "$(last)" | grep -q 'kept awake by logind' || fail "the run does not report the lock"

"$runner" -C project run wait --no-keep-awake --quiet &
run=$!
exec 3>"$GATE"
none || fail "a lock although none was asked for"
echo over >&3
exec 3>&-
wait "$run"

# After SIGKILL, the lock must disappear with the process of the run.
"$runner" -C project run wait --keep-awake --quiet 2>/dev/null &
run=$!
exec 3>"$GATE"
has_lock || fail "no lock during the third run"
# The run's process is a child of `runner run`.
executor=$(pgrep -f 'runner execute' | head -1)
holder=$(locks | grep -oE '[0-9]+ [0-9]+$' | cut -d' ' -f2)
kill -9 "$executor"
# logind detects the end of the lock holder through the closed file descriptor.
timeout 10 tail --pid="$holder" -f /dev/null || fail "the holder of the lock is still alive"
timeout 10 bash -c 'until [ "$(busctl call org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager ListInhibitors)" = "a(ssssuu) 0" ]; do :; done' || fail "the lock outlived kill -9"
exec 3>&-
wait "$run" || true
code=0
