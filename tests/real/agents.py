#!/usr/bin/env python3
"""Runs real agent programs under a real `runner`, with a scripted model.

    agents.py RUNNER [FOLDER_OF_PROGRAMS]

Looks for `claude`, `codex` and `ccusage` in FOLDER_OF_PROGRAMS and in PATH; cases without their program are
skipped and recorded. Each case runs `runner run ask` in a separate project and checks the outcome, the exit code,
the duration, the number of model requests, and that no process of the run is left after two seconds. Further cases
kill a run, let a tool write and send requests outside its sandbox, and compare the cost with that of `ccusage`. Dream
cases run `runner dream run` through `claude`, and check that the run creates or removes the failure marker and that
the ideas are unchanged. The exit code is 1 if a check fails.
"""

import json
import os
import shutil
import signal
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
PROGRAMS = sys.argv[2:3]
PATH = os.pathsep.join([*PROGRAMS, os.environ.get("PATH", "/usr/bin:/bin")])
KEY = "key-that-nobody-may-see-4711"

# scenario, exit code, outcome, class, longest seconds, model calls
CASES = {
    "claude": [
        ("answer", 0, "succeeded", None, 20, 1),
        ("status-401", 77, "failed", "auth", 10, 1),
        ("status-429-7", 75, "deferred", None, 10, 1),
        ("status-529", 69, "failed", "rate-limited", 10, 1),
        ("credit", 1, "failed", "over-budget", 10, 1),
        ("limit", 75, "deferred", None, 10, 1),
        ("overage", 1, "failed", "over-budget", 10, 1),
        ("cut", 69, "failed", "rate-limited", 10, 1),
        ("empty", 1, "failed", "malformed", 10, None),
        ("page", 69, "failed", "rate-limited", 10, None),
        ("stall", None, "timed-out", None, 40, 1),
        ("late", None, "timed-out", None, 40, 1),
        ("loop", 1, "failed", "malformed", 20, 2),
    ],
    "codex": [
        ("answer", 0, "succeeded", None, 20, 1),
        ("status-401", 77, "failed", "auth", 10, 1),
        ("status-429-7", 75, "deferred", None, 10, 1),
        ("status-529", 69, "failed", "rate-limited", 10, 1),
        ("cut", 69, "failed", "rate-limited", 10, 1),
        ("empty", 1, "failed", "malformed", 10, 1),
        ("stall", None, "timed-out", None, 40, 1),
    ],
}

IDEA = "ideas/shorter.md"
FIT = {"targets": [IDEA], "status": "sidenote", "action": "keep", "evidence": "no commit names it", "commits": [],
       "confidence": "low", "quote": "", "rationale": "a passing thought"}
# name, scenario and its query, exit code, outcome, class in the failure marker, longest seconds
DREAMS = [
    ("good", "dream", {"json": {"answer": [FIT]}}, 0, "succeeded", None, 30),
    ("api error", "status-403", {}, 77, "failed", "auth", 15),
    ("overloaded", "status-529", {}, 69, "failed", "rate-limited", 15),
    ("empty", "empty", {}, 1, "failed", "malformed", 15),
    ("words", "dream", {"plain": 1}, 1, "failed", "malformed", 60),
    ("outside the offer", "dream", {"json": {"answer": [FIT | {"targets": ["README.md"]}]}}, 1, "failed", "malformed", 60),
    ("outside the tree", "dream", {"json": {"answer": [FIT | {"targets": ["../../etc/passwd"], "action": "archive"}]}},
     1, "failed", "malformed", 60),
    ("a merge with itself", "dream", {"json": {"answer": [FIT | {"targets": [IDEA, IDEA], "status": "duplicate", "action": "merge"}]}},
     1, "failed", "malformed", 60),
    ("hang", "late", {}, 1, "timed-out", "timed-out", 40),
    ("denied write", "dream", {"plain": 1, "sh": "echo evil >evil; echo evil >ideas/evil.md"}, 1, "failed", "malformed", 60),
    ("denied write, good", "dream", {"json": {"answer": [FIT]}, "sh": "echo evil >evil"}, 0, "succeeded", None, 30),
]

