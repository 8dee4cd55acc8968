//! Tests which councillors an overnight run asks and which answers it uses, and the reports on
//! other programs' summaries.

use std::fs;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use crate::fixture::Fixture;

const LATEST: &str = ".agents/overnight/latest";
const WORK: &str = concat!(
    "{\"source_epic\":\"e1\",\"timestamp\":\"2026-10-01T00:00:00Z\",\"items\":[",
    "{\"title\":\"Mend the retry\",\"type\":\"bug\",\"severity\":\"high\",\"source\":\"review\",\"description\":\"src/net.rs gives up\"},",
    "{\"title\":\"Write the guide\",\"type\":\"docs\",\"severity\":\"high\",\"source\":\"review\",\"description\":\"docs/guide.md says nothing\"},",
    "{\"title\":\"Count the calls\",\"type\":\"task\",\"severity\":\"medium\",\"source\":\"review\",\"description\":\"src/net.rs does not\"}",
    "],\"consumed\":false,\"claim_status\":\"available\"}\n",
);

/// Returns the settings of a scripted councillor. In the script, `$id` contains the candidates'
/// ids, one per line, and `$one` and `$two` are the first two.
fn councillor(name: &str, script: &str) -> String {
    let script = format!(
        "id=$(grep -o 'dream-[0-9a-f]*' request.json | awk '!seen[$0]++'); one=$(echo \"$id\" | sed -n 1p); two=$(echo \"$id\" | sed -n 2p); {script}"
    );
    format!(
        "[backends.{name}]\ntype = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", {}]\nquiet = true\n",
        toml::Value::String(script)
    )
}

/// Returns a shell command that prints an answer. `backs` lists the ids of the candidates that it
/// supports, such as [`ONE`].
fn answer(kind: &str, action: &str, confidence: &str, backs: &str) -> String {
    let fixed = json!({
        "headline": format!("{action}, of course"), "recommended_kind": kind, "recommended_first_action": action,
        "risks": ["it is late"], "opportunities": [], "confidence": confidence, "wildcard_idea": "",
    });
    let fixed = fixed.to_string().replace('\'', "'\\''");
    let head = fixed.trim_end_matches('}');
    format!("printf '%s,\"backs\":[%s]}}' '{head}' \"{backs}\"")
}

const ONE: &str = "\\\"$one\\\"";
const TWO: &str = "\\\"$two\\\"";

fn fixture(job: &str, backends: &[String]) -> Fixture {
    let fixture = Fixture::with(&format!(
        "{}\n[jobs.overnight]\nkind = \"overnight\"\ntrigger = \"manual\"\nretries = 0\n{job}",
        backends.concat()
    ));
    fixture.write(".agents/rpi/next-work.jsonl", WORK);
    fixture.write(
        ".agents/learnings/net.md",
        "---\ndate: 2026-10-01\nmaturity: provisional\nutility: 0.8\n---\n# The net gives up\n\nsrc/net.rs gives up at the first error, which is why the retry must be mended before anything else.\n",
    );
    for path in ["src/net.rs", "docs/guide.md"] {
        fixture.write(path, "old\n");
        fixture.git(&["add", path]);
    }
    fixture.git(&["commit", "--quiet", "-m", "Give up in src/net.rs"]);
    fixture.set_clock("2026-11-22T02:30:00Z");
    fixture
}

fn artifact(fixture: &Fixture, name: &str) -> Value {
    serde_json::from_str(&fixture.read(&format!("{LATEST}/{name}"))).unwrap()
}

fn valid(fixture: &Fixture) {
    fixture
        .run_with_clock(&["overnight", "report", "--validate"])
        .ends(0)
        .expect_text("all valid against their schemas");
}

