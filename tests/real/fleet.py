#!/usr/bin/env python3
"""Runs jobs of a fleet on a real PostgreSQL: one machine with three state folders.

    fleet.py RUNNER [CHECK...]

The server is started in a temporary folder, as the user nobody if this script runs as root. The checks are functions
of this script and of fleet_stalls.py; CHECK arguments select some of them by name. The program must be built with the
feature `fleet`. The exit code is 1 if a check fails.
"""

import base64
import glob
import json
import os
import re
import shutil
import signal
import socket
import sys
import time
import urllib.parse
from pathlib import Path

from fleet_hosts import (
    ROOT, failures, say, run, Server, outcome, dreams, Fleet, copies, show, until, held_job, stop_in_backend,
    claims_again, let_go, send, kill_executes, check_budgets,
)
from fleet_stalls import lost_renewal, slow_copies, stalled_server, stopped_by_signal

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from skips import skip  # noqa: E402


def one_job(server):
    """One job over two state folders: offered, claimed, delivered, published at home."""
    fleet = Fleet(server, "one_job")
    folder = fleet.home.project("p")
    fleet.home.good("--dir", folder, "enqueue", "dream")
    say(fleet.home.run("tick").returncode == 0, "the home host offers the run")
    say(fleet.count("state = 'pending'") == 1, "the fleet has one pending occurrence")
    done = fleet.workers[0].run("tick")
    say(done.returncode == 0, f"a worker claims and works {done.stderr}")
    say(fleet.count("state = 'delivered'") == 1, "the result is delivered")
    say(not dreams(folder), "nothing is published yet")
    done = fleet.home.run("tick")
    say(done.returncode == 0, f"the home host applies the result {done.stderr}")
    say(bool(dreams(folder)), f"the artifacts are published: {dreams(folder)[:3]}")
    fleet.home.run("tick")
    say(fleet.count("state = 'settled'") == 1, "the occurrence is settled")
    rows = fleet.home.runs(folder)
    say([outcome(row) for row in rows] == ["succeeded"], f"the home host has one successful run: {[outcome(row) for row in rows]}")
    show(fleet.home.good("--dir", folder, "runs"))
    status = fleet.home.run("fleet", "status", "night")
    say("differs from the database's" in status.stderr, "the status reports that the clocks differ")
    show(status.stdout)


def nightly(server):
    """A nightly dream over six projects, spread over three hosts, one of which is killed during a run."""
    fleet = Fleet(server, "nightly", 'lease = "10s"\n', home_slots=1)
    fleet.at("2027-03-09T12:00:00Z")
    folders = [fleet.home.project(f"p{number}") for number in range(6)]
    fleet.home.good("tick")
    fleet.at("2027-03-10T23:30:00Z")
    # A first tick offers the night's runs and claims one.
    victim, others = fleet.workers[1], [fleet.home, fleet.workers[0]]
    home = fleet.home.start("tick", start_new_session=True)
    until(lambda: fleet.count("true") == 6, "six occurrences are offered")
    child = victim.start("tick", start_new_session=True)
    worker = fleet.workers[0].start("tick", start_new_session=True)
    name = fleet.member(victim)
    until(lambda: fleet.count(f"state = 'claimed' AND owner LIKE '{name}%'") == 1, "the second worker has a claim")
    os.killpg(child.pid, signal.SIGKILL)
    kill_executes(victim)
    child.wait()
    say(True, "the second worker was killed during a run")
    home.communicate()
    worker.communicate()
    began = time.monotonic()
    until(lambda: all(host.run("tick") for host in others) and fleet.count("state <> 'settled'") == 0,
          "all occurrences are settled", 120)
    print(f"    settled {time.monotonic() - began:.0f} s after the kill, with a lease of 10 s")
    spread = fleet.ask("SELECT split_part(host, '.', 1), ending, count(*) FROM runner_fleet.attempts "
                       "GROUP BY host, ending ORDER BY 1, 2")
    print("    claims by host and ending:", spread.replace("\n", "; "))
    lost = fleet.ask("SELECT count(*) FROM runner_fleet.attempts WHERE ending = 'lost'")
    say(lost == "1", f"the killed claim was lost and taken over: {lost}")
    hosts = fleet.ask("SELECT count(DISTINCT host) FROM runner_fleet.attempts")
    say(hosts == "3", f"three hosts had claims: {hosts}")
    for folder in folders:
        rows = [row for row in fleet.home.runs(folder) if row["job"] == "dream"]
        say([outcome(row) for row in rows] == ["succeeded"], f"{folder.name}: one successful run")
    report = fleet.home.run("--dir", folders[0], "report")
    say(report.returncode == 0 and "dream" in report.stdout, "the morning's report has the run")
    say("fleet night" in report.stdout, "the report names the host that did the work")
    check_reports(fleet, folders)
    morning = json.loads(fleet.home.good("report", "--json"))
    [shared] = morning["fleets"]
    done = sum(len(host["jobs"]) for host in shared["hosts"])
    good = len(morning["projects"]) == 6 and done == 6 and len(shared["hosts"]) > 1
    say(good, f"outside of the projects, one report has all six, with {len(shared['hosts'])} hosts of the fleet")
    show(fleet.home.good("report"))
    show(report.stdout[:1500])
    check_budgets(fleet)


