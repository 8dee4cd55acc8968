"""Checks the schemas in config/schemas with an independent JSON Schema validator.

Usage: schema_check.py RUNNER. Needs Python 3.11 and the packages `jsonschema` and `openapi-spec-validator`. The
validator and runner must accept the default file, the default file with every commented setting enabled, and the
examples of the documentation, and reject mistyped settings. The output of `status --json` in several situations must
fit its own schema, and the description of the API must be valid OpenAPI 3.1.
"""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import tomllib

import jsonschema
import openapi_spec_validator

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUNNER = str(pathlib.Path(sys.argv[1]).resolve())

GOOD = {
    "a line of each unit": '[night]\nat = "23:30"\nlength = "1h 30m"\nzone = "Europe/Berlin"\n[day.budget]\nmoney = 2\ntime = "90 minutes"\n',
    "removed limits": '[jobs.dream]\nquiet = "none"\nmin_interval = "none"\nmax_load = 1.5\nbackoff = ["0s", "1h"]\nmax_idea_bytes = "2MiB"\n',
    "a job that follows": '[jobs.a]\nkind = "command"\nprogram = "x"\ntrigger = "after dream ends"\nartifacts = [{ from = "a", to = "b" }]\n',
    "nothing": "",
}
BAD = {
    "a mistyped key": '[night]\nlenght = "8h"\n',
    "a mistyped table": '[nigth]\nat = "01:00"\n',
    "a mistyped key of a job": "[jobs.dream]\nmax_idea = 3\n",
    "no such hour": '[night]\nat = "25:00"\n',
    "no unit": '[night]\nlength = "8"\n',
    "a number as text": '[defaults]\nretries = "2"\n',
    "out of range": "[defaults]\nmin_battery = 101\n",
    "no slots": "[groups.a]\nslots = 0\n",
    "a mistyped value": '[defaults]\noverlap = "skp"\n',
    "a mistyped trigger": '[jobs.dream]\ntrigger = "nightl"\n',
    "another kind's key": '[jobs.a]\nkind = "command"\nprogram = "x"\nmax_ideas = 3\n',
    "an artifact without a target": '[jobs.a]\nkind = "command"\nprogram = "x"\nartifacts = [{ from = "a" }]\n',
    "a bad name": '[jobs."a b"]\nkind = "command"\nprogram = "x"\n',
}


