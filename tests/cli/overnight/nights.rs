//! Tests the results of complete nights and of manual steps.

use std::fs;

use super::{
    JOB, LATEST, WORK, WORK_FILE, citation, corpus, learning, night, run_ok, start, summary_of,
    tree, watched, words,
};
use crate::fixture::Fixture;

#[test]
fn only_the_first_night_improves_the_corpus() {
    let fixture = night();
    start(&fixture, &["--goal", "retries that do not give up"])
        .ends(0)
        .expect_text("deltas in a row");
    let summary = summary_of(&fixture);
    assert_eq!(summary["status"], "done");
    // New learnings have not been used yet, which may lower the fitness a little.
    assert!(summary["fitness_delta"].as_f64().unwrap() > -0.01, "{summary}");
    assert!(summary["metrics_health"]["composite"].as_f64().unwrap() > 0.3, "{summary}");
    assert_eq!(summary["yield"]["removed"], 1);
    assert_eq!(summary["yield"]["proposed"], 2);
    assert!(summary["yield"]["promoted"].as_u64().unwrap() >= 9);
    assert_eq!(summary["steps"][5]["status"], "skipped");
    // The promotion keeps the node's other fields.
    let promoted = fixture.read(".agents/learnings/2026-10-00-lesson.md");
    assert!(
        promoted.contains("odd-key: [1, 2]\nmaturity: candidate\nutility: 0.80\n"),
        "{promoted}"
    );
    assert!(promoted.contains("promoted_at: 2026-11-22\n---\n"));
    assert!(
        !fixture.read(".agents/learnings/old.md").contains("status:"),
        "the retirement was carried out, not only proposed"
    );
    assert!(fixture.read(".agents/overnight/proposals.jsonl").contains("learnings/old.md"));
    let gone = summary["run_id"].as_str().unwrap();
    assert!(fixture.path(&format!("{LATEST}/{gone}/removed/learnings/same-two.md")).exists());
    // The commit is harvested as one learning.
    let harvested: Vec<String> =
        tree(&fixture).into_keys().filter(|path| path.contains("2026-11-01-retry")).collect();
    assert_eq!(harvested.len(), 1, "{:?}", tree(&fixture).keys());
    assert!(fixture.read(&harvested[0]).contains("source_commit: "));
    // Packets refer to existing evidence and exclude claimed work. Severity and goal determine the
    // first packet.
    let packets = summary["morning_packets"].as_array().unwrap();
    assert_eq!(packets[0]["title"], "Mend the retry");
    assert_eq!(packets[0]["target_files"], serde_json::json!(["src/net.rs"]));
    assert_eq!(packets[0]["likely_tests"], serde_json::json!(["tests/net_test.rs"]));
    for packet in packets {
        assert!(packet["title"] != "Taken" && packet["title"] != "Done");
        for line in packet["evidence"].as_array().unwrap() {
            let line = line.as_str().unwrap();
            let path = line.split(':').next().unwrap();
            assert!(line.starts_with("commit ") || fixture.path(path).exists(), "{line}");
        }
        let path = packet["artifact_path"].as_str().unwrap();
        assert!(path.starts_with(&format!(".agents/overnight/runs/{gone}/")), "{path}");
        assert!(fixture.path(path).exists());
    }
    assert_eq!(packets[0]["description"], "src/net.rs gives up");
    assert_eq!(packets[0]["age_days"], 52);
    // The work file keeps claims, unknown fields, broken lines and flat rows.
    let work = fixture.read(WORK_FILE);
    let (old, new): (Vec<&str>, Vec<&str>) = (WORK.lines().collect(), work.lines().collect());
    assert!(new[0].contains("\"odd\":0.80,\"id\":\"mine-1\",\"why_now\""), "{}", new[0]);
    assert!(new[0].ends_with("{\"title\":\"Taken\",\"type\":\"bug\",\"severity\":\"high\",\"source\":\"x\",\"description\":\"\",\"claim_status\":\"in_progress\",\"claimed_by\":\"me\"}],\"consumed\":false,\"claim_status\":\"available\"}"));
    assert_eq!([new[1], new[2], new[4]], [old[1], old[2], old[4]]);
    assert!(
        new[3].starts_with("{\"title\":\"A flat row\",\"type\":\"task\",\"severity\":\"low\""),
        "{}",
        new[3]
    );
    run_ok(&fixture, &["overnight", "report", "--validate"])
        .ends(0)
        .expect_text("all valid against their schemas");
    run_ok(&fixture, &["overnight", "report"]).ends(0).expect_text("Mend the retry");
    run_ok(&fixture, &["overnight", "report", "--markdown"])
        .ends(0)
        .expect_text("# The night: done");
    for step in ["health", "bench"] {
        let ask = || run_ok(&fixture, &["corpus", step, "--json"]).out;
        let (one, two) = (ask(), ask());
        assert!(one.len() > 200);
        assert_eq!(one, two);
    }
    let before = (tree(&fixture), fixture.read(WORK_FILE));
    start(&fixture, &["--goal", "retries that do not give up"])
        .ends(0)
        .expect_text("two zero deltas");
    let second = summary_of(&fixture);
    // Only the packets' paths change, because they contain the run's id.
    let work = fixture.read(WORK_FILE).replace(second["run_id"].as_str().unwrap(), gone);
    assert_eq!((tree(&fixture), work), before);
    assert_eq!(second["iterations"].as_array().unwrap().len(), 2);
    assert_eq!(second["fitness_delta"], 0.0);
    assert!(second["plateau_reason"].as_str().unwrap().contains("two zero deltas"));
    assert!(fixture.path(&format!(".agents/overnight/runs/{gone}/summary.json")).exists());
    for packet in packets {
        let path = packet["artifact_path"].as_str().unwrap();
        assert!(fixture.path(path).exists(), "{path} moved");
    }
}