def check_reports(fleet, folders):
    """Every report names the host that did the run, and states the usage that the fleet charged."""
    members = {fleet.member(host) for host in fleet.hosts}
    found = {}
    for folder in folders:
        night = json.loads(fleet.home.good("--dir", folder, "report", "--json"))
        [shared] = night["fleets"]
        [worker] = shared["hosts"]
        found[folder.name] = worker["host"]
        page = fleet.home.good("--dir", folder, "report", "--html")
        text = fleet.home.good("--dir", folder, "report")
        good = worker["jobs"] == ["dream"] and all(f"{worker['host']} executed 1 run (dream)" in it for it in [page, text])
        say(good and f"(on {worker['host']})" in text, f"{folder.name}: the report and its page name {worker['host']}")
        by = fleet.ask("SELECT a.host, a.charged[1], a.charged[4] FROM runner_fleet.attempts a JOIN runner_fleet.occurrences o "
                       f"ON o.id = a.occurrence WHERE a.ending = 'delivered' AND o.id = '{shared_run(night)}'")
        spent = worker["spent"]
        say(by == f"{worker['host']}|{spent['calls']}|{spent['seconds']}", f"with what the fleet charged: {by}")
    say(set(found.values()) <= members and len(set(found.values())) > 1, f"hosts in the reports: {sorted(set(found.values()))}")


def shared_run(night):
    """Returns the id of a night's dream, which is also the id of its occurrence in the fleet."""
    return [run["run"] for run in night["runs"] if run["job"] == "dream"][0]


