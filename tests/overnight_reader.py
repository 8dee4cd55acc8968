"""An independent reader for the artifacts of an overnight run, written only from the field lists of the contract.

Usage: overnight_reader.py OUTPUT-DIR [NEXT-WORK-FILE]. If the first argument is a runner program instead, the script
makes overnight runs in temporary repositories: undisturbed runs, a run that halts, failed runs, and runs that are
killed at several operations. It reads every artifact, and must reject artifacts with a field removed, mistyped or
added. Shares no code or schema with runner.
"""
import copy, json, os, re, shutil, subprocess, sys, tempfile

# A form describes the allowed values: a type, a tuple of types, a list with one form for all items, a pair of required
# and optional fields, or a function that checks the value.
NUMBER = (int, float)
TEXTS = [str]


class Bad(Exception):
    pass


def need(ok, why):
    if not ok:
        raise Bad(why)


def timestamp(value):
    return isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", value)


def length(value):
    return isinstance(value, str) and re.fullmatch(r"(\d+h)?(\d+m)?(\d+(\.\d+)?s)?", value) and value


def full(value):
    return isinstance(value, str) and value


def fitness(value):
    return value is None or isinstance(value, dict)


def packet_id(value):
    return isinstance(value, str) and re.fullmatch(r"dream-[0-9a-f]{16}", value)


def words(text):
    allowed = text.split()
    return lambda value: value in allowed


LEVEL = words("low medium high")
CLAIM = words("available in_progress consumed")
# The following forms have the required fields first and the optional fields second.
RUNTIME = (
    dict(keep_awake=bool, keep_awake_mode=full, requested_timeout=length, effective_timeout=length, lock_path=full, log_path=full,
         process_contract_doc=full, report_contract_doc=full),
    dict(keep_awake_note=full),
)
STEP = (dict(name=full, status=words("planned done skipped soft-fail failed")), dict(command=full, artifact=full, note=full))
DREAMSCAPE = (dict(weather=str, visibility=str, council=str), dict(tension=str, first_move=full))
LONG_HAUL = (dict(enabled=bool, active=bool, trigger_reason=str, exit_reason=str, probe_count=int, zero_delta_probe_streak=int), {})
PACKET = (
    dict(id=packet_id, rank=int, title=full, type=full, severity=full, why_now=full, evidence=TEXTS, target_files=TEXTS,
         likely_tests=TEXTS, morning_command=full, description=str, failures=int),
    dict(finder_evidence=full, age_days=int, requires=TEXTS, probably_done=full, confidence=LEVEL, source=str, source_epic=str, target_repo=str, queue_backed=bool, bead_id=full, artifact_path=full),
)
ITERATION = (
    dict(id=full, index=int, started_at=timestamp, finished_at=timestamp, duration=length,
         status=words("done degraded rolled-back-pre-commit halted-on-regression-pre-commit halted-on-regression-post-commit failed"),
         ingest=fitness, reduce=fitness, measure=fitness, fitness_before=fitness, fitness_after=fitness, fitness_delta=NUMBER,
         degraded=TEXTS),
    dict(error=full),
)
SUMMARY = (
    dict(schema_version=lambda it: it == 2 and it is not True, mode=lambda it: it == "dream.local-bedtime", run_id=full, repo_root=str, output_dir=full,
         status=words("planned dry-run done failed"), dry_run=bool, started_at=timestamp, finished_at=timestamp, duration=length,
         runtime=RUNTIME, steps=[STEP], artifacts=dict, dreamscape=DREAMSCAPE, recommended=TEXTS, next_action=str),
    dict(goal=full, metrics_health=dict, retrieval_live=dict, close_loop=dict, briefing=dict, council=dict, morning_packets=[PACKET],
         degraded=TEXTS, long_haul=LONG_HAUL, iterations=[ITERATION], fitness_delta=NUMBER, plateau_reason=full, regression_reason=full,
         warn_only_budget_initial=int, warn_only_remaining=int, measure_failure_halt=bool, budget_exhausted=bool, failure_reason=full,
         **{"yield": dict}),
)
INDEX = (dict(run_id=full, repo_root=full, generated_at=timestamp, packets=[PACKET]), {})
ITEM = (
    dict(title=full, type=full, severity=full, source=str, description=str),
    dict(evidence=str, target_repo=str, proof_ref=lambda it: True, dedup_key=full, status=words("ready proposed"), requires=list),
)
nullable = lambda form: lambda value: value is None or isinstance(value, form)
ROW = (
    dict(source_epic=full, timestamp=timestamp, items=[ITEM], consumed=bool, claim_status=CLAIM, claimed_by=nullable(str),
         claimed_at=nullable(str), consumed_by=nullable(str), consumed_at=nullable(str)),
    dict(consumed_note=str, consumed_ref=str, failed_at=str),
)


