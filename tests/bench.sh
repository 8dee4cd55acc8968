#!/bin/sh
# Compares the speed of the built program with that of well-known programs that do similar work. Prints each figure
# as soon as it is measured, and at the end one table with ratios, goals and the figures of the last release. Peers that
# are not installed are left out: `pueue`, `jq`.
# Usage: tests/bench.sh PATH-TO-RUNNER [IDEAS [LEARNINGS]]
set -eu
runner=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
ideas=${2:-100000}
work=$(mktemp -d)
daemons=
finish() {
    code=$?
    for pid in $daemons; do kill "$pid" 2>/dev/null || :; wait "$pid" 2>/dev/null || :; done
    [ ! -s "$work/rows" ] || python3 "$here/bench_table.py" "$work/rows" "$here/../docs/PERFORMANCE.md"
    rm -rf "$work"
    exit "$code"
}
trap finish EXIT
export BENCH_ROWS="$work/rows"
# Adds a row to the table: work, ours, peer or floor, ratio, goal.
row() {
    printf '%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" "$5" >> "$BENCH_ROWS"
    echo "$1: $2${3:+ against $3}${4:+, ratio $4}${5:+ (goal $5)}"
}
ratio() { python3 -c "print(f'{$1 / $2:.2f}')"; }
export XDG_STATE_HOME="$work/state" XDG_CONFIG_HOME="$work/config" GIT_CONFIG_GLOBAL="$work/gitconfig"
# The settings of the measured projects are written without runner, so all folders are trusted.
export RUNNER_CONFIG__TRUST__PATHS='["/"]'
# A commit may start garbage collection in the background, which would write while this script cleans up.
printf '[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n' > "$work/gitconfig"
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org

cat > "$work/time.py" <<'P'
import os, statistics, subprocess, sys, time
def once(cmd):
    began = time.perf_counter()
    pid = os.posix_spawn(cmd[0], cmd, os.environ, file_actions=[
        (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0), (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0)])
    _, status, usage = os.wait4(pid, 0)
    took = time.perf_counter() - began
    # A command that fails early would appear to be fast.
    if status: sys.exit(f"{label}: {cmd} ended with {os.waitstatus_to_exitcode(status)}")
    return took, usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime
# The arguments: the work, how often it is measured, our command, the peer's name and command, the goal.
label, runs, ours, peer, theirs, goal = sys.argv[1], int(sys.argv[2]), sys.argv[3].split(), sys.argv[4], sys.argv[5].split(), sys.argv[6]
a, b = [], []
for _ in range(runs + 1):
    a.append(once(ours)); b.append(once(theirs))
wall = lambda rows: statistics.median(row[0] for row in rows[1:]) * 1000
mine = f"{wall(a):.1f} ms, {statistics.median(row[2] for row in a[1:]) * 1000:.1f} ms of CPU, {max(r[1] for r in a):.0f} MB"
theirs, ratio = f"{peer} {wall(b):.1f} ms", f"{wall(a) / wall(b):.2f}"
with open(os.environ["BENCH_ROWS"], "a") as rows: rows.write("\t".join((label, mine, theirs, ratio, goal)) + "\n")
print(f"{label}: {mine} against {theirs}, ratio {ratio} (goal {goal})")
P
git init --quiet --initial-branch=main "$work/p"
cd "$work/p"
git commit --quiet --allow-empty -m Begin
"$runner" --quiet init
"$runner" --quiet night >/dev/null
sqlite=$(command -v sqlite3)
# The program that prepares databases must have SQLite 3.43 or newer. BENCH_SQLITE names another program with the same
# arguments, such as a script that calls `python3 -m apsw`.
prepare=${BENCH_SQLITE:-$sqlite}
select="$sqlite $XDG_STATE_HOME/runner/database.sqlite select(1)"
python3 "$work/time.py" "tick, nothing due" 50 "$runner --quiet tick" "sqlite3 'select 1'" "$select" ""
python3 "$work/time.py" "status, one project" 50 "$runner status" "sqlite3 'select 1'" "$select" "≤ 2 ×"