def silent_host(server):
    """A host that is not seen for an hour causes one alert at home, which ends when the host is seen again."""
    fleet = Fleet(server, "silent")
    folder = fleet.home.project("p")
    config = fleet.home.root / "config/runner/config.toml"
    sent = fleet.home.root / "sent"
    config.write_text(config.read_text() + '[channels.file]\ntype = "command"\nprogram = "sh"\n'
                      f'args = ["-c", "cat >> {sent}; echo >> {sent}"]\nsandbox = "off"\n')
    for host in fleet.hosts:
        host.good("tick")
    name = fleet.member(fleet.workers[0])
    fleet.ask(f"UPDATE runner_fleet.hosts SET seen = seen - 7200000 WHERE host = '{name}'")
    # Neither a draining host nor one that left is silent.
    fleet.workers[1].good("fleet", "drain", "night")
    fleet.ask(f"UPDATE runner_fleet.hosts SET seen = seen - 7200000 WHERE host = '{fleet.member(fleet.workers[1])}'")
    for _ in range(3):
        fleet.home.good("tick")
    messages = lambda: [json.loads(line) for line in sent.read_text().splitlines() if line] if sent.exists() else []
    until(lambda: len(messages()) == 1, "one message is sent")
    say(messages()[0]["kind"] == "silent-host" and name in messages()[0]["why"], f"it names the host: {messages()[0]['subject']}")
    alerts = json.loads(fleet.home.good("alerts", "list", "--all", "--json"))
    say([alert["kind"] for alert in alerts] == ["silent-host"], f"one open alert: {[a['kind'] for a in alerts]}")
    status = fleet.home.good("status")
    say("fleet night: 3 hosts, 1 SILENT, 0 runs open" in status, "the status shows the silent host")
    metrics = fleet.home.good("metrics")
    say(f'runner_fleet_host_silent{{fleet="night",host="{name}"}} 1' in metrics, "the metrics have it, too")
    show("\n".join(line for line in metrics.splitlines() if line.startswith("runner_fleet_host")))
    listed = json.loads(fleet.home.good("fleet", "list", "--json"))
    say([host["host"] for host in listed[0]["hosts"] if host["silent"]] == [name], "and `runner fleet list`")
    # A success of the job does not end the alert.
    fleet.home.good("--dir", folder, "run", "dream")
    fleet.home.good("tick")
    say(len(json.loads(fleet.home.good("alerts", "list", "--all", "--json"))) == 1, "it stays open when the job succeeds")
    fleet.workers[0].good("tick")
    fleet.home.at("2027-03-10T03:30:00Z")
    fleet.home.good("tick")
    until(lambda: len(messages()) == 2, "a second message is sent when it is seen again")
    say(messages()[-1]["what"] == "recovered", f"{messages()[-1]['subject']}")
    say(json.loads(fleet.home.good("alerts", "list", "--all", "--json")) == [], "no alert is open")


def host_list(server):
    """`runner fleet list` lists every host."""
    fleet = Fleet(server, "host_list")
    fleet.home.project("p")
    fleet.home.good("tick")
    listed = json.loads(fleet.home.good("fleet", "list", "--json"))
    say(len(listed[0]["hosts"]) == 3, "three hosts are listed")


def wakeups(server):
    """Daemons start offered work and publish results at once, and end promptly even if the database is gone."""
    fleet = Fleet(server, "wakeups")
    folder = fleet.home.project("p")
    daemons = [host.start("daemon", start_new_session=True) for host in fleet.hosts[:2]]
    listens = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'wakeups' AND query ILIKE 'LISTEN%'"
    until(lambda: fleet.ask(listens) == "2", "both daemons listen")
    times = []
    for number in range(5):
        # The database runs on this machine, so both times are of the same clock.
        asked = int(time.time() * 1000)
        fleet.home.good("--dir", folder, "enqueue", "dream")
        until(lambda: fleet.count("state = 'settled'") == number + 1, f"run {number + 1} is settled", 60)
        claimed = fleet.ask("SELECT max(claimed) FROM runner_fleet.attempts")
        times.append(int(claimed) - asked)
    print("    from the request to the claim in ms:", times)
    say(max(times) < 5000, f"claims begin without waiting for a regular tick: {times} ms")
    server.stop()
    began = time.monotonic()
    for one in daemons:
        one.terminate()
    for one in daemons:
        one.communicate(timeout=60)
    took = time.monotonic() - began
    server.start()
    say(took < 12 and all(one.returncode == 0 for one in daemons), f"both end in {took:.1f} s while the database is gone")


