#!/usr/bin/env python3
"""Measures the memory's hooks as whole processes, and `sqlite3 FILE 'select 1'` on an empty database for comparison.

    bench_memory.py RUNNER FOLDER [NODES [CALLS]]

Called by bench.sh. Imports NODES nodes (default 100,000) of random words, some of which are much more frequent than
others, and puts one node in a hundred into a tier. Prints the median and the 99th percentile of each hook's time in
milliseconds, and the median of its processor time, which depends less on the load of the host. The calls of both
programs alternate.
"""

import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import time

RUNNER, FOLDER = sys.argv[1], sys.argv[2]
NODES = int(sys.argv[3]) if sys.argv[3:] else 100_000
CALLS = int(sys.argv[4]) if sys.argv[4:] else 300
random.seed(7)
WORDS = [f"w{number}" if number > 200 else f"common{number}" for number in range(20_000)]
SKEW = list(itertools.accumulate(1 / (rank + 3) for rank in range(len(WORDS))))
DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def ulid(number):
    text = ""
    for _ in range(16):
        number, digit = divmod(number, 32)
        text = DIGITS[digit] + text
    return "01HQ000000" + text


def fill(db):
    at = "2026-01-01T00:00:00Z"
    nodes, tags = [], []
    for number in range(NODES):
        content = " ".join(random.choices(WORDS, cum_weights=SKEW, k=30))
        nodes.append({"id": ulid(number * 7919), "type": "fact", "content": content, "token_estimate": len(content) // 4,
                      "created_at": at, "updated_at": at})
        if number % 100 == 0:
            tier = ("pinned", "reference", "working", "working")[number // 100 % 4]
            tags.append({"node_id": nodes[-1]["id"], "tag": f"tier:{tier}", "created_at": at})
    path = os.path.join(FOLDER, "export.json")
    with open(path, "w") as file:
        json.dump({"nodes": nodes, "edges": [], "tags": tags, "views": []}, file)
    subprocess.run([RUNNER, "memory", "--db", db, "import", path], check=True, stdout=subprocess.DEVNULL)


def once(line, text):
    """Returns the elapsed time and the processor time of a process, in milliseconds."""
    source, target = os.pipe()
    os.write(target, text)
    os.close(target)
    actions = [(os.POSIX_SPAWN_DUP2, source, 0), (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]
    began = time.perf_counter()
    _, status, used = os.wait4(os.posix_spawnp(line[0], line, os.environ, file_actions=actions), 0)
    took = time.perf_counter() - began
    os.close(source)
    assert status == 0, line
    return took * 1000, (used.ru_utime + used.ru_stime) * 1000


def main():
    db = os.path.join(FOLDER, "memory.db")
    if not os.path.exists(db):
        fill(db)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", flush=True)
    # sqlite3 opens a separate database, because an older sqlite3 does not support the text index of the memory.
    empty = os.path.join(FOLDER, "floor.db")
    subprocess.run(["sqlite3", empty, "create table if not exists t (a)"], check=True)
    floor = ["sqlite3", empty, "select 1"]
    prompts = [" ".join(random.choices(WORDS, cum_weights=SKEW, k=20)) for _ in range(CALLS)]
    transcript = os.path.join(FOLDER, "t.jsonl")
    with open(transcript, "w") as file:
        file.write('{"type":"user","uuid":"u","message":{"content":"x"}}\n{"type":"assistant","message":{"content":"y"}}\n')

    def payload(hook, number):
        return json.dumps({"session_id": f"{hook}-{number % 50}", "cwd": FOLDER, "source": "startup",
                           "prompt": prompts[number], "transcript_path": transcript, "last_assistant_message": "y"})

    for hook in ("session-start", "prompt-submit", "stop"):
        ours, theirs = [], []
        for number in range(CALLS):
            ours.append(once([RUNNER, "hook", hook, "--db", db], payload(hook, number).encode()))
            theirs.append(once(floor, b""))
        shown = []
        for walls, used in (zip(*ours), zip(*theirs)):
            last = sorted(walls)[int(len(walls) * 0.99)]
            shown.append(f"{statistics.median(walls):.2f} (p99 {last:.2f}, processor {statistics.median(used):.2f})")
        limit = 1.5 * statistics.median(wall for wall, _ in theirs) + 1
        print(f"hook {hook} on {NODES} nodes: {shown[0]} ms against {shown[1]} ms of sqlite3 'select 1'; "
              f"1.5 times that plus 1 ms is {limit:.2f} ms", flush=True)


main()