#[test]
fn retirement_needs_a_decision_and_can_be_undone() {
    let fixture = night();
    run_ok(&fixture, &["corpus", "defrag", "--apply"]).ends(0).expect_text("learnings/old.md");
    let before = tree(&fixture);
    let open = run_ok(&fixture, &["corpus", "proposals", "--json"]).ends(0).json();
    let old = open.as_array().unwrap().iter().find(|it| it["path"] == "learnings/old.md").unwrap();
    let id = old["id"].as_str().unwrap();
    assert!(old["text"].as_str().unwrap().contains("# Old"));
    run_ok(&fixture, &["corpus", "accept", id]).ends(0);
    assert!(fixture.read(".agents/learnings/old.md").contains("status: retired"));
    run_ok(&fixture, &["corpus", "accept", id]).ends(2).expect_text("already decided");
    let retired = fixture.read(".agents/learnings/old.md");
    let edited = format!("{retired}A later thought.\n");
    fixture.write(".agents/learnings/old.md", &edited);
    run_ok(&fixture, &["corpus", "undo", id])
        .ends(75)
        .expect_text("learnings/old.md has changed since proposal")
        .expect_text("fix: edit .agents/learnings/old.md and remove or restore the field status");
    assert_eq!(fixture.read(".agents/learnings/old.md"), edited);
    fixture.write(".agents/learnings/old.md", &retired);
    run_ok(&fixture, &["corpus", "undo", id]).ends(0);
    assert_eq!(tree(&fixture), before);
    run_ok(&fixture, &["corpus", "reject", id]).ends(0);
    start(&fixture, &["--max-iterations", "1"]).ends(0);
    let open = run_ok(&fixture, &["corpus", "proposals", "--json"]).ends(0).out;
    assert!(!open.contains(id), "a rejected proposal was made again");
    run_ok(&fixture, &["corpus", "accept", "retire-none"]).ends(2).expect_text("no proposal");
}

#[test]
fn simultaneous_decisions_are_all_kept() {
    let fixture = night();
    for number in 0..12 {
        let text = learning("old", "provisional", &format!("Old {number}"), &words(number + 200));
        let text = text.replace("utility", "ttl_days: 2\nutility");
        fixture.write(&format!(".agents/learnings/expired-{number}.md"), text);
    }
    run_ok(&fixture, &["corpus", "defrag", "--apply"]).ends(0);
    let ids = || -> Vec<String> {
        let open = run_ok(&fixture, &["corpus", "proposals", "--json"]).ends(0).json();
        let open = open.as_array().unwrap().iter();
        open.map(|it| it["id"].as_str().unwrap().to_owned()).collect()
    };
    let open = ids();
    assert!(open.len() >= 12, "{open:?}");
    // A defragmentation that only searches for oscillating files keeps the other proposals.
    run_ok(&fixture, &["corpus", "defrag", "--oscillation-sweep", "--apply"]).ends(0);
    assert_eq!(ids(), open);
    std::thread::scope(|scope| {
        for id in &open {
            scope.spawn(|| {
                while fixture
                    .runner_with_clock(&["corpus", "accept", id])
                    .output()
                    .unwrap()
                    .status
                    .code()
                    == Some(75)
                {}
            });
        }
    });
    assert_eq!(ids(), Vec::<String>::new());
    for id in &open {
        run_ok(&fixture, &["corpus", "undo", id]).ends(0);
    }
    assert_eq!(ids().len(), open.len());
}