# The cost of a run, from the command to the settled outcome, with few and with many other processes.
printf '[jobs.true]\nkind = "command"\nprogram = "true"\ntrigger = "manual"\n' >> runner.toml
floor="/bin/true"
[ ! -x /usr/bin/bwrap ] || floor="/usr/bin/bwrap --unshare-all --ro-bind / / --dev /dev --proc /proc /bin/true"
python3 "$work/time.py" "run of true in the sandbox" 30 "$runner --quiet run true" "true in bubblewrap" "$floor" "≤ 20 ms"
python3 -c 'import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
all = [subprocess.Popen(["sleep", "600"]) for _ in range(1000)]
print("started", flush=True)
try: time.sleep(600)
finally: [one.kill() for one in all]' > "$work/many-processes" &
sleepers=$!
daemons="$daemons $sleepers"
until [ -s "$work/many-processes" ]; do :; done
python3 "$work/time.py" "run of true among 1,000 other processes" 30 "$runner --quiet run true" "true in bubblewrap" "$floor" "≤ 20 ms"
kill "$sleepers"; wait "$sleepers" || :

# The hooks of the memory, as whole processes.
mkdir "$work/memory"
python3 "$here/bench_memory.py" "$runner" "$work/memory"

# A tick with ten due jobs, alone and among 100,000 jobs that are not due.
mkdir "$work/q"
git init --quiet --initial-branch=main "$work/q"
cd "$work/q"
git commit --quiet --allow-empty -m Begin
"$runner" --quiet init
{
    printf '[jobs.dream]\nenabled = false\n[groups.wide]\nslots = 20\n[defaults]\nretries = 0\n'
    for n in 0 1 2 3 4 5 6 7 8 9; do
        printf '[jobs.due%s]\nkind = "command"\nprogram = "true"\ntrigger = "every 1m"\ngroup = "wide"\n' $n
    done
    printf '[jobs.stamp]\nkind = "command"\nprogram = "sh"\nargs = ["-c", "date +%%s%%N > %s/stamp"]\ntrigger = "manual"\n' "$work/q"
} >> runner.toml
cat > "$work/ticks.py" <<'P'
import datetime, os, statistics, sys, time
runner, clock, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.environ["RUNNER_TEST_CLOCK"] = clock
now = datetime.datetime.fromisoformat(open(clock).read().strip()) if os.path.exists(clock) else datetime.datetime.now(datetime.timezone.utc)
took = []
for _ in range(rounds + 1):
    now += datetime.timedelta(minutes=1)
    open(clock, "w").write(now.isoformat())
    began = time.perf_counter()
    pid = os.posix_spawn(runner, [runner, "--quiet", "tick"], os.environ)
    os.waitpid(pid, 0)
    took.append(time.perf_counter() - began)
print(f"{statistics.median(took[1:]) * 1000:.1f}")
P
few=$(python3 "$work/ticks.py" "$runner" "$work/clock" 7)
cp "$XDG_STATE_HOME/runner/database.sqlite" "$work/few.sqlite"
"$sqlite" "$XDG_STATE_HOME/runner/database.sqlite" "
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
    INSERT INTO jobs (project, name, kind, schedule, policy, slot_group, enabled, next_due, watermark)
    SELECT j.project, 'far' || i, j.kind, j.schedule, j.policy, j.slot_group, 1, j.next_due + 99999999999, j.watermark
    FROM n, jobs j WHERE j.name = 'due0';"
many=$(python3 "$work/ticks.py" "$runner" "$work/clock" 7)
for ending in '' -wal -shm; do rm -f "$XDG_STATE_HOME/runner/database.sqlite$ending"; done
cp "$work/few.sqlite" "$XDG_STATE_HOME/runner/database.sqlite"
row "tick that starts 10 runs" "$few ms" "" "" "≤ 60 ms"
row "tick that starts 10 runs, among 100,010 jobs" "$many ms" "among 10 jobs $few ms" "$(ratio "$many" "$few")" ""

cat > "$work/history.py" <<'P'
import json, os, statistics, subprocess, sys, time
when, runner = sys.argv[1:]
commands = ["status", "--quiet tick", "runs", "jobs", "metrics", "budget", "--quiet enqueue job1 --at 1h"]
kept, took = os.environ["BENCH_ROWS"] + ".history", {}
for command in commands:
    line, all = [runner, *command.split()], []
    for _ in range(11):
        began = time.perf_counter()
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        all.append((time.perf_counter() - began) * 1000)
    took[command] = statistics.median(all[1:])