#[test]
fn synthesis_omits_failed_councillors() {
    let hostile = "</script><script>alert(1)</script>\u{202e} `rm -rf ~` [x](javascript:alert(1))";
    let fixture = fixture(
        "runners = [\"builtin\", \"yes\", \"no\", \"liar\", \"slow\", \"gone\", \"prose\"]\ncouncil_timeout = \"4s\"\ncreative_lane = true\n",
        &[
            councillor("yes", &answer("implement", "Mend the retry", "high", TWO)),
            councillor("no", &answer("research", hostile, "low", &format!("{ONE},{TWO}"))),
            councillor(
                "liar",
                &answer("repair", "Trust me", "high", "\\\"dream-ffffffffffffffff\\\""),
            ),
            councillor("slow", "sleep 600"),
            "[backends.gone]\ntype = \"command\"\nprogram = \"a-program-that-is-nowhere\"\n"
                .to_owned(),
            councillor(
                "prose",
                "echo 'I would begin with the retry.'; echo evil > ../voice-1/evil; echo evil > ../../../evil; true",
            ),
        ],
    );
    let night =
        fixture.run_with_clock(&["overnight", "start", "--goal", "a net that does not give up"]);
    let summary = artifact(&fixture, "summary.json");
    assert_eq!(summary["status"], "done", "{night:?}");
    valid(&fixture);

    let store = artifact(&fixture, "council/ledger.json");
    let passes: Vec<(&str, &str, &str)> = store["passes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| {
            let text = |key: &str| it[key].as_str().unwrap();
            (text("runner"), text("lane"), text("status"))
        })
        .collect();
    assert_eq!(
        passes,
        [
            ("builtin", "council", "answered"),
            ("yes", "council", "answered"),
            ("no", "council", "answered"),
            ("liar", "council", "malformed"),
            ("slow", "council", "silent"),
            ("gone", "council", "not-asked"),
            ("prose", "council", "malformed"),
            // The councillor answers with a report although an idea was requested.
            ("yes", "wildcard", "malformed"),
        ]
    );
    for runner in ["liar", "slow", "gone", "prose"] {
        assert!(!fixture.path(&format!("{LATEST}/council/{runner}.json")).exists());
        assert!(summary["degraded"].to_string().contains(runner), "{}", summary["degraded"]);
    }
    assert!(!fixture.path("evil").exists());

    let synthesis = artifact(&fixture, "council/synthesis.json");
    assert_eq!(synthesis["voices"], json!(["builtin", "no", "yes"]));
    assert_eq!(synthesis["unheard"].as_array().unwrap().len(), 5);
    assert_eq!(synthesis["agreement"]["of"], 3);
    let tension = synthesis["tension"].as_str().unwrap();
    assert!(tension.contains("no would research"), "{tension}");
    assert_eq!(summary["dreamscape"]["tension"], synthesis["tension"]);
    assert!(
        summary["dreamscape"]["council"].as_str().unwrap().starts_with("3 of 7 answered"),
        "{}",
        summary["dreamscape"]
    );

    // The first packet refers to its evidence and to the councillors that support it.
    let packets = summary["morning_packets"].as_array().unwrap();
    assert_eq!(store["packets"].as_array().unwrap().len(), packets.len());
    let backed = &store["packets"][0];
    assert_eq!(backed["id"], packets[0]["id"]);
    let voices: Vec<&str> = backed["voices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["runner"].as_str().unwrap())
        .collect();
    assert!(!voices.is_empty(), "{store}");
    for voice in backed["voices"].as_array().unwrap() {
        let words = artifact(&fixture, voice["artifact"].as_str().unwrap());
        assert!(words["backs"].as_array().unwrap().contains(&backed["id"]));
    }
    assert!(!backed["evidence"].as_array().unwrap().is_empty());

    // The database records each call with its backend.
    let asked = fixture.count("SELECT count(*) FROM requests");
    assert_eq!(asked, 7, "expected five councillors to be asked once, and one twice");
    assert_eq!(fixture.count("SELECT count(DISTINCT backend) FROM requests"), 6);
    let runs = fixture.run_with_clock(&["runs", "--json"]).ends(0).json();
    let run = runs.as_array().unwrap().iter().find(|run| run["job"] == "overnight").unwrap();
    assert!(run["backend"].as_str().unwrap().contains("yes, no"), "{run}");
    assert!(fixture.survivors().is_empty(), "{:?}", fixture.survivors());
    // A councillor's text is escaped in the Markdown report.
    let markdown = fixture.run_with_clock(&["overnight", "report", "--markdown"]).ends(0).out;
    assert!(!markdown.contains("<script>") && !markdown.contains('\u{202e}'), "{markdown}");
}

#[test]
fn councillors_run_concurrently() {
    let fixture = Fixture::new();
    let pipe = fixture.root().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let pipe = pipe.display();
    // The councillors wait for each other, so neither could answer if they were asked one after the
    // other.
    let give =
        format!("echo here > '{pipe}'; {}", answer("implement", "Mend the retry", "high", ONE));
    let take =
        format!("read line < '{pipe}'; {}", answer("implement", "Mend the retry", "high", ONE));
    let fixture = self::fixture(
        "runners = [\"give\", \"take\"]\nsandbox = \"off\"\ncouncil_timeout = \"60s\"\n",
        &[councillor("give", &give), councillor("take", &take)],
    );
    fixture.run_with_clock(&["overnight", "start"]).ends(0);
    let synthesis = artifact(&fixture, "council/synthesis.json");
    assert_eq!(synthesis["voices"], json!(["give", "take"]));
    assert_eq!(synthesis.get("tension"), None);
    valid(&fixture);
}

#[test]
fn unaffordable_councillors_are_skipped() {
    let fixture = fixture(
        "runners = [\"builtin\", \"dear\"]\n[day.budget]\ncalls = 5\ntokens = 0\n",
        &[councillor("dear", &answer("implement", "Mend the retry", "high", ONE))],
    );
    fixture.run_with_clock(&["overnight", "start"]);
    let summary = artifact(&fixture, "summary.json");
    assert_eq!(summary["status"], "done");
    assert!(
        summary["degraded"].to_string().contains("dear: was not asked: day 2026-11-22"),
        "{}",
        summary["degraded"]
    );
    assert_eq!(artifact(&fixture, "council/synthesis.json")["voices"], json!(["builtin"]));
    assert_eq!(fixture.count("SELECT coalesce(sum(tokens), 0) FROM requests"), 0);
    valid(&fixture);
}

