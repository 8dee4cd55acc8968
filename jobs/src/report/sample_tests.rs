//! Sample reports for tests.

use jiff::Timestamp;
use runner_engine::awake::{InhibitLevel, SleepInhibition};
use runner_engine::outcome::{Class, Outcome};
use runner_engine::sandbox::SandboxLevel;
use runner_engine::store::{Amounts, Budget};
use serde_json::{Map, Value, json};

use super::budget_usage::UnitUsage;
use super::dreamscape::{Council, CouncillorView, Dreamscape};
use super::fleet_usage::{FleetUsage, HostUsage};
use super::model::{NotRun, NotRunReason};
use super::pending::{PendingItem, PendingSort};
use super::proposals::ReportedProposal;
use super::refusals::{Refusal, RefusedBy};
use super::{NightReport, RunLine};
use crate::dream::proposal::{Action, Confidence, IdeaStatus};
use crate::log_tail::{LogTail, ModelReply};

/// Returns a run that succeeded.
pub(crate) fn run(job: &str, kind: &str) -> RunLine {
    let at = Timestamp::from_second(1_795_305_000).unwrap();
    RunLine {
        run: "01KA5V7Q4B".into(),
        occurrence: String::new(),
        job: job.into(),
        kind: kind.into(),
        attempt: 1,
        outcome: Some(Outcome::Succeeded),
        started: Some(at),
        finished: Some(at),
        spent: Amounts { calls: 1, tokens: 1200, micros: 12_345, seconds: 42, ideas: 0 },
        unstated_calls: 0,
        unpriced_calls: 0,
        limited_calls: 0,
        headline: "did it".into(),
        lines: vec![],
        facts: Map::new(),
        artifacts: vec!["out/a.json".into()],
        backend: "builtin".into(),
        containment: "full (bubblewrap, landlock 4), network closed, tree cgroup".into(),
        sandbox: Some(SandboxLevel::Full),
        gaps: vec![],
        refused: vec![],
        failed_tools: 0,
        awake: Some(SleepInhibition {
            held: InhibitLevel::Sleep,
            by: "logind".into(),
            why: String::new(),
        }),
        files: None,
    }
}

pub(crate) fn failed(job: &str, class: Class, why: &str) -> RunLine {
    RunLine {
        outcome: Some(Outcome::Failed { class, why: why.into() }),
        headline: why.into(),
        artifacts: vec![],
        ..run(job, "command")
    }
}

pub(crate) fn night(runs: Vec<RunLine>) -> NightReport {
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    let refused = super::refusals::refusals_of_night(&runs);
    NightReport {
        schema_version: 1,
        night: "2026-11-21".into(),
        project: "tides".into(),
        opened: at(1_795_304_000),
        closed: at(1_795_330_000),
        worst: "succeeded".into(),
        spent: runs.iter().fold(Amounts::default(), |sum, run| sum.plus(run.spent)),
        runs,
        open: vec![],
        not_run: vec![],
        missed: vec![],
        by_day: vec![],
        grants: vec![],
        alerts: vec![],
        undelivered: 0,
        budgets: vec![],
        fleets: vec![],
        refused,
        proposals: vec![],
        more_proposals: 0,
        unread_proposals: vec![],
        waiting: Vec::new(),
        dreamscapes: vec![],
        first: vec![],
    }
}

pub(crate) fn proposal(number: usize, text: &str) -> ReportedProposal {
    ReportedProposal {
        job: "dream".into(),
        id: format!("{number:016x}"),
        targets: vec![format!("ideas/{number}-{text}.md")],
        status: IdeaStatus::Implemented,
        action: Action::Archive,
        confidence: Confidence::High,
        evidence: format!("31399b60 {text}"),
        rationale: text.into(),
        decided: None,
        flag: String::new(),
        days: 0,
        obsolete: false,
        like: None,
        disfavoured: false,
    }
}