if when == "before":
    json.dump(took, open(kept, "w"))
    sys.exit()
earlier = json.load(open(kept))
with open(os.environ["BENCH_ROWS"], "a") as rows:
    for command, now in took.items():
        name, ratio = command.replace("--quiet ", "").split()[0], f"{now / earlier[command]:.2f}"
        rows.write(f"{name} with a history of {when}\t{now:.1f} ms\twithout {earlier[command]:.1f} ms\t{ratio}\t≤ 2 ×\n")
        print(f"{name} with a history of {when}: {now:.1f} ms, without {earlier[command]:.1f} ms, ratio {ratio}")
P

# A thousand projects with ten jobs each: the status of all projects, and a tick with nothing due. Each project
# has one past night, and each job one past run.
if ! "$prepare" :memory: "CREATE VIRTUAL TABLE t USING fts5(x, content = '', contentless_delete = 1)" 2>/dev/null; then
    echo "many projects and runs: skipped: they need sqlite3 3.43 or newer, or BENCH_SQLITE"
else
(
    export XDG_STATE_HOME="$work/many-state"
    projects=${BENCH_PROJECTS:-1000}
    mkdir -p "$work/many" "$XDG_STATE_HOME"
    cd "$work/many"
    python3 - "$projects" <<'P'
import os, sys
alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
jobs = "".join(f'[jobs.job{n}]\nkind = "command"\nprogram = "true"\ntrigger = "daily 0{n}:30"\n' for n in range(9))
for n in range(int(sys.argv[1])):
    os.makedirs(f"p{n:04}/.git")
    os.makedirs(f"p{n:04}/.runner/reports/2026-01-01")
    open(f"p{n:04}/.runner/reports/2026-01-01/report.md", "w").close()
    id = "01KA5V7Q4B" + "".join(alphabet[n >> shift & 31] for shift in (15, 10, 5, 0)) + "0" * 12
    open(f"p{n:04}/.git/runner-id", "w").write(id + "\n")
    open(f"p{n:04}/runner.toml", "w").write(f'[project]\nid = "{id}"\n\n[day.budget]\ncalls = 100\n{jobs}')
P
    for project in p*; do "$runner" -C "$project" --quiet enqueue job0 --at 1h >/dev/null 2>&1; done
    owner='{"pid":1,"start":1,"boot":"bench"}'
    "$prepare" "$XDG_STATE_HOME/runner/database.sqlite" "
        UPDATE runs SET state = 'settled', finished = requested, outcome = '{\"outcome\":\"cancelled\",\"why\":\"bench\"}', waits_for = NULL;
        UPDATE occurrences SET outcome = '{\"outcome\":\"cancelled\",\"why\":\"bench\"}', settled = recorded;
        UPDATE jobs SET fence = 1;
        INSERT INTO nights (project, name, opens, closes, closed, headline, worst, folder)
            SELECT id, '2026-01-01', 0, 1, 1, '9 succeeded', 'succeeded', '2026-01-01' FROM projects;
        INSERT INTO occurrences (id, job, key, due, recorded, origin, outcome, settled)
            SELECT printf('02%024d', id), id, CASE name WHEN 'report' THEN 'night-' || (SELECT n.id FROM nights n WHERE n.project = jobs.project) ELSE 'bench' END,
                0, 0, 'clock', '{\"outcome\":\"succeeded\"}', 1 FROM jobs;
        INSERT INTO runs (id, occurrence, job, attempt, fence, owner, deadline, state, requested, started, finished, seed, outcome, summary)
            SELECT printf('03%024d', id), printf('02%024d', id), id, 1, 1, '$owner', 1, 'settled', 0, 0, 1, 1, '{\"outcome\":\"succeeded\"}',
                '{\"headline\":\"9 succeeded\",\"lines\":[],\"facts\":{\"worst\":\"succeeded\"},\"artifacts\":[],\"backend\":\"\",\"containment\":\"\"}' FROM jobs;"
    "$runner" --quiet tick
    cd "$work"
    none="$sqlite $XDG_STATE_HOME/runner/database.sqlite select(1)"
    python3 "$work/time.py" "status, $projects projects with 10 jobs each" 20 "$runner status" "sqlite3 'select 1'" "$none" "≤ 8 ×"
    python3 "$work/time.py" "tick of $projects projects, nothing due" 20 "$runner --quiet tick" "sqlite3 'select 1'" "$none" ""
    # Each command before and after many further runs, which it must not read.
    history() { cd "$work/many/p0000"; python3 "$work/history.py" "$1" "$runner"; cd "$work"; }
    history before
    "$prepare" "$XDG_STATE_HOME/runner/database.sqlite" "
        CREATE TEMP TABLE numbers AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${BENCH_RUNS:-1000000}) SELECT i FROM n;
        INSERT INTO occurrences (id, job, key, due, recorded, origin, outcome, settled)
            SELECT printf('04%024d', i), 1 + i % (SELECT count(*) FROM jobs), 'many ' || i, 0, 0, 'clock', '{\"outcome\":\"succeeded\"}', 1 FROM numbers;
        INSERT INTO runs (id, occurrence, job, attempt, fence, owner, deadline, state, requested, started, finished, seed, outcome, summary)
            SELECT printf('05%024d', i), printf('04%024d', i), 1 + i % (SELECT count(*) FROM jobs), 1, 1, '$owner', 1, 'settled', 0, 0, 1, 1, '{\"outcome\":\"succeeded\"}',
                '{\"headline\":\"\",\"lines\":[],\"facts\":{},\"artifacts\":[],\"backend\":\"\",\"containment\":\"\"}' FROM numbers;
        PRAGMA wal_checkpoint(truncate);" > /dev/null
    history "${BENCH_RUNS:-1000000} runs"
)
fi

