"""Called by curator_walk.sh in the folder that it prepared: runs each fix of `runner curator diagnose` verbatim."""

import http.server
import json
import os
import pathlib
import shutil
import socket
import subprocess
import threading
import time

ROOT = pathlib.Path.cwd()
WORKER = ROOT / ".runner/curator"
tried, servers = set(), []
fixed = 0


def run(*line):
    return subprocess.run(line, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def diagnose():
    done = run("runner", "curator", "diagnose", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == any(one["level"] == "wrong" for one in found), done
    return found


def listens(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def fix(one):
    """Runs the fix of a finding. A server that it starts continues in a separate shell, as in another terminal."""
    command = one["hint"]
    global fixed
    tried.add(command)
    fixed += 1
    print(f"  {one['what'][:100]}\n    {command}", flush=True)
    if "ollama serve" in command:
        port = next((port for port in (11435, 11500) if str(port) in command), 11434)
        # A separate session, so that all its processes can be killed.
        servers.append(subprocess.Popen(["bash", "-c", command], start_new_session=True, stdout=subprocess.DEVNULL))
        until = time.monotonic() + 30
        while not listens(port):
            assert time.monotonic() < until, f"{command}: nobody listens at {port}"
            time.sleep(0.05)
        while "config set" in command and servers[-1].poll() is None:
            time.sleep(0.05)
        return
    done = run("bash", "-c", command)
    assert done.returncode == 0, f"{command}: {done}"


# Running a suggested fix cannot solve these problems.
def lasting(one):
    return "no bridge" in one["what"] or "job files failed" in one["what"]


def walk():
    """Fixes problems until only lasting ones remain. Fixes each problem only once."""
    seen = set()
    while found := [one for one in diagnose() if not lasting(one)]:
        one = min(found, key=lambda it: it["level"] != "wrong")
        assert one["what"] not in seen, f"the problem was not fixed: {one}"
        seen.add(one["what"])
        fix(one)
    return len(seen)


def works():
    """Checks that a job file is processed with text from the model."""
    id = json.loads(run("runner", "curator", "enqueue", "--kind", "lint-wiki", "--json").stdout)["id"]
    done = run("runner", "curator", "work")
    text = (WORKER / f"findings/{id}.md").read_text()
    assert "words of the model" in text, f"{text}\n{done}"
    status = json.loads(run("runner", "curator", "status", "--json").stdout)
    assert status["health"]["state"] == "ready", status


def broken(what):
    print(what, flush=True)
    assert walk() >= 1, f"{what}: nothing was found"


def end_servers():
    for server in servers:
        try:
            os.killpg(server.pid, 9)
        except ProcessLookupError:
            pass
        server.wait()
    servers.clear()


def stranger(port):
    """Starts a server that is no engine."""

    class Page(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>a router</html>")

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


run("git", "init", "-q", ".")
assert run("runner", "init").returncode == 0
print("a new user", flush=True)
assert walk() >= 3
(ROOT / "docs/index.md").write_text("# Index\n\n[gone](gone.md)\n")
works()

setting = lambda key, value: run("runner", "config", "set", key, value)
setting("jobs.curator.enabled", "false")
broken("its job is off")
setting("curator.worker_dir", "D:\\dream")
broken("a Windows path as the worker's folder")
setting("curator.vault_dir", "D:\\vault")
broken("a Windows path as the folder of notes")
setting("curator.vault_dir", "notes/of mine")
broken("a folder of notes that does not exist")
setting("curator.vault_dir", "docs")
setting("curator.engine", "gemini-at-home")
broken("an unknown engine")
setting("curator.engine", "ollama")
works()
run("ollama", "rm", "gemma4:e4b")
broken("the model is gone")
works()
setting("curator.endpoint", "http://127.0.0.1:9")
broken("an address where nothing listens, and an engine at the usual address")
works()
page = stranger(8088)
setting("curator.endpoint", "http://127.0.0.1:8088")
broken("the address of another server, and an engine at the usual address")
works()
end_servers()
taken = stranger(11434)
broken("another server at the usual address, and no engine")
works()
end_servers()
taken.shutdown()
taken.server_close()
broken("the engine ended")
works()
setting("curator.endpoint", "http://127.0.0.1:11500")
end_servers()
broken("no engine, and a custom address")
works()
status = WORKER / "logs/status.json"
told = json.loads(status.read_text())
status.write_text(json.dumps(told | {"state": "working", "pid": 4_000_000, "current_job": "x"}))
broken("a worker that died at work")
(WORKER / "queue/20260102T030405Z-lint-wiki-0123abcd.json").write_text("[1]")
run("runner", "curator", "work")
[one] = [one for one in diagnose() if "failed" in one["what"]]
fix(one)
[one] = [one for one in diagnose() if "no bridge" in one["what"]]
tried.add(one["hint"])
assert run("bash", "-c", one["hint"]).returncode != 0, "there is no bridge here"
# The bridge is beside the copied runner, because the host's Python may put another folder first in PATH.
bridge = pathlib.Path(shutil.which("runner")).with_name("openclaw")
bridge.write_text("#!/bin/sh\n")
bridge.chmod(0o755)
assert not [one for one in diagnose() if "no bridge" in one["what"]], "the bridge was not found"
end_servers()
print(f"curator's walk: {len(tried)} different fixes, run verbatim {fixed} times, and each fixed its problem")