def old_rows(server):
    """The daily maintenance of a host prunes what was settled longer ago than `retention.rows`."""
    fleet = Fleet(server, "old", '[retention]\nrows = "8d"\n')
    folder = fleet.home.project("p")
    for _ in range(2):
        fleet.home.good("--dir", folder, "enqueue", "dream")
        for host in [fleet.home, fleet.workers[0], fleet.home, fleet.home]:
            host.good("tick")
    settled = fleet.count("state = 'settled'")
    # A file that no occurrence refers to.
    fleet.ask("INSERT INTO runner_fleet.blobs SELECT repeat('f', 64), 0, stored, content FROM runner_fleet.blobs LIMIT 1")
    blobs = int(fleet.ask("SELECT count(*) FROM runner_fleet.blobs"))
    say(settled == 2 and blobs > 0, f"two settled occurrences, {blobs} files")
    week = 9 * 24 * 3600 * 1000
    fleet.ask(f"UPDATE runner_fleet.occurrences SET settled = settled - {week} WHERE id = "
              "(SELECT min(id) FROM runner_fleet.occurrences)")
    fleet.ask("UPDATE runner_fleet.occurrences SET levels = levels || id")
    fleet.ask("UPDATE runner_fleet.occurrences SET levels = ARRAY[id]")
    fleet.ask(f"UPDATE runner_fleet.blobs SET stored = stored - {week}")
    fleet.home.at("2027-03-12T02:30:00Z")
    fleet.home.good("tick")
    # The clock of the home host makes a further run due, which is offered and not yet settled.
    say(fleet.count("state = 'settled'") == 1, "the daily maintenance removed the old occurrence")
    attempts = fleet.ask("SELECT count(*) FROM runner_fleet.attempts")
    say(attempts == "1", f"with its claims: {attempts} left")
    left = int(fleet.ask("SELECT count(*) FROM runner_fleet.blobs"))
    say(0 < left < blobs, f"and the files that nothing refers to: {left} of {blobs} left")


def remotes(server):
    """A pushed commit comes from a remote that both hosts allow, and any other from the fleet's database."""
    base = ROOT / "remotes-git"
    base.mkdir()
    allowed = f'remotes = ["file://{base}/"]\n'
    fleet = Fleet(server, "remotes", allowed)
    folder = fleet.home.project("p")
    git = lambda *words: run("git", "-C", folder, *words, env=fleet.home.env)
    git("init", "--quiet", "--bare", base / "p.git")
    git("remote", "add", "origin", f"file://{base}/p.git")
    git("push", "--quiet", "origin", "HEAD:refs/heads/main")

    def offered():
        fleet.home.good("--dir", folder, "enqueue", "dream")
        fleet.home.good("tick")
        return json.loads(fleet.ask("SELECT source -> 'history' FROM runner_fleet.occurrences WHERE state = 'pending'"))

    def applied(number):
        for _ in range(2):
            fleet.home.good("tick")
        say(fleet.count("state = 'settled'") == number, f"run {number} is settled at home")

    found = offered()
    say(found == {"remote": {"address": f"file://{base}/p.git", "branch": "main"}}, f"the commit is offered from the remote: {found}")
    blocked, fetching = fleet.workers
    config = blocked.root / "config/runner/config.toml"
    config.write_text(config.read_text().replace(allowed, ""))
    blocked.run("tick")
    why = fleet.ask("SELECT why FROM runner_fleet.occurrences WHERE state = 'pending'")
    say("may not fetch from" in why, f"a host that does not allow the remote gives the claim back: {why}")
    fetching.good("tick")
    say(fleet.count("state = 'delivered'") == 1, "a host that allows it fetches the commit and works")
    applied(1)
    say(bool(dreams(folder)), "the artifacts are published")
    (folder / "more.txt").write_text("more\n")
    git("add", "more.txt")
    git("commit", "--quiet", "-m", "more")
    found = offered()
    say(list(found) == ["pack"], f"a commit that was not pushed is offered as a pack: {found}")
    blocked.good("tick")
    applied(2)
    git("push", "--quiet", "origin", "HEAD:refs/heads/main")
    shutil.rmtree(base / "p.git")
    say(list(offered()) == ["remote"], "it comes from the remote once it is pushed")
    fetching.run("tick")
    why = fleet.ask("SELECT why FROM runner_fleet.occurrences WHERE state = 'pending'")
    say("git fetch" in why, f"without the remote, the claim is given back: {why}")
    check_budgets(fleet)