# The queue, from the command in the shell to the start of the job's program.
cat > "$work/queue.py" <<'P'
import os, statistics, subprocess, sys, time
stamp, rounds, cmd = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
adds, starts = [], []
for _ in range(rounds + 1):
    if os.path.exists(stamp): os.remove(stamp)
    began = time.time_ns()
    subprocess.run(cmd, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    adds.append(time.time_ns() - began)
    while not (os.path.exists(stamp) and os.path.getsize(stamp)):
        if time.time_ns() - began > 60e9: sys.exit(f"{cmd}: nothing was started within a minute")
        time.sleep(0.001)
    starts.append(int(open(stamp).read()) - began)
print(f"{statistics.median(adds[1:]) / 1e6:.1f} {statistics.median(starts[1:]) / 1e6:.1f}")
P
"$runner" daemon --quiet 2>/dev/null &
daemon=$!
daemons="$daemons $daemon"
until "$runner" status --json | grep -q '"pid"'; do :; done
# shellcheck disable=SC2046 # two numbers
set -- $(python3 "$work/queue.py" "$work/q/stamp" 20 "$runner" enqueue stamp)
ours_add=$1 ours_start=$2
if command -v pueued >/dev/null && command -v pueue >/dev/null; then
    mkdir -p "$work/pueue" "$work/run"
    export XDG_DATA_HOME="$work/pueue" XDG_RUNTIME_DIR="$work/run" HOME="$work/pueue"
    pueued >/dev/null 2>&1 &
    daemons="$daemons $!"
    until pueue status >/dev/null 2>&1; do :; done
    # shellcheck disable=SC2046 # two numbers
    set -- $(python3 "$work/queue.py" "$work/q/stamp" 20 pueue add -- "date +%s%N > $work/q/stamp")
    row "enqueue, durable" "$ours_add ms" "pueue add $1 ms" "$(ratio "$ours_add" "$1")" ""
    row "enqueue to start" "$ours_start ms" "pueue $2 ms" "$(ratio "$ours_start" "$2")" "≤ 25 ms"
else
    row "enqueue to start" "$ours_start ms" "" "" "≤ 25 ms"
fi
"$sqlite" "$work/insert.sqlite" "PRAGMA journal_mode = wal; CREATE TABLE rows (id INTEGER PRIMARY KEY, text)" > /dev/null
echo "PRAGMA synchronous = full; INSERT INTO rows (text) VALUES ('one');" > "$work/insert.sql"
python3 "$work/time.py" "enqueue, durable" 20 "$runner --quiet enqueue stamp --at 1h" \
    "sqlite3 insert" "$sqlite -init $work/insert.sql $work/insert.sqlite select(1)" "≤ 2 ×"

# A queue of 200 jobs with one slot, from the start of the daemon to the end of the last one.
kill "$daemon"; wait "$daemon" || :
sed -i 's/^slots = 20/slots = 1/' runner.toml
for _ in $(seq 200); do "$runner" --quiet enqueue due0 > /dev/null; done
began=$(date +%s%N)
"$runner" daemon --quiet 2>/dev/null &
daemon=$!
daemons="$daemons $daemon"
until [ "$("$sqlite" "$XDG_STATE_HOME/runner/database.sqlite" "SELECT count(*) FROM runs r JOIN jobs j ON j.id = r.job WHERE j.name = 'due0' AND state <> 'settled'")" = 0 ]; do sleep 0.05; done
ours=$((($(date +%s%N) - began) / 1000000))
if command -v pueued >/dev/null && command -v pueue >/dev/null; then
    pueue clean >/dev/null; pueue pause >/dev/null
    for _ in $(seq 200); do pueue add true >/dev/null; done
    began=$(date +%s%N)
    pueue start >/dev/null; pueue wait --quiet >/dev/null
    theirs=$((($(date +%s%N) - began) / 1000000))
    row "queue of 200 jobs, one slot" "$ours ms" "pueue $theirs ms" "$(ratio "$ours" "$theirs")" "≤ 0.067 ×"
else
    row "queue of 200 jobs, one slot" "$ours ms" "" "" ""
fi

# An idle daemon: no job has a schedule.
kill "$daemon"; wait "$daemon" || :
sed -i 's/^trigger = "every 1m"/trigger = "manual"/' runner.toml
"$runner" daemon --quiet 2>/dev/null &
daemon=$!
daemons="$daemons $daemon"
until "$runner" status --json | grep -q '"pid"'; do :; done
python3 - $daemon "${BENCH_IDLE:-60}" <<'P'
import os, sys, time
pid, seconds = sys.argv[1], int(sys.argv[2])
def rss(): return next(int(line.split()[1]) for line in open(f"/proc/{pid}/status") if line.startswith("VmRSS"))
def cpu(): return int(open(f"/proc/{pid}/schedstat").read().split()[0])  # nanoseconds
before = cpu(); time.sleep(seconds); after = cpu()
figure = f"{rss() / 1024:.1f} MB, {(after - before) / 1e7 / seconds:.3f} % of a core"
with open(os.environ["BENCH_ROWS"], "a") as rows: rows.write(f"idle daemon, {seconds} s\t{figure}\t\t\t≤ 10 MB, ≤ 0.03 %\n")
print(f"idle daemon, {seconds} s: {figure}")
P
kill "$daemon"; wait "$daemon" || :
cd "$work/p"

# A board with 10,000 tasks: applies the verdicts of one entry, and picks a task.
python3 - <<'P'
import json, os
with open("plan.org", "w") as board:
    for n in range(10000): board.write(f"** TODO task {n} — of many :t:\n   body\n")
os.makedirs("rem", exist_ok=True)
for n in range(8):
    verdicts = "".join(f"- pick up: task {m} — of many — why\n" for m in range(n, 10000, 500))
    open(f"rem/2026-06-10-143{n}.org", "w").write(
        f"#+TITLE: rem\n#+MODEL: m\n* tale\nx\n* goals\n* blue sky\n* fears\n* verdicts\n{verdicts}* carry\n- x\n")
P
cat > "$work/board.py" <<'P'
import json, os, statistics, subprocess, sys, time
took = {"apply": [], "pick": []}
for n in range(8):
    json.dump({"entries": [f"2026-06-10-143{n}.org"]}, open("rem/manifest.json", "w"))
    # Runner acts only on entries that its database contains.
    subprocess.run([sys.argv[1], "--quiet", "lifecycle", "adopt", "--yes"], check=True, stdout=subprocess.DEVNULL)
    for what in took:
        began = time.perf_counter()
        subprocess.run([sys.argv[1], "--quiet", "board", what], check=True, stdout=subprocess.DEVNULL)
        took[what].append((time.perf_counter() - began) * 1000)
empty = []
for _ in range(8):
    began = time.perf_counter()
    subprocess.run([sys.argv[1], "--quiet", "status"], check=True, stdout=subprocess.DEVNULL)
    empty.append((time.perf_counter() - began) * 1000)
for what, all in took.items():
    ours, least = statistics.median(all), statistics.median(empty)
    with open(os.environ["BENCH_ROWS"], "a") as rows: rows.write(f"board {what}, 10,000 tasks\t{ours:.1f} ms\trunner status {least:.1f} ms\t{ours / least:.2f}\t\n")
    print(f"board {what}, 10,000 tasks: {ours:.1f} ms, a status {least:.1f} ms")
P
python3 "$work/board.py" "$runner"
rm -rf plan.org rem

python3 - "$ideas" <<'P'
import os, sys
count = int(sys.argv[1])
for n in range(count):
    folder = f"ideas/{n // 1000:03d}"
    if n % 1000 == 0: os.makedirs(folder, exist_ok=True)
    open(f"{folder}/{n:06d}.md", "w").write(f"# Idea {n}\n\nSomething about subject {n * 7919 % 104729}.\n")
# An earlier pass has classified all of them.
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
# The measured command starts a separate process for the run and uses the database.
python3 "$work/time.py" "dream run, $ideas unchanged ideas" 7 "$runner --quiet dream run" "git status" "$(command -v git) status" "≤ 1.5 ×, ≤ 60 MB"

# A long streamed answer of a model API, compared with discarding the same bytes.
mkdir "$work/a"
git init --quiet --initial-branch=main "$work/a"
cd "$work/a"
git commit --quiet --allow-empty -m Begin
"$runner" --quiet init
python3 - "$work/port" <<'P' &
import http.server, json, os, sys
# The events are as long as those of a commercial API.
head = {"id": "chatcmpl-" + "0123456789" * 4, "object": "chat.completion.chunk", "created": 1700000000, "model": "m",
    "service_tier": "default", "system_fingerprint": "fp_0123456789"}
piece = lambda text, more: json.dumps({**head,
    "choices": [{"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": more}]})
events = [f"data: {piece('some words of an answer ', None)}\n\n"] * 160_000 + [f"data: {piece('', 'stop')}\n\ndata: [DONE]\n\n"]
body = "".join(events).encode()
class Answer(http.server.BaseHTTPRequestHandler):
    def log_message(self, *words): pass
    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.do_GET()
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if self.command == "POST":
            open(sys.argv[1] + ".sent", "a").write("whole\n")
server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
open(sys.argv[1] + ".new", "w").write(f"{server.server_address[1]} {len(body) // 1_000_000}\n")
os.rename(sys.argv[1] + ".new", sys.argv[1])
server.serve_forever()
P
daemons="$daemons $!"
until [ -e "$work/port" ]; do :; done
read -r port megabytes < "$work/port"
cat >> runner.toml <<C
[backends.long]
type = "openai"
base_url = "http://127.0.0.1:$port/v1"
model = "m"
[jobs.ask]
kind = "prompt"
backend = "long"
prompt = "Say much."
to = "notes/answer.md"
trigger = "manual"
budget = { calls = 1 }
[day.budget]
calls = 1000
money = "unlimited"
C
"$runner" --quiet run ask
words=$(wc -c < notes/answer.md)
# The measured command starts a separate process for the run and uses the database; the run then writes, records
# and publishes 4 MB of text.
python3 "$work/time.py" "streamed answer of $megabytes MB" 5 "$runner --quiet run ask" \
    "curl" "$(command -v curl) -s http://127.0.0.1:$port/" "≤ 6 ×"
[ "$words" -eq $((160000 * 24)) ] && [ "$(wc -l < "$work/port.sent")" -eq 7 ] || { echo "the answers were not all read"; exit 1; }

# A corpus with many learnings. The words follow Zipf's law, and a tenth of the learnings nearly repeat another
# one. Measures the health of a small and a large corpus, and one overnight iteration.
mkdir "$work/c"
cd "$work/c"
git init --quiet --initial-branch=main .
git commit --quiet --allow-empty -m Begin
"$runner" --quiet init
printf '[jobs.overnight]\nkind = "overnight"\ntrigger = "manual"\n' >> runner.toml
cat > "$work/corpus.py" <<'P'
import bisect, itertools, os, random, sys
folder, count = sys.argv[1], int(sys.argv[2])
draw = random.Random(9)
os.makedirs(folder, exist_ok=True)
weights = list(itertools.accumulate(1 / rank for rank in range(1, 20001)))
def words(n):
    return [f"w{bisect.bisect(weights, draw.random() * weights[-1])}x" for _ in range(n)]
texts = []
for n in range(count):
    if n % 10 == 9:
        text = list(draw.choice(texts)); text[draw.randrange(len(text))] = "changed"
    else:
        text = words(draw.randrange(60, 200))
    texts.append(text)
    with open(f"{folder}/l{n:06}.md", "w") as file:
        file.write(f"---\ndate: 2026-10-{n % 28 + 1:02}\ntags: [t{n % 97}]\nmaturity: provisional\nutility: 0.7\n---\n# Learning {n}\n\n{' '.join(text)} src/a{n % 50}.rs\n")
P
cat > "$work/once.py" <<'P'
import os, sys, time
began = time.perf_counter()
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
_, _, usage = os.wait4(pid, 0)
print(f"{time.perf_counter() - began:.1f} {usage.ru_maxrss / 1024:.0f}")
P
learnings=${3:-50000}
python3 "$work/corpus.py" .agents/learnings $((learnings / 10))
few=$(python3 "$work/once.py" "$runner" corpus health --json)
python3 "$work/corpus.py" .agents/learnings "$learnings"
many=$(python3 "$work/once.py" "$runner" corpus health --json)
row "health of $learnings learnings" "${many% *} s, ${many#* } MB" "of a tenth ${few% *} s" "$(ratio "${many% *}" "${few% *}")" "≤ 10 ×"
night=$(python3 "$work/once.py" "$runner" --quiet overnight start --max-iterations 1)
row "one iteration over $learnings learnings" "${night% *} s, ${night#* } MB" "" "" "≤ 10 s, ≤ 150 MB"
# A checkpoint of half a gigabyte, compared with a plain copy.
rm -rf .agents/learnings .agents/overnight
mkdir -p .agents/knowledge
for n in $(seq 1 500); do head -c 1000000 /dev/urandom > ".agents/knowledge/$n.bin"; done
sync
began=$(date +%s%N); cp -r .agents/knowledge "$work/copied"; cp=$((($(date +%s%N) - began) / 1000000)); rm -rf "$work/copied"
"$runner" --quiet overnight start --max-iterations 1 > /dev/null
python3 - "$cp" .agents/overnight/latest <<'P'
import glob, json, sys
(name,) = glob.glob(f"{sys.argv[2]}/*/iterations/iter-1.json")
m = json.load(open(name))["measure"]
ours, theirs = m["checkpoint_seconds"], int(sys.argv[1]) / 1000
name = f"checkpoint of {m['checkpoint_bytes'] / 1e6:.0f} MB"
import os
with open(os.environ["BENCH_ROWS"], "a") as rows: rows.write(f"{name}\t{ours:.2f} s\tcp -r {theirs:.2f} s\t{ours / theirs:.2f}\t\n")
print(f"{name}: {ours:.2f} s against cp -r {theirs:.2f} s, {m['checkpoint_shared_bytes'] / 1e6:.0f} MB by reflink")
P
# The curator: ten workers on one queue, a long transcript compared with jq and wc, a transcript with a line of
# 200 MB, and many notes compared with few. BENCH_JOBS, BENCH_TRANSCRIPT (MB), BENCH_LONG (MB) and BENCH_NOTES
# set the sizes.
jobs=${BENCH_JOBS:-10000}
mkdir "$work/k"
cd "$work/k"
git init --quiet --initial-branch=main .
git commit --quiet --allow-empty -m Begin
"$runner" --quiet init
{
    printf '[jobs.dream]\nenabled = false\n[curator]\nhourly_cap = 1000000\n'
    for n in 0 1 2 3 4 5 6 7 8 9; do printf '[jobs.c%s]\nkind = "curator"\ntrigger = "manual"\nbatch = 50\n' $n; done
} >> runner.toml
mkdir -p docs .runner/curator/queue
echo '# A note' > docs/a.md
python3 - "$jobs" <<'P'
import json, sys
for n in range(int(sys.argv[1])):
    id = f"20260102T030405Z-lint-wiki-{n:08x}"
    job = {"id": id, "kind": "lint-wiki", "created_at": "2026-01-02T03:04:05Z", "max_retries": 1}
    open(f".runner/curator/queue/{id}.json", "w").write(json.dumps(job))
P
began=$(date +%s%N)
workers=
for n in 0 1 2 3 4 5 6 7 8 9; do
    "$runner" --quiet curator work --job c$n > /dev/null 2>&1 &
    workers="$workers $!"
done
for pid in $workers; do wait "$pid" || :; done
took=$((($(date +%s%N) - began) / 1000000))
over=$(find .runner/curator/done -name '*.json' | wc -l)
row "$over of $jobs curator jobs by ten workers" "$((over * 1000 / took)) a second" "" "" ""
cat > "$work/transcript.py" <<'P'
import json, sys
name, megabytes, long = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
row = lambda kind, content: json.dumps({"type": kind, "timestamp": "2026-01-02T03:04:05Z", "cwd": "/p", "sessionId": "s",
    "uuid": "u" * 36, "parentUuid": "p" * 36, "version": "2.0.0", "message": {"role": kind, "content": content}}) + "\n"
words = "some words of an answer that a model gave, and what a tool said of it; " * 30
block = (row("assistant", [{"type": "text", "text": words}, {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}])
    + row("user", [{"type": "tool_result", "tool_use_id": "t1", "content": words}])).encode()
with open(name, "wb") as file:
    for n in range(megabytes * 1_000_000 // len(block) + 1):
        file.write(block)
        if n == 1000 and long:
            file.write(b'{"type":"user","x":"')
            for _ in range(long): file.write(b"y" * 1_000_000)
            file.write(b'"}\n')
P
ingest() {
    "$runner" --quiet curator enqueue --kind ingest-claude-session --source "$1" --chunk-start 1 --chunk-end 999999999
    python3 "$work/once.py" "$runner" --quiet curator work --once --job c0
    tail -1 .runner/curator/logs/audit.md | cut -d' ' -f3- >&2
}
size=${BENCH_TRANSCRIPT:-300}
python3 "$work/transcript.py" "$work/t.jsonl" "$size" 0
wc -l "$work/t.jsonl" > /dev/null
ours=$(ingest "$work/t.jsonl")
counted=$(python3 "$work/once.py" "$(command -v wc)" -l "$work/t.jsonl")
jq=none
if command -v jq > /dev/null; then
    jq=$(python3 "$work/once.py" "$(command -v jq)" -c .type "$work/t.jsonl")
fi
row "transcript of $size MB" "${ours% *} s, ${ours#* } MB" "jq .type ${jq% *} s, wc -l ${counted% *} s" "" ""
long=${BENCH_LONG:-1000}
python3 "$work/transcript.py" "$work/t.jsonl" $((long * 4 / 5)) $((long / 5))
ours=$(ingest "$work/t.jsonl")
row "transcript of $long MB with a line of $((long / 5)) MB" "${ours% *} s, ${ours#* } MB" "" "" ""
rm "$work/t.jsonl"
notes=${BENCH_NOTES:-20000}
cat > "$work/vault.py" <<'P'
import os, random, sys
count = int(sys.argv[1])
draw = random.Random(7)
for n in range(count):
    folder = f"docs/{n % 100:02}"
    os.makedirs(folder, exist_ok=True)
    links = " ".join(f"[x](../{m % 100:02}/n{m}.md) [[n{m}]]" for m in (draw.randrange(count + count // 20) for _ in range(5)))
    open(f"{folder}/n{n}.md", "w").write(f"---\ntags: a\n---\n# Note {n % (count // 2)}\n\n{links} [[index]] {'words of a note ' * 40}\n\n## Part\n\n`docs/{n % 100:02}/n{n}.md`\n")
    if n % 10 == 0: open(f"{folder}/index.md", "w").write("# Index\n")
P
lint() {
    rm -rf "$work/k/docs"
    mkdir "$work/k/docs"
    python3 "$work/vault.py" "$1"
    "$runner" --quiet curator enqueue --kind lint-wiki
    python3 "$work/once.py" "$runner" --quiet curator work --once --job c0
}
few=$(lint $((notes / 10)))
many=$(lint "$notes")
row "check of $notes notes" "${many% *} s, ${many#* } MB" "of a tenth ${few% *} s" "$(ratio "${many% *}" "${few% *}")" "≤ 10 ×"
cd "$work"
rm -rf "$work/k"
