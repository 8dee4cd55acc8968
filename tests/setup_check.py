"""Reads the output of `runner setup` for each host scheduler with independent parsers.

python3 tests/setup_check.py RUNNER [CASES]

Each case is a program and a state folder whose names contain spaces, quotes, %, $, &, <, line breaks and letters of
many alphabets. The parser must return each text unchanged, or runner must have refused the text with a reason. The
parsers are systemd's analyzer, plistlib, an XML parser with the rules of the task schema, cron's crontab, and a
PowerShell grammar. Checks whose parser is not installed are skipped and recorded.
"""

import json
import os
import pathlib
import plistlib
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET

from skips import skip

RUNNER = os.path.abspath(sys.argv[1])
SCALE = float(os.environ.get("RUNNER_TEST_SCALE", "1"))
# Each format accepts at least 500 of 800 cases.
CASES = int(sys.argv[2]) if len(sys.argv) > 2 else max(20, int(800 * SCALE))
SEED = int(os.environ.get("RUNNER_TEST_SEED", time.time_ns() % 10**9))
BITS = [" ", "'", '"', "%", "%%", "%h", "%n", "$", "$HOME", "${A}", "$$", "&", "<", ">", "\n", "\r", "\t", "\\", "\\\\", "\\%",
        "\\n", "é", "夜", "\u202e", "\u0301", "’", "‘", "`", "$(x)", ";", "|", "#", "!", "*", "?", "[a]", "{b}", "~", "-", "--x", "=",
        "a", "runner", ".", ",", ":", "@", "+", "^", "\u00a0", "\u2028", "\u0001", "\u001b", "\u007f", "\ufdd0", "\U0001f319", "\\\"", "''", "]]>", "{{ x }}"]
wrong = []


def name(dice):
    return "x" + "".join(dice.choice(BITS) for _ in range(dice.randint(1, 5))) + dice.choice(["", "z"])


def cases(dice, folder):
    """Yields the program and the state folder of each case. In half of the cases, every format accepts them."""
    for number in range(CASES):
        tame = number % 2
        def some():
            while True:
                text = name(dice)
                if not tame or not re.search(r"[\x00-\x1f\x7f\ufdd0\ufdd1]|\\%", text):
                    return text
        where = folder / str(number)
        program = where / some() / some()
        state = where / some()
        program.parent.mkdir(parents=True)
        os.link(RUNNER, program)
        yield number, str(program), str(state)


def shown(kind, program, state, home):
    env = {"HOME": home, "PATH": "/usr/bin:/bin", "USER": "me", "XDG_STATE_HOME": state, "XDG_CONFIG_HOME": home + "/config"}
    done = subprocess.run([program, "setup", "--scheduler", kind, "--json"], env=env, cwd=home, capture_output=True, text=True)
    if done.returncode in (65, 78) and "fix: " in done.stderr:
        return None
    assert done.returncode == 0, (kind, program, state, done)
    told = json.loads(done.stdout)
    return {os.path.basename(file["path"]): file["text"] for file in told["files"]}


def words(program, state):
    return [program, "tick", "--quiet", "--environment", state + "/runner/environment"]


def unit_words(line):
    """Splits a command line by the rules of systemd.syntax(7)."""
    out, word, quote, at, begun = [], "", None, 0, False
    while at < len(line):
        c = line[at]
        if c == "\\":
            if line[at + 1] == "x":
                word += chr(int(line[at + 2:at + 4], 16))
                at += 3
            else:
                word += {"n": "\n", "t": "\t", "\\": "\\", '"': '"'}[line[at + 1]]
                at += 1
        elif c == quote:
            quote = None
        elif quote is None and c in "\"'":
            quote, begun = c, True
        elif quote is None and c == " ":
            if word or begun:
                out.append(word)
            word, begun = "", False
        elif c == "%":
            assert line[at + 1] == "%", line
            word += "%"
            at += 1
        else:
            word += c
        at += 1
    return out + [word] if word or begun else out


