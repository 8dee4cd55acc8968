"""An independent reader of a night's artifacts, written from the contract's lists of fields alone.

Usage: overnight_reader.py OUTPUT-DIR [NEXT-WORK-FILE]; or, with a runner as the only argument, a night of
its own in a temporary repository, read twice. Knows nothing of runner's code or schemas.
"""
import hashlib, json, os, re, subprocess, sys, tempfile

SUMMARY = "schema_version mode run_id repo_root output_dir status dry_run started_at finished_at duration runtime steps artifacts dreamscape recommended next_action".split()
SUMMARY_OPTIONAL = "goal metrics_health retrieval_live close_loop briefing council morning_packets degraded yield long_haul iterations fitness_delta plateau_reason regression_reason warn_only_budget_initial warn_only_remaining measure_failure_halt budget_exhausted failure_reason".split()
RUNTIME = "keep_awake keep_awake_mode requested_timeout effective_timeout lock_path log_path process_contract_doc report_contract_doc".split()
ITERATION = "id index started_at finished_at duration status ingest reduce measure fitness_before fitness_after fitness_delta degraded".split()
ITERATION_STATUS = "done degraded rolled-back-pre-commit halted-on-regression-pre-commit halted-on-regression-post-commit failed".split()
PACKET = "id rank title type severity why_now evidence target_files likely_tests morning_command".split()
PACKET_OPTIONAL = "confidence source source_epic target_repo queue_backed bead_id artifact_path".split()
LONG_HAUL = "enabled active trigger_reason exit_reason probe_count zero_delta_probe_streak".split()
REPORT = "runner headline recommended_kind recommended_first_action risks opportunities confidence wildcard_idea".split()
KINDS = "research implement validate repair promote document".split()
ROW = "source_epic timestamp items consumed claim_status claimed_by claimed_at consumed_by consumed_at".split()


# A councillor with another mind than the rules', and an idea where one is asked for.
OTHER = """
import json
asked = json.load(open("request.json"))
if "why" in asked["schema"]["properties"]:
    answer = {"wildcard_idea": "Sleep on it", "why": "it helps", "first_step": "Close the lid", "risks": []}
else:
    kind = next(it for it in asked["offer"]["recommended_kind"] if it != asked["rule_answer"]["recommended_kind"])
    answer = asked["rule_answer"] | {"recommended_kind": kind, "backs": asked["offer"]["backs"][-1:]}
print(json.dumps(answer))
"""


class Bad(Exception):
    pass


def need(ok, why):
    if not ok:
        raise Bad(why)


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def fields(value, required, optional=None, where=""):
    need(isinstance(value, dict), f"{where} is no object")
    for key in required:
        need(key in value, f"{where} has no {key}")
    if optional is not None:
        extra = set(value) - set(required) - set(optional)
        need(not extra, f"{where} has fields of no contract: {sorted(extra)}")