failures, passed = [], 0


def say(good, what):
    global passed
    if good:
        passed += 1
    else:
        failures.append(what)
        print("  FAILED", what, flush=True)


class Place:
    """The project, home and state folder of one case."""

    def __init__(self, root, kind, scenario, port, more="", after="", origin=None):
        self.root = Path(tempfile.mkdtemp(dir=root))
        self.home, self.project = self.root / "home", self.root / "project"
        self.home.mkdir()
        self.project.mkdir()
        base = f"{origin or 'http://127.0.0.1'}:{port}/{scenario}"
        self.env = {"RUNNER_CONFIG__TRUST__PATHS": '["/"]', "PATH": PATH, "HOME": str(self.home), "USER": "nobody", "LANG": "C.UTF-8", "TZ": "UTC",
                    "XDG_STATE_HOME": str(self.root / "state"), "XDG_CONFIG_HOME": str(self.root / "config"),
                    "GIT_CONFIG_NOSYSTEM": "1"}
        self.run("git", "init", "-q", ".")
        self.runner("init")
        if kind == "claude":
            # The API reports the limits of a subscription only to a login.
            name = "CLAUDE_CODE_OAUTH_TOKEN" if scenario in ("limit", "overage") else "ANTHROPIC_API_KEY"
            keys = f"{name}={KEY}\nANTHROPIC_BASE_URL={base}\n"
            options = 'model = "claude-haiku-4-5"\n'
            if scenario.startswith(("loop", "tool")):
                options += 'tools = ["Bash"]\nmax_turns = 2\n'
        else:
            keys = f"STUB_KEY={KEY}\n"
            provider = {"name": "stub", "base_url": base + "/v1", "env_key": "STUB_KEY", "wire_api": "responses",
                        "request_max_retries": 0, "stream_max_retries": 0}
            args = ["-c", 'model_provider="stub"']
            for key, value in provider.items():
                args += ["-c", f"model_providers.stub.{key}={json.dumps(value)}"]
            options = f'model = "stub-1"\nargs = {json.dumps(args)}\n'
            # The key in the file is a sufficient login. `env` names it for the readiness check.
            options += 'env = ["STUB_KEY"]\n'
            if scenario.startswith("tool"):
                options += 'tools = ["shell"]\n'
        secrets = self.root / "keys"
        secrets.write_text(keys)
        secrets.chmod(0o600)
        with open(self.project / "runner.toml", "a") as file:
            file.write(f'\n[backends.agent]\ntype = "{kind}"\nenv_file = "{secrets}"\n{options}{more}\n'
                       '[jobs.ask]\nkind = "prompt"\nbackend = "agent"\nprompt = "Say five words."\n'
                       'to = "notes/answer.md"\ntrigger = "manual"\nretries = 0\ntimeout = "8s"\n' + after)

    def run(self, *line, **more):
        return subprocess.run(line, cwd=self.project, env=self.env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=120, **more)

    def runner(self, *line):
        return self.run(str(RUNNER), *line)

    def begin(self, *line):
        return subprocess.Popen([str(RUNNER), *line], cwd=self.project, env=self.env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def last(self):
        return json.loads(self.runner("runs", "--json").stdout)[0]

    def processes(self):
        """Returns the processes with this home in their environment."""
        mark, found = f"HOME={self.home}".encode(), []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append((entry.name, (entry / "cmdline").read_bytes()[:80]))
                except OSError:
                    pass
        return found

    def left(self):
        """Returns the processes that are left after two seconds; returns early if none is left."""
        until = time.monotonic() + 2
        while (found := self.processes()) and time.monotonic() < until:
            time.sleep(0.05)
        return found

    def leaks(self):
        """Returns the files that contain the key, except the key file."""
        shown = []
        for path in self.root.rglob("*"):
            if path.is_file() and path.name != "keys" and self.home not in path.parents:
                if KEY.encode() in path.read_bytes():
                    shown.append(str(path))
        return shown


def calls(port, scenario):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{scenario}/calls") as answer:
        return json.load(answer)["calls"]


def one(root, kind, port, case):
    scenario, code, outcome, failure, longest, asked = case
    name = f"{kind} {scenario}"
    place = Place(root, kind, scenario, port)
    before, began = calls(port, scenario), time.monotonic()
    done = place.runner("run", "ask", "--json")
    took = time.monotonic() - began
    last = place.last()
    say(last.get("outcome") == outcome, f"{name}: {last.get('outcome')} is not {outcome}: {last.get('why')}")
    if failure:
        say(last.get("class") == failure, f"{name}: {last.get('class')} is not {failure}: {last.get('why')}")
    if code is not None:
        say(done.returncode == code, f"{name}: exit {done.returncode} is not {code}: {done.stderr}")
    say(took < longest, f"{name}: took {took:.1f} s")
    if asked is not None:
        say(calls(port, scenario) - before == asked, f"{name}: {calls(port, scenario) - before} calls, not {asked}")
    say(not place.left(), f"{name}: left {place.left()}")
    say(not place.leaks(), f"{name}: shows the key in {place.leaks()}")
    print(f"{name}: {last.get('outcome')} in {took:.1f} s, {last.get('why') or last.get('headline')}", flush=True)
    return place, last


def killed(root, kind, port):
    """Kills the process of a run with SIGKILL. The agent must end, and the next tick must settle the run."""
    place = Place(root, kind, "late", port)
    before = calls(port, "late")
    begun = place.begin("run", "ask", "--json")
    until = time.monotonic() + 20
    while calls(port, "late") == before and time.monotonic() < until:
        time.sleep(0.05)
    say(calls(port, "late") > before, f"{kind} killed: no request reached the model")
    killed_now = []
    for number, line in place.processes():
        if b"runner" in line.split(b"\0")[0] or b"exe\0execute" in line or b"\0execute\0" in line:
            try:
                os.kill(int(number), signal.SIGKILL)
            except ProcessLookupError:
                # It ended when the process before it was killed.
                continue
            killed_now.append(number)
    begun.wait()
    # The kernel releases the lock when the process has ended.
    while any(os.path.exists(f"/proc/{number}") for number in killed_now) and time.monotonic() < until + 20:
        time.sleep(0.02)
    place.runner("tick", "--quiet")
    say(not place.left(), f"{kind} killed: left {place.left()}")
    say(place.last().get("outcome") in ("lost", "timed-out"), f"{kind} killed: {place.last()}")
    print(f"{kind} killed: {place.last().get('outcome')}", flush=True)


def sandboxed(root, kind, port):
    """Runs a tool that writes inside and outside its folder. The sandbox must prevent the write outside."""
    target = Path(tempfile.mkdtemp(dir=root)) / "outside"
    script = urllib.parse.quote_plus(f"echo in >inside; echo out >{target}")
    place = Place(root, kind, f"tool;sh={script}", port)
    place.runner("run", "ask")
    last = json.loads(place.runner("runs", "show", place.last()["id"], "--json").stdout)
    say(last["outcome"] == "succeeded", f"{kind} tool: {last}")
    say(sum(last["told"]["tools"].values()) == 1, f"{kind} tool: {last['told']}")
    inside = list((place.root / "state").rglob("inside"))
    if last["containment"].startswith(("full", "files-only")):
        say(len(inside) == 1, f"{kind} tool: nothing was written inside")
        say(not target.exists(), f"{kind} tool: wrote outside of its sandbox")
        denied = f"denied access to {target}"
        say(any(denied in line for line in last["lines"]), f"{kind} tool: the denied path is not named: {last['lines']}")
    else:
        skip("host", f"3 of {kind}: there is no sandbox ({last['containment']})")
    say(not place.left(), f"{kind} tool: left {place.left()}")
    print(f"{kind} tool: inside {bool(inside)}, outside {target.exists()}", flush=True)


def https_stub(root, address):
    """Starts the scripted model with HTTPS at another address of loopback. Returns it, its port and the certificate
    of its authority."""
    folder = Path(tempfile.mkdtemp(dir=root))
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    (folder / "names").write_text(f"subjectAltName=IP:{address}\nbasicConstraints=CA:FALSE\n")
    for line in (["req", "-x509", *curve, "-days", "2", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.crt"],
                 ["req", *curve, "-subj", f"/CN={address}", "-keyout", "key", "-out", "request"],
                 ["x509", "-req", "-in", "request", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
                  "-extfile", "names", "-out", "crt"]):
        subprocess.run(["openssl", *line], cwd=folder, check=True, capture_output=True)
    certificate, both = folder / "ca.crt", folder / "pem"
    both.write_text((folder / "key").read_text() + (folder / "crt").read_text())
    port_file = folder / "port"
    stub = subprocess.Popen([sys.executable, HERE.parent / "fakes/model_stub.py", port_file, "900", address, both],
                            stderr=subprocess.DEVNULL)
    while not port_file.exists():
        time.sleep(0.02)
    return stub, int(port_file.read_text()), certificate


def proxied(root, kind, plain_port):
    """Lets the agent reach only the scripted model, through runner's proxy. Its tool tries other ways and hosts."""
    listed, other = "127.0.0.2", "127.0.0.3"
    stub, port, certificate = https_stub(root, listed)
    second, other_port, _ = https_stub(root, other)
    try:
        tries = {"listed": f"https://{listed}:{port}/x/calls", "other": f"https://{other}:{other_port}/x/calls",
                 "direct": f"http://127.0.0.1:{plain_port}/x/calls",
                 "around": f"--noproxy '*' https://{listed}:{port}/x/calls"}
        script = "; ".join(f"curl -sk -m 5 -o got-{name} {url}" for name, url in tries.items()) + "; touch tried"
        names = ["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "CODEX_CA_CERTIFICATE"]
        # The table for codex already has the key `env`, and TOML allows it only once.
        own = "" if kind == "codex" else f"env = {json.dumps(names)}\n"
        place = Place(root, kind, "tool;sh=" + urllib.parse.quote_plus(script), port, origin=f"https://{listed}",
                      more=own, after=f'network = ["{listed}:{port}"]\n')
        config = place.project / "runner.toml"
        config.write_text(config.read_text().replace('env = ["STUB_KEY"]', f"env = {json.dumps(['STUB_KEY', *names])}")
                          .replace('timeout = "8s"', 'timeout = "60s"'))
        for name in names:
            place.env[name] = str(certificate)
        done = place.runner("run", "ask")
        last = json.loads(place.runner("runs", "show", place.last()["id"], "--json").stdout)
        name, sandbox = f"{kind} proxied", last["containment"]
        if done.returncode == 78:
            skip("bwrap", f"5 of {kind}: a list of hosts needs bubblewrap")
            return
        say(last["outcome"] == "succeeded", f"{name}: {last['outcome']}: {last.get('why')} {done.stderr}")
        got = {path.name for path in (place.root / "state").rglob("got-*")}
        say(any((place.root / "state").rglob("tried")), f"{name}: the tool did not run")
        say(got == {"got-listed"}, f"{name}: the tool reached {got}")
        say(f"network only {listed}:{port}; requested {listed}:{port} " in sandbox, f"{name}: {sandbox}")
        say(f"{other}:{other_port} 1×" in sandbox.partition("refused")[2], f"{name}: {sandbox}")
        say(not place.left(), f"{name}: left {place.left()}")
        print(f"{name}: {sandbox}", flush=True)
    finally:
        for one in (stub, second):
            one.terminate()
            one.wait()


def dreamed(root, port, case):
    """Runs one dream through claude; checks outcome, exit code and failure marker, and that no idea has changed."""
    name, scenario, query, code, outcome, failure, longest = case
    name = f"claude dream, {name}"
    query = {key: json.dumps(value) if key == "json" else value for key, value in query.items()}
    base = ";".join(filter(None, [scenario, urllib.parse.urlencode(query, quote_via=urllib.parse.quote)]))
    place = Place(root, "claude", base, port, after='[jobs.dream]\nbackend = "agent"\nretries = 0\ntimeout = "16s"\n',
                  more="max_turns = 3\n" if "sh" in query else "")
    ideas, dreams = place.project / "ideas", place.project / "dreams"
    (ideas / "shorter.md").write_text("# Shorter names\n\nMaybe use shorter names?\n")
    mark = dreams / ".failed"
    # An old failure marker, which a successful pass removes.
    mark.write_text(json.dumps({"at": "2026-01-01T00:00:00Z", "job": "dream", "class": "crash", "message": "x",
                                "hint": "x", "run_id": "x"}))
    before = {path: path.read_bytes() for path in ideas.rglob("*")}
    began = time.monotonic()
    done = place.runner("dream", "run", "--json")
    took = time.monotonic() - began
    last = place.last()
    say(last.get("outcome") == outcome, f"{name}: {last.get('outcome')} is not {outcome}: {last.get('why')}")
    say(done.returncode == code, f"{name}: exit {done.returncode} is not {code}: {done.stderr}")
    say(took < longest, f"{name}: took {took:.1f} s")
    if failure is None:
        say(not mark.exists(), f"{name}: the old failure marker is still there: {mark.exists() and mark.read_text()}")
        say(len(list(dreams.glob("*/proposals.json"))) == 1, f"{name}: no proposals")
    else:
        told = json.loads(mark.read_text())
        say(told["class"] == failure, f"{name}: the failure marker is {told}")
        say(told["hint"] and told["run_id"] == last["id"], f"{name}: the failure marker is {told}")
        say(not list(dreams.glob("*/proposals.json")), f"{name}: proposals of a failed pass")
    say({path: path.read_bytes() for path in ideas.rglob("*")} == before, f"{name}: an idea was touched")
    evil = [path for path in place.root.rglob("evil*") if path.is_file()]
    say(not evil, f"{name}: it wrote {evil}")
    say(not place.left(), f"{name}: left {place.left()}")
    say(not place.leaks(), f"{name}: shows the key in {place.leaks()}")
    print(f"{name}: {last.get('outcome')} in {took:.1f} s, {last.get('why') or last.get('headline')}", flush=True)


def prices(root, port):
    """Checks that runner and a program that reads transcripts compute the same cost for a run."""
    place = Place(root, "claude", "answer", port, more="sessions = true\n")
    place.runner("run", "ask")
    told = json.loads(place.runner("runs", "show", place.last()["id"], "--json").stdout)["told"]["usage"]
    env = {**place.env, "CLAUDE_CONFIG_DIR": str(place.home / ".claude")}
    listed = subprocess.run(["ccusage", "daily", "--offline", "--json"], env=env, capture_output=True, text=True)
    total = json.loads(listed.stdout)["totals"]["totalCost"]
    say(round(total * 1e6) == told["cost_micros"], f"ccusage computes {total}, runner {told}")
    print(f"cost: {total} = {told['cost_micros']} millionths", flush=True)


def main():
    root = tempfile.mkdtemp(dir="/var/tmp")
    port_file = Path(root) / "port"
    stub = subprocess.Popen([sys.executable, HERE.parent / "fakes/model_stub.py", port_file, "900"])
    try:
        while not port_file.exists():
            time.sleep(0.02)
        port = int(port_file.read_text())
        for kind, cases in CASES.items():
            if not shutil.which(kind, path=PATH):
                skip(kind, f"{len(cases) + 1} of {kind}: it is not installed")
                continue
            for case in cases:
                one(root, kind, port, case)
            killed(root, kind, port)
            sandboxed(root, kind, port)
            proxied(root, kind, port)
        if shutil.which("claude", path=PATH):
            for case in DREAMS:
                dreamed(root, port, case)
        else:
            skip("claude", f"{len(DREAMS)} dreams of claude: it is not installed")
        if all(shutil.which(name, path=PATH) for name in ("claude", "ccusage")):
            prices(root, port)
        else:
            skip("ccusage", "1 of ccusage: it is not installed")
    finally:
        stub.terminate()
        stub.wait()
        shutil.rmtree(root, ignore_errors=True)
    print(f"agents: {passed} checks passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