#[test]
fn resumed_run_reuses_recorded_answers() {
    let fixture = fixture(
        "runners = [\"one\"]\n",
        &[councillor("one", &answer("implement", "Mend the retry", "high", ONE))],
    );
    fixture.run_with_clock(&["overnight", "start"]).ends(0);
    let asked = || fixture.count("SELECT count(*) FROM requests");
    assert_eq!(asked(), 1);
    // Simulate a run that died after the councillors answered.
    fixture.write(".agents/rpi/next-work.jsonl", WORK);
    for name in ["summary.json", "summary.md"] {
        fs::remove_file(fixture.path(&format!("{LATEST}/{name}"))).unwrap();
    }
    let first = artifact(&fixture, "council/packet.json");
    fixture.run_with_clock(&["overnight", "start"]);
    let second = artifact(&fixture, "council/packet.json");
    assert_eq!(first["run_id"], second["run_id"], "the run was not continued");
    assert_eq!(first["candidates"], second["candidates"]);
    assert_ne!(first["degraded"], second["degraded"]);
    assert_eq!(asked(), 1, "the same question was asked again");
    // Changed work results in a different question, so the councillor is asked again.
    for name in ["summary.json", "summary.md"] {
        fs::remove_file(fixture.path(&format!("{LATEST}/{name}"))).unwrap();
    }
    let more = WORK.replace("Count the calls", "Count all calls");
    fixture.write(".agents/rpi/next-work.jsonl", more);
    fixture.run_with_clock(&["overnight", "start"]);
    assert_eq!(asked(), 2);
    assert_eq!(artifact(&fixture, "council/synthesis.json")["voices"], json!(["one"]));
    valid(&fixture);
}

#[test]
fn unknown_or_repeated_councillors_are_rejected() {
    let fixture = fixture("", &[]);
    fixture
        .run_with_clock(&["overnight", "start", "--runner", "bulitin"])
        .ends(2)
        .expect_text("--runner bulitin: there is no such backend")
        .expect_text("did you mean \"builtin\"");
    fixture
        .run_with_clock(&["overnight", "start", "--runner", "builtin", "--runner", "builtin"])
        .ends(2)
        .expect_text("named twice");
    assert!(!fixture.path(LATEST).exists());
}

/// Checks that runner shows other programs' summaries in every form, including unknown fields and
/// values.
#[test]
fn foreign_summaries_are_shown_in_every_form() {
    let fixture = Fixture::with("");
    let first = json!({
        "schema_version": 1, "mode": "dream.local-bedtime", "run_id": "20260409T220000Z", "status": "done",
        "repo_root": "/p", "output_dir": "out", "started_at": "2026-04-09T22:00:00Z", "duration": 7_200_000_000_000_u64,
        "steps": [{"name": "close-loop", "status": "done"}, {"name": "odd", "status": "transcended"}],
        "morning_packets": [{"title": "Mend <b>it</b>", "severity": "high", "morning_command": "ao rpi"}],
        "next_action": "ao rpi", "terrain": {"hills": 3},
    });
    let mut second = first.clone();
    second["schema_version"] = json!(2);
    second["iterations"] = json!([{"index": 1, "status": "done", "fitness_after": {"composite": 0.5}, "fitness_delta": 0.1}, {"index": "two"}]);
    for (folder, summary, words) in [("old", first, "version 1"), ("new", second, "iterations[1]")]
    {
        fixture.write(&format!("{folder}/summary.json"), summary.to_string());
        for from in [folder.to_owned(), format!("{folder}/summary.json")] {
            let report = |more: &[&str]| {
                fixture.run(&[&["overnight", "report", "--from", &from][..], more].concat())
            };
            let plain =
                report(&[]).ends(0).expect_text("terrain").expect_text("Mend <b>it</b>").out;
            assert!(!plain.contains("**"), "{plain}");
            let markdown = report(&["--markdown"]).ends(0).out;
            assert!(!markdown.contains("<b>"), "{markdown}");
            for text in [plain, markdown.replace('\\', "")] {
                assert!(text.contains(words), "{words} in {text}");
            }
            let same: Value = serde_json::from_str(&report(&["--json"]).ends(0).out).unwrap();
            assert_eq!(same, summary, "unknown fields were lost");
            report(&["--validate"]).ends(65);
        }
    }
    for (from, words) in [
        ("nowhere", "nowhere"),
        ("nowhere/summary.json", "nowhere"),
        ("README.md", "is not a night summary"),
    ] {
        fixture.run(&["overnight", "report", "--from", from]).ends(65).expect_text(words);
    }
    fixture
        .run(&["overnight", "report", "--from", "nowhere", "--validate"])
        .ends(65)
        .expect_text("nowhere");
    fixture.write("list.json", "[1]");
    fixture
        .run(&["overnight", "report", "--from", "list.json"])
        .ends(65)
        .expect_text("not a JSON object");
}
