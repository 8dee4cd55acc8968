#!/usr/bin/env python3
"""Follows the README's memory walk word for word, and then the memory's whole checklist, with the real Claude Code.

    memory_walk.py RUNNER [FOLDER_OF_PROGRAMS]

The model is scripted: it answers each prompt as a model that uses the memory would. The requests to it show what a
session has in its context. The last part runs two sessions at the same time in two panes of tmux. The exit code is 1
if a check fails.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from http.server import ThreadingHTTPServer
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]
import memory  # noqa: E402
import model_stub  # noqa: E402
from memory import BLOCK, PATH, Place, check, strings  # noqa: E402
from skips import skip  # noqa: E402

README = Path(__file__).resolve().parents[2] / "README.md"
MARK = "<!-- memory walk -->\n```sh\n"
# The model's answer to a prompt that contains the text.
ANSWERS = {
    "Remember that": "Noted. "
    '<ctx:remember type="decision" tags="tier:pinned">We deploy on Fridays only.</ctx:remember>',
    "When do we": "On Fridays.",
    "Note two things": '<ctx:remember type="fact" tags="tier:reference">The API uses PKCE.</ctx:remember>'
    '<ctx:remember type="fact" tags="tier:reference">Tokens live for an hour.</ctx:remember>',
    "Look up": 'Let me see. <ctx:recall query="type:fact"/><ctx:status/>',
    "Start the task": '<ctx:task name="login" action="start"/>',
    "Note the form": '<ctx:remember type="observation" tags="tier:working">The form is slow.</ctx:remember>',
    "End the task": '<ctx:task name="login" action="end" summarize="true"/>',
    "left recalls": '<ctx:recall query="id:LEFT"/>',
    "right recalls": '<ctx:recall query="id:RIGHT"/>',
}
# The tool that the model calls for a prompt that contains the text.
TOOLS = {
    "Store it": ("mcp__memory__remember", {"type": "decision", "content": "The port is 8443.", "tags": ["net"]}),
    "Find the port": ("mcp__memory__recall", {"query": "type:decision port"}),
}
requests = []


class Recorder(model_stub.Model):
    """The scripted model, which answers by prompt and keeps the requests."""

    def anthropic(self, asked, query):
        prompts = [message for message in asked["messages"] if message["role"] == "user"]
        last = " ".join(strings(prompts[-1]["content"]))
        requests.append((last, asked))
        answer = next((text for cue, text in ANSWERS.items() if cue in last), "Yes.")
        with LOCK:
            model_stub.WORDS = answer
            model_stub.TOOL = next((call for cue, call in TOOLS.items() if cue in last), None)
            super().anthropic(asked, query)


LOCK = threading.Lock()


def context(prompt):
    """Returns the blocks in the last request with this prompt."""
    asked = next(asked for last, asked in reversed(requests) if prompt in last)
    return [found for text in strings(asked) for found in BLOCK.findall(text)]


def claude(place, prompt, *more):
    done = place.run("claude", *more, "-p", prompt)
    check(done.returncode == 0, f"claude answers {prompt!r}")
    return done.stdout


def short(place, content):
    return next(node["short_id"] for node in place.nodes() if content in node["content"])


def readme_walk(place):
    text = README.read_text()
    check(text.count(MARK) == 1, "the README has one memory walk")
    script = text.split(MARK)[1].split("```")[0]
    shown = place.run("sh", "-eu", "-c", script)
    print(shown.stdout, shown.stderr)
    check(shown.returncode == 0, "the README's commands succeed")
    check("The hooks were added to" in shown.stdout, "1. and 2. the hooks are installed")
    check(not context("Remember that"), "4. and 5. the first session has nothing in its context")
    check("<ctx:remember" in shown.stdout, "6. and 7. the answer remembers")
    check(len(context("When do we")) == 1, "9. and 10. a new session has one block")
    check("We deploy on Fridays only." in context("When do we")[0], "10. with the note")
    listed = re.search(r"^(\w+) +decision +tier:pinned +We deploy on Fridays only\.$", shown.stdout, re.MULTILINE)
    check(bool(listed), "8. memory list shows the note")
    check(bool(re.search(r"^created .*$", shown.stdout, re.MULTILINE)), "memory show prints the note with its origin")
    check("undid change" in shown.stdout and not place.nodes(), "memory undo removes the note")
    check("The hooks are removed from" in shown.stdout, "memory install --remove")
    check(not (place.home / ".claude/settings.json").exists(), "the settings are as before")


def checklist(place):
    before = len(requests)
    place.runner("memory", "install", "--apply")
    claude(place, "Note two things.")
    check(len(place.nodes()) == 2, "6. to 8. two notes are stored")
    claude(place, "Look up what we know.")
    check(len(context("Look up")) == 1, "9. and 10. the context of a new session")
    claude(place, "Go on, please.", "-c")
    found = "".join(context("Go on, please."))
    check("Found 2 nodes:" in found and "## Memory Status" in found, "11. and 12. recall and status arrive")
    pkce, hour = short(place, "PKCE"), short(place, "an hour")
    ANSWERS["Summarize"] = f'<ctx:summarize nodes="{pkce},{hour}" archive="true">All about tokens.</ctx:summarize>'
    claude(place, "Summarize both.")
    claude(place, "What is new?")
    found = "".join(context("What is new?"))
    check("All about tokens." in found and "PKCE" not in found, "13. the summary replaces its parts")
    ANSWERS["Show the parts"] = f'<ctx:expand node="{short(place, "All about tokens.")}"/>'
    claude(place, "Show the parts.")
    claude(place, "And now?", "-c")
    check("The API uses PKCE." in "".join(context("And now?")), "13. expand shows the parts once")
    claude(place, "And then?", "-c")
    check(context("And then?") == context("And now?"), "13. and not again")
    claude(place, "Start the task login.")
    claude(place, "Note the form.", "-c")
    tagged = place.runner("memory", "query", "tag:task:login AND tag:working", "--json").stdout
    check('"found": 1' in tagged, "14. a note of the task has its tag")
    claude(place, "End the task login.", "-c")
    ended = place.runner("memory", "query", "tag:needs:summary AND tag:off-context", "--json").stdout
    check('"found": 1' in ended, "14. the ended task waits for a summary")
    check(len(requests) - before == 11, f"the model was called only for the prompts ({len(requests) - before})")


def mcp(place):
    """Calls the tools of `runner memory mcp` in real sessions."""
    if place.runner("memory", "mcp").returncode == 69:
        return skip("mcp", "runner was built without the feature mcp")
    config = place.root / "mcp.json"
    config.write_text('{"mcpServers": {"memory": {"command": "%s", "args": ["memory", "mcp"]}}}' % memory.RUNNER)
    tools = ["--mcp-config", str(config), "--allowedTools", "mcp__memory__remember,mcp__memory__recall"]
    claude(place, "Store it with the tool.", *tools)
    node = next((node for node in place.nodes() if node["content"] == "The port is 8443."), {})
    check(node.get("metadata") == '{"origin":"mcp (claude-code 2.1.330)"}', f"mcp: remember stores the note {node}")
    claude(place, "Find the port with the tool.", *tools)
    results = [found for text in strings(requests[-1][1]) for found in BLOCK.findall(text) if "type:decision" in found]
    check(len(results) == 1 and "The port is 8443." in results[0], "mcp: recall returns the note, quoted")


def side_by_side(place):
    """Runs two interactive sessions in one window, and prompts them alternately."""
    if shutil.which("tmux") is None:
        return skip("tmux", "tmux is not installed")
    socket = str(place.root / "tmux")
    tmux = lambda *line: subprocess.run(["tmux", "-S", socket, *line], env=place.env, capture_output=True, text=True)
    key = place.env["ANTHROPIC_API_KEY"]
    (place.home / ".claude.json").write_text(
        '{"hasCompletedOnboarding": true, "theme": "dark", "customApiKeyResponses": {"approved": ["%s"]},'
        ' "projects": {"%s": {"hasTrustDialogAccepted": true}}}' % (key[-20:], place.project))
    line = shlex.join(["env", "-i", *(f"{name}={value}" for name, value in place.env.items()), "TERM=xterm-256color",
                       "claude"])
    tmux("new-session", "-d", "-x", "160", "-y", "50", "-c", str(place.project), line)
    tmux("split-window", "-h", "-c", str(place.project), line)
    panes = {"left": "0.0", "right": "0.1"}

    def wait(what, seen):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if seen():
                return True
            # Interactive programs report nothing: their screens and requests are polled.
            time.sleep(0.2)
        screens = [tmux("capture-pane", "-p", "-t", pane).stdout for pane in panes.values()]
        check(False, what + "\n" + "\n----\n".join(screens))
        return False

    def asks(name, prompt):
        tmux("send-keys", "-t", panes[name], "-l", prompt)
        tmux("send-keys", "-t", panes[name], "Enter")
        return wait(f"{name}: {prompt}", lambda: any(prompt in last for last, _ in requests))

    screen = lambda name: tmux("capture-pane", "-p", "-t", panes[name]).stdout
    ready = all(wait(f"{name} starts", lambda name=name: "❯" in screen(name) or "> " in screen(name)) for name in panes)
    if ready and all(asks(name, f"The {name} recalls.") for name in panes):
        waiting = lambda: place.pending() == 2
        wait("both recalls wait for their prompts", waiting)
        # In reverse order: the results for the left session must not reach the right session.
        for name, other in (("right", "LEFT"), ("left", "RIGHT")):
            asks(name, f"The {name} goes on.")
            found = "".join(context(f"The {name} goes on."))
            check(f"id:{name.upper()}" in found, f"{name}: it gets its own result")
            check(f"id:{other}" not in found, f"{name}: it does not get the other session's result")
        check(place.pending() == 0, "each result was delivered once")
    tmux("kill-server")


class WalkPlace(Place):
    def pending(self):
        """Returns the number of sessions with waiting results."""
        sql = "SELECT count(DISTINCT session) FROM pending WHERE key = 'recall_results'"
        done = subprocess.run(["sqlite3", self.home / ".ctx/store.db", sql], capture_output=True, text=True)
        return int(done.stdout or -1)


def main():
    if shutil.which("claude", path=PATH) is None:
        skip("claude", "claude is not installed")
        return
    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    place = WalkPlace(server.server_address[1])
    place.project.rename(place.home / "my-repository")
    place.project = place.home / "my-repository"
    (place.root / "bin").mkdir()
    (place.root / "bin/runner").symlink_to(memory.RUNNER)
    place.env["PATH"] = os.pathsep.join([str(place.root / "bin"), place.env["PATH"]])
    readme_walk(place)
    checklist(place)
    mcp(place)
    side_by_side(place)
    if not memory.failures:
        shutil.rmtree(place.root, ignore_errors=True)
    print(f"{memory.passed} checks passed, {len(memory.failures)} failed")
    sys.exit(1 if memory.failures else 0)


if __name__ == "__main__":
    main()
