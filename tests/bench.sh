#!/bin/sh
# Figures of the built program as ratios: how a short command, a tick with nothing due and a dream
# pass over many unchanged ideas compare with a known program doing the like. Nothing is asserted.
# Usage: tests/bench.sh PATH-TO-RUNNER [IDEAS]
set -eu
runner=$(realpath "$1")
ideas=${2:-100000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_STATE_HOME="$work/state" XDG_CONFIG_HOME="$work/config" GIT_CONFIG_GLOBAL="$work/gitconfig"
# A commit may start a collection of garbage in the background, which would write while we clean up.
printf '[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n' > "$work/gitconfig"
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org

cat > "$work/time.py" <<'P'
import os, statistics, subprocess, sys, time
def once(cmd):
    began = time.perf_counter()
    pid = os.posix_spawn(cmd[0], cmd, os.environ, file_actions=[
        (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0), (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0)])
    _, _, usage = os.wait4(pid, 0)
    return time.perf_counter() - began, usage.ru_maxrss / 1024
label, runs, ours, theirs = sys.argv[1], int(sys.argv[2]), sys.argv[3].split(), sys.argv[4].split()
a, b = [], []
for _ in range(runs + 1):
    a.append(once(ours)); b.append(once(theirs))
wall = lambda rows: statistics.median(row[0] for row in rows[1:]) * 1000
print(f"{label}: {wall(a):.1f} ms against {wall(b):.1f} ms, ratio {wall(a) / wall(b):.2f}, peak {max(r[1] for r in a):.0f} MB")
P
git init --quiet --initial-branch=main "$work/p"
cd "$work/p"
git commit --quiet --allow-empty -m Begin
"$runner" --quiet init
"$runner" --quiet night >/dev/null
sqlite=$(command -v sqlite3)
python3 "$work/time.py" "status against sqlite3 'select 1'" 50 "$runner status" "$sqlite $XDG_STATE_HOME/runner/ledger.sqlite select(1)"
python3 "$work/time.py" "tick with nothing due against sqlite3 'select 1'" 50 "$runner --quiet tick" "$sqlite $XDG_STATE_HOME/runner/ledger.sqlite select(1)"

python3 - "$ideas" <<'P'
import os, sys
count = int(sys.argv[1])
for n in range(count):
    folder = f"ideas/{n // 1000:03d}"
    if n % 1000 == 0: os.makedirs(folder, exist_ok=True)
    open(f"{folder}/{n:06d}.md", "w").write(f"# Idea {n}\n\nSomething about subject {n * 7919 % 104729}.\n")
# All of them were triaged in an earlier pass.
import hashlib, json
rows = []
for n in range(count):
    path = f"ideas/{n // 1000:03d}/{n:06d}.md"
    rows.append({"path": path, "hash": hashlib.sha256(open(path, "rb").read()).hexdigest(),
        "last_modified": "2026-01-01T00:00:00Z", "last_surfaced": "2026-01-01T00:00:00Z", "merit": "low", "status": "active"})
json.dump(rows, open("dreams/state.json", "w"), indent=2)
P
git add ideas
git commit --quiet -m Ideas
git status >/dev/null
"$runner" --quiet dream run || true
"$runner" dream run | head -1
# A whole command is a starter, a run of its own and the ledger around it.
python3 "$work/time.py" "dream run over $ideas unchanged ideas against git status" 7 "$runner --quiet dream run" "$(command -v git) status"
