"""The hosts, databases and helpers of the checks in fleet.py, fleet_stalls.py and fleet_soak.py.

The first argument of the script is the program, which must be built with the feature `fleet`.
"""

import glob
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNNER = Path(sys.argv[1]).resolve()
ROOT = Path(tempfile.mkdtemp(prefix="runner-fleet-"))
NIGHT = "2027-03-10T02:30:00Z"
IDEAS = {
    "retry.md": "# Limit the retry\n\nThe retry in src/net.py has no limit. Give it one, and jitter.\n",
    "export.md": "# Export as CSV\n\nWrite the table as CSV, so that a spreadsheet opens it.\n",
    "cache.md": "# Cache the answers\n\nMost answers of src/net.py do not change within an hour.\n",
}
failures = []


def say(good, what):
    print(("  ok      " if good else "  FAILED  ") + what, flush=True)
    if not good:
        failures.append(what)


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    if done.returncode:
        raise SystemExit(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Server:
    """A private PostgreSQL server."""

    def __init__(self, address="127.0.0.1", namespace=()):
        self.address, self.namespace = address, list(namespace)
        self.bin = Path(sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1])
        self.data = ROOT / "data"
        ROOT.chmod(0o755)
        self.data.mkdir()
        self.prefix = []
        if os.getuid() == 0:
            shutil.chown(self.data, "nobody", "nogroup")
            self.prefix = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.call("initdb", "-D", self.data, "-U", "runner", "-A", "trust", "--no-sync")
        with (self.data / "pg_hba.conf").open("a") as access:
            access.write("host all all 10.0.0.0/8 trust\n")
        with (self.data / "postgresql.conf").open("a") as settings:
            settings.write(f"listen_addresses = '{address}'\nport = {self.port}\nunix_socket_directories = ''\n"
                           "fsync = off\n")
        self.start()

    def call(self, program, *words):
        with (ROOT / "server.log").open("a") as log:
            command = [*self.namespace, *self.prefix, str(self.bin / program), *map(str, words)]
            subprocess.run(command, check=True, stdout=log, stderr=log, cwd="/")

    def start(self):
        self.call("pg_ctl", "-D", self.data, "-w", "-s", "start")

    def stop(self):
        self.call("pg_ctl", "-D", self.data, "-w", "-s", "stop", "-m", "immediate")

    def url(self, name):
        plain = "?sslmode=disable" if self.address != "127.0.0.1" else ""
        return f"postgresql://runner@{self.address}:{self.port}/{name}{plain}"

    def ask(self, name, sql):
        return run(*self.namespace, "psql", "-X", "-A", "-t", "-d", self.url(name), "-c", sql).strip()


