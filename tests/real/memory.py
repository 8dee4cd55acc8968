#!/usr/bin/env python3
"""Runs the memory's hooks in real sessions of Claude Code and Codex, with a scripted model.

    memory.py RUNNER [FOLDER_OF_PROGRAMS]

Follows the first example of docs/guide/memory.md: a session remembers, a new session has the note, and undo and remove
work. Then checks in the requests to the model that every injected byte arrives, and that continued, forked and compacted
sessions get nothing twice. The checks of a missing program are skipped and recorded. The exit code is 1 if a check
fails.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "fakes")]
import model_stub  # noqa: E402
from skips import skip  # noqa: E402

RUNNER = Path(sys.argv[1]).resolve()
PATH = os.pathsep.join([*sys.argv[2:3], os.environ.get("PATH", "/usr/bin:/bin")])
BLOCK = re.compile(r"<!-- ctx:(?! *end).*?<!-- ctx:end -->", re.DOTALL)
requests, failures, passed = [], [], 0


class Recorder(model_stub.Model):
    """The scripted model, which keeps the requests."""

    def anthropic(self, asked, query):
        requests.append(asked)
        super().anthropic(asked, query)

    def openai(self, asked, query):
        requests.append(asked)
        super().openai(asked, query)


def check(good, what):
    global passed
    if good:
        passed += 1
    else:
        failures.append(what)
    print("  ok    " if good else "  FAILED", what, flush=True)


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def blocks():
    """Returns the injected blocks in the last request."""
    return [found for text in strings(requests[-1]) for found in BLOCK.findall(text)]


class Place:
    def __init__(self, port):
        self.root = Path(tempfile.mkdtemp(prefix="runner-memory-", dir="/var/tmp"))
        self.home, self.project = self.root / "home", self.root / "project"
        self.home.mkdir()
        self.project.mkdir()
        self.port = port
        self.env = {"PATH": PATH, "HOME": str(self.home), "USER": "nobody", "LANG": "C.UTF-8", "TZ": "UTC",
                    "RUNNER_CONFIG__TRUST__PATHS": '["/"]', "GIT_CONFIG_NOSYSTEM": "1",
                    "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}/answer", "ANTHROPIC_API_KEY": "dummy",
                    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDE_CODE_MAX_RETRIES": "0",
                    "STUB_API_KEY": "dummy"}
        self.run("git", "init", "-q", ".")
        self.runner("init", "--yes")

    def run(self, *line, **more):
        return subprocess.run(line, cwd=self.project, env=self.env, capture_output=True, text=True, timeout=120,
                              **({"stdin": subprocess.DEVNULL} if "input" not in more else {}), **more)

    def runner(self, *line, **more):
        return self.run(str(RUNNER), *line, **more)

    def nodes(self):
        return json.loads(self.runner("memory", "list", "--limit", "1000", "--json").stdout)["nodes"]

    def hook(self):
        """Returns the text that a new session gets."""
        payload = json.dumps({"session_id": os.urandom(4).hex(), "cwd": str(self.project), "source": "startup"})
        answer = json.loads(self.runner("hook", "session-start", input=payload).stdout)
        return answer.get("hookSpecificOutput", {}).get("additionalContext", "")


def session(place, program, answer, *line):
    """Runs one prompt, to which the model replies with `answer`."""
    model_stub.WORDS = answer
    done = place.run(program, *line)
    if done.returncode:
        print(done.stdout[-500:], done.stderr[-500:])
    return done


REMEMBER = 'Noted. <ctx:remember type="decision" tags="tier:pinned">We deploy on Fridays only.</ctx:remember>'
RECALL = 'Let me see. <ctx:recall query="type:decision"/>'


def walk(name, place, ask, again, fork):
    """Follows the guide's example. `ask` and `again` are the beginnings of command lines, and `fork` returns one."""
    session(place, name, REMEMBER, *ask, "Remember that we deploy on Fridays only.")
    check(not blocks(), f"{name}: the first session has nothing in its context")
    check([node["content"] for node in place.nodes()] == ["We deploy on Fridays only."], f"{name}: it remembers")
    expected = place.hook()
    session(place, name, "On Fridays.", *ask, "When do we deploy?")
    check(blocks() == [expected] != [""], f"{name}: a new session has every byte of the note")
    session(place, name, RECALL, *again, "Look it up.")
    check(blocks() == [expected], f"{name}: a continued session gets nothing twice")
    session(place, name, "Yes.", *again, "Go on.")
    found = blocks()
    check(len(found) == 2 and "Recall Results" in found[-1], f"{name}: the results of a recall arrive")
    session(place, name, "Yes.", *again, "Go on.")
    check(blocks() == found, f"{name}: the results arrive once")
    session(place, name, "Yes.", *fork(), "And now?")
    check(blocks() == found, f"{name}: a fork gets nothing twice")
    check(len(place.nodes()) == 1, f"{name}: nothing is remembered twice")
    node = place.nodes()[0]
    shown = place.runner("memory", "show", node["short_id"]).stdout
    check("We deploy on Fridays only." in shown, f"{name}: memory show")
    many = [f"note {number}: " + "a long line about the project " * 3 for number in range(140)]
    for line in many:
        place.runner("memory", "add", "--tag", "tier:reference", line)
    expected = place.hook()
    check(9000 < len(expected.encode()) <= 9500, f"{name}: a full block has {len(expected.encode())} bytes")
    session(place, name, "Yes.", *ask, "Hello.")
    check(blocks() == [expected], f"{name}: a full block arrives whole")