def moment(text, where):
    need(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", text), f"{where}: {text!r} is no moment")


def iteration(it, run, index):
    where = f"iteration {index}"
    fields(it, ITERATION, ["error"], where)
    need(it["id"] == f"{run}-iter-{index}" and it["index"] == index, f"{where}: id and number disagree")
    need(it["status"] in ITERATION_STATUS, f"{where}: status {it['status']}")
    moment(it["started_at"], where)
    moment(it["finished_at"], where)
    need(isinstance(it["fitness_delta"], (int, float)) and isinstance(it["degraded"], list), where)


def packet(it, rank):
    where = f"packet {rank}"
    fields(it, PACKET, PACKET_OPTIONAL, where)
    need(re.fullmatch(r"dream-[0-9a-f]{16}", it["id"]), f"{where}: id {it['id']}")
    need(it["rank"] == rank, f"{where}: rank {it['rank']}")
    need(it.get("confidence", "low") in ("low", "medium", "high"), where)
    need(it["title"] and it["morning_command"] and it["why_now"], f"{where} is empty")
    for key in ("evidence", "target_files", "likely_tests"):
        need(all(isinstance(line, str) for line in it[key]), f"{where}: {key}")


def council(out, summary):
    """Each report in its fixed form; the synthesis loses nobody; the ledger's digests are those of the files."""
    folder = os.path.join(out, "council")
    if not os.path.isdir(folder):
        return 0
    shown = {it["id"] for it in load(os.path.join(folder, "packet.json"))["candidates"]}
    ledger = load(os.path.join(folder, "ledger.json"))
    own = {}
    for name in sorted(set(os.listdir(folder)) - {"packet.json", "synthesis.json", "ledger.json", "wildcard.json"}):
        it = load(os.path.join(folder, name))
        fields(it, REPORT, ["backs"], name)
        need(it["recommended_kind"] in KINDS and it["confidence"] in ("low", "medium", "high"), f"{name}: {it}")
        need(set(it.get("backs", [])) <= shown, f"{name} backs what it was not shown")
        need(all("\n" not in text and len(text) <= 400 for text in [it["headline"], *it["risks"], *it["opportunities"]]), f"{name}: a text is too long")
        own[it["runner"]] = it
    for one in [ledger["packet"], *(it["said"] for it in ledger["passes"] if "said" in it)]:
        with open(os.path.join(out, one["artifact"]), "rb") as file:
            need(hashlib.sha256(file.read()).hexdigest() in one["sha256"], f"{one['artifact']} is not what was said")
    answered = {it["runner"] for it in ledger["passes"] if it["status"] == "answered" and it["lane"] == "council"}
    need(answered == set(own), f"{answered} answered, there are reports of {set(own)}")
    need(all(it.get("why") for it in ledger["passes"] if it["status"] != "answered"), "somebody was not heard and nobody says why")
    if own:
        it = load(os.path.join(folder, "synthesis.json"))
        need(it["voices"] == sorted(own), f"the synthesis has {it['voices']}")
        told = {voice["runner"]: (position["recommended_kind"], voice) for position in it["positions"] for voice in position["voices"]}
        for name, report in own.items():
            kind, voice = told[name]
            need(kind == report["recommended_kind"] and voice["headline"] == report["headline"], f"{name} is told otherwise")
        kinds = {report["recommended_kind"] for report in own.values()}
        need(len(kinds) == 1 or all(name in it["tension"] for name in own), "a disagreement has no tension")
        need(all(one["wildcard"] is True for one in it["wildcards"]), "a wildcard is not marked")
    packets = summary.get("morning_packets", [])
    need([it["id"] for it in ledger["packets"]] == [it["id"] for it in packets], "the ledger has other packets")
    need(not packets or packets[0].get("source") != "council-wildcard", "a wildcard is the first")
    for traced, it in zip(ledger["packets"], packets):
        need(traced["evidence"] == it["evidence"], f"{it['id']}: other evidence")
        for voice in traced["voices"]:
            words = load(os.path.join(out, voice["artifact"]))
            need(words["runner"] == voice["runner"], f"{it['id']}: {voice}")
            if it.get("source") not in ("council", "council-wildcard"):
                need(it["id"] in words["backs"], f"{it['id']}: {voice['runner']} does not back it")
    return len(own)


def long_haul(out, summary):
    it = summary["long_haul"]
    fields(it, LONG_HAUL, [], "long_haul")
    path = os.path.join(out, "packet-corroboration.json")
    need(os.path.isfile(path) == it["active"], "packet-corroboration.json is there exactly where the long haul was active")
    if not it["active"]:
        need(it["probe_count"] == 0 and it["exit_reason"], "a long haul that was not active has probes, or no reason")
        return
    probes = load(path)["probes"]
    need(len(probes) == it["probe_count"] and it["trigger_reason"] and it["exit_reason"], f"long_haul: {it}")
    streak = 0
    for probe in probes:
        need(streak < 2, "it went on after two probes that added nothing")
        streak = 0 if probe["added"] else streak + 1
    need(streak == it["zero_delta_probe_streak"], f"a streak of {streak}: {it}")


def read(out):
    summary = load(os.path.join(out, "summary.json"))
    fields(summary, SUMMARY, SUMMARY_OPTIONAL, "summary")
    need(summary["schema_version"] == 2 and summary["mode"] == "dream.local-bedtime", "not version 2")
    need(summary["status"] in ("planned", "dry-run", "done", "failed"), summary["status"])
    moment(summary["started_at"], "summary")
    fields(summary["runtime"], RUNTIME, ["keep_awake_note"], "runtime")
    for step in summary["steps"]:
        fields(step, ["name", "status"], ["command", "artifact", "note"], "step")
    fields(summary["dreamscape"], ["weather", "visibility", "council"], ["tension", "first_move"], "dreamscape")
    if "long_haul" in summary:
        long_haul(out, summary)
    for name, path in summary["artifacts"].items():
        need(os.path.isfile(os.path.join(out, path)), f"the artifact {name} is not at {path}")
    need(os.path.getsize(os.path.join(out, "summary.md")) > 0, "summary.md is empty")
    run = summary["run_id"]
    for index, it in enumerate(summary.get("iterations", []), 1):
        iteration(it, run, index)
        iteration(load(os.path.join(out, run, "iterations", f"iter-{index}.json")), run, index)
    if summary["status"] == "failed":
        need(summary.get("failure_reason"), "a failed run has no reason")
        return summary
    for name in ("close-loop.json", "metrics-health.json", "retrieval-bench.json", "defrag/latest.json"):
        load(os.path.join(out, name))
    index = load(os.path.join(out, "morning-packets", "index.json"))
    fields(index, ["run_id", "repo_root", "generated_at", "packets"], [], "index")
    need(index["run_id"] == run and index["packets"] == summary["morning_packets"], "index and summary disagree")
    files = sorted(name for name in os.listdir(os.path.join(out, "morning-packets")) if name not in ("index.json", "index.md"))
    need(len(files) == len(index["packets"]), f"{len(files)} files for {len(index['packets'])} packets")
    for rank, (name, it) in enumerate(zip(files, index["packets"]), 1):
        packet(it, rank)
        need(re.fullmatch(rf"{rank:02}-[a-z0-9-]*-{it['id']}\.json", name), f"the file {name}")
        need(load(os.path.join(out, "morning-packets", name)) == it, f"{name} disagrees with the index")
    council(out, summary)
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
            need(it.get("title"), f"line {number}: an item without a title")
            need(it.get("claim_status", "available") in ("available", "in_progress", "consumed"), f"line {number}: claim")
            need(it.get("status", "ready") in ("ready", "proposed"), f"line {number}: status")
        if row.get("source_epic") == "overnight":
            fields(row, ROW, None, f"line {number}")
    return rows, items


def night(runner):
    with tempfile.TemporaryDirectory() as home:
        env = {"PATH": os.environ["PATH"], "HOME": home, "XDG_STATE_HOME": f"{home}/state", "XDG_CONFIG_HOME": f"{home}/config", "TZ": "UTC"}
        for who in ("AUTHOR", "COMMITTER"):
            env |= {f"GIT_{who}_NAME": "a", f"GIT_{who}_EMAIL": "a@example.org"}
        root = f"{home}/p"
        put = lambda path, text: (os.makedirs(os.path.dirname(f"{root}/{path}"), exist_ok=True), open(f"{root}/{path}", "w").write(text))
        for n in range(6):
            body = " ".join(f"word{n * 100 + i}" for i in range(40))
            put(f".agents/learnings/l{n}.md", f"---\ndate: 2026-01-0{n + 1}\ntags: [ci]\nmaturity: provisional\nutility: 0.8\n---\n# Lesson {n}\n\n{body} src/a.py\n")
        put(".agents/findings/f-1.md", "---\nseverity: high\n---\n# A finding about src/a.py\n\nIt is slow.\n")
        put(".agents/rpi/next-work.jsonl", '{"source_epic":"e","timestamp":"2026-01-01T00:00:00Z","items":[{"title":"Do it","type":"bug","severity":"high","source":"x","description":"in src/a.py"}],"consumed":false,"claim_status":"available"}\n')
        put("src/a.py", "pass\n")
        run = lambda *args, code=0: (lambda it: need(it.returncode == code, f"{args}: {it}"))(subprocess.run(args, cwd=root, env=env, capture_output=True, text=True))
        run("git", "init", "-q", "-b", "main")
        run("git", "add", "src")
        run("git", "commit", "-q", "-m", "Begin")
        run(runner, "init")
        with open(f"{root}/runner.toml", "a") as file:
            file.write('\n[jobs.overnight]\nkind = "overnight"\ntrigger = "manual"\nrunners = ["builtin", "other", "gone"]\ncreative_lane = true\n'
                       '[backends.other]\ntype = "command"\nprogram = "python3"\nquiet = true\nargs = ["-c", ' + json.dumps(OTHER) + ']\n'
                       '[backends.gone]\ntype = "command"\nprogram = "a-program-that-is-nowhere"\n')
        for _ in range(2):
            run(runner, "overnight", "start", "--goal", "a faster src/a.py")
            summary = read(f"{root}/.agents/overnight/latest")
            work(f"{root}/.agents/rpi/next-work.jsonl")
        need(summary["fitness_delta"] == 0 and "zero deltas" in summary["plateau_reason"], "the second night found something to do")
        try:
            import jsonschema, referencing
        except ImportError:
            print("overnight reader: no jsonschema here, the published schemas were not tried")
            return
        names = subprocess.run([runner, "overnight", "schema"], env=env, capture_output=True, text=True, cwd=root).stdout.split()
        texts = {name: json.loads(subprocess.run([runner, "overnight", "schema", name], env=env, capture_output=True, text=True, cwd=root).stdout) for name in names}
        registry = referencing.Registry().with_resources((f"{name}.schema.json", referencing.Resource.from_contents(text)) for name, text in texts.items())
        out = f"{root}/.agents/overnight/latest"
        tried = 0
        for name, path in (("summary", "summary.json"), ("metrics-health", "metrics-health.json"), ("retrieval-bench", "retrieval-bench.json"), ("close-loop", "close-loop.json"), ("defrag", "defrag/latest.json"), ("morning-packets", "morning-packets/index.json"), ("iteration", f"{summary['run_id']}/iterations/iter-1.json"), ("council-packet", "council/packet.json"), ("council-report", "council/builtin.json"), ("council-report", "council/other.json"), ("council-wildcard", "council/wildcard.json"), ("council-synthesis", "council/synthesis.json"), ("council-ledger", "council/ledger.json"), ("packet-corroboration", "packet-corroboration.json")):
            if name == "packet-corroboration" and not summary["long_haul"]["active"]:
                continue
            jsonschema.Draft202012Validator(texts[name], registry=registry).validate(load(f"{out}/{path}"))
            tried += 1
        for line in open(f"{root}/.agents/rpi/next-work.jsonl"):
            jsonschema.Draft202012Validator(texts["next-work-row"], registry=registry).validate(json.loads(line))
        print(f"overnight reader: {len(names)} schemas, {tried} artifacts by an independent validator")


if __name__ == "__main__":
    try:
        if os.path.isfile(sys.argv[1]):
            night(os.path.abspath(sys.argv[1]))
            print("overnight reader: two nights, every artifact is as the contract says")
        else:
            found = read(sys.argv[1])
            told = f"{found['status']}, {len(found.get('iterations', []))} iterations, {len(found.get('morning_packets') or [])} packets"
            if len(sys.argv) > 2:
                told += ", %d rows with %d items" % work(sys.argv[2])
            print(told)
    except Bad as bad:
        sys.exit(f"not as the contract says: {bad}")
