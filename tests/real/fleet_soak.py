#!/usr/bin/env python3
"""Runs three hosts of a fleet in network namespaces. Their processes are killed and stopped, their network drops all
packets for a while, and their database is restarted without a shutdown.

    fleet_soak.py RUNNER SOAK_WORKER

SOAK_WORKER is the example `soak_worker` of the crate runner-fleet. It does the operations of a host on 5,000
occurrences. At the same time, whole `runner` processes share dreams on the same server. Afterwards, no occurrence
is published twice, none is lost, the budgets are exact and the queue is empty. RUNNER_TEST_SCALE scales the numbers.
The exit code is 1 if a check fails.
"""

import glob
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import fleet_hosts
from fleet_hosts import IDEAS, ROOT, Host, Server, check_budgets, dreams, kill_executes, outcome, run, say

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from skips import skip  # noqa: E402

WORKER = Path(sys.argv[2]).resolve()
SCALE = float(os.environ.get("RUNNER_TEST_SCALE") or 1)
SEED = int(os.environ.get("RUNNER_TEST_SEED") or time.time())
CASES, FAULTS, PARTITIONS, RESTARTS = (max(1, round(number * SCALE)) for number in (5000, 500, 20, 5))
HOSTS = ["h1", "h2", "h3"]
SLOTS = 4
LEASE = 5.0
PREFIX = f"rf{os.getpid()}"
chance = random.Random(SEED)


class Network:
    """A router between the database and the hosts, each in a namespace of its own."""

    def __init__(self):
        self.names = {name: f"{PREFIX}-{name}" for name in ["router", "db", *HOSTS]}
        self.addresses = {}
        for name in self.names.values():
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run(*self.inside("router"), "sysctl", "-qw", "net.ipv4.ip_forward=1")
        for number, name in enumerate(["db", *HOSTS]):
            here, there = self.names[name], self.names["router"]
            run("ip", "-n", here, "link", "add", "eth0", "type", "veth", "peer", "name", f"to-{name}", "netns", there)
            self.addresses[name] = f"10.77.{number}.2"
            for namespace, link, address in [(here, "eth0", 2), (there, f"to-{name}", 1)]:
                run("ip", "-n", namespace, "address", "add", f"10.77.{number}.{address}/24", "dev", link)
                run("ip", "-n", namespace, "link", "set", link, "up")
            run("ip", "-n", here, "route", "add", "default", "via", f"10.77.{number}.1")

    def inside(self, name):
        return ["ip", "netns", "exec", self.names[name]]

    def partition(self, host, action):
        """Drops (`add`) or passes (`del`) all packets of a host, in both directions."""
        for direction in ["from", "to"]:
            run("ip", "-n", self.names["router"], "rule", action, direction, self.addresses[host], "blackhole")

    def remove(self):
        for name in self.names.values():
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


class Slot:
    """A process of a host, which is restarted after it was killed."""

    def __init__(self, network, host, role, number, url):
        self.host, self.role, self.seed = host, role, number
        self.command = [*network.inside(host), str(WORKER), role, url, host, str(ROOT / "soak"),
                        str(share(host)), str(number)]
        self.stopped_until = None
        self.start()

    def start(self):
        with (ROOT / "soak/errors").open("a") as errors:
            self.child = subprocess.Popen(self.command, stdout=errors, stderr=errors)

    def claim(self):
        try:
            words = (ROOT / f"soak/{self.seed}.claim").read_text().split()
        except FileNotFoundError:
            return None
        return (words[0], int(words[1])) if len(words) == 2 else None


def share(host):
    """Returns the number of occurrences that a host offers."""
    return CASES // 3 + (HOSTS.index(host) < CASES % 3)


