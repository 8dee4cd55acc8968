#!/usr/bin/env bash
# Checks that a real Prometheus scrapes the metrics of a project whose last night was two days ago, and that the
# alert for a silent night fires. A file server on loopback serves the output of `runner metrics`. The rules are
# those of docs/monitoring/ with `for` and the evaluation interval reduced to a second.
# usage: tests/real/prometheus.sh RUNNER
set -euo pipefail
check="real Prometheus"
. "$(dirname "$0")/../skips.sh"
need prometheus promtool faketime python3 curl jq git
runner=$(realpath "$1")
rules=$(realpath "$(dirname "$0")/../../docs/monitoring/alerts.yml")
folder=$(mktemp -d)
started=()
finish() {
    local pid
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$folder"
}
trap finish EXIT
export HOME=$folder/home XDG_STATE_HOME=$folder/state
mkdir -p "$HOME" "$folder/project" "$folder/www"
cd "$folder/project"
git init --quiet .
cat > runner.toml <<'T'
[project]
[jobs.tidy]
kind = "command"
program = "true"
trigger = "daily 02:30"
T
"$runner" --quiet init > /dev/null 2>&1 || true
"$runner" --quiet trust --yes > /dev/null 2>&1 || true
faketime -f '-2d' "$runner" --quiet night || echo "the night of two days ago ended with $?"

# Free ports of loopback, from the kernel.
read -r files server < <(python3 - <<'P'
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(it.getsockname()[1] for it in sockets))
P
)
"$runner" metrics > "$folder/www/metrics"
promtool check metrics < "$folder/www/metrics" > "$folder/advice" 2>&1 || true
if grep -i 'error' "$folder/advice"; then exit 1; fi
python3 -m http.server --bind 127.0.0.1 --directory "$folder/www" "$files" > /dev/null 2>&1 &
started+=($!)
sed 's/for: .*/for: 1s/' "$rules" > "$folder/alerts.yml"
cat > "$folder/prometheus.yml" <<Y
global:
  scrape_interval: 1s
  evaluation_interval: 1s
rule_files: [alerts.yml]
scrape_configs:
  - job_name: runner
    static_configs:
      - targets: ["127.0.0.1:$files"]
Y
prometheus --config.file="$folder/prometheus.yml" --storage.tsdb.path="$folder/data" \
    --web.listen-address="127.0.0.1:$server" > "$folder/log" 2>&1 &
started+=($!)

# ask PATH FILTER: prints what jq finds in an answer of Prometheus.
ask() {
    curl --silent --fail "http://127.0.0.1:$server/api/v1/$1" | jq -r "$2" 2>/dev/null
}

# within SECONDS COMMAND...: repeats a command until it prints something.
within() {
    local until=$((SECONDS + $1)) said
    shift
    while [ "$SECONDS" -lt "$until" ]; do
        said=$("$@" || true)
        [ -z "$said" ] || { echo "$said"; return 0; }
        sleep 0.2
    done
    echo "nothing from: $*" >&2
    tail -5 "$folder/log" >&2
    return 1
}

within 60 ask targets '.data.activeTargets[] | select(.health == "up") | "target: " + .health'
within 60 ask 'query?query=runner_runs_total' \
    '.data.result[] | select(.metric.job != "runner" or .metric.exported_job) | "runs: \(.metric.exported_job) \(.metric.outcome) \(.value[1])"'
within 60 ask alerts \
    '.data.alerts[] | select(.labels.alertname == "RunnerNightSilent" and .state == "firing") | "firing: " + .annotations.summary'
# A night now ends the alert.
"$runner" --quiet night || true
"$runner" metrics > "$folder/www/metrics.new"
mv "$folder/www/metrics.new" "$folder/www/metrics"
within 60 ask alerts 'if ([.data.alerts[] | select(.labels.alertname == "RunnerNightSilent")] | length) == 0 then "after a night: no alert" else empty end'
echo "$check: passed"
