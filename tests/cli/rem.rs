//! Tests rem jobs with rule-based and scripted answers, daydreams, recorded tool calls, and the
//! journal.

use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::fixture::{CommandOutput, Fixture};

pub const BOARD: &str = "#+TITLE: board\n\n* Tasks\n** DOING comparison table — landscape\n** NEXT tidy the page\n\
                     ** TODO write the post\n** TODO twice\n** TODO twice\n** DONE old one\n";

/// Creates a project with a board. Its model answers request N with the file `answer.N` if that
/// file exists, and with the file `answer` otherwise.
pub fn fixture(more: &str) -> Fixture {
    let fixture = Fixture::with("");
    let folder = fixture.root().display().to_string();
    let script = format!(
        "n=1; while [ -e \"$1/asked.$n\" ]; do n=$((n+1)); done; cat > \"$1/asked.$n\"\n\
         [ -e {folder}/kill ] && kill -9 $$\n\
         f={folder}/answer.$n; [ -e \"$f\" ] || f={folder}/answer; cat \"$f\"\n"
    );
    let path = fixture.root().join("dreamer.sh");
    fs::write(&path, script).unwrap();
    fixture.configure(&format!(
        "[jobs.dream]\nenabled = false\n[backends.dreamer]\ntype = \"command\"\nprogram = \"sh\"\n\
         args = [\"{}\", \".\"]\n[jobs.rem]\nkind = \"rem\"\nbackend = \"dreamer\"\ntrigger = \"manual\"\nretries = 0\n{more}",
        path.display()
    ));
    fixture.write("plan.org", BOARD);
    fixture
}

pub fn answer(fixture: &Fixture, number: &str, text: &str) {
    let name = match number {
        "" => "answer".to_owned(),
        number => format!("answer.{number}"),
    };
    fs::write(fixture.root().join(name), text).unwrap();
}

pub fn data(tale: &str, act: &str, task: &str) -> Value {
    json!({
        "tale": tale, "goals": ["a", "b", "c"], "blue_sky": ["d", "e"], "fears": ["f", "g"],
        "verdicts": [{"act": act, "task": task, "why": "it is time"}],
        "carry": {"doing": task, "next_action": "look at it", "file": "src/a.rs", "verified": ["the check is clean; twice"]},
    })
}

pub const TALE: &str = "The agent wrote the comparison table and ran the check, which failed once on a missing column \
                    and was clean after the column had been added to the page.";

