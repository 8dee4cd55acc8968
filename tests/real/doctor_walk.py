"""Called by doctor_walk.sh in the folder that it prepared: runs each fix of `runner doctor` verbatim."""

import json
import os
import pathlib
import subprocess
import sys

STATE = pathlib.Path(os.environ["HOME"], ".local/state/runner")
ROOT = pathlib.Path.cwd()
tried = set()
fixed = 0


def doctor(*more):
    done = subprocess.run(["runner", "doctor", "--json", *more], capture_output=True, text=True)
    if not done.stdout:
        # The doctor could not even start its checks; the error states the fix.
        what, fix = done.stderr.strip().split("\n  fix: ")
        return [{"what": what, "where": "doctor", "severity": "error", "hint": fix.splitlines()[0]}]
    told = json.loads(done.stdout)
    assert (done.returncode == 1) == told["wrong"] == any(one["severity"] != "note" for one in told["findings"]), done
    return told["findings"]


def fix(one):
    """Runs the fix of a finding."""
    command = one["hint"]
    assert command, f"there is no fix for {one}"
    done = subprocess.run(["bash", "-c", command], input="hush\n", capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done}"
    global fixed
    tried.add(command)
    fixed += 1
    print(f"  {one['where']}: {one['what'][:70]}\n    {command}")


def walk(*more):
    """Fixes problems until there are no findings. Fixes each problem only once."""
    seen = set()
    while wrong := [one for one in doctor(*more) if one["severity"] != "note"]:
        one = wrong[0]
        assert (one["where"], one["what"]) not in seen, f"the fix did not solve {one}"
        seen.add((one["where"], one["what"]))
        fix(one)
    return len(seen)


def broken(what, *more):
    print(what)
    assert walk(*more) >= 1, f"{what}: nothing was found"


print("a new user")
[empty] = [one for one in doctor() if one["where"] == "database"]
fix(empty)
assert walk() >= 1
assert walk("--as-scheduler") == 0, "the doctor has findings only for the scheduler"

tab = lambda text: subprocess.run(["crontab", "-"], input=text, text=True, check=True)
lines = subprocess.run(["crontab", "-l"], capture_output=True, text=True).stdout
tab("")
broken("the crontab was emptied")
tab(lines.replace("0,15", "7"))
broken("a line was changed")
frozen = STATE / "environment"
frozen.unlink()
broken("the frozen environment is gone")
frozen.chmod(0o644)
broken("the frozen environment is readable by others")
frozen.chmod(0o644)
broken("the same, for the scheduler", "--as-scheduler")
stamp = STATE / "tick.stamp"
stamp.write_text("2020-01-01T00:00:00Z\n")
broken("nothing has ticked for years")
stamp.write_text("2199-01-01T00:00:00Z\n")
broken("the last tick is in the future")
(ROOT / "dreams/.failed").write_text(
    '{"at":"2026-11-01T00:00:00Z","job":"dream","class":"crash","message":"fell","hint":"look","run_id":"01M80Z6VYFHD73P8T596P945VE"}')
broken("a failure marker")
lock = ROOT / "dreams/.lock"
lock.write_text("999999 somebody\n")
os.utime(lock, (0, 0))
broken("an old lock")
toml = ROOT / "runner.toml"
subprocess.run(["runner", "--quiet", "config", "set", "--user", "trust.paths", '["/"]'], check=True)
good = toml.read_text()
toml.write_text(good + '\n[backends.mine]\ntype = "command"\nprogram = "sh"\nenv = ["MY_KEY"]\n[jobs.ask]\nkind = "prompt"\nprompt = "x"\nto = "x.md"\nbackend = "mine"\n')
broken("a key is missing at night", "--as-scheduler")
keys = pathlib.Path(os.environ["HOME"], ".config/runner/credentials.env")
assert keys.read_text() == "MY_KEY=hush\n" and keys.stat().st_mode & 0o77 == 0
# The folder is outside the project, because setup refuses a PATH entry inside a project.
login = ROOT.parent / "login"
login.mkdir()
(login / "tidy-up").write_text("#!/bin/sh\n")
(login / "tidy-up").chmod(0o755)
toml.write_text(good + '\n[jobs.tidy]\nkind = "command"\nprogram = "tidy-up"\nartifacts = [{ from = "a", to = "a" }]\n')
os.environ["PATH"] = f"{login}:{os.environ['PATH']}"
assert "tidy-up" not in [one["where"] for one in doctor()], "the login shell has the program"
broken("a PATH that only the login shell has", "--as-scheduler")
toml.write_text(good)
print(f"doctor's walk: {len(tried)} different fixes, run verbatim {fixed} times, and each fixed its problem")