class Operations:
    """The processes that do the operations of the hosts, and the faults that are injected."""

    def __init__(self, network, server):
        self.network, self.server = network, server
        server.ask("postgres", "CREATE DATABASE soak")
        self.url = server.url("soak")
        (ROOT / "soak").mkdir()
        maker = Host(ROOT / "maker", "h0", self.url)
        maker.prefix = network.inside("h1")
        maker.good("fleet", "init", "night")
        self.hurt = []  # (the claim, the time in milliseconds)
        self.done = {"kill": 0, "stop": 0, "partition": 0, "restart": 0, "with a claim": 0}
        self.parted = {}
        self.slots = [Slot(network, host, role, HOSTS.index(host) * 10 + number, self.url)
                      for host in HOSTS for number, role in enumerate(["home"] + ["work"] * SLOTS)]

    def note(self, slot):
        claim = slot.claim()
        if slot.role == "work" and claim:
            self.hurt.append((claim, time.time() * 1000))
            self.done["with a claim"] += 1

    def fault(self, kind):
        if kind == "restart":
            self.server.call("pg_ctl", "-D", self.server.data, "-w", "-s", "restart", "-m", "immediate")
        elif kind == "partition":
            free = [host for host in HOSTS if host not in self.parted]
            host = chance.choice(free)
            self.network.partition(host, "add")
            self.parted[host] = time.monotonic() + LEASE * 1.2
            for slot in self.slots:
                if slot.host == host and slot.role == "work":
                    self.note(slot)
        else:
            slot = chance.choice([slot for slot in self.slots if slot.stopped_until is None])
            slot.child.send_signal(signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
            self.note(slot)
            if kind == "kill":
                slot.child.wait()
                slot.start()
            else:
                slot.stopped_until = time.monotonic() + LEASE * 1.3
        self.done[kind] += 1

    def repair(self, all_of_them=False):
        now = time.monotonic()
        for host, until in list(self.parted.items()):
            if all_of_them or now > until:
                self.network.partition(host, "del")
                del self.parted[host]
        for slot in self.slots:
            if slot.stopped_until and (all_of_them or now > slot.stopped_until):
                slot.child.send_signal(signal.SIGCONT)
                slot.stopped_until = None
            if slot.child.poll() is not None:
                say(False, f"a process of {slot.host} ended: {(ROOT / 'soak/errors').read_text()[-300:]}")
                slot.start()

    def settled(self):
        return int(self.server.ask("soak", "SELECT count(*) FROM runner_fleet.occurrences WHERE state = 'settled'"))

    def soak(self):
        """Injects the faults evenly over the work: each one when its share of the occurrences is settled."""
        faults = ["kill"] * (FAULTS // 2) + ["stop"] * (FAULTS - FAULTS // 2)
        faults += ["partition"] * PARTITIONS + ["restart"] * RESTARTS
        chance.shuffle(faults)
        began, settled, looked = time.monotonic(), 0, 0.0
        total = len(faults)
        while settled < CASES and time.monotonic() - began < 900:
            if time.monotonic() - looked > 0.5:
                before, settled, looked = settled, self.settled(), time.monotonic()
                if settled * 10 // CASES > before * 10 // CASES:
                    print(f"    {settled} of {CASES} settled after {looked - began:.0f} s", flush=True)
            self.repair()
            if faults and (total - len(faults)) * CASES <= settled * total:
                if faults[-1] != "partition" or len(self.parted) < 2:
                    self.fault(faults.pop())
                else:
                    faults.insert(0, faults.pop())
            time.sleep(0.05)
        self.repair(all_of_them=True)
        return time.monotonic() - began

    def end(self):
        for slot in self.slots:
            slot.child.kill()
            slot.child.wait()

    def check(self, seconds):
        ask = lambda sql: self.server.ask("soak", sql)
        done = ", ".join(f"{count} {kind}{'s' if count != 1 and ' ' not in kind else ''}"
                         for kind, count in self.done.items())
        print(f"    {CASES} occurrences in {seconds:.0f} s: {done}")
        print("    claims by ending:", ask("SELECT ending, count(*) FROM runner_fleet.attempts GROUP BY 1 ORDER BY 1")
              .replace("\n", "; "))
        lines = [line.split() for host in HOSTS for line in (ROOT / f"soak/{host}.published").read_text().splitlines()]
        names = [line[0] for line in lines]
        say(len(names) == len(set(names)), f"no occurrence is published twice ({len(names)} publications)")
        say(len(set(names)) == CASES, f"none is lost: {len(set(names))} of {CASES}")
        rows = dict(line.split("|") for line in ask("SELECT id, fence FROM runner_fleet.occurrences").splitlines())
        wrong = [name for name, fence in lines if rows.get(name) != fence]
        say(not wrong, f"each was published with the last fence: {wrong[:3]}")
        states = ask("SELECT state, count(*) FROM runner_fleet.occurrences GROUP BY 1")
        say(states == f"settled|{CASES}", f"the queue is empty: {states}")
        open_claims = ask("SELECT count(*) FROM runner_fleet.attempts WHERE ended IS NULL")
        say(open_claims == "0", f"no claim is open: {open_claims}")
        for unit in (1, 2):
            wrong = ask(f"""SELECT count(*) FROM runner_fleet.budgets b WHERE b.held[{unit}] <> 0 OR b.used[{unit}] <> (
                SELECT coalesce(sum(a.charged[{unit}]), 0) FROM runner_fleet.attempts a
                JOIN runner_fleet.occurrences o ON o.id = a.occurrence WHERE b.level = ANY (o.levels))""")
            say(wrong == "0", f"the budgets of {['calls', 'tokens'][unit - 1]} are exact")
        self.takeovers(ask)

    def takeovers(self, ask):
        claimed = {}
        for line in ask("SELECT occurrence, fence, claimed, ending FROM runner_fleet.attempts").splitlines():
            occurrence, fence, at, ending = line.split("|")
            claimed[occurrence, int(fence)] = (int(at), ending)
        times = []
        for (occurrence, fence), at in self.hurt:
            lost = claimed.get((occurrence, fence), (0, ""))[1] in ("lost", "late")
            if lost and (occurrence, fence + 1) in claimed:
                times.append((claimed[occurrence, fence + 1][0] - at) / 1000)
        times.sort()
        if not times:
            print("    no claim was taken over")
            return
        middle, most = times[len(times) // 2], times[-1]
        late = sum(1 for one in times if one > 2 * LEASE)
        print(f"    {len(times)} takeovers after a fault, with a lease of {LEASE:.0f} s: median {middle:.1f} s, "
              f"99 % within {times[int(len(times) * 0.99)]:.1f} s, longest {most:.1f} s")
        say(late == 0, f"each takeover happened within 2 leases ({late} did not)")


class Programs:
    """Whole `runner` processes in the same namespaces: dreams of six projects, in several rounds."""

    def __init__(self, network, server):
        self.server = server
        server.ask("postgres", "CREATE DATABASE programs")
        self.hosts = [Host(ROOT / "programs", name, server.url("programs"), 'lease = "10s"\n') for name in HOSTS]
        for host, name in zip(self.hosts, HOSTS):
            host.prefix = network.inside(name)
        self.home = self.hosts[0]
        self.home.good("fleet", "init", "night")
        for host in self.hosts:
            host.good("fleet", "join", "night")
        self.folders = [self.home.project(f"p{number}") for number in range(max(1, round(6 * min(SCALE, 1))))]
        self.rounds = max(1, round(4 * SCALE))
        self.kills = 0
        self.over = threading.Event()
        self.threads = []

    def ask(self, sql):
        return self.server.ask("programs", sql)

    def ticks(self, host, random_of_host):
        """Ticks until the end. One tick in five is killed with its runs, as by a power cut."""
        minute = 0
        while not self.over.is_set():
            minute += 1
            host.at(f"2027-03-{10 + minute // 1440:02}T{minute // 60 % 24:02}:{minute % 60:02}:00Z")
            child = host.start("tick", start_new_session=True)
            try:
                child.communicate(timeout=random_of_host.uniform(1, 6) if random_of_host.random() < 0.2 else 120)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                kill_executes(host)
                child.communicate()
                self.kills += 1
            self.over.wait(0.5)

    def begin(self):
        for number, host in enumerate(self.hosts):
            thread = threading.Thread(target=self.ticks, args=(host, random.Random(SEED + number)), daemon=True)
            thread.start()
            self.threads.append(thread)
        self.feeder = threading.Thread(target=self.feed, daemon=True)
        self.feeder.start()

    def feed(self):
        for number in range(self.rounds):
            for folder in self.folders:
                for name, text in IDEAS.items():
                    (folder / "ideas" / name).write_text(f"{text}\nRound {number}.\n")
                self.home.good("--dir", folder, "enqueue", "dream")
            if not self.idle(240):
                return

    def idle(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                rows = [row for folder in self.folders for row in self.home.runs(folder)]
                if all(row["state"] not in ("queued", "requested", "running") for row in rows):
                    return True
            except SystemExit:
                pass  # The database of the host is busy.
            time.sleep(1)
        return False

    def check(self):
        self.feeder.join()
        idle = self.idle(120)
        for _ in range(3):
            self.over.wait(2)
        self.over.set()
        for thread in self.threads:
            thread.join()
        for host in self.hosts:
            host.run("tick")
        self.home.run("tick")
        say(idle, "all runs of whole processes are settled")
        rows = [row for folder in self.folders for row in self.home.runs(folder) if row["job"] == "dream"]
        print(f"    {len(self.folders) * self.rounds} dreams of {len(self.folders)} projects; ticks killed: {self.kills}; "
              f"outcomes at home: {counted(outcome(row) for row in rows)}")
        good = [row for row in rows if outcome(row) == "succeeded"]
        say(len(good) >= len(self.folders), f"each project has successful dreams: {len(good)}")
        print("    claims by ending:",
              self.ask("SELECT ending, count(*) FROM runner_fleet.attempts GROUP BY 1 ORDER BY 1").replace("\n", "; "))
        queue = self.ask("SELECT count(*) FROM runner_fleet.occurrences WHERE state <> 'settled'")
        say(queue == "0", f"the queue is empty: {queue}")
        for folder in self.folders:
            sets = [path for path in dreams(folder) if path.endswith("proposals.json")]
            published = [row for row in self.home.runs(folder) if outcome(row) == "succeeded"]
            say(len(sets) <= len(published), f"{folder.name}: {len(sets)} sets of proposals, {len(published)} successes")
        check_budgets(self)


def counted(values):
    found = {}
    for value in values:
        found[value] = found.get(value, 0) + 1
    return ", ".join(f"{count} {value}" for value, count in sorted(found.items(), key=str))


def usable():
    if not glob.glob("/usr/lib/postgresql/*/bin/initdb"):
        skip("pg_ctlcluster", f"fleet soak: {CASES} cases: PostgreSQL is not installed")
        return False
    if not shutil.which("ip") or subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode:
        skip("ip", f"fleet soak: {CASES} cases: network namespaces cannot be made")
        return False
    return True


def main():
    if not usable():
        return
    print(f"fleet soak, RUNNER_TEST_SEED={SEED}", flush=True)
    began = time.monotonic()
    network = Network()
    server = operations = None
    try:
        server = Server(network.addresses["db"], network.inside("db"))
        programs = Programs(network, server)
        operations = Operations(network, server)
        programs.begin()
        seconds = operations.soak()
        operations.end()
        operations.check(seconds)
        programs.check()
    finally:
        if operations:
            operations.end()
        if server:
            server.stop()
        network.remove()
        if not os.environ.get("KEEP"):
            shutil.rmtree(ROOT, ignore_errors=True)
    took = time.monotonic() - began
    say(took < 900 * max(1, SCALE), f"{CASES} cases in {took:.0f} s")
    print(f"{len(fleet_hosts.failures)} failures")
    sys.exit(1 if fleet_hosts.failures else 0)


main()