def laptop(server):
    """A home host that sleeps for an hour while a worker finishes."""
    fleet = Fleet(server, "laptop", 'lease = "10s"\n', home_slots=1)
    folder = fleet.home.project("p")
    held_job(folder)
    fleet.home.good("--dir", folder, "enqueue", "held")
    home = fleet.home.start("tick", start_new_session=True)
    stopped = stop_in_backend(fleet.home, home, "the home host works on its own run")
    say(True, f"the home host sleeps ({len(stopped)} processes stopped)")
    worker = fleet.workers[0]
    tick = claims_again(fleet, worker, "a worker takes over")
    let_go([worker])
    tick.communicate()
    say(fleet.count("state = 'delivered' AND fence = 2") == 1, "the worker finishes")
    fleet.home.at("2027-03-10T03:30:00Z")
    let_go([fleet.home])
    for pid in stopped:
        send(pid, signal.SIGCONT)
    home.communicate()
    until(lambda: fleet.home.run("tick") and fleet.count("state = 'settled'") == 1, "it is settled on wake-up")
    rows = fleet.home.runs(folder)
    say([outcome(row) for row in rows] == ["succeeded"], f"published once: {[outcome(row) for row in rows]}")
    endings = fleet.ask("SELECT fence, ending FROM runner_fleet.attempts ORDER BY fence").replace("\n", "; ")
    say(endings.startswith("1|l") and endings.endswith("2|delivered"), f"the sleeping host's claim: {endings}")
    answer = (folder / "out/held.md").read_text()
    say(answer.strip() == "done", f"the answer at home: {answer!r}")
    check_budgets(fleet)


def database_loss(server):
    """The database is gone during a night: local jobs continue, fleet jobs are deferred, and all are settled afterwards."""
    fleet = Fleet(server, "loss", 'lease = "10s"\n')
    shared, local = fleet.home.project("shared"), fleet.home.project("local", fleet=False)
    server.stop()
    for folder in [shared, local]:
        fleet.home.good("--dir", folder, "enqueue", "dream")
    began = time.monotonic()
    done = fleet.home.run("tick")
    print(f"    the tick without a database took {time.monotonic() - began:.1f} s and ended with {done.returncode}: "
          f"{done.stderr.strip()[:200]}")
    say([outcome(row) for row in fleet.home.runs(local)] == ["succeeded"], "the local job ran")
    rows = fleet.home.runs(shared)
    say("deferred" in [outcome(row) for row in rows], f"the fleet's job is deferred: {[outcome(r) for r in rows]}")
    say("cannot be reached" in fleet.home.good("--dir", shared, "runs", "--json"), "with the reason")
    server.start()
    for host in fleet.hosts:
        host.at("2027-03-10T02:45:00Z")
    until(lambda: all(host.run("tick") for host in fleet.hosts[:2]) and fleet.count("state = 'settled'") == 1,
          "everything settles afterwards", 60)
    say([outcome(row) for row in fleet.home.runs(shared)][0] == "succeeded", "the deferred run succeeded")
    check_budgets(fleet)


def unreachable_host(server):
    """A database whose packets are dropped delays one tick by seconds, and the next ones not at all."""
    fleet = Fleet(server, "unreachable")
    local = fleet.home.project("local", fleet=False)
    config = fleet.home.root / "config/runner/config.toml"
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        # A full queue of connections drops further ones.
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        text = config.read_text().replace(f":{server.port}/", f":{full.getsockname()[1]}/")
        config.write_text(text)
        times = []
        for _ in range(2):
            fleet.home.good("--dir", local, "enqueue", "dream")
            began = time.monotonic()
            fleet.home.run("tick")
            times.append(time.monotonic() - began)
        for one in waiting:
            one.close()
    say(times[0] < 8 and times[1] < times[0] - 1, f"the ticks took {times[0]:.1f} s and {times[1]:.1f} s")
    found = [outcome(row) for row in fleet.home.runs(local)]
    say(found.count("succeeded") + found.count("skipped") == 2, f"the local jobs ran: {found}")