pub fn entries(fixture: &Fixture, folder: &str) -> Vec<String> {
    let Ok(text) = fs::read_to_string(fixture.path(&format!("{folder}/manifest.json"))) else {
        return Vec::new();
    };
    let manifest: Value = serde_json::from_str(&text).unwrap();
    let entries = manifest["entries"].as_array().unwrap().iter();
    entries.map(|it| it["file"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn rem_without_model_writes_a_carry() {
    let fixture =
        fixture("[jobs.plain]\nkind = \"rem\"\ntrigger = \"manual\"\nagent = \"night\"\n");
    fixture.write(
        "_steps.jsonl",
        "{\"step\":1,\"tool\":\"Edit\",\"args\":{\"path\":\"src/a.rs\"},\"exit_code\":0}\n\
        {\"step\":2,\"tool\":\"Bash\",\"args\":{\"cmd\":\"make site\"},\"exit_code\":2,\"error\":\"make:\\nno rule for site.\\n---\"}\n\
        {\"step\":3,\"tool\":\"Bash\",\"args\":{\"cmd\":\"make test\"},\"exit_code\":0}\n",
    );
    fixture
        .run_at("2026-11-02T03:04:05Z", &["run", "plain"])
        .ends(0)
        .expect_text("rem/night/2026-11-02-0304.org");
    let entry = fixture.read("rem/night/2026-11-02-0304.org");
    for words in [
        "#+TITLE: rem — 2026-11-02 03:04 UTC\n#+MODEL: by rule\n",
        "Committed: Begin (",
        "Until now one commit was made.\n",
        "1 of the 3 tool uses failed.",
        "Failed: `make site` (exit 2): no rule for site.",
        "- `make site` has not been seen to pass since it failed.\n",
        "- An entry by rule has no ideas beyond the tasks on the board.\n",
        "- DOING: comparison table — landscape\n",
        "- NEXT: tidy the page\n",
        "- keep course — ",
        // The task in progress names no agent, so the agent "night" does not work on it.
        "- DOING: nothing\n- next action: begin tidy the page\n- file: src/a.rs\n\
         - verified this cycle: `make test` ended with 0\n",
    ] {
        assert!(entry.contains(words), "{words}: {entry}");
    }
    // The name of a minute's second entry includes the seconds. By default, runner commits nothing.
    fixture.run_at("2026-11-02T03:04:50Z", &["run", "plain"]).ends(0);
    assert_eq!(entries(&fixture, "rem/night"), ["2026-11-02-030450.org", "2026-11-02-0304.org"]);
    assert!(
        fixture
            .read("rem/night/2026-11-02-030450.org")
            .contains("Since 2026-11-02 03:04 UTC nothing was committed.")
    );
    assert_eq!(fixture.git(&["log", "--format=%s"]).trim(), "Begin");
    assert!(entries(&fixture, "rem").is_empty());
    assert!(fixture.git(&["status", "--porcelain"]).contains("rem/"));
    assert!(!fixture.git(&["status", "--porcelain"]).contains("_steps"));
}

#[test]
fn rem_requires_an_audit_and_interval() {
    let fixture = Fixture::new();
    fixture.run_at("2026-10-31T23:00:00Z", &["init"]).ends(0);
    fixture.configure("[jobs.dream]\nenabled = false\n[jobs.rem]\nkind = \"rem\"\ntrigger = \"every 10m\"\nstagger = \"0s\"\n");
    fixture.run_at("2026-10-31T23:00:00Z", &["tick"]).ends(0);
    let started = |clock: &str| {
        let reported = fixture.run_at(clock, &["tick", "--json"]).json();
        reported["started"][0]["outcome"].as_str().unwrap_or_default().to_owned()
    };
    assert!(started("2026-10-31T23:10:00Z").contains("no `audit:` commit"));
    fixture.write("a.txt", "a");
    fixture.git(&["add", "a.txt"]);
    fixture.git(&["commit", "-q", "-m", "audit: look at all"]);
    assert_eq!(started("2026-11-01T00:10:00Z"), "succeeded");
    assert!(started("2026-11-01T00:30:00Z").contains("skipped: gate: the last dream was at"));
    assert!(started("2026-11-01T01:10:00Z").contains("no `audit:` commit since"));
    assert_eq!(entries(&fixture, "rem"), ["2026-11-01-0010.org"]);
}

#[test]
fn model_dream_is_published_and_committed() {
    let fixture = fixture("[lifecycle]\ncommit = true\n");
    fs::write(fixture.root().join(".gitconfig"), "[user]\nname = a\nemail = a@b\n").unwrap();
    fixture.write("mine.txt", "staged by somebody");
    fixture.git(&["add", "mine.txt"]);
    let hash = fixture.git(&["rev-parse", "--short=9", "HEAD"]);
    let tale = format!("It was begun in {}. {TALE}", hash.trim());
    let mut dream = data(&tale, "pick-up", "write the post");
    dream["carry"]["verified"] = json!(["the check is clean; twice", "`cd x; make` ended with 0"]);
    answer(&fixture, "", &dream.to_string());
    fixture.run(&["run", "rem"]).ends(0).expect_text("succeeded");
    let file = &entries(&fixture, "rem")[0];
    let entry = fixture.read(&format!("rem/{file}"));
    assert!(entry.contains("- pick up: write the post — it is time\n"), "{entry}");
    // A semicolon in a claim becomes a comma, except inside backticks.
    let verified = "- verified this cycle: the check is clean, twice; `cd x; make` ended with 0\n";
    assert!(entry.contains(verified), "{entry}");
    assert!(entry.contains("#+MODEL: dreamer\n"));
    let subject = fixture.git(&["log", "-1", "--format=%s"]);
    assert!(subject.starts_with("rem: It was begun in "), "{subject}");
    let files = fixture.git(&["show", "--format=", "--name-only"]);
    assert_eq!(files, format!("rem/{file}\nrem/manifest.json\n"));
    assert_eq!(fixture.git(&["diff", "--cached", "--name-only"]), "mine.txt\n");
    // The request has four sources. Its schema lists the headings that name exactly one open task.
    let run = fixture.run(&["runs", "--json"]).json()[0]["id"].as_str().unwrap().to_owned();
    let asked =
        fs::read_to_string(fixture.state().join(format!("runs/{run}/child/request.json"))).unwrap();
    let asked: Value = serde_json::from_str(&asked).unwrap();
    let tasks = &asked["schema"]["properties"]["verdicts"]["items"]["properties"]["task"]["enum"];
    assert_eq!(
        *tasks,
        json!(["", "comparison table — landscape", "tidy the page", "write the post"])
    );
    assert_eq!(asked["limits"]["temperature"], 0.8);
    let labels: Vec<&str> = asked["sources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["label"].as_str().unwrap())
        .collect();
    assert_eq!(
        labels,
        ["git log -12 --oneline", "the board", "the last 25 tools", "the entry by rule"]
    );
    let reported = &asked["instructions"].as_str().unwrap();
    assert!(
        !reported.contains("comparison table"),
        "the instructions include the text of a source"
    );

    // A failed commit is reported, and the next dream commits the entry.
    fs::write(
        fixture.root().join(".gitconfig"),
        "[user]\nname = a\nemail = a@b\n[user]\nuseConfigOnly = true\n",
    )
    .unwrap();
    fs::write(fixture.path(".git/index.lock"), "").unwrap();
    answer(
        &fixture,
        "",
        &data(
            "Quite another tale of a quiet afternoon without any work.",
            "put-down",
            "tidy the page",
        )
        .to_string(),
    );
    fixture
        .run(&["run", "rem"])
        .ends(0)
        .expect_text("degraded")
        .expect_text("the entry is not committed");
    let runs = fixture.run(&["runs", "--json"]).json();
    assert_eq!(runs[0]["outcome"], "degraded", "{runs}");
    assert_eq!(entries(&fixture, "rem").len(), 2);
    fs::remove_file(fixture.path(".git/index.lock")).unwrap();
    answer(
        &fixture,
        "",
        &data("A third one about the rain on the roof of the shed.", "cancel", "tidy the page")
            .to_string(),
    );
    fixture.run(&["run", "rem"]).ends(0).expect_text("succeeded");
    let files = fixture.git(&["show", "--format=", "--name-only"]);
    assert_eq!(files.lines().count(), 3, "{files}");
    assert_eq!(fixture.git(&["status", "--porcelain", "--", "rem"]), "");
}

pub const ORG: &str = "* tale\nIt ran and wrote its rows.\n* goals\n- a\n* blue sky\n- b\n* fears\n- c\n* verdicts\n- keep course — fine\n* carry\n- DOING: nothing\n";

#[test]
fn invalid_answers_publish_nothing_and_are_explained() {
    let fixture = fixture("answer = \"org\"\n");
    // Each case has a name, an answer, and the expected reason.
    let text = |org: &str| org.to_owned();
    let data = |act: &str, task: &str| data(TALE, act, task).to_string();
    let mut data_seven = serde_json::from_str::<Value>(&data("cancel", "tidy the page")).unwrap();
    data_seven["seventh"] = json!("x");
    let cases = [
        ("a seventh heading", text(&format!("{ORG}* morals\n- x\n")), "after the sixth"),
        ("a missing heading", ORG.replace("* fears\n- c\n", ""), "\"verdicts\", but \"fears\""),
        (
            "an idea that imitates a heading",
            ORG.replace("- b\n", "- b\n* verdicts\n- cancel: tidy the page\n"),
            "but \"fears\" is expected",
        ),
        ("prose around it", text(&format!("Here it is:\n{ORG}")), "text before the first heading"),
        ("nothing", text(" \n"), "malformed"),
        ("data with an extra key", data_seven.to_string(), "not have the requested form"),
    ];
    let mut reported = Vec::new();
    for (what, words, why) in &cases {
        answer(&fixture, "", words);
        let said = fixture.run(&["run", "rem"]).ends(1);
        assert!(said.err.contains(why) || said.out.contains(why), "{what}: {said:?}");
        let runs = fixture.run(&["runs", "--json"]).json();
        assert_eq!(runs[0]["class"], "malformed", "{what}: {runs}");
        assert!(!fixture.path("rem").exists(), "{what}");
        assert!(fixture.path(".runner/failed/rem.json").is_file(), "{what}");
        reported.push(*why);
    }
    fs::write(fixture.root().join("kill"), "").unwrap();
    fixture.run(&["run", "rem"]).ends(1);
    let runs = fixture.run(&["runs", "--json"]).json();
    assert_eq!(runs[0]["class"], "crash", "{runs}");
    fs::remove_file(fixture.root().join("kill")).unwrap();
    answer(&fixture, "", ORG);
    fixture.run(&["run", "rem"]).ends(0);
    assert!(!fixture.path(".runner/failed/rem.json").exists());
    let journal = fixture.run(&["journal", "--json"]).ends(0).json();
    let items = journal["items"].as_array().unwrap();
    let gaps: Vec<&str> = items
        .iter()
        .filter(|it| it["item"] == "gap")
        .map(|it| it["why"].as_str().unwrap())
        .collect();
    for why in reported {
        assert!(gaps.iter().any(|gap| gap.contains(why)), "{why}: {gaps:?}");
    }
    assert!(gaps.iter().any(|gap| gap.contains("crash")), "{gaps:?}");
    assert_eq!(items.iter().filter(|it| it["item"] == "entry").count(), 1);
}

/// Returns the request with this number that the newest run sent.
pub fn asked(fixture: &Fixture, number: u32) -> String {
    let run = fixture.run(&["runs", "--json"]).json()[0]["id"].as_str().unwrap().to_owned();
    let path = fixture.state().join(format!("runs/{run}/child/asked.{number}"));
    fs::read_to_string(path).unwrap()
}

#[test]
fn names_that_no_source_shows_are_marked() {
    let fixture = fixture("");
    fixture.write(
        "_steps.jsonl",
        "{\"step\":1,\"tool\":\"Edit\",\"args\":{\"path\":\"src/a.rs\"},\"exit_code\":0}\n\
        {\"step\":2,\"tool\":\"Bash\",\"args\":{\"cmd\":\"make site\"},\"exit_code\":2}\n",
    );
    let tale = "The agent edited src/a.rs and src/invented.rs. One command ended with exit code 2, another \
                with exit 7. The task \"write the post\" waits, the task \"fly to the moon\" too.";
    answer(&fixture, "", &data(tale, "keep-course", "").to_string());
    let mut said = fixture.run(&["run", "rem"]).ends(0).expect_text("succeeded");
    for what in ["src/invented.rs", "exit 7", "fly to the moon"] {
        said = said.expect_text(&format!("no source shows {what}"));
    }
    let entry = fixture.read(&format!("rem/{}", entries(&fixture, "rem")[0]));
    assert!(entry.contains("#+UNSEEN: exit 7; fly to the moon; src/invented.rs\n"), "{entry}");
    fixture.run(&["journal"]).ends(0).expect_text("no source showed: src/invented.rs");
    fixture.run(&["journal", "export", "public"]).ends(0);
    assert!(
        fixture
            .read("public/index.html")
            .contains("mentioned in the tale, but shown by no source: exit 7")
    );
}

#[test]
fn repeated_dream_is_retried_without_previous_entry() {
    let fixture = fixture("");
    let first = data(TALE, "pick-up", "write the post").to_string();
    answer(&fixture, "", &first);
    fixture.run(&["run", "rem"]).ends(0);
    // A repeat is recognized even if a word was changed, and a date and a sentence were added.
    let renewed = format!("On 2026-06-11: {} Nothing else.", TALE.replace("once", "twice"));
    for tale in [TALE, &renewed] {
        answer(&fixture, "", &data(tale, "pick-up", "write the post").to_string());
        let said = fixture.run(&["run", "rem"]).ends(0).expect_text("degraded");
        said.expect_text("parrot");
        answer(&fixture, "", &first);
        fixture.run(&["run", "rem"]).ends(0).expect_text("succeeded");
    }
    assert_eq!(entries(&fixture, "rem").len(), 5);
    // The second request omits the previous entry.
    answer(
        &fixture,
        "2",
        &data("This time nothing of that sort happened at all.", "keep-course", "").to_string(),
    );
    fixture.run(&["run", "rem"]).ends(0).expect_text("runner asked once more");
    assert_eq!(entries(&fixture, "rem").len(), 6);
    assert!(asked(&fixture, 1).contains("source: the previous entry"));
    assert!(!asked(&fixture, 2).contains("source: the previous entry"));
}

#[test]
fn failed_daydream_does_not_fail_the_run() {
    let fixture = fixture(
        "[jobs.muse]\nkind = \"daydream\"\nbackend = \"dreamer\"\ntrigger = \"manual\"\n\
         [jobs.plain]\nkind = \"daydream\"\ntrigger = \"manual\"\n",
    );
    fixture.run(&["run", "plain"]).ends(0).expect_text("there is no model");
    assert!(!fixture.path("daydreams.json").exists());
    let many: Vec<Value> =
        (0..60).map(|it| json!({"ts": "2026-01-01T00:00:00Z", "text": it.to_string()})).collect();
    fixture.write("daydreams.json", json!({"daydreams": many}).to_string());
    answer(&fixture, "", "\"I Watch the pages\\nload like SUNRISE\"");
    fixture.run(&["run", "muse"]).ends(0);
    let read =
        |fixture: &Fixture| serde_json::from_str::<Value>(&fixture.read("daydreams.json")).unwrap();
    assert_eq!(read(&fixture)["daydreams"][0]["text"], "i watch the pages load like sunrise");
    assert_eq!(read(&fixture)["daydreams"].as_array().unwrap().len(), 60);
    for bad in ["", "[1]", "\"\""] {
        answer(&fixture, "", bad);
        fixture.run(&["run", "muse"]).ends(0).expect_text("no daydream");
    }
    fs::write(fixture.root().join("kill"), "").unwrap();
    fixture.run(&["run", "muse"]).ends(0).expect_text("no daydream");
    assert_eq!(fixture.git(&["status", "--porcelain", "--", "daydreams.json"]), "");
    fixture.run(&["journal"]).ends(0).expect_text("No dreams here yet");
}

#[test]
fn tool_hook_records_only_valid_calls() {
    let fixture = fixture("");
    let hook = |payload: &[u8], set: &[(&str, &str)], args: &[&str]| {
        let mut command = fixture.runner(&[&["hook", "post-tool-use"], args].concat());
        command
            .envs(set.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // The hook may refuse a payload before it has read all of it.
        let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), payload);
        CommandOutput::of(child.wait_with_output().unwrap())
    };
    let payload = json!({
        "hook_event_name": "PostToolUse", "tool_name": "Bash", "cwd": fixture.project(), "session_id": "s",
        "tool_input": {"command": "deploy --token=sk-ant-REDACTED-000000000000000000000000"}, "tool_response": {"stdout": "x"},
    });
    let payload = payload.to_string();
    let said = hook(payload.as_bytes(), &[], &["--agent", "night"]).ends(0);
    assert_eq!((said.out.as_str(), said.err.as_str()), ("", ""));
    let row: Value = serde_json::from_str(&fixture.read("_steps.jsonl")).unwrap();
    assert_eq!(
        (row["step"].as_u64(), row["tool"].as_str(), row["agent"].as_str()),
        (Some(1), Some("Bash"), Some("night"))
    );
    assert!(row["args"]["cmd"].as_str().unwrap().starts_with("deploy --token="), "{row}");
    // The hook ignores runner's own runs and folders outside projects.
    hook(payload.as_bytes(), &[("RUNNER_RUN", "01K")], &[]).ends(0);
    hook(json!({"tool_name": "Bash", "cwd": "/"}).to_string().as_bytes(), &[], &[]).ends(0);
    for bad in [&b""[..], b"{", b"[]", b"\xff", b"{\"cwd\": 3}"] {
        hook(bad, &[], &[]).ends(1);
    }
    let nameless = json!({"cwd": fixture.project()}).to_string();
    hook(nameless.as_bytes(), &[], &[]).ends(1);
    hook(payload.as_bytes(), &[], &["--agent", "../x"]).ends(1);
    hook(payload.as_bytes(), &[], &["--no-such-flag"]).ends(1);
    assert_eq!(fixture.read("_steps.jsonl").lines().count(), 1);
    assert!(
        !fixture.state().join("database.sqlite").exists()
            || fixture.count("SELECT count(*) FROM runs") == 0
    );
}

#[test]
fn page_shows_verdict_results_without_private_data() {
    let fixture = fixture("");
    fixture.git(&["remote", "add", "origin", "git@example.org:a/b.git"]);
    fixture
        .write("_steps.jsonl", "{\"tool\":\"Bash\",\"args\":{\"cmd\":\"the-private-command\"}}\n");
    let tale = format!("<script>alert(1)</script> {TALE}");
    answer(&fixture, "", &data(&tale, "pick-up", "write the post").to_string());
    fixture.run_at("2026-10-31T01:00:00Z", &["run", "rem"]).ends(0);
    fixture.write("plan.org", BOARD.replace("TODO write", "DONE write"));
    fixture.git(&["add", "plan.org"]);
    fixture.git(&["commit", "-q", "-m", "add: the post"]);
    let id = entries(&fixture, "rem")[0].trim_end_matches(".org").to_owned();
    let audit = json!({"entry": id, "run": "01K00000000000000000000000", "at": "2026-11-01T01:00:00Z",
        "claims": [{"claim": "the check is clean, twice", "finding": "fails", "why": "it is not"},
                   {"claim": "the page renders", "finding": "holds", "why": "it does"},
                   {"claim": "it is fast", "finding": "unknown", "why": "no clock"}]});
    fixture.write(&format!("rem/{id}.audit.json"), audit.to_string());
    fixture.git(&["add", "rem"]);
    fixture.git(&["commit", "-q", "-m", "rem: manually"]);
    let own = fixture.git(&["rev-parse", "HEAD"]);
    fixture
        .run(&["journal"])
        .ends(0)
        .expect_text("found false: the check is clean, twice (it is not)");
    fixture.run(&["journal", "export", "public/rem"]).ends(0).expect_text("index.html");
    let page = fixture.read("public/rem/index.html");
    let hash = fixture.git(&["rev-parse", "HEAD~"]);
    let of_entry = format!("· <a href=\"https://example.org/a/b/commit/{}\"", own.trim());
    assert!(page.contains(&of_entry), "{page}");
    assert!(page.contains(&format!("https://example.org/a/b/commit/{}", hash.trim())), "{page}");
    assert!(page.contains("pick up: write the post — it is time → <a "), "{page}");
    assert!(page.contains("<span class=\"tag add\">add</span> the post"), "{page}");
    assert!(page.contains("found false: 1 of 3 claims"), "{page}");
    assert!(page.contains("&lt;script&gt;") && !page.contains("<script"), "{page}");
    assert!(!page.contains("the-private-command") && !page.contains("http:"), "{page}");
    // The next dream receives the audit's findings.
    answer(
        &fixture,
        "",
        &data(
            "Quite another tale of a quiet afternoon without any work.",
            "put-down",
            "tidy the page",
        )
        .to_string(),
    );
    fixture.run_at("2026-11-01T02:00:00Z", &["run", "rem"]).ends(0);
    let run = fixture.run(&["runs", "--json"]).json()[0]["id"].as_str().unwrap().to_owned();
    let asked =
        fs::read_to_string(fixture.state().join(format!("runs/{run}/child/request.json"))).unwrap();
    for finding in
        ["twice: fails (it is not)", "renders: holds (it does)", "fast: not checked (no clock)"]
    {
        assert!(asked.contains(finding), "{asked}");
    }
}

#[test]
fn damaged_manifest_stops_the_dream() {
    let fixture = fixture("");
    fixture.write("rem/manifest.json", "{\"entries\": [\"../../etc/passwd\"]}");
    answer(&fixture, "", &data(TALE, "keep-course", "").to_string());
    let said = fixture.run(&["run", "rem"]).ends(78);
    assert!(
        said.err.contains("mv rem/manifest.json") || said.out.contains("mv rem/manifest.json"),
        "{said:?}"
    );
    fs::remove_file(fixture.path("rem/manifest.json")).unwrap();
    fs::remove_file(fixture.path("plan.org")).unwrap();
    fixture.run(&["run", "rem"]).ends(0);
}

#[test]
fn cycle_waits_for_a_valid_dream() {
    let fixture = fixture(
        "[jobs.cycle]\nkind = \"lifecycle\"\nbackend = \"dreamer\"\ntrigger = \"manual\"\nretries = 0\n",
    );
    let first = data(TALE, "pick-up", "write the post").to_string();
    answer(&fixture, "", &first);
    fixture.run(&["run", "rem"]).ends(0);
    // A tool was used after the entry was written, so another dream is due.
    fixture.write("_steps.jsonl", "{\"tool\":\"Read\"}\n");
    fixture.run(&["lifecycle", "goto", "rem"]).ends(0);
    let position = fixture.read(".runner/lifecycle-pos");
    // The model gives malformed answers or is killed, and still fails after the backoff.
    let now = jiff::Timestamp::now();
    let day = |days: i64| (now + jiff::SignedDuration::from_hours(24 * days)).to_string();
    for (bad, clock) in [("{\"tale\": 3}", 0), ("kill", 0), ("no entry", 0), ("{\"tale\": 4}", 1)] {
        let kill = fixture.root().join("kill");
        let _gone = fs::remove_file(&kill);
        if bad == "kill" {
            fs::write(&kill, "").unwrap();
        }
        answer(&fixture, "", bad);
        let failed = fixture.run_at(day(clock), &["run", "cycle"]).ends(1);
        failed.expect_text("and remains the current state: ");
        assert_eq!(fixture.read(".runner/lifecycle-pos"), position, "{bad}");
        assert!(fixture.path(".runner/failed/cycle.json").is_file(), "{bad}");
        assert_eq!(entries(&fixture, "rem").len(), 1, "{bad}");
    }
    let mark = fixture.path(".runner/failed/cycle.json");
    let reported = fs::read_to_string(&mark).unwrap();
    assert!(reported.contains("the answer does not have the requested form"), "{reported}");
    fixture
        .run_at(day(1), &["run", "cycle"])
        .ends(0)
        .expect_text("skipped: gate: cycle failed 4 times in a row");
    let good =
        data("Now the shed has a new roof and the rain stays out.", "pick-up", "write the post");
    answer(&fixture, "", &good.to_string());
    fixture.run_at(day(2), &["run", "cycle"]).ends(0).expect_text("succeeded");
    assert_ne!(fixture.read(".runner/lifecycle-pos"), position);
    assert_eq!(entries(&fixture, "rem").len(), 2);
    assert!(!mark.exists());
    let gaps = fixture.run(&["journal", "--json"]).ends(0).json();
    let gaps: Vec<&Value> =
        gaps["items"].as_array().unwrap().iter().filter(|it| it["item"] == "gap").collect();
    assert_eq!(gaps.len(), 4, "{gaps:?}");
}