def claude(place):
    place.runner("memory", "install", "--apply")
    walk("claude", place, ["-p"], ["-c", "-p"], lambda: ["-c", "--fork-session", "-p"])
    session(place, "claude", "The summary.", "-c", "-p", "/compact")
    session(place, "claude", "Yes.", "-c", "-p", "Go on.")
    found = blocks()
    check(len(found) == len(set(found)) == 1, f"claude: a compacted session has the block once ({len(found)})")
    before = len(place.nodes())
    place.runner("memory", "undo")
    check(len(place.nodes()) == before - 1, "claude: memory undo")
    place.runner("memory", "install", "--remove")
    check(not (place.home / ".claude/skills/ctx").exists(), "claude: memory install --remove")
    session(place, "claude", "Yes.", "-p", "Hello.")
    check(not blocks(), "claude: no hook is left")


def codex(place):
    folder = place.home / ".codex"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(
        'model = "stub-1"\nmodel_provider = "stub"\n[model_providers.stub]\nname = "stub"\n'
        f'base_url = "http://127.0.0.1:{place.port}/answer/v1"\nenv_key = "STUB_API_KEY"\nwire_api = "responses"\n')
    place.runner("memory", "install", "--apply", "--host", "codex")
    start = ["exec", "--dangerously-bypass-hook-trust", "--skip-git-repo-check"]
    again = [*start, "resume", "--last"]
    walk("codex", place, start, again, lambda: [*start, "fork", rollout(folder).stem[-36:]])
    session(place, "codex", "Yes.", *start, "Hello again.")
    session(place, "codex", "The summary.", *again, "-c", "model_auto_compact_token_limit=1000", "Go on.")
    session(place, "codex", "Yes.", *again, "And then?")
    check('"type":"compacted"' in rollout(folder).read_text(), "codex: the session was compacted")
    check(len(blocks()) == 1, f"codex: a compacted session has the block once ({len(blocks())})")


def rollout(folder):
    """Returns the file of Codex's newest session, whose name ends with the session's id."""
    return max(folder.glob("sessions/**/*.jsonl"), key=lambda path: path.stat().st_mtime)


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name, case in (("claude", claude), ("codex", codex)):
        if shutil.which(name, path=PATH) is None:
            skip(name, f"{name} is not installed")
            continue
        print(name, flush=True)
        place = Place(server.server_address[1])
        case(place)
        if not failures:
            shutil.rmtree(place.root, ignore_errors=True)
    print(f"{passed} checks passed, {len(failures)} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