def changed_at_home(server):
    """A file that the home host changes while a worker works is never overwritten."""
    fleet = Fleet(server, "changed")
    folder = fleet.home.project("p")
    fleet.home.good("--dir", folder, "enqueue", "dream")
    fleet.home.good("tick")
    fleet.workers[0].good("tick")
    (folder / "dreams").mkdir(exist_ok=True)
    (folder / "dreams/state.json").write_text("a person's text\n")
    done = fleet.home.run("tick")
    say(done.returncode == 1 and "guard" in done.stderr, f"the run fails as guard: {done.stderr.strip()[:200]}")
    say((folder / "dreams/state.json").read_text() == "a person's text\n", "the person's file is unchanged")
    fleet.home.run("tick")
    say(fleet.count("state = 'settled' AND outcome ->> 'class' = 'guard'") == 1, "the fleet records the failure")


def applying_deferred(server):
    """A delivered result whose application is deferred is kept, and applied later without a second claim."""
    fleet = Fleet(server, "applying")
    folder = fleet.home.project("p")
    fleet.home.good("--dir", folder, "enqueue", "dream")
    fleet.home.good("tick")
    fleet.workers[0].good("tick")
    config = fleet.home.root / "config/runner/config.toml"
    trusting = config.read_text()
    config.write_text(trusting.replace('[trust]\npaths = ["/"]\n', ""))
    for _ in range(2):
        fleet.home.run("tick")
    found = [outcome(row) for row in fleet.home.runs(folder)]
    say("deferred" in found, f"the run that applies the result is deferred: {found}")
    say(fleet.count("state = 'delivered'") == 1, "the result is kept")
    config.write_text(trusting)
    fleet.at("2027-03-10T09:30:00Z")
    for _ in range(3):
        fleet.home.run("tick")
    found = [outcome(row) for row in fleet.home.runs(folder)]
    say(found.count("succeeded") == 1 and bool(dreams(folder)), f"it is applied later: {found}")
    say(fleet.count("state = 'settled' AND outcome ->> 'outcome' = 'succeeded'") == 1, "the fleet records the success")
    claims = fleet.ask("SELECT count(*) FROM runner_fleet.attempts")
    say(claims == "1", f"the work was done once: {claims} claims")


def one_copy_per_claim(server):
    """Two claims of one job on one host work in two folders, and ended copies are removed."""
    fleet = Fleet(server, "copies", 'lease = "10s"\n')
    folder = fleet.home.project("p")
    held_job(folder)
    fleet.home.good("--dir", folder, "enqueue", "held")
    fleet.home.good("tick")
    worker = fleet.workers[0]
    first = worker.start("tick", start_new_session=True)
    stopped = stop_in_backend(worker, first, "a worker has a claim and a copy")
    live = copies(worker)
    (live[0] / "of-the-first-claim").write_text("x")
    # The host wakes up after its lease, and another tick claims the same run again.
    config = worker.root / "config/runner/config.toml"
    config.write_text(config.read_text() + "slots = 2\n")
    second = claims_again(fleet, worker, "the same host claims the run again")
    say((live[0] / "of-the-first-claim").exists(), "the copy of the live run is left alone")
    let_go([worker])
    second.communicate()
    for pid in stopped:
        send(pid, signal.SIGCONT)
    first.communicate()
    until(lambda: fleet.home.run("tick") and fleet.count("state = 'settled'") == 1, "the run is settled", 60)
    for host in fleet.hosts:
        host.at("2027-03-12T02:30:00Z")
    worker.run("tick")
    say(copies(worker) == [], f"the copies are removed after their runs: {copies(worker)}")
    rows = json.loads(worker.good("projects", "--json"))
    say(not rows, f"the worker's database forgot them: {rows}")


