"""Holds config/schemas/runner.schema.json to a JSON-schema validator that knows nothing of runner.

Usage: schema_check.py RUNNER. Needs Python 3.11 and the package `jsonschema`. The default file, the
default with every commented setting, and the examples are taken; mistyped ones are not, and the
program says the same of each.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUNNER = str(pathlib.Path(sys.argv[1]).resolve())

GOOD = {
    "a line of each unit": '[night]\nat = "23:30"\nlength = "1h 30m"\nzone = "Europe/Berlin"\n[day.budget]\nmoney = 2\ntime = "90 minutes"\n',
    "limits taken away": '[jobs.dream]\nquiet = "none"\nmin_interval = "none"\nmax_load = 1.5\nbackoff = ["0s", "1h"]\nmax_idea_bytes = "2MiB"\n',
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
    "a mistyped word": '[defaults]\noverlap = "skp"\n',
    "a mistyped trigger": '[jobs.dream]\ntrigger = "nightl"\n',
    "another kind's key": '[jobs.a]\nkind = "command"\nprogram = "x"\nmax_ideas = 3\n',
    "an artifact without a place": '[jobs.a]\nkind = "command"\nprogram = "x"\nartifacts = [{ from = "a" }]\n',
    "a bad name": '[jobs."a b"]\nkind = "command"\nprogram = "x"\n',
}


def examples():
    """Every block of TOML in the README and the guide."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]:
        for number, block in enumerate(re.findall(r"```toml\n(.*?)```", path.read_text(), re.S), 1):
            yield f"{path.name}, block {number}", block


def taken_by_runner(text):
    """What `runner config check` says of it as a project's file; as the user's, with the daemon's table."""
    with tempfile.TemporaryDirectory() as folder:
        users = "[daemon]" in text or "[retention]" in text
        path = pathlib.Path(folder, ".config/runner/config.toml" if users else "runner.toml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        home = {"HOME": folder, "PATH": os.environ["PATH"]}
        done = subprocess.run([RUNNER, "-C", folder, "config", "check"], env=home, capture_output=True, text=True)
        assert done.returncode in (0, 78), done
        return done.returncode == 0, done.stderr


def main():
    schema = json.loads((ROOT / "config/schemas/runner.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    default = (ROOT / "config/default.toml").read_text()
    whole = re.sub(r"^# (\[[a-z.]+\]|[a-z_]+ = .*)$", r"\1", default, flags=re.M)
    assert whole.count("\n[jobs.") == 3, "the commented examples are found"
    good = {**GOOD, "config/default.toml": default, "all of its settings": whole, **dict(examples())}
    wrong = []
    for name, text in good.items():
        found = [error.message for error in validator.iter_errors(tomllib.loads(text))]
        if found:
            wrong.append(f"{name}: the schema refuses it: {found[0]}")
    for name, text in good.items():
        # An example may name a job or backend that stands in another block.
        alone = "block" not in name
        fine, said = taken_by_runner(text)
        if alone and not fine:
            wrong.append(f"{name}: runner refuses it: {said}")
    for name, text in BAD.items():
        if validator.is_valid(tomllib.loads(text)):
            wrong.append(f"{name}: the schema takes it")
        if taken_by_runner(text)[0]:
            wrong.append(f"{name}: runner takes it")
    print(f"schema: {len(good)} good and {len(BAD)} bad configurations, {len(wrong)} judged wrongly")
    sys.exit("\n".join(wrong) or None)


main()