def check(value, form, where, more=False):
    """Checks a value. With `more`, further fields are allowed, as in a file that other programs also write."""
    if isinstance(form, tuple) and isinstance(form[0], dict):
        need(isinstance(value, dict), f"{where} is not an object")
        for key, inner in form[0].items():
            need(key in value, f"{where} has no {key}")
            check(value[key], inner, f"{where}.{key}", more)
        for key in value.keys() - form[0].keys():
            need(more or key in form[1], f"{where} has an unknown field: {key}")
            if key in form[1]:
                check(value[key], form[1][key], f"{where}.{key}", more)
    elif isinstance(form, list):
        need(isinstance(value, list), f"{where} is not a list")
        for number, it in enumerate(value):
            check(it, form[0], f"{where}[{number}]", more)
    elif isinstance(form, (type, tuple)):
        need(isinstance(value, form), f"{where}: {value!r}")
        need(form is bool or not isinstance(value, bool), f"{where}: {value!r}")
    else:
        need(form(value), f"{where}: {value!r}")


def load(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise Bad(f"{path}: {error}") from error


def iteration(it, run, index):
    check(it, ITERATION, f"iteration {index}")
    need(it["id"] == f"{run}-iter-{index}" and it["index"] == index, f"iteration {index}: the id or the index is wrong")
    need((it["status"] in ("rolled-back-pre-commit", "failed")) == ("error" in it), f"iteration {index}: the error does not match the status {it['status']}")


def summary_of(out, name="summary.json"):
    summary = load(os.path.join(out, name))
    check(summary, SUMMARY, "summary")
    for key, path in summary["artifacts"].items():
        need(os.path.isfile(os.path.join(out, path)), f"the artifact {key} is not at {path}")
    need(os.path.getsize(os.path.join(out, name[:-5] + ".md")) > 0, "the summary's Markdown file is empty")
    for index, it in enumerate(summary.get("iterations", []), 1):
        iteration(it, summary["run_id"], index)
    need((summary["status"] == "failed") == ("failure_reason" in summary), f"the failure reason does not match the status {summary['status']}")
    return summary


def read(out):
    summary = summary_of(out)
    run = summary["run_id"]
    for index, _ in enumerate(summary.get("iterations", []), 1):
        iteration(load(os.path.join(out, run, "iterations", f"iter-{index}.json")), run, index)
    for name in sorted(os.listdir(os.path.join(out, run))) if os.path.isdir(os.path.join(out, run)) else []:
        if re.fullmatch(r"interrupted-\d+\.json", name):
            need(summary_of(out, f"{run}/{name}")["status"] == "failed", f"{name} does not describe a failed run")
    if summary["status"] == "failed":
        return summary
    for name in ("close-loop.json", "metrics-health.json", "retrieval-bench.json", "defrag/latest.json"):
        need(isinstance(load(os.path.join(out, name)), dict), f"{name} is not an object")
    index = load(os.path.join(out, "morning-packets", "index.json"))
    check(index, INDEX, "index")
    need(index["run_id"] == run and index["packets"] == summary["morning_packets"], "the index and the summary disagree")
    need(index["repo_root"] == summary["repo_root"], "the index and the summary have different values of repo_root")
    files = sorted(name for name in os.listdir(os.path.join(out, "morning-packets")) if name not in ("index.json", "index.md"))
    need(len(files) == len(index["packets"]), f"{len(files)} files for {len(index['packets'])} packets")
    for rank, (name, it) in enumerate(zip(files, index["packets"]), 1):
        need(it["rank"] == rank, f"packet {rank} has the rank {it['rank']}")
        need(re.fullmatch(rf"{rank:02}-[a-z0-9-]*-{it['id']}\.json", name), f"packet {rank} has the file name {name}")
        need(load(os.path.join(out, "morning-packets", name)) == it, f"{name} disagrees with the index")
        for line in it["evidence"] if os.path.isdir(summary["repo_root"]) else []:
            path = re.sub(r":\d+$", "", line)
            need(line.startswith("commit ") or os.path.exists(os.path.join(summary["repo_root"], path)), f"packet {rank}: there is no {line}")
    return summary


def work(path):
    rows = items = 0
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            continue
        rows += 1
        for it in row.get("items", [row]):
            items += 1
            need(it.get("title"), f"line {number}: an item has no title")
            need(it.get("claim_status", "available") in ("available", "in_progress", "consumed"), f"line {number}: the claim status is unknown")
            need(it.get("status", "ready") in ("ready", "proposed"), f"line {number}: the status is unknown")
        if row.get("source_epic") == "overnight":
            check(row, ROW, f"line {number}", more=True)
    return rows, items


def spots(value, form, path=()):
    """Yields every present field that the contract names, and whether it is optional."""
    if isinstance(form, tuple) and isinstance(form[0], dict):
        for key, inner in {**form[0], **form[1]}.items():
            if key in value:
                yield path + (key,), key in form[1]
                yield from spots(value[key], inner, path + (key,))
    elif isinstance(form, list) and value:
        yield from spots(value[0], form[0], path + (0,))


def at(value, path):
    for part in path:
        value = value[part]
    return value


def mutated(out, name, form):
    """Reads the folder repeatedly with one field of one artifact missing, mistyped or unknown."""
    path = os.path.join(out, name)
    kept = open(path, "rb").read()
    whole = json.loads(kept)
    tried = 0
    for spot, optional in list(spots(whole, form)):
        for change in ("gone", "mistyped", "unknown"):
            broken = copy.deepcopy(whole)
            holder = at(broken, spot[:-1])
            if change == "unknown":
                holder["unknown_field"] = 1
            elif change == "gone" and optional:
                continue
            elif change == "gone":
                del holder[spot[-1]]
            else:
                held = holder[spot[-1]]
                holder[spot[-1]] = "x" if held is None or isinstance(held, (dict, list)) else {"x": [held]}
            with open(path, "w", encoding="utf-8") as file:
                json.dump(broken, file)
            try:
                read(out)
            except Bad:
                tried += 1
            else:
                raise SystemExit(f"{name} was accepted with {'.'.join(map(str, spot))} {change}")
            finally:
                with open(path, "wb") as file:
                    file.write(kept)
    return tried


class Project:
    def __init__(self, runner, home):
        self.runner, self.root, self.user = runner, f"{home}/p", {}
        self.env = {"RUNNER_CONFIG__TRUST__PATHS": '["/"]', "PATH": os.environ["PATH"], "HOME": home, "XDG_STATE_HOME": f"{home}/state", "XDG_CONFIG_HOME": f"{home}/config", "TZ": "UTC"}
        for who in ("AUTHOR", "COMMITTER"):
            self.env |= {f"GIT_{who}_NAME": "a", f"GIT_{who}_EMAIL": "a@example.org"}
        for n in range(6):
            body = " ".join(f"word{n * 100 + i}" for i in range(40))
            self.put(f".agents/learnings/l{n}.md", f"---\ndate: 2026-01-0{n + 1}\ntags: [ci]\nmaturity: provisional\nutility: 0.8\n---\n# Lesson {n}\n\n{body} src/a.py\n")
        self.put(".agents/findings/f-1.md", "---\nseverity: high\n---\n# A finding about src/a.py\n\nIt is slow.\n")
        self.put(".agents/rpi/next-work.jsonl", '{"source_epic":"e","timestamp":"2026-01-01T00:00:00Z","items":[{"title":"Do it","type":"bug","severity":"high","source":"x","description":"in src/a.py"}],"consumed":false,"claim_status":"available"}\n')
        # Without recorded uses of the learnings, no night would halt.
        cited = [json.dumps(dict(artifact_path=f".agents/learnings/l{n}.md", session_id=f"s{n}", cited_at="2026-01-20T00:00:00Z",
                                 citation_type="applied", query=f"lesson {n}")) for n in range(6)]
        self.put(".agents/ao/citations.jsonl", "\n".join(cited) + "\n")
        self.put("src/a.py", "pass\n")
        self.run("git", "init", "-q", "-b", "main")
        self.run("git", "add", "src")
        self.run("git", "commit", "-q", "-m", "Begin")
        self.run(runner, "init")
        with open(f"{self.root}/runner.toml", "a") as file:
            file.write('\n[jobs.overnight]\nkind = "overnight"\ntrigger = "manual"\nretries = 0\n')
        shutil.copytree(f"{self.root}/.agents", f"{home}/kept")
        self.kept, self.out, self.work = f"{home}/kept", f"{self.root}/.agents/overnight/latest", f"{self.root}/.agents/rpi/next-work.jsonl"

    def put(self, path, text):
        os.makedirs(os.path.dirname(f"{self.root}/{path}"), exist_ok=True)
        with open(f"{self.root}/{path}", "w") as file:
            file.write(text)

    def run(self, *args, code=0, **env):
        it = subprocess.run(args, cwd=self.root, env={**self.env, **env}, capture_output=True, text=True, **self.user)
        need(code is None or it.returncode == code, f"{args}: {it}")
        return it

    def night(self, *more, code=0, **env):
        return self.run(self.runner, "overnight", "start", *more, code=code, **env)

    def as_nobody(self):
        """Gives all files to another user and runs the next commands as that user, because root can write anywhere."""
        if os.geteuid() != 0:
            return
        home = os.path.dirname(self.root)
        for folder, folders, names in os.walk(home):
            for name in [*folders, *names, "."]:
                os.chown(os.path.join(folder, name), 65534, 65534, follow_symlinks=False)
        self.user = dict(user=65534, group=65534, extra_groups=[])

    def reset(self):
        shutil.rmtree(f"{self.root}/.agents")
        shutil.copytree(self.kept, f"{self.root}/.agents")


def nights(runner):
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as home:
        project = Project(runner, home)
        for _ in range(2):
            project.night("--goal", "a faster src/a.py")
            summary = read(project.out)
            work(project.work)
        need(summary["fitness_delta"] == 0 and "zero deltas" in summary["plateau_reason"], "the second night changed the corpus or did not reach a plateau")
        first = os.listdir(f"{project.out}/morning-packets")
        first = sorted(name for name in first if name not in ("index.json", "index.md"))[0]
        tried = mutated(project.out, "summary.json", SUMMARY)
        tried += mutated(project.out, "morning-packets/index.json", INDEX)
        tried += mutated(project.out, f"morning-packets/{first}", PACKET)
        tried += mutated(project.out, f"{summary['run_id']}/iterations/iter-1.json", ITERATION)
        print(f"overnight reader: two nights, every artifact conforms to the contract; {tried} changed artifacts are rejected")
        schemas(project, summary)

        project.reset()
        project.night("--warn-only=false", "--plateau-epsilon", "1")
        halted = read(project.out)
        need(halted["iterations"] and halted["plateau_reason"], f"the night did not end at a plateau: {halted}")
        project.reset()
        project.put(".agents/knowledge/big.bin", "x" * 2 * 1024 * 1024)
        project.night("--checkpoint-max-mb", "1", code=78)
        failed = read(project.out)
        need(failed["status"] == "failed" and failed["iterations"][0]["status"] == "failed", "the night did not fail")
        project.reset()
        killed = {}
        project.reset()
        for act in range(2, 200, 9):
            project.reset()
            ended = project.night(code=None, RUNNER_TEST_KILL=str(act)).returncode == 0
            if ended:
                break
            project.night()
            read(project.out)
            work(project.work)
            for folder, _, names in os.walk(f"{project.root}/.agents/overnight"):
                for name in names:
                    if name.startswith("interrupted-") and name.endswith(".json"):
                        why = load(os.path.join(folder, name))["failure_reason"]
                        killed[re.search(r"died at (\S+?);", why)[1]] = folder
        need(len(killed) >= 5, f"too few different steps were interrupted: {killed}")
        project.reset()
        failed = failed_by_itself(project)
        print(f"overnight reader: a night that halted, failed nights (one: {failed}) and nights killed at {', '.join(sorted(killed))} conform to the contract")


def failed_by_itself(project):
    """Runs a night with a folder that is not writable, so the commit is recorded but cannot be completed."""
    # The night must change the folder, because it removes the copy of a learning.
    with open(f"{project.root}/.agents/learnings/l0.md") as file:
        project.put(".agents/learnings/l9.md", file.read())
    os.chmod(f"{project.root}/.agents/learnings", 0o555)
    project.as_nobody()
    project.night(code=78)
    os.chmod(f"{project.root}/.agents/learnings", 0o755)
    failed = read(project.out)
    need(failed["status"] == "failed" and "commit" in failed["failure_reason"], "the night did not fail at its commit")
    project.night()
    need(read(project.out)["status"] == "done", "the next night did not succeed")
    return failed["failure_reason"].split(":")[0]


def schemas(project, summary):
    try:
        import jsonschema, referencing
    except ImportError:
        print("overnight reader: the published schemas were not checked: jsonschema or referencing is not installed")
        return
    show = lambda *name: project.run(project.runner, "overnight", "schema", *name).stdout
    names = show().split()
    texts = {name: json.loads(show(name)) for name in names}
    registry = referencing.Registry().with_resources((f"{name}.schema.json", referencing.Resource.from_contents(text)) for name, text in texts.items())
    tried = 0
    for name, path in (("summary", "summary.json"), ("metrics-health", "metrics-health.json"), ("retrieval-bench", "retrieval-bench.json"), ("close-loop", "close-loop.json"), ("defrag", "defrag/latest.json"), ("morning-packets", "morning-packets/index.json"), ("iteration", f"{summary['run_id']}/iterations/iter-1.json")):
        jsonschema.Draft202012Validator(texts[name], registry=registry).validate(load(f"{project.out}/{path}"))
        tried += 1
    for line in open(project.work):
        jsonschema.Draft202012Validator(texts["next-work-row"], registry=registry).validate(json.loads(line))
    print(f"overnight reader: an independent validator checked {tried} artifacts with {len(names)} schemas")


if __name__ == "__main__":
    try:
        if os.path.isfile(sys.argv[1]):
            nights(os.path.abspath(sys.argv[1]))
        else:
            found = read(sys.argv[1])
            told = f"{found['status']}, {len(found.get('iterations', []))} iterations, {len(found.get('morning_packets') or [])} packets"
            if len(sys.argv) > 2:
                told += ", %d rows with %d items" % work(sys.argv[2])
            print(told)
    except Bad as bad:
        sys.exit(f"the artifacts do not conform to the contract: {bad}")
