#!/usr/bin/env python3
"""Runs the jobs wake and rem through the real `claude` under a real `runner`, with a scripted model.

    lifecycle.py RUNNER [FOLDER_OF_PROGRAMS]

The wake writes a file and commits it. Then it tries to write a journal entry and a row of `_steps.jsonl`, which the
sandbox refuses. The rem answers with structured output, and its verdict moves a task on the board at the next wake.
The exit code is 1 if a check fails. Without `claude`, the check is skipped and recorded.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "fakes")]
import model_stub  # noqa: E402
from skips import skip  # noqa: E402

RUNNER = Path(sys.argv[1]).resolve()
PATH = os.pathsep.join([*sys.argv[2:3], os.environ.get("PATH", "/usr/bin:/bin")])
KEY = "key-that-nobody-may-see-4711"
BOARD = "* Tasks\n** TODO make a file\n** TODO write — the post\n"

failures, passed = [], 0


def say(good, what):
    global passed
    if good:
        passed += 1
    else:
        failures.append(what)
        print("  FAILED", what, flush=True)


class Script(model_stub.Model):
    """Answers with the blocks of `steps`, one after each tool result."""

    project = None
    asked_of_dream = []

    def anthropic(self, asked, query):
        results = [part for message in asked.get("messages") or []
                   for part in (message["content"] if isinstance(message["content"], list) else [])
                   if part.get("type") == "tool_result"]
        if self.scenario == "rem":
            block = self.dream(asked, len(results))
        else:
            steps = self.steps()
            block = steps[len(results)] if len(results) < len(steps) else {"type": "text", "text": "It is made."}
        if block["type"] == "tool_use":
            block["id"] = f"toolu_{os.urandom(6).hex()}"
        self.put(asked, block)

    def steps(self):
        def use(name, **fields):
            return {"type": "tool_use", "name": name, "input": fields}
        return [
            use("Write", file_path=f"{self.project}/made.md", content="# Made\n"),
            use("Bash", command="git add made.md && git commit -q -m 'add: a file'", description="commit"),
            use("Write", file_path=f"{self.project}/rem/2026-01-01-0000.org", content="* tale\nforged\n"),
            use("Bash", command="echo forged > rem/x.org; echo '{}' >> _steps.jsonl", description="forge"),
        ]

    def dream(self, asked, results):
        schema = next((tool["input_schema"] for tool in asked.get("tools") or []
                       if tool.get("name") == "StructuredOutput"), None)
        if not schema or results:
            return {"type": "text", "text": "done"}
        type(self).asked_of_dream.append(schema)
        tasks = schema["properties"]["verdicts"]["items"]["properties"]["task"]["enum"]
        return {"type": "tool_use", "name": "StructuredOutput", "input": {
            "tale": "A file was made and committed; an entry and a row that it tried to forge were refused.",
            "goals": ["a", "b", "c"], "blue_sky": ["d", "e"], "fears": ["f", "g"],
            "verdicts": [{"act": "pick-up", "task": tasks[-1], "why": "it comes next"}],
            "carry": {"doing": "", "next_action": "write the post", "file": "made.md", "verified": ["made.md is there"]},
        }}

    def put(self, asked, block):
        stop = "tool_use" if block["type"] == "tool_use" else "end_turn"
        used = {"input_tokens": 1200, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
        message = {"id": f"msg_{os.urandom(6).hex()}", "type": "message", "role": "assistant",
                   "model": asked.get("model"), "content": [], "stop_reason": None, "stop_sequence": None,
                   "usage": used | {"output_tokens": 1}}
        if not asked.get("stream"):
            return self.json(200, message | {"content": [block], "stop_reason": stop})
        self.begin_stream()
        self.say("message_start", message=message)
        if block["type"] == "text":
            start, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            start = block | {"input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        self.say("content_block_start", index=0, content_block=start)
        self.say("content_block_delta", index=0, delta=delta)
        self.say("content_block_stop", index=0)
        self.say("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage=used | {"output_tokens": 9})
        self.say("message_stop")


class Place:
    """A project with the jobs wake and rem, each with its own backend."""

    def __init__(self, root, port):
        self.root = root
        self.home, self.project = root / "home", root / "project"
        self.home.mkdir()
        self.project.mkdir()
        Script.project = str(self.project)
        self.env = {"RUNNER_CONFIG__TRUST__PATHS": '["/"]', "PATH": PATH, "HOME": str(self.home), "USER": "nobody", "LANG": "C.UTF-8", "TZ": "UTC",
                    "XDG_STATE_HOME": str(root / "state"), "XDG_CONFIG_HOME": str(root / "config"),
                    "GIT_CONFIG_NOSYSTEM": "1"}
        (self.home / ".gitconfig").write_text("[user]\nname = a\nemail = a@example.org\n")
        self.run("git", "init", "-q", "-b", "main", ".")
        (self.project / "plan.org").write_text(BOARD)
        self.run("git", "add", "plan.org")
        self.run("git", "commit", "-q", "-m", "Begin")
        self.runner("init")
        text = "[jobs.dream]\nenabled = false\n"
        for name, tools in (("wake", 'tools = ["Write", "Bash"]\nmax_turns = 12\n'), ("rem", "")):
            keys = root / f"keys-{name}"
            keys.write_text(f"ANTHROPIC_API_KEY={KEY}\nANTHROPIC_BASE_URL=http://127.0.0.1:{port}/{name}\n")
            keys.chmod(0o600)
            text += (f'[backends.{name}]\ntype = "claude"\nmodel = "claude-haiku-4-5"\nenv_file = "{keys}"\n{tools}'
                     f'[jobs.{name}]\nkind = "{name}"\nbackend = "{name}"\ntrigger = "manual"\nretries = 0\n')
        with open(self.project / "runner.toml", "a") as file:
            file.write("\n" + text)

    def run(self, *line):
        return subprocess.run(line, cwd=self.project, env=self.env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=180)

    def runner(self, *line):
        return self.run(str(RUNNER), *line)

    def last(self, job):
        rows = json.loads(self.runner("runs", "--json").stdout)
        last = next(row for row in rows if row["job"] == job)
        return json.loads(self.runner("runs", "show", last["id"], "--json").stdout)


def play(root, port):
    place = Place(root, port)
    done = place.runner("run", "wake")
    last = place.last("wake")
    say(last["outcome"] == "succeeded", f"wake: {last} {done.stderr}")
    say((place.project / "made.md").exists(), "wake: nothing was written")
    say(place.run("git", "log", "-1", "--format=%s").stdout == "add: a file\n", f"wake: {place.run('git', 'log').stdout}")
    rows = [json.loads(line) for line in (place.project / "_steps.jsonl").read_text().splitlines()]
    told = [(row.get("tool"), "path" if row.get("args", {}).get("path") else "cmd") for row in rows]
    say(told == [("Write", "path"), ("Bash", "cmd"), ("Write", "path"), ("Bash", "cmd")], f"rows: {rows}")
    say(rows[0]["args"]["path"] == "made.md" and rows[0]["exit_code"] == 0, f"first row: {rows[0]}")
    sandboxed = last["containment"].startswith("full")
    if sandboxed:
        say(rows[2]["exit_code"] != 0 and rows[2]["error"], f"an entry was written: {rows[2]}")
        say(rows[3]["exit_code"] != 0, f"a row was forged: {rows[3]}")
        forged = [path for path in (place.project / "rem").rglob("*")] if (place.project / "rem").exists() else []
        say(not forged, f"forged: {forged}")
    else:
        skip("host", f"3: there is no sandbox ({last['containment']})")
    print(f"wake: {last['outcome']}, {len(rows)} rows, {last['containment']}", flush=True)

    done = place.runner("run", "rem")
    last = place.last("rem")
    say(last["outcome"] == "succeeded", f"rem: {last} {done.stderr}")
    entries = list((place.project / "rem").glob("*.org"))
    say(len(entries) == 1, f"rem: {entries}")
    text = entries[0].read_text() if entries else ""
    say("- pick up: write — the post — it comes next\n" in text, f"rem: {text}")
    say("#+MODEL: claude-haiku-4-5\n" in text, f"rem: {text}")
    say(len(Script.asked_of_dream) == 1, f"asked {len(Script.asked_of_dream)} times")
    print(f"rem: {last['outcome']}, {last['headline']}", flush=True)

    place.runner("run", "wake")
    board = (place.project / "plan.org").read_text()
    # The verdict promotes the task, which is then picked because it is the first NEXT task.
    picked = "** NEXT write — the post\n" in board or "** DOING write — the post\n" in board
    say(picked, f"board: {board}")
    journal = place.runner("journal").stdout
    say("pick up: write — the post" in journal, f"journal: {journal}")
    for path in root.rglob("*"):
        if path.is_file() and not path.name.startswith("keys-") and place.home not in path.parents:
            say(KEY.encode() not in path.read_bytes(), f"{path} shows the key")


def main():
    if not shutil.which("claude", path=PATH):
        skip("claude", "1: there is no claude")
        return 0
    root = Path(tempfile.mkdtemp(dir="/var/tmp"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Script)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        play(root, server.server_address[1])
    finally:
        server.shutdown()
        shutil.rmtree(root, ignore_errors=True)
    print(f"lifecycle: {passed} checks passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
