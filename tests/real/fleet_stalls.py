"""Checks of fleet.py with a lost or stopped server, a run that a signal stops, and slow copies."""

import os
import signal
import subprocess
import time

from fleet_hosts import check_budgets, Fleet, in_backend, let_go, held_job, outcome, run, say, until, ROOT

ENDINGS = "SELECT fence, ending, charged = reserved FROM runner_fleet.attempts ORDER BY fence"


def begun(fleet):
    """Lets a worker begin a held job, and returns the project and the worker's tick."""
    folder = fleet.home.project("p")
    held_job(folder)
    fleet.home.good("--dir", folder, "enqueue", "held")
    fleet.home.good("tick")
    tick = fleet.workers[0].start("tick")
    until(lambda: in_backend(tick.pid), "a worker works")
    return folder, tick


def claimed_again(fleet, folder):
    """The stopped claim is charged in full, and another claim of the run succeeds."""
    other = fleet.workers[1].start("tick")
    until(lambda: in_backend(other.pid), "another host claims the run")
    let_go([fleet.workers[1]])
    other.communicate()
    endings = fleet.ask(ENDINGS).split()
    say(endings[0] in ["1|lost|t", "1|late|t"] and endings[1].startswith("2|delivered"), f"claims: {endings}")
    until(lambda: fleet.home.run("tick") and fleet.count("state = 'settled'") == 1, "the run is settled")
    say([outcome(row) for row in fleet.home.runs(folder)] == ["succeeded"], "the home host has one successful run")
    check_budgets(fleet)


def lost_renewal(server):
    """A run that is stopped because its lease cannot be renewed is claimed again."""
    fleet = Fleet(server, "renewal", 'lease = "12s"\n')
    folder, tick = begun(fleet)
    server.stop()
    until(lambda: not in_backend(tick.pid), "the run is stopped without its database")
    server.start()
    tick.communicate()
    time.sleep(3)
    fleet.workers[0].good("fleet", "drain", "night")
    fleet.workers[0].run("tick")
    claimed_again(fleet, folder)


def stopped_by_signal(server):
    """A run that a signal stops is claimed again."""
    fleet = Fleet(server, "signal")
    folder, tick = begun(fleet)
    fleet.workers[0].good("fleet", "drain", "night")
    tick.send_signal(signal.SIGTERM)
    tick.communicate()
    fleet.workers[0].run("tick")
    claimed_again(fleet, folder)


def server_processes(server):
    first = int((server.data / "postmaster.pid").read_text().split()[0])
    found = subprocess.run(["pgrep", "-P", str(first)], capture_output=True, text=True).stdout.split()
    return [first, *map(int, found)]


def stalled_server(server):
    """A server accepts connections and does not respond: the run ends before its lease, and local jobs run."""
    fleet = Fleet(server, "stalled", 'lease = "15s"\n')
    local = fleet.home.project("local", fleet=False)
    folder, tick = begun(fleet)
    processes = server_processes(server)
    try:
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        until(lambda: not in_backend(tick.pid), "the run is stopped while the server is stopped", 30)
        took = time.monotonic() - began
        say(took < 15, f"before its lease ends: {took:.1f} s")
        fleet.home.good("--dir", local, "enqueue", "dream")
        began = time.monotonic()
        done = fleet.home.run("tick")
        took = time.monotonic() - began
        say(took < 25 and "does not respond in time" in done.stderr, f"a tick takes {took:.1f} s: {done.stderr.strip()}")
        say([outcome(row) for row in fleet.home.runs(local)] == ["succeeded"], "the local job ran")
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)
    _, text = tick.communicate()
    say("database does not answer" in text, f"the reason is reported: {text.strip()[:200]}")
    fleet.workers[0].good("fleet", "drain", "night")
    time.sleep(3)
    fleet.workers[0].run("tick")
    time.sleep(3)
    claimed_again(fleet, folder)


def slow_copies(server):
    """A host whose copies take most of half a lease to make loses no claim, also with two slots."""
    base = ROOT / "slow-git"
    base.mkdir()
    slow = base / "slow.sh"
    slow.write_text('#!/bin/sh\nsleep 5\nfor last; do :; done\neval "$last"\n')
    slow.chmod(0o755)
    fleet = Fleet(server, "slow", 'lease = "12s"\nremotes = ["ssh://slow/"]\n')
    worker = fleet.workers[0]
    config = worker.root / "config/runner/config.toml"
    config.write_text(config.read_text() + "slots = 2\n")
    for host in fleet.hosts:
        with (host.root / "home/.gitconfig").open("a") as settings:
            settings.write(f"[core]\n\tsshCommand = {slow}\n[ssh]\n\tvariant = simple\n")
    for name in ["p", "q"]:
        folder = fleet.home.project(name)
        git = lambda *words: run("git", "-C", folder, *words, env=fleet.home.env)
        git("init", "--quiet", "--bare", base / f"{name}.git")
        git("remote", "add", "origin", f"ssh://slow{base}/{name}.git")
        git("push", "--quiet", "origin", "HEAD:refs/heads/main")
        fleet.home.good("--dir", folder, "enqueue", "dream")
    fleet.home.good("tick")
    kinds = fleet.ask("SELECT count(*) FROM runner_fleet.occurrences WHERE source -> 'history' ? 'remote'")
    say(kinds == "2", f"{kinds} occurrences come from a slow remote")
    until(lambda: worker.run("tick") and fleet.count("state = 'delivered'") == 2, "both are delivered", 60)
    endings = fleet.ask(ENDINGS).split()
    say(len(endings) == 2 and all("|delivered|" in one for one in endings), f"no claim was lost: {endings}")
    check_budgets(fleet)