def examples():
    """Yields every TOML block in the README and the guide."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]:
        for number, block in enumerate(re.findall(r"```toml\n(.*?)```", path.read_text(), re.S), 1):
            yield f"{path.name}, block {number}", block


def taken_by_runner(text):
    """Returns the result of `runner config check` for a project's file, or for the user's file if the text needs it."""
    with tempfile.TemporaryDirectory() as folder:
        users = text.startswith("# ~/.config/") or any(
            table in text for table in ("[daemon]", "[retention]", "[pools.", "[prices.")
        )
        path = pathlib.Path(folder, ".config/runner/config.toml" if users else "runner.toml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        home = {"HOME": folder, "PATH": os.environ["PATH"]}
        done = subprocess.run([RUNNER, "-C", folder, "config", "check"], env=home, capture_output=True, text=True)
        assert done.returncode in (0, 78), done
        return done.returncode == 0, done.stderr


def description(home, folder):
    """Checks the description of the API with an independent validator."""
    server = subprocess.Popen([RUNNER, "serve", "--quiet"], env=home, cwd=folder, stderr=subprocess.DEVNULL)
    path = pathlib.Path(folder, ".local/state/runner/serve.sock")
    client = socket.socket(socket.AF_UNIX)
    while client.connect_ex(str(path)) and server.poll() is None:
        pass
    client.sendall(b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: runner\r\nConnection: close\r\n\r\n")
    answer = client.makefile("rb").read()
    server.terminate()
    server.wait()
    document = json.loads(answer.partition(b"\r\n\r\n")[2])
    openapi_spec_validator.OpenAPIV31SpecValidator(document).validate()
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    print(f"description of the API: {len(document['components']['schemas'])} schemas")


def situations():
    """Yields situations and their status: empty, working, broken, missing and paused projects."""
    with tempfile.TemporaryDirectory() as folder:
        home = {"HOME": folder, "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1",
                "RUNNER_CONFIG__TRUST__PATHS": '["/"]'}
        project = pathlib.Path(folder, "project")

        def run(*args, codes=(0,)):
            done = subprocess.run(args, env=home, cwd=folder, capture_output=True, text=True)
            assert done.returncode in codes, done
            return done.stdout

        def status(*where):
            return json.loads(run(RUNNER, *where, "status", "--json"))

        def runner(*args, codes=(0,)):
            return run(RUNNER, "-C", str(project), *args, codes=codes)

        yield "nothing yet", status()
        run("git", "init", "--quiet", str(project))
        file = project / "runner.toml"
        file.write_text("[nigth]\n")
        yield "never registered and broken", status("-C", str(project))
        file.unlink()
        runner("init")
        yield "new", status()
        fails = '[jobs.fails]\nkind = "command"\nprogram = "false"\ntrigger = "every 1h"\n'
        file.write_text(file.read_text() + "[day.budget]\ncalls = 9\nmoney = 1.5\n[defaults]\nretries = 0\n" + fails)
        runner("night", codes=(1,))
        yield "after a night with a failure", status()
        for _ in range(3):
            runner("run", "fails", codes=(0, 1))
        runner("enqueue", "dream", "--at", "2h")
        runner("pause", "fails")
        yield "stopped, queued and paused", status()
        runner("pause", "--all", "--until", "1h")
        daemon = subprocess.Popen([RUNNER, "daemon", "--quiet"], env=home, cwd=folder, stderr=subprocess.PIPE)
        while status()["daemon"] is None and daemon.poll() is None:
            pass
        yield "with a daemon", status()
        daemon.terminate()
        daemon.communicate()
        description(home, folder)
        file.write_text("[nigth]\n")
        yield "broken", status()
        project.rename(project.with_name("away"))
        run(RUNNER, "tick", codes=(78,))
        yield "gone", status()


def main():
    schema = json.loads((ROOT / "config/schemas/runner.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    default = (ROOT / "config/default.toml").read_text()
    whole = re.sub(r"^# (\[[a-z0-9.-]+\]|[a-z_]+ = .*)$", r"\1", default, flags=re.M)
    assert whole.count("\n[jobs.") == 12, "the default file must have one job of each kind"
    good = {**GOOD, "config/default.toml": default, "all of its settings": whole, **dict(examples())}
    wrong = []
    for name, text in good.items():
        found = [error.message for error in validator.iter_errors(tomllib.loads(text))]
        if found:
            wrong.append(f"{name}: the schema rejects it: {found[0]}")
    for name, text in good.items():
        fine, said = taken_by_runner(text)
        if not fine:
            wrong.append(f"{name}: runner rejects it: {said}")
    for name, text in BAD.items():
        if validator.is_valid(tomllib.loads(text)):
            wrong.append(f"{name}: the schema accepts it")
        if taken_by_runner(text)[0]:
            wrong.append(f"{name}: runner accepts it")
    status_schema = json.loads((ROOT / "config/schemas/status.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(status_schema)
    status_validator = jsonschema.Draft202012Validator(status_schema)
    statuses = dict(situations())
    for name, status in statuses.items():
        for error in status_validator.iter_errors(status):
            wrong.append(f"status, {name}: {error.json_path}: {error.message}")
    assert statuses["with a daemon"]["daemon"]["pid"] and statuses["after a night with a failure"]["projects"][0]["failmarks"]
    assert statuses["stopped, queued and paused"]["projects"][0]["stopped"] and statuses["gone"]["projects"][0]["trouble"]
    unknown = {**statuses["gone"], "projekts": []}
    missing = {key: value for key, value in statuses["gone"].items() if key != "ticks"}
    for name, changed in {"an unknown field": unknown, "a missing field": missing}.items():
        if status_validator.is_valid(changed):
            wrong.append(f"status, {name}: the schema accepts it")
    print(f"status: {len(statuses)} situations")
    print(f"schema: {len(good)} good and {len(BAD)} bad configurations, {len(wrong)} errors")
    sys.exit("\n".join(wrong) or None)


main()