#[test]
fn uses_of_a_merged_copy_are_kept() {
    let fixture = Fixture::with(JOB);
    let text = learning("ci", "candidate", "The same", &words(1));
    for name in ["same-one", "same-two"] {
        fixture.write(&format!(".agents/learnings/{name}.md"), text.clone());
    }
    fixture.write(".agents/ao/citations.jsonl", citation("same-two"));
    fixture.set_clock("2026-11-22T02:30:00Z");
    let fitness = || run_ok(&fixture, &["corpus", "health", "--json"]).json()["composite"].as_f64();
    let before = fitness().unwrap();
    // A damaged proposals file is reported before anything is changed.
    let proposals = ".agents/overnight/proposals.jsonl";
    fixture.write(proposals, "no proposal\n");
    run_ok(&fixture, &["corpus", "defrag", "--apply"]).ends(65).expect_text("is not a proposal");
    assert!(fixture.path(".agents/learnings/same-two.md").exists());
    fs::remove_file(fixture.path(proposals)).unwrap();
    run_ok(&fixture, &["corpus", "defrag", "--apply"]).ends(0).expect_text("same-two");
    assert!(fitness().unwrap() >= before, "{:?} < {before}", fitness());
    let open = run_ok(&fixture, &["corpus", "proposals"]).ends(0).out;
    assert!(!open.contains("same-two"), "{open}");
}

#[test]
fn nodes_of_unknown_use_or_class_are_unchanged() {
    let fixture = Fixture::with(JOB);
    for (name, text) in [("one", "Tides turn the harbour."), ("two", "Lamps need oil.")] {
        let text = format!("---\ndate: 2020-01-01\nttl_days: 3\n---\n# {name}\n\n{text}\n");
        fixture.write(&format!(".agents/learnings/{name}.md"), text);
    }
    fixture.set_clock("2026-11-22T02:30:00Z");
    let before = tree(&fixture);
    start(&fixture, &[]).ends(0).expect_text("fitness unknown");
    assert_eq!(tree(&fixture), before);
    let summary = summary_of(&fixture);
    assert_eq!(summary["yield"]["proposed"], 0);
    assert_eq!(summary["dreamscape"]["weather"], "unknown");
    assert_eq!(summary["metrics_health"]["composite"], serde_json::Value::Null);
    run_ok(&fixture, &["overnight", "report", "--validate"]).ends(0);
}

#[test]
fn dry_run_and_inspection_change_nothing() {
    let fixture = night();
    let before = fixture.tree("");
    let summary = start(&fixture, &["--dry-run", "--json", "--goal", "retries"]).ends(0).json();
    assert_eq!(summary["status"], "dry-run");
    assert!(!summary["morning_packets"].as_array().unwrap().is_empty());
    for args in [
        &["corpus", "health"][..],
        &["corpus", "bench"],
        &["corpus", "defrag"],
        &["corpus", "harvest", "--dry-run"],
        &["corpus", "close-loop", "--dry-run"],
        &["corpus", "brief", "--goal", "retry"],
    ] {
        assert!(run_ok(&fixture, args).code <= 1, "{args:?}");
    }
    assert_eq!(fixture.tree(""), before);
    assert!(run_ok(&fixture, &["corpus", "brief", "--goal", "quantum bananas"]).code == 65);
}