def modes_and_links(server):
    """Executable bits and links of the work tree reach the copy; a link that leads outside defers the run."""
    fleet = Fleet(server, "links")
    folder = fleet.home.project("p")
    (folder / "tool.sh").write_text("#!/bin/sh\n")
    (folder / "tool.sh").chmod(0o755)
    (folder / "link.py").symlink_to("src/net.py")
    (folder / "src/net.py").chmod(0o755)
    held_job(folder)
    fleet.home.good("--dir", folder, "enqueue", "held")
    fleet.home.good("tick")
    worker = fleet.workers[0]
    child = worker.start("tick", start_new_session=True)
    stopped = stop_in_backend(worker, child, "a worker makes a copy")
    [copy] = copies(worker)
    say(os.readlink(copy / "link.py") == "src/net.py", "a link is a link")
    say(os.access(copy / "src/net.py", os.X_OK) and (copy / "tool.sh").stat().st_mode & 0o111 == 0o111,
        "executable files are executable")
    say((copy / "ideas/retry.md").stat().st_mode & 0o111 == 0, "other files are not")
    let_go([worker])
    for pid in stopped:
        send(pid, signal.SIGCONT)
    child.communicate()
    (folder / "outside").symlink_to("/etc/passwd")
    fleet.home.run("tick")
    fleet.at("2027-03-10T03:30:00Z")
    fleet.home.good("--dir", folder, "enqueue", "held")
    fleet.home.run("tick")
    why = fleet.home.good("--dir", folder, "runs", "--json")
    say("leads outside the project" in why, "a link that leads outside defers the run with the reason")


def keys():
    """Returns realistic keys, built from parts so that no scanner mistakes this file for a leak."""
    letters = "qW8eR2tY5uI9oP1aS4dF7gH3jK6lZ0xCvBnM"
    lines = "\n".join((letters * 2)[at:at + 64].ljust(64, "A") for at in range(6))
    kind = "RSA PRIVATE" + " KEY-----"
    return {"GitHub": "ghp" + "_" + letters, "GitLab": "glpat" + "-" + letters[:20],
            "Anthropic": "sk-ant-" + "api03-" + letters * 2, "AWS": "AKIA" + "QWERTYUIOPASDFGH",
            "Google": "AIza" + (letters + letters)[:35], "npm": "npm" + "_" + letters,
            "Slack": "xoxb" + "-123456789012-1234567890123-" + letters[:24],
            "PEM": "-----BEGIN " + kind + "\n" + lines + "\n-----END " + kind}


def secrets_stay_out(server):
    """The keys that a program prints are in no row of the database and in no file of a host."""
    fleet = Fleet(server, "secrets")
    folder = fleet.home.project("p", fleet=False)
    printed = "".join(f"{key}\n{json.dumps(key)}\n{urllib.parse.quote(key)}\n" for key in keys().values())
    tell = f"echo {base64.b64encode(printed.encode()).decode()} | base64 -d"
    text = ""
    for name, code in [("fails", 3), ("answers", 0)]:
        text += (f'\n[backends.{name}]\ntype = "command"\nprogram = "sh"\n'
                 f'args = ["-c", "cat > request; {tell}; {tell} >&2; exit {code}"]\n'
                 f'[jobs.{name}]\nkind = "prompt"\nfleet = "night"\nbackend = "{name}"\nprompt = "Say it."\n'
                 f'to = "out/{name}.md"\ntrigger = "manual"\nretries = 0\n')
    (folder / "runner.toml").open("a").write(text)
    shown = ""
    for name, settled in [("fails", 1), ("answers", 2)]:
        fleet.home.good("--dir", folder, "enqueue", name)
        until(lambda: all(host.run("tick") for host in fleet.hosts) and fleet.count("state = 'settled'") == settled,
              f"{name} is settled")
    for row in fleet.home.runs(folder):
        shown += fleet.home.good("--dir", folder, "runs", "show", row["id"])
    outcomes = sorted(str(outcome(row)) for row in fleet.home.runs(folder))
    say(outcomes == ["failed", "succeeded"], f"one run fails, one answers: {outcomes}")
    answer = (folder / "out/answers.md").read_text()
    say("[redacted:" in shown and answer.count("[redacted:") >= 8, f"redacted messages and answer: {answer[:60]!r}")
    dump = run(server.bin / "pg_dump", "-d", server.url("secrets"))
    bodies = [bytes.fromhex(text) for text in re.findall(r"\\\\x([0-9a-f]{2,})", dump)]
    places = {"the database": dump.encode() + b"".join(bodies), "the listings": shown.encode(), "the answer": answer.encode()}
    for host in fleet.hosts:
        for path in host.state.rglob("*"):
            if path.is_file():
                places[str(path.relative_to(ROOT))] = path.read_bytes()
        places[f"the status of {host.root.name}"] = host.run("fleet", "status", "night", "--json").stdout.encode()
    found = [f"{kind} in {place}" for kind, key in keys().items() for line in key.splitlines() for place, text in places.items()
             for part in (line[:16], line[-16:]) if len(line) >= 16 and "-----" not in line and part.encode() in text]
    say(not found, f"no key in {len(places)} places, {len(bodies)} contents among them: {sorted(set(found))[:10]}")