/// Returns a report with items of most kinds, and with `text` in the fields that can contain
/// foreign text.
pub(crate) fn full(text: &str) -> NightReport {
    let mut good = run(&format!("dream{text}"), "dream");
    good.headline = text.into();
    good.lines = vec![text.into()];
    good.refused = vec![text.into()];
    good.gaps = vec![text.into()];
    good.artifacts = vec![text.into()];
    good.backend = text.into();
    good.containment = text.into();
    good.unstated_calls = 1;
    good.files = Some(LogTail {
        folder: Some(text.into()),
        log: vec![text.into()],
        stdout: vec![text.into()],
        stderr: vec![text.into()],
        replies: vec![ModelReply { backend: text.into(), text: text.into() }],
    });
    let mut report = night(vec![good, failed(text, Class::Guard, text)]);
    report.night = format!("2026-11-21{text}");
    report.project = text.into();
    for lines in [
        &mut report.open,
        &mut report.missed,
        &mut report.by_day,
        &mut report.grants,
        &mut report.alerts,
    ] {
        lines.push(text.into());
    }
    report.refused.push(Refusal {
        job: text.into(),
        run: text.into(),
        by: RefusedBy::Guard,
        what: text.into(),
    });
    report.proposals = vec![
        proposal(1, text),
        ReportedProposal { decided: Some(text.into()), ..proposal(2, text) },
        ReportedProposal { action: Action::Keep, flag: text.into(), ..proposal(3, text) },
    ];
    report.more_proposals = 3;
    report.proposals[0].like = Some(text.into());
    report.unread_proposals = vec![text.into()];
    report.not_run = vec![NotRun {
        job: text.into(),
        because: NotRunReason::Failed(Class::Environment),
        why: text.into(),
    }];
    report.fleets = vec![FleetUsage {
        fleet: text.into(),
        hosts: vec![HostUsage {
            host: text.into(),
            jobs: vec![text.into()],
            spent: Amounts::default(),
        }],
        spent: Amounts::default(),
        limit: Budget::default(),
    }];
    report.waiting = vec![PendingItem {
        sort: PendingSort::Draft,
        job: text.into(),
        what: text.into(),
        why: text.into(),
        command: text.into(),
    }];
    report.budgets = vec![UnitUsage {
        unit: text.into(),
        cap: Some(10),
        granted: 5,
        planned: 9,
        spent: 4,
        left: Some(11),
    }];
    let mut scape: Dreamscape =
        Dreamscape { job: text.into(), run: text.into(), ..Dreamscape::default() };
    super::dreamscape::fill(&mut scape, &summary(text));
    for words in [&mut scape.weather, &mut scape.status] {
        *words = text.into();
    }
    scape.goal = Some(text.into());
    scape.tension = Some(text.into());
    let voice = CouncillorView {
        runner: text.into(),
        kind: text.into(),
        action: text.into(),
        confidence: text.into(),
        backend: text.into(),
        class: Some(Class::Auth),
        was_asked: true,
    };
    scape.council = Some(Council {
        words: text.into(),
        voices: vec![voice.clone()],
        unheard: vec![voice.clone()],
        wildcards: vec![voice],
    });
    scape.ended = Some(text.into());
    scape.first_move = Some(text.into());
    scape.degraded.push(text.into());
    for point in &mut scape.land {
        point.status = text.into();
        point.degraded = vec![text.into()];
    }
    for packet in &mut scape.packets {
        for words in [
            &mut packet.title,
            &mut packet.kind,
            &mut packet.severity,
            &mut packet.why,
            &mut packet.command,
        ] {
            *words = text.into();
        }
        packet.confidence = Some(text.into());
        packet.voices = vec![text.into()];
    }
    report.dreamscapes =
        vec![scape, Dreamscape { missing: Some(text.into()), ..Dreamscape::default() }];
    report.first = super::next_steps::moves(&report);
    report
}

/// Returns the summary of an overnight run.
pub(crate) fn summary(run: &str) -> Value {
    let iteration =
        |index: u64, before: f64, after: Option<f64>, status: &str, degraded: &[&str]| {
            json!({
                "id": format!("{run}-iter-{index}"), "index": index, "status": status,
                "fitness_before": { "composite": before, "metrics": {} },
                "fitness_after": after.map(|it| json!({ "composite": it, "metrics": {} })),
                "fitness_delta": after.map_or(0.0, |it| it - before), "degraded": degraded,
            })
        };
    let packet = |rank: u64, title: &str, severity: &str| {
        json!({
            "id": format!("dream-{rank:016x}"), "rank": rank, "title": title, "type": "repair",
            "severity": severity, "confidence": "high", "why_now": "two findings name it and nobody has it",
            "evidence": ["a.md", "b.md"], "morning_command": format!("claude 'Work on packet {rank}'"),
        })
    };
    json!({
        "schema_version": 2, "mode": "dream.local-bedtime", "run_id": run, "status": "done",
        "goal": "fewer flaky tests",
        "steps": [
            { "name": "close-loop", "status": "done" },
            { "name": "bead-sync", "status": "soft-fail", "note": "bd is not on PATH" },
        ],
        "dreamscape": {
            "weather": "clearing", "visibility": "good", "council": "two of three",
            "tension": "codex would repair first, claude would research first",
            "first_move": "repair the clock tests",
        },
        "morning_packets": [
            packet(2, "Give the export a size bound", "medium"),
            packet(1, "Repair the clock tests that fail in autumn", "high"),
            packet(3, "Write down why the cache was left out", "low"),
        ],
        "degraded": [],
        "council": {
            "positions": [
                {"recommended_kind": "repair", "voices": [{"runner": "codex", "confidence": "high", "recommended_first_action": "Repair the clock tests"}]},
                {"recommended_kind": "research", "voices": [{"runner": "claude", "confidence": "low", "recommended_first_action": "Find out why they fail"}]},
            ],
            "unheard": [{"runner": "llama", "why": "malformed: its answer is not JSON"}],
            "wildcards": [{"runner": "claude", "text": "Delete the clock", "lane": "wildcard", "wildcard": true}],
        },
        "iterations": [
            iteration(1, 0.61, Some(0.66), "done", &[]),
            iteration(2, 0.66, Some(0.71), "degraded", &["bench: no index"]),
            iteration(3, 0.71, Some(0.58), "rolled-back-pre-commit", &[]),
            iteration(4, 0.71, None, "failed", &["measure: no space"]),
        ],
        "fitness_delta": 0.1, "regression_reason": "coverage fell by 0.13",
    })
}
