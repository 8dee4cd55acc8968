#!/usr/bin/env python3
"""Runs real sessions of Claude Code with a scripted model: the second one starts with the first one's packet.

    sessions.py RUNNER [FOLDER_OF_PROGRAMS]

Checks in the requests to the model that the resume packet arrives, and that the guard hook's hint about a command
that failed in earlier sessions arrives with the tool's result. Without `claude`, the check is skipped and recorded. The
exit code is 1 if a check fails.
"""

import json
import shutil
import sys
import threading
import urllib.parse
import uuid
from http.server import ThreadingHTTPServer

import memory
from memory import PATH, RUNNER, Place, Recorder, check, requests, strings

LOST = "python3 -m no_such_module"


def session(place, command):
    """Runs one session in which the model runs a command, and returns its id.

    The scripted model repeats the command if a hook adds a text after its result, so the turns are limited.
    """
    name = str(uuid.uuid4())
    query = urllib.parse.quote(command)
    place.env["ANTHROPIC_BASE_URL"] = f"http://127.0.0.1:{place.port}/tool;sh={query}"
    hook = {"type": "command", "command": f"{RUNNER} guard hook"}
    settings = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [hook]}]}}
    done = place.run("claude", "-p", "--session-id", name, "--max-turns", "2", "--allowedTools", "Bash",
                     "--settings", json.dumps(settings), "Go on.")
    if done.returncode:
        print(done.stdout[-500:], done.stderr[-500:])
    return name


def asked():
    """Returns all texts of the last request."""
    return "\n".join(strings(requests[-1]))


def analyzed(place, name):
    """Analyzes a session, and returns whether that succeeded.

    The hook at the end of a session also starts an analysis. While that analysis runs, this one is skipped.
    """
    ended, outcome = None, "skipped"
    for _ in range(100):
        if outcome != "skipped":
            break
        ended = place.runner("sessions", "end", name, "--json")
        outcome = json.loads(ended.stdout)["outcome"]
    if outcome != "succeeded":
        print(ended.stdout[-500:], ended.stderr[-500:])
    return outcome == "succeeded"


def failing(place, name):
    """Writes the transcript of a session in which a command failed three times, and another command succeeded."""
    folder = place.home / ".claude/projects" / "".join(c if c.isalnum() else "-" for c in str(place.project))
    rows = []
    for at, (line, error) in enumerate([(LOST, "/usr/bin/python3: No module named no_such_module")] * 3
                                       + [(LOST + " --version", None)]):
        common = {"timestamp": f"2026-01-02T03:0{at}:00Z", "cwd": str(place.project), "sessionId": name}
        call = {"type": "tool_use", "id": f"call-{at}", "name": "Bash", "input": {"command": line}}
        result = {"type": "tool_result", "tool_use_id": f"call-{at}", "is_error": error is not None,
                  "content": error or "no_such_module 1.0"}
        rows.append({"type": "assistant", "message": {"content": [call]}} | common)
        rows.append({"type": "user", "message": {"content": [result]}} | common)
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def claude(place):
    place.runner("memory", "install", "--apply")
    first = session(place, "git status --short")
    check("Last session" not in asked(), "the first session starts without a packet")
    check(analyzed(place, first), "the first session is analyzed")
    expected = place.runner("sessions", "resume").stdout.rstrip("\n")
    check(f"Last session {first}" in expected, "the packet is about the first session")
    second = session(place, "true")
    check(expected in asked(), "the request of the second session has every byte of the packet")
    check(analyzed(place, second), "the second session is analyzed")
    shown = json.loads(place.runner("sessions", "show", second, "--json").stdout)
    packets = [effect.get("packet") for effect in shown["findings"]["injections"]]
    check(first in packets, f"the analysis of the second session finds the packet ({packets})")
    failing(place, "failing")
    check(analyzed(place, "failing"), "a session with failures is analyzed")
    session(place, LOST)
    check("this command failed 3 times; what worked: run `" + LOST + " --version`" in asked(),
          "the hint of the guard hook arrives")
    check("No module named no_such_module" in asked(), "the hint does not stop the command")


def main():
    if shutil.which("claude", path=PATH) is None:
        memory.skip("claude", "claude is not installed")
        return
    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    place = Place(server.server_address[1])
    claude(place)
    if not memory.failures:
        shutil.rmtree(place.root, ignore_errors=True)
    print(f"{memory.passed} checks passed, {len(memory.failures)} failed")
    sys.exit(1 if memory.failures else 0)


if __name__ == "__main__":
    main()