#[test]
fn manual_steps_respect_the_night_lock() {
    let fixture = night();
    run_ok(&fixture, &["corpus", "defrag", "--dedup", "--apply"]).ends(0).expect_text("same-two");
    assert!(!fixture.path(".agents/learnings/same-two.md").exists());
    run_ok(&fixture, &["corpus", "close-loop", "--threshold", "0h"])
        .ends(0)
        .expect_text("promoted");
    run_ok(&fixture, &["corpus", "harvest"]).ends(0).expect_text("new from");
    run_ok(&fixture, &["corpus", "harvest"]).ends(0).expect_text("0 new");
    assert!(!fixture.path(".agents/overnight/COMMIT-MARKER.0").exists());
    // The kernel's lock decides, not the content of the file.
    let lock = fs::File::options()
        .read(true)
        .write(true)
        .open(fixture.path(".agents/overnight/run.lock"))
        .unwrap();
    fs::write(fixture.path(".agents/overnight/run.lock"), "4242\n").unwrap();
    lock.lock().unwrap();
    for args in
        [&["corpus", "harvest"][..], &["corpus", "defrag", "--apply"], &["overnight", "start"]]
    {
        run_ok(&fixture, args).ends(75).expect_text("locked by PID 4242");
    }
    run_ok(&fixture, &["corpus", "brief", "--goal", "retry"]).ends(0);
    lock.unlock().unwrap();
    start(&fixture, &["--max-iterations", "1"]).ends(0);
}

#[test]
fn start_that_did_not_run_exits_with_75() {
    let fixture = night();
    let codes: Vec<Option<i32>> = std::thread::scope(|scope| {
        let run =
            || fixture.runner_with_clock(&["overnight", "start"]).output().unwrap().status.code();
        let all: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        all.into_iter().map(|it| it.join().unwrap()).collect()
    });
    assert!(codes.iter().all(|it| matches!(it, Some(0 | 75))), "{codes:?}");
    let runs = run_ok(&fixture, &["runs", "--json"]).ends(0).json();
    let runs = runs.as_array().unwrap().iter().filter(|it| it["job"] == "overnight");
    let ran =
        |it: &&serde_json::Value| matches!(it["outcome"].as_str(), Some("succeeded" | "degraded"));
    let ended = codes.iter().filter(|it| **it == Some(0)).count();
    assert_eq!(runs.filter(ran).count(), ended, "{codes:?}");
}

#[test]
fn finding_keeps_its_evidence_and_its_age() {
    let fixture = night();
    let finding = "---\nid: f-2026-01-10-001\nseverity: high\ndate: 2026-01-10\nstatus: active\nevidence: \"the log of CI run 17 shows the loop\"\n---\n# Uploads spin for ever\n\nThey loop.\n";
    fixture.write(".agents/findings/f-2026-01-10-001.md", finding);
    let packet = || {
        start(&fixture, &["--max-iterations", "1"]).ends(0);
        let packets = summary_of(&fixture)["morning_packets"].clone();
        let found = packets.as_array().unwrap().iter();
        found.clone().find(|it| it["title"] == "Uploads spin for ever").unwrap().clone()
    };
    for night in [packet(), packet()] {
        assert_eq!(night["finder_evidence"], "the log of CI run 17 shows the loop", "{night}");
        assert_eq!(night["age_days"], 316, "{night}");
    }
}