def drain_and_leave(server):
    """A draining host claims no work, and a host can leave once its own runs are settled."""
    fleet = Fleet(server, "drain")
    folder = fleet.home.project("p")
    fleet.home.good("--dir", folder, "enqueue", "dream")
    fleet.home.good("tick")
    fleet.workers[0].good("fleet", "drain", "night")
    fleet.workers[0].good("tick")
    say(fleet.count("state = 'pending'") == 1, "the draining host claimed no work")
    left = fleet.home.run("fleet", "leave", "night")
    say(left.returncode == 75 and "open run" in left.stderr, f"the home host may not leave yet: {left.stderr.strip()}")
    fleet.workers[0].good("fleet", "leave", "night")
    fleet.workers[1].good("tick")
    for _ in range(2):
        fleet.home.good("tick")
    fleet.home.good("fleet", "leave", "night")
    states = fleet.ask("SELECT state FROM runner_fleet.hosts ORDER BY state").replace("\n", " ")
    say(states == "active left left", f"two hosts left: {states}")
    say(not list((fleet.home.state / "runner/fleets").glob("night.*")), "the host that left keeps no file of the fleet")
    say("fleet night" not in fleet.home.good("status"), "and its status does not show the fleet")
    rights = fleet.home.run("fleet", "join", "night")
    say(rights.returncode == 0, "a host may join again")


def least_rights(server):
    """A role with the rights that the guide lists suffices for the hosts, and a missing right is named."""
    guide = (Path(__file__).resolve().parent.parent.parent / "docs/guide/fleet.md").read_text()
    grants = guide.split("```sql\n")[1].split("```")[0]
    server.ask("postgres", "CREATE ROLE runner_worker LOGIN")
    fleet = Fleet(server, "rights")
    fleet.ask(grants)
    folder = fleet.home.project("p")
    fleet.home.good("--dir", folder, "enqueue", "dream")
    for host in fleet.hosts:
        config = host.root / "config/runner/config.toml"
        config.write_text(config.read_text().replace("//runner@", "//runner_worker@"))
        host.good("fleet", "join", "night")
    for host in [fleet.home, fleet.workers[0], fleet.home, fleet.home]:
        host.good("tick")
    say(fleet.count("state = 'settled'") == 1, "a run was shared with the least rights")
    fleet.ask("REVOKE UPDATE ON runner_fleet.budgets FROM runner_worker")
    status = fleet.home.run("fleet", "status", "night")
    say("lacks the right to UPDATE on budgets" in status.stderr, "a missing right is named")
    doctor = fleet.home.run("doctor")
    say("lacks the right to UPDATE on budgets" in doctor.stdout, "the doctor names it, too")


CHECKS = [one_job, nightly, silent_host, host_list, wakeups, old_rows, remotes, laptop, database_loss, unreachable_host, changed_at_home, applying_deferred,
          one_copy_per_claim, modes_and_links, secrets_stay_out, drain_and_leave, least_rights,
          lost_renewal, stopped_by_signal, stalled_server, slow_copies]


def main():
    if not glob.glob("/usr/lib/postgresql/*/bin/initdb"):
        skip("pg_ctlcluster", "fleet: PostgreSQL is not installed")
        return
    chosen = [check for check in CHECKS if not sys.argv[2:] or check.__name__ in sys.argv[2:]]
    server = Server()
    try:
        for check in chosen:
            print(check.__name__, flush=True)
            check(server)
    finally:
        server.stop()
        if not os.environ.get("KEEP"):
            shutil.rmtree(ROOT, ignore_errors=True)
    print(f"{len(failures)} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
