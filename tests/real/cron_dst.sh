#!/usr/bin/env bash
# Checks clock changes with the real programs in accelerated, faked time (libfaketime):
#   1. Debian's cron, with the lines that `runner setup --apply` writes, starts `runner tick` at every quarter of an
#      hour around both clock changes of a year;
#   2. The script itself starts `runner tick` every quarter of an hour for 5 hours, on three days around each change.
# A job due at 02:30 and a job due at 01:30 must each run once a day, even if the time does not exist or occurs
# twice.
# usage (root): tests/real/cron_dst.sh RUNNER
set -euo pipefail
check="cron and clock changes"
. "$(dirname "$0")/../skips.sh"
[ "$(id -u)" = 0 ] || skip host "only root can cover the spool"
need cron crontab unshare python3 git faketime
library=$(ls /usr/lib/*/faketime/libfaketime.so.1 2>/dev/null | head -1) || true
[ -n "$library" ] || skip faketime "libfaketime is not installed"
zone=America/New_York
[ -e "/usr/share/zoneinfo/$zone" ] || skip zoneinfo "there is no time zone database"
runner=$(realpath "$1")
speed=100
export HOME USER=root LOGNAME=root TZ=$zone GIT_CONFIG_NOSYSTEM=1
unset XDG_STATE_HOME XDG_CONFIG_HOME

# Creates a project with both jobs in $HOME/project, registered at the time $1 (seconds).
project() {
    mkdir -p "$HOME/.config/runner"
    printf '[defaults]\nstagger = "0s"\n' > "$HOME/.config/runner/config.toml"
    git init -q "$HOME/project"
    at "$1" "$runner" -C "$HOME/project" init --quiet
    for time in 01:30 02:30; do
        printf '\n[jobs.at%s]\nkind = "command"\nprogram = "sh"\nargs = ["-c", "echo a > $RUNNER_OUT/a"]\nartifacts = [{ from = "a", to = "%s" }]\ntrigger = "daily %s"\nzone = "%s"\nsandbox = "off"\n' \
            "${time/:/}" "${time/:/}" "$time" "$zone" >> "$HOME/project/runner.toml"
    done
    printf '\n[jobs.dream]\nenabled = false\n' >> "$HOME/project/runner.toml"
    at "$1" "$runner" -C "$HOME/project" trust --yes --quiet
    at "$1" "$runner" tick --quiet
}
# Runs a command with a clock that starts at $1 (seconds) and advances normally.
at() {
    local moment=$1
    shift
    env LD_PRELOAD="$library" FAKETIME="$((moment - $(date +%s)))" FAKETIME_DONT_FAKE_MONOTONIC=1 "$@"
}
# Checks that the jobs succeeded exactly at the given scheduled times (TIME/JOB).
runs() {
    "$runner" -C "$HOME/project" runs --json --limit 1000 | python3 -c '
import json, sys
rows = sorted((run["due"], run["job"], run["outcome"]) for run in json.load(sys.stdin))
wanted = sorted((due, "at" + job, "succeeded") for due, job in (one.split("/") for one in sys.argv[1:]))
if rows != wanted:
    sys.exit(f"wanted {wanted}, there is {rows}")
print("  " + ", ".join(f"{job[2:]} due {due}" for due, job, _ in rows))' "$@"
}

if [ "${2:-}" = cron ]; then
    # Runs cron in separate namespaces across one clock change, from $3 to $4 (seconds), with its files in $5;
    # the remaining arguments are the expected runs.
    folder=$5 start=$3 end=$4
    shift 5
    mount --make-rprivate /
    mount -t tmpfs none /var/spool/cron
    install -d -m 1730 -g crontab /var/spool/cron/crontabs
    mount -t tmpfs none /run
    mount -t tmpfs none /etc/cron.d
    mount --bind /dev/null /etc/crontab
    mkdir "$folder"
    HOME=$folder
    cp "$runner" "$folder/runner"
    runner=$folder/runner
    project "$start"
    (cd "$HOME/project" && "$runner" setup --scheduler cron --apply --quiet)
    # The programs that cron starts must see cron's time.
    mv "$runner" "$folder/runner-itself"
    began=$(date +%s%N)
    cat > "$runner" <<IN
#!/bin/bash
real=\$(date +%s%N)
now=\$(($start + (real - $began) * $speed / 1000000000))
echo "\$now" >> "$folder/calls"
export LD_PRELOAD=$library FAKETIME=\$((now - real / 1000000000)) FAKETIME_DONT_FAKE_MONOTONIC=1
exec "$folder/runner-itself" "\$@"
IN
    chmod 755 "$runner"
    touch -d @0 /var/spool/cron/crontabs /var/spool/cron/crontabs/root
    env LD_PRELOAD="$library" FAKETIME="@$(date -d "@$start" '+%Y-%m-%d %H:%M:%S') x$speed" \
        FAKETIME_DONT_FAKE_MONOTONIC=1 cron -f -L 0 &
    cron=$!
    # Cron gives no signal to wait for, so this waits until the simulated period is over.
    timeout $(((end - start) / speed)) tail -f /dev/null --pid=$cron || true
    kill -9 $cron
    runner=$folder/runner-itself
    python3 - "$folder/calls" "$start" "$end" <<'IN'
import collections, sys
calls, start, end = [int(line) // 60 * 60 for line in open(sys.argv[1])], int(sys.argv[2]), int(sys.argv[3])
wanted = set(range(start // 900 * 900 + 900, end - 120, 900))
# On a loaded machine, a call may be a little late in accelerated time.
got = collections.Counter(call // 900 * 900 for call in calls)
missing = sorted(wanted - set(got))
sys.exit(f"no call at {missing}" if missing else print(f"  cron called at all {len(wanted)} quarters of an hour, {len(calls)} times"))
IN
    # A run that the last call started may still be active.
    timeout 60 bash -c 'until [ "$("$0" -C "$1" status --json | python3 -c "import json, sys; print(len(json.load(sys.stdin)[\"live\"]))" 2>/dev/null || echo 0)" = 0 ]; do :; done' "$runner" "$HOME/project"
    runs "$@"
    exit 0
fi

unshare --mount --pid --fork true 2>/dev/null || skip host "no namespaces here"
outer=$(mktemp -d)
trap 'rm -rf "$outer"' EXIT
utc() { date -u -d "$1" +%s; }
edge() { unshare --mount --pid --fork --kill-child --mount-proc "$0" "$runner" cron "$@"; }
# On 8 March, 02:30 does not exist and the job runs at the end of the gap. On 1 November, 01:30 occurs twice.
edge "$(utc '2026-03-08 05:50')" "$(utc '2026-03-08 08:20')" "$outer/spring" \
    2026-03-08T06:30:00Z/0130 2026-03-08T07:00:00Z/0230 > "$outer/spring.said" 2>&1 &
spring=$!
edge "$(utc '2026-11-01 04:50')" "$(utc '2026-11-01 08:20')" "$outer/autumn" \
    2026-11-01T05:30:00Z/0130 2026-11-01T07:30:00Z/0230 > "$outer/autumn.said" 2>&1 &
autumn=$!
code=0
wait $spring || code=1
wait $autumn || code=1
for season in spring autumn; do
    echo "$season, by cron:"
    cat "$outer/$season.said"
done
[ $code = 0 ] || exit 1

days() {
    HOME=$outer/$1
    mkdir "$HOME"
    echo "$1, by itself:"
    project "$(utc "$2 03:50")"
    local calls=0 moment
    for day in 0 1 2; do
        for quarter in $(seq 0 20); do
            moment=$(($(utc "$2 04:00") + day * 86400 + quarter * 900))
            at "$moment" "$runner" tick --quiet
            calls=$((calls + 1))
        done
    done
    echo "  $calls ticks"
    shift 2
    runs "$@"
}
days spring-days 2026-03-07 2026-03-07T06:30:00Z/0130 2026-03-07T07:30:00Z/0230 \
    2026-03-08T06:30:00Z/0130 2026-03-08T07:00:00Z/0230 2026-03-09T05:30:00Z/0130 2026-03-09T06:30:00Z/0230
days autumn-days 2026-10-31 2026-10-31T05:30:00Z/0130 2026-10-31T06:30:00Z/0230 \
    2026-11-01T05:30:00Z/0130 2026-11-01T07:30:00Z/0230 2026-11-02T06:30:00Z/0130 2026-11-02T07:30:00Z/0230
echo "cron and clock changes: 2 edges by cron, 6 days by tick alone, each job once a day"
