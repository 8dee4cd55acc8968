#!/usr/bin/env python3
"""Lets real agent programs commit through the private git directory while a person works in the same repository.

    commits.py RUNNER [FOLDER_OF_PROGRAMS]

Looks for `claude` and `codex` in FOLDER_OF_PROGRAMS and in PATH; cases without their program are skipped and recorded.
A scripted model lets the agent commit, wait for the person, and commit again. The person meanwhile edits, stages and
commits, or switches the branch. Afterwards the repository must contain all of the person's work and exactly the
agent's commits. Each case runs at the level `full`, if bubblewrap is installed, and at `files-only`. The exit code is 1
if a check fails.
"""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
from pathlib import Path

import agents
from agents import PATH, RUNNER, Place, say, skip

SCRIPT = """set -e
echo one >> src/a.txt; git add src/a.txt; git commit -q -m 'Agent one'
echo up > src/up; read line < src/go
echo two >> src/a.txt; git add src/a.txt; git commit -q -m 'Agent two'
git config user.name evil; git branch of-agent"""
JOB = """[jobs.up]
kind = "wake"
backend = "agent"
trigger = "manual"
retries = 0
timeout = "60s"
prompt = "Work on it"
writes = ["src"]
"""


class Shared(Place):
    """A project in which an agent and a person work at the same time."""

    def __init__(self, root, kind, port, level):
        # The scenario is a part of a URL, so the script is encoded.
        scenario = f"tool;sh={urllib.parse.quote_plus(SCRIPT)}"
        super().__init__(root, kind, scenario, port, after=JOB)
        if level == "files-only":
            self.env["RUNNER_TEST_SANDBOX"] = "landlock"
        (self.home / ".gitconfig").write_text("[user]\nname = a\nemail = a@example.org\n")
        self.git("checkout", "-q", "-b", "main")
        for name in ("README.md", "src/a.txt", "src/b.txt"):
            (self.project / name).parent.mkdir(exist_ok=True)
            (self.project / name).write_text("first\n")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "Begin")
        self.fifos = []
        for name in ("src/up", "src/go"):
            os.mkfifo(self.project / name)
            # With both ends open, neither side waits for the other to open the file.
            self.fifos.append(os.open(self.project / name, os.O_RDWR | os.O_NONBLOCK))

    def git(self, *line):
        done = self.run("git", *line)
        say(done.returncode == 0, f"git {line}: {done.stderr}")
        return done.stdout

    def play(self, person):
        """Runs the agent, and lets the person work between its two commits."""
        up, go = self.fifos
        begun = subprocess.Popen([str(RUNNER), "run", "up"], cwd=self.project, env=self.env, text=True,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        ready = select.select([up], [], [], 60)[0]
        say(ready, "the agent did not commit")
        if ready:
            person(self)
            os.write(go, b"go\n")
        shown, _ = begun.communicate(timeout=120)
        for fifo in self.fifos:
            os.close(fifo)
        # Other jobs follow the agent's run.
        runs = json.loads(self.runner("runs", "--json").stdout)
        return next((run for run in runs if run["job"] == "up"), {"outcome": None, "id": None}), shown

    def subjects(self, name):
        return self.git("log", "--format=%s", name).split("\n")[:-1]

    def status(self):
        return self.git("status", "--porcelain", "--untracked-files=all").split("\n")[:-1]


def edit(place):
    """The person has three kinds of uncommitted work."""
    (place.project / "README.md").write_text("first\nmine\n")
    (place.project / "src/b.txt").write_text("first\nstaged\n")
    place.git("add", "src/b.txt")
    (place.project / "notes.txt").write_text("new\n")


def commit(place):
    """The person commits on the same branch."""
    edit(place)
    place.git("commit", "-q", "-m", "Person", "README.md")


def switch(place):
    """The person commits on another branch and stays there."""
    place.git("checkout", "-q", "-b", "side")
    commit(place)


def one(root, kind, port, level, person):
    name = f"{kind} {level}, {person.__name__}"
    place = Shared(root, kind, port, level)
    last, shown = place.play(person)
    wanted = "degraded" if person is commit else "succeeded"
    say(last["outcome"] == wanted, f"{name}: {last['outcome']} is not {wanted}: {shown}")
    work = ["Agent two", "Agent one", "Begin"]
    main = ["Person", "Begin"] if person is commit else work
    say(place.subjects("main") == main, f"{name}: main has {place.subjects('main')}: {shown}")
    names = place.git("for-each-ref", "--format=%(refname)").split()
    own = ["refs/heads/main"] + (["refs/heads/side"] if person is switch else [])
    kept = ["heads/of-agent"] + (["heads/main"] if person is commit else [])
    kept = sorted(f"refs/runner/{last['id']}/{it}" for it in kept)
    say(names == own + kept, f"{name}: {names}")
    for ref in kept:
        say(place.subjects(ref) == work, f"{name}: {ref} has {place.subjects(ref)}")
    say(place.git("config", "user.name") == "a\n", f"{name}: a setting was changed")

    # Nothing of the person's work is lost, committed or staged by anybody else.
    say((place.project / "README.md").read_text() == "first\nmine\n", f"{name}: README.md")
    say(place.git("show", ":src/b.txt") == "first\nstaged\n", f"{name}: the staged content")
    unfinished = ["M  src/b.txt", "?? notes.txt"]
    unfinished += [" M README.md"] if person is edit else []
    # The work tree is shared, so the agent's files are there on every branch.
    unfinished += [] if person is edit else [" M src/a.txt"]
    say(sorted(place.status()) == sorted(unfinished), f"{name}: {place.status()}")
    if person is switch:
        say(place.subjects("side") == ["Person", "Begin"], f"{name}: side has {place.subjects('side')}")
        say(place.git("branch", "--show-current") == "side\n", f"{name}: the branch was switched")
    if person is commit:
        place.git("commit", "-q", "-m", "Staged")
        place.git("checkout", "-q", "--", "src/a.txt")
        place.git("merge", "-q", "-m", "Merge", kept[0])
    if person is not switch:
        say((place.project / "src/a.txt").read_text() == "first\none\ntwo\n", f"{name}: src/a.txt")
    place.git("fsck", "--strict")
    say(not (place.project / ".git/index.lock").exists(), f"{name}: a lock is left")
    say(not place.left(), f"{name}: left {place.left()}")
    say(not place.leaks(), f"{name}: shows the key in {place.leaks()}")
    print(f"{name}: {last['outcome']}, main has {', '.join(place.subjects('main'))}", flush=True)


def main():
    root = tempfile.mkdtemp(dir="/var/tmp")
    port_file = Path(root) / "port"
    stub = subprocess.Popen([sys.executable, agents.HERE.parent / "fakes/model_stub.py", port_file, "900"])
    levels = ["full", "files-only"]
    if not shutil.which("bwrap"):
        skip("bwrap", "6 of commits: the level full needs bubblewrap")
        levels = ["files-only"]
    persons = [edit, commit, switch]
    try:
        while not port_file.exists():
            agents.time.sleep(0.02)
        port = int(port_file.read_text())
        for kind in ("claude", "codex"):
            if not shutil.which(kind, path=PATH):
                skip(kind, f"{len(levels) * len(persons)} of commits of {kind}: it is not installed")
                continue
            for level in levels:
                for person in persons:
                    one(root, kind, port, level, person)
    finally:
        stub.terminate()
        stub.wait()
        shutil.rmtree(root, ignore_errors=True)
    print(f"commits: {agents.passed} checks passed, {len(agents.failures)} failed")
    return 1 if agents.failures else 0


if __name__ == "__main__":
    sys.exit(main())