def task_words(text):
    """Splits a command line by the documented rules of CommandLineToArgvW."""
    out, word, quoted, at, begun = [], "", False, 0, False
    while at < len(text):
        c = text[at]
        if c == "\\":
            run = len(text[at:]) - len(text[at:].lstrip("\\"))
            at += run
            if at < len(text) and text[at] == '"':
                word += "\\" * (run // 2)
                if run % 2:
                    word += '"'
                    at += 1
            else:
                word += "\\" * run
            begun = True
            continue
        if c == '"':
            quoted, begun = not quoted, True
        elif c in " \t" and not quoted:
            if begun:
                out.append(word)
            word, begun = "", False
        else:
            word, begun = word + c, True
        at += 1
    return out + [word] if begun else out


T = "{http://schemas.microsoft.com/windows/2004/02/mit/task}"
ORDER = {
    "Task": ["RegistrationInfo", "Triggers", "Settings", "Data", "Principals", "Actions"],
    "CalendarTrigger": ["Repetition", "StartBoundary", "EndBoundary", "ExecutionTimeLimit", "Enabled", "RandomDelay", "ScheduleByDay"],
    "Repetition": ["Interval", "Duration", "StopAtDurationEnd"],
    "Exec": ["Command", "Arguments", "WorkingDirectory"],
}
BOOLS = "DisallowStartIfOnBatteries StopIfGoingOnBatteries AllowHardTerminate StartWhenAvailable RunOnlyIfNetworkAvailable AllowStartOnDemand Enabled Hidden RunOnlyIfIdle WakeToRun StopAtDurationEnd".split()
SETTINGS = {*BOOLS, "MultipleInstancesPolicy", "ExecutionTimeLimit", "Priority"}


def judge_task(text, program, state):
    root = ET.fromstring(text.encode())
    assert root.tag == T + "Task" and root.get("version") in ("1.2", "1.3", "1.4")
    for node in root.iter():
        tag = node.tag.removeprefix(T)
        inner = [child.tag.removeprefix(T) for child in node]
        if tag in ORDER:
            assert set(inner) <= set(ORDER[tag]) and len(set(inner)) == len(inner), (tag, inner)
            assert tag != "CalendarTrigger" or inner == sorted(inner, key=ORDER[tag].index), inner
        if tag in BOOLS:
            assert node.text in ("true", "false"), (tag, node.text)
        if tag == "Interval":
            assert re.fullmatch(r"PT(\d+H)?(\d+M)?", node.text), node.text
        if tag == "Duration":
            assert re.fullmatch(r"P\d+D", node.text), node.text
        if tag == "StartBoundary":
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:[0-5]\d:\d\d", node.text), node.text
        if tag == "Settings":
            assert set(inner) <= SETTINGS and len(set(inner)) == len(inner), inner
    assert 1 <= len(root.find(T + "Triggers")) <= 48
    settings = root.find(T + "Settings")
    assert settings.find(T + "MultipleInstancesPolicy").text in ("Parallel", "Queue", "IgnoreNew", "StopExisting")
    assert settings.find(T + "StartWhenAvailable").text == "true"
    assert settings.find(T + "ExecutionTimeLimit").text == "PT0S"
    principal = root.find(f"{T}Principals/{T}Principal")
    assert root.find(T + "Actions").get("Context") == principal.get("id")
    assert principal.find(T + "LogonType").text in ("InteractiveToken", "S4U")
    action = root.find(f"{T}Actions/{T}Exec")
    assert action.find(T + "Command").text == "conhost.exe"
    given = task_words(action.find(T + "Arguments").text)
    assert given == ["--headless", *words(program, state)], given


def main():
    print(f"setup: RUNNER_TEST_SEED={SEED}, {CASES} cases")
    dice = random.Random(SEED)
    began = time.time()
    counts = {}
    with tempfile.TemporaryDirectory(dir=os.path.dirname(RUNNER)) as folder:
        folder = pathlib.Path(folder)
        home = str(folder / "home")
        os.mkdir(home)
        units, tabs, scripts = [], [], []
        for number, program, state in cases(dice, folder / "c"):
            for kind in ("systemd", "cron", "launchd", "task-scheduler"):
                taken, refused = counts.setdefault(kind, [0, 0])
                files = shown(kind, program, state, home)
                counts[kind][0 if files else 1] += 1
                try:
                    if files is None:
                        text = program + "\0" * (kind == "systemd" and bool(re.search(r"[\r\n]", state))) + state
                        bad = {"systemd": r"[\ufdd0\0]", "cron": r"[\x00-\x1f\x7f]|\\%", "launchd": r"[\x00-\x08\x0b\x0c\x0e-\x1f]", "task-scheduler": r"[\x00-\x1f\x7f]"}[kind]
                        assert re.search(bad, text), "refused although the format can represent it"
                    elif kind == "systemd":
                        units.append((number, files, program, state))
                    elif kind == "cron":
                        tabs.append((number, files["crontab"], program, state))
                    elif kind == "launchd":
                        got = plistlib.loads(files["runner.tick.plist"].encode())
                        assert got["ProgramArguments"] == words(program, state), got
                        assert got["RunAtLoad"] is True and got["ProcessType"] == "Standard"
                        assert got["StandardOutPath"] == got["StandardErrorPath"] == state + "/runner/timer.log"
                        assert [one["Minute"] for one in got["StartCalendarInterval"]] == [0, 15, 30, 45]
                    else:
                        judge_task(files["runner-tick.xml"], program, state)
                        scripts.append((number, files["register-runner-tick.ps1"], state))
                except (AssertionError, ET.ParseError, plistlib.InvalidFileException) as error:
                    wrong.append(f"{kind} {number} {program!r} {state!r}: {error!r}")
        judge_units(folder / "units", units)
        judge_tabs(home, tabs)
        judge_scripts(scripts)
    for kind, (taken, refused) in counts.items():
        print(f"setup: {kind}: {taken} unchanged, {refused} refused with a reason")
        if taken < CASES // 3:
            wrong.append(f"{kind}: only {taken} cases were accepted")
    print(f"setup: {len(wrong)} wrong, {time.time() - began:.1f} s")
    sys.exit("\n".join(wrong[:20]) or None)


def judge_units(folder, units):
    """Splits the lines by the manual's rules. systemd-analyze starts slowly, so it checks many units at once."""
    folder.mkdir()
    for number, files, program, state in units:
        line = re.search(r"^ExecStart=:(.*)$", files["runner-tick.service"], re.M)[1]
        got = unit_words(line)
        if got[:4] == ["/bin/sh", "-c", 'exec "$@"', "sh"]:
            got = got[4:]
        if got != words(program, state):
            wrong.append(f"systemd {number}: {line!r} is {got!r}, not {words(program, state)!r}")
        for file, text in files.items():
            (folder / file.replace("runner-tick", f"t{number}")).write_text(text, newline="")
    if not shutil.which("systemd-analyze"):
        return skip("systemd-analyze", "1 of systemd units: systemd-analyze is not installed")
    run = folder / "run"
    run.mkdir(mode=0o700)
    env = {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(run), "HOME": str(folder), "LC_ALL": "C"}
    def verify(names):
        done = subprocess.run(["systemd-analyze", "--user", "verify", *names], env=env, cwd=folder, capture_output=True, text=True, errors="replace")
        return done.returncode, [line for line in done.stderr.splitlines() if re.search(r"\bt\d+\.(service|timer)|bad\.", line)]
    names = sorted("./" + path.name for path in folder.iterdir() if path.suffix in (".service", ".timer"))
    for at in range(0, len(names), 250):
        code, said = verify(names[at:at + 250])
        if code or said:
            wrong.append(f"systemd-analyze: {code} {said[:5]}")
    (folder / "bad.service").write_text("[Service]\nExecStart=relative\n")
    (folder / "bad2.timer").write_text("[Timer]\nOnCalendar=nonsense\n")
    for bad in ("./bad.service", "./bad2.timer"):
        if verify([bad]) == (0, []):
            wrong.append(f"systemd-analyze accepts {bad}")
    print(f"setup: systemd-analyze read {len(names)} units")


def judge_tabs(home, tabs):
    """Checks the lines by cron's rule for % and with a shell; as root, also passes them through the real crontab."""
    real = shutil.which("crontab") and os.getuid() == 0
    if not real:
        skip("crontab" if os.getuid() == 0 else "host", "1 of crontab: crontab is not installed, or this user is not root")
    whole = ""
    for number, line, program, state in tabs:
        match = re.fullmatch(r"([\d,]+) \* \* \* \* (.*)\n", line)
        assert match and match[1] == "0,15,30,45", line
        command = match[2]
        if re.search(r"(?<!\\)%", command):
            wrong.append(f"cron {number}: an unescaped % in {command!r}")
        got = shlex.split(command.replace("\\%", "%"))
        if got != [*words(program, state), ">>" + state + "/runner/timer.log", "2>&1"]:
            wrong.append(f"cron {number}: {command!r} is {got!r}")
        whole += line
    if real:
        user = "nobody"
        before = subprocess.run(["crontab", "-u", user, "-l"], capture_output=True, env={**os.environ, "LC_ALL": "C"})
        file = pathlib.Path(home, "tab")
        file.write_text(whole, newline="")
        done = subprocess.run(["crontab", "-u", user, str(file)], capture_output=True, text=True)
        got = subprocess.run(["crontab", "-u", user, "-l"], capture_output=True).stdout
        if done.returncode or got != whole.encode():
            wrong.append(f"crontab: {done}")
        if before.returncode:
            subprocess.run(["crontab", "-u", user, "-r"], check=True)
        else:
            subprocess.run(["crontab", "-u", user, "-"], input=before.stdout, check=True)
        print(f"setup: crontab accepted {len(tabs)} lines and returned them unchanged")


def judge_scripts(scripts):
    try:
        import tree_sitter
        import tree_sitter_pwsh
    except ImportError:
        return skip("tree-sitter-pwsh", "1 of PowerShell's grammar: tree-sitter-pwsh is not installed")
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_pwsh.language()))
    for number, text, state in scripts:
        tree = parser.parse(text.encode())
        if tree.root_node.has_error:
            wrong.append(f"powershell {number}: {text!r}")
            continue
        # The literal after `$file =`, with doubled quotes of any form replaced by single ones.
        literal = re.search(r"^\$file = '(.*?)'\n\$|^\$file = '(.*?)'\nif ", text, re.M | re.S)
        got = re.sub("(['‘’‚‛])(['‘’‚‛])", r"\1", literal[1] or literal[2])
        if got != state + "/runner/task-scheduler/runner-tick.xml":
            wrong.append(f"powershell {number}: {got!r}")
    if not parser.parse(b"$file = 'a' 'b\nif (").root_node.has_error:
        wrong.append("the PowerShell grammar accepts invalid input")
    print(f"setup: the PowerShell grammar read {len(scripts)} scripts")


main()