#[test]
fn each_packet_creates_one_bead() {
    let fixture = Fixture::with(&format!("{JOB}sandbox = \"off\"\n"));
    corpus(&fixture);
    let third =
        "{\"title\":\"Third\",\"type\":\"task\",\"severity\":\"low\",\"description\":\"more\"}\n";
    fixture.write(WORK_FILE, format!("{WORK}{third}"));
    let bin = fixture.root().join("bin");
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(fixture.path(".beads")).unwrap();
    let bd = bin.join("bd");
    fs::write(
        &bd,
        r#"#!/bin/sh
[ "$1" = list ] && [ "$*" != "list --all --limit 0 --label overnight --json" ] && exit 2
[ "$1" = list ] && [ -e .beads/list ] && . ./.beads/list
[ "$1" = list ] && { echo "[$(cat .beads/all 2>/dev/null | paste -sd, -)]"; exit; }
[ "$1" = create ] || exit 2
n=$(($(cat .beads/n 2>/dev/null || echo 0) + 1))
echo $n > .beads/n
[ $n = 3 ] && { echo no more >&2; exit 1; }
bead="{\"id\":\"bd-$n\",\"description\":\"$(printf %s "$4" | tail -n 1)\"}"
echo "$bead" >> .beads/all
echo "$bead"
"#,
    )
    .unwrap();
    fs::set_permissions(&bd, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let night = || {
        let mut command = fixture.runner_with_clock(&["overnight", "start"]);
        watched(&fixture, command.env("PATH", &path)).ends(0);
        summary_of(&fixture)
    };
    fixture.set_clock("2026-11-22T02:30:00Z");
    let summary = night();
    let step = summary["steps"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(step["status"], "soft-fail", "{step}");
    assert!(summary["degraded"].to_string().contains("2 beads made; bd failed: no more"));
    assert_eq!(summary["morning_packets"][0]["bead_id"], "bd-1");
    assert!(fixture.read(".agents/rpi/next-work.jsonl").contains("\"bead_id\":\"bd-2\""));
    let summary = night();
    assert_eq!(summary["morning_packets"][0]["bead_id"], "bd-1", "the packet lost its bead");
    let made = |fixture: &Fixture| fixture.read(".beads/all").lines().count();
    assert_eq!(made(&fixture), summary["morning_packets"].as_array().unwrap().len());
    // A night that dies after it created the beads leaves the work file as it was.
    fixture.write(WORK_FILE, format!("{WORK}{third}"));
    let again = night();
    assert_eq!(made(&fixture), summary["morning_packets"].as_array().unwrap().len());
    assert_eq!(again["morning_packets"][0]["bead_id"], "bd-1");
    // No bead is created if bd was stopped. If it only refuses to list the beads, all are created.
    let known = made(&fixture);
    for (list, count) in [("kill -9 $$", known), ("echo no flag >&2; exit 1", 2 * known)] {
        fixture.write(WORK_FILE, format!("{WORK}{third}"));
        fixture.write(".beads/list", list);
        let degraded = night()["degraded"].to_string();
        assert!(degraded.contains("bead-sync"), "{degraded}");
        assert_eq!(made(&fixture), count, "{degraded}");
    }
}

#[test]
fn later_overnight_job_joins_the_night() {
    let fixture = Fixture::with(
        "[night]\nat = \"02:30\"\n[jobs.dream]\nkind = \"dream\"\ntrigger = \"night\"\n\
         [jobs.overnight]\nkind = \"overnight\"\ntrigger = \"daily 03:30\"\n",
    );
    corpus(&fixture);
    let at = |clock: &str| fixture.run_at(clock, &["tick"]);
    // The jobs were recorded at the real time, so their schedules restart at this tick.
    at("2026-11-21T20:00:00Z");
    at("2026-11-22T02:30:00Z").ends(0);
    assert_eq!(fixture.count("SELECT count(*) FROM nights WHERE closed IS NULL"), 1);
    at("2026-11-22T03:30:00Z").ends(0);
    assert_eq!(fixture.count("SELECT count(*) FROM nights"), 1);
    let report = fixture.read(".runner/reports/2026-11-22/report.md");
    assert!(report.contains("| dream |") && report.contains("| overnight |"), "{report}");
    assert!(report.contains("## The dreamscape of overnight"), "{report}");
    assert!(fixture.read(".runner/reports/2026-11-22/report.html").contains("overnight"));
}

#[test]
fn start_writes_the_report_of_its_night() {
    let fixture = night();
    let event = [
        "curator",
        "event",
        "--source",
        "ci",
        "--severity",
        "critical",
        "--desired-action",
        "restore the backup",
        "--escalation-target",
        "me",
        "--budget",
        "0",
    ];
    fixture.run(&event).ends(0);
    let done = fixture.run_with_clock(&["overnight", "start"]);
    let folder = ".runner/reports/2026-11-22";
    let done = done.ends(0);
    assert!(done.err.contains(&format!("{folder}/report.md")), "{done:?}");
    let report = fixture.read(&format!("{folder}/report.md"));
    let (_, first) = report.split_once("## Do this first").unwrap();
    for step in [
        "Look at the critical event: restore the backup",
        "runner curator events show ",
        "See what overnight changed in the corpus",
        "Begin with: Mend the retry",
    ] {
        assert!(first.contains(step), "{step}: {report}");
    }
    assert!(report.contains("## The dreamscape of overnight"), "{report}");
    let degraded = summary_of(&fixture)["degraded"].to_string();
    assert!(degraded.contains("restore the backup"), "{degraded}");
    assert_eq!(fixture.count("SELECT count(*) FROM budget_usage WHERE level = 'night'"), 1);
}

#[test]
fn sources_that_were_not_read_are_reported() {
    let fixture = night();
    fixture.write(".agents/retro/long.md", "x".repeat(600 * 1024));
    start(&fixture, &[]).ends(0);
    let id = fixture.run(&["runs", "--job", "overnight", "--json"]).json()[0]["id"].clone();
    let why = "not read: .agents/retro/long.md is too long";
    fixture.run(&["runs", "show", id.as_str().unwrap()]).ends(0).expect_text(why);
}