class Host:
    """A state folder with its own home and configuration."""

    def __init__(self, folder, name, url, settings=""):
        self.root = folder / name
        # A command that starts the program elsewhere, such as in a network namespace.
        self.prefix = []
        self.state = self.root / "state"
        self.clock = self.root / "clock"
        for path in [self.root / "home", self.state, self.root / "config/runner"]:
            path.mkdir(parents=True)
        self.at(NIGHT)
        (self.root / "config/runner/config.toml").write_text(
            f'[trust]\npaths = ["/"]\n[defaults]\nstagger = "0s"\n[fleet.night]\nurl = "{url}"\n{settings}')
        (self.root / "home/.gitconfig").write_text("[user]\n\tname = a\n\temail = a@example.org\n")
        self.env = {"PATH": os.environ["PATH"], "HOME": str(self.root / "home"), "USER": "somebody", "TZ": "UTC",
                    "LANG": "C.UTF-8", "XDG_STATE_HOME": str(self.state),
                    "XDG_CONFIG_HOME": str(self.root / "config"), "RUNNER_TEST_CLOCK": str(self.clock)}

    def at(self, moment):
        self.clock.write_text(moment + "\n")

    def start(self, *words, **more):
        return subprocess.Popen([*self.prefix, RUNNER, *map(str, words)], env={**self.env, **more.pop("env", {})}, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/", **more)

    def run(self, *words, **more):
        child = self.start(*words, **more)
        out, err = child.communicate(timeout=300)
        return subprocess.CompletedProcess(words, child.returncode, out, err)

    def good(self, *words, **more):
        done = self.run(*words, **more)
        if done.returncode:
            raise SystemExit(f"runner {words}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def project(self, name, fleet=True):
        """Makes a project with ideas and a dream job that the fleet shares."""
        folder = self.root / "projects" / name
        (folder / "src").mkdir(parents=True)
        (folder / "src/net.py").write_text("def ask():\n    return retry(ask)\n")
        run("git", "init", "-q", "-b", "main", folder, env=self.env)
        run("git", "-C", folder, "add", ".", env=self.env)
        run("git", "-C", folder, "commit", "-qm", "Ask again after an error", env=self.env)
        self.good("--dir", folder, "init", "--yes")
        for path, text in IDEAS.items():
            (folder / "ideas").mkdir(exist_ok=True)
            (folder / "ideas" / path).write_text(text)
        file = folder / "runner.toml"
        text = file.read_text()
        if "[jobs.dream]" not in text:
            text += '\n[jobs.dream]\nkind = "dream"\n'
        if fleet:
            text = text.replace("[jobs.dream]\n", '[jobs.dream]\nfleet = "night"\n', 1)
        file.write_text(text)
        return folder

    def runs(self, folder):
        return json.loads(self.good("--dir", folder, "runs", "--json"))


def outcome(row):
    found = row.get("outcome")
    return found.get("outcome") if isinstance(found, dict) else found


def dreams(folder):
    return sorted(str(path.relative_to(folder)) for path in (folder / "dreams").rglob("*") if path.is_file())


class Fleet:
    """A database, a home host and two workers."""

    def __init__(self, server, name, settings="", home_slots=0):
        self.server, self.name = server, name
        server.ask("postgres", f"CREATE DATABASE {name}")
        folder = ROOT / name
        self.home = Host(folder, "home", server.url(name), f"slots = {home_slots}\n" + settings)
        self.workers = [Host(folder, worker, server.url(name), settings) for worker in ["one", "two"]]
        self.hosts = [self.home, *self.workers]
        self.home.good("fleet", "init", "night")
        for host in self.hosts:
            host.good("fleet", "join", "night")

    def ask(self, sql):
        return self.server.ask(self.name, sql)

    def at(self, moment):
        for host in self.hosts:
            host.at(moment)

    def member(self, host):
        return json.loads((host.state / "runner/fleets/night.json").read_text())["host"]

    def count(self, where):
        return int(self.ask(f"SELECT count(*) FROM runner_fleet.occurrences WHERE {where}"))


def copies(host):
    return sorted(path for path in (host.state / "runner-fleet/night").glob("*") if path.is_dir())


def show(text):
    print("    " + text.strip().replace("\n", "\n    "))


def until(condition, what, seconds=60):
    """Waits until a condition is true, and reports whether it became true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            say(True, what)
            return
        time.sleep(0.02)
    say(False, what)


def children(pid):
    done = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in done.splitlines()]
    found = [pid]
    for known in found:
        found += [child for child, parent in pairs if parent == known]
    return found


def stop_tree(pid):
    """Stops a process and its descendants, as a sleeping machine does."""
    stopped = []
    while True:
        new = [one for one in children(pid) if one not in stopped]
        if not new:
            return stopped
        for one in new:
            send(one, signal.SIGSTOP)
            stopped.append(one)


HELD = "until [ -e go ]"


def held_job(folder):
    """Adds a job whose backend waits until its work folder has the file `go`, so that it cannot end too early."""
    (folder / "runner.toml").open("a").write(
        f'\n[backends.held]\ntype = "command"\nprogram = "sh"\nargs = ["-c", "{HELD}; do sleep 0.1; done; echo done"]\n'
        '[jobs.held]\nkind = "prompt"\nfleet = "night"\nbackend = "held"\nprompt = "Say it."\n'
        'to = "out/held.md"\ntrigger = "manual"\nretries = 0\n')


def in_backend(pid):
    """Whether the backend of a held job is among the descendants of a process."""
    def command(one):
        try:
            return Path(f"/proc/{one}/cmdline").read_text()
        except OSError:
            return ""
    return any(command(one).split("\0")[0].endswith("sh") and HELD in command(one) for one in children(pid))


def stop_in_backend(host, child, what):
    """Stops a tick while the backend of its held job works and no database is locked.

    When a machine sleeps, all its processes stop, so none of them waits for a lock that a stopped process holds. Here,
    other processes continue.
    """
    until(lambda: in_backend(child.pid), what)
    while True:
        stopped = stop_tree(child.pid)
        if not any(is_locked(path) for path in host.state.rglob("*.sqlite")):
            return stopped
        for pid in stopped:
            send(pid, signal.SIGCONT)


def is_locked(path):
    database = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        database.execute("BEGIN IMMEDIATE")
        database.execute("ROLLBACK")
        return False
    except sqlite3.OperationalError:
        return True
    finally:
        database.close()


def claims_again(fleet, host, what):
    """Starts ticks of a host until one has taken over the claim, and returns that tick, which is still running."""
    ticks = [host.start("tick")]

    def claimed():
        if fleet.count("state = 'claimed' AND fence = 2") == 1 and in_backend(ticks[-1].pid):
            return True
        if ticks[-1].poll() is not None:
            ticks[-1].communicate()
            ticks.append(host.start("tick"))
        return False
    until(claimed, what, 90)
    return ticks[-1]


def let_go(hosts):
    """Lets the backends of held jobs end."""
    for host in hosts:
        for folder in host.state.glob("runner/runs/*/child"):
            (folder / "go").write_text("")


def send(pid, number):
    """Sends a signal to a process that may have ended by itself."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def kill_executes(host):
    """Kills the runs of a host whose tick was killed, as a power cut does."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if b"execute" in (entry / "cmdline").read_bytes() and \
                    f"XDG_STATE_HOME={host.state}".encode() in (entry / "environ").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            pass


def check_budgets(fleet):
    wrong = fleet.ask("""
        SELECT count(*) FROM runner_fleet.budgets b, LATERAL (SELECT
            coalesce(sum(a.charged[4]), 0) AS used,
            coalesce(sum(CASE WHEN a.charged IS NULL THEN a.reserved[4] END), 0) AS held
            FROM runner_fleet.attempts a JOIN runner_fleet.occurrences o ON o.id = a.occurrence
            WHERE b.level = ANY (o.levels)) s WHERE (b.used[4], b.held[4]) <> (s.used, s.held)""")
    say(wrong == "0", "the budgets are the sums of the claims")
