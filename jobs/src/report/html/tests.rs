//! Tests the page's contents for nights of all sizes and outcomes.

#![allow(clippy::print_stdout, reason = "the test prints its measurements")]

use runner_engine::time::boot_time;

use minijinja::context;
use runner_engine::awake::{InhibitLevel, SleepInhibition};
use runner_engine::outcome::{Class, Outcome, SkipReason};
use scraper::{Html, Selector};

use super::{STYLE, TEMPLATES, environment, render, style_digest};
use crate::log_tail::{LogTail, ModelReply};
use crate::report::{
    NightReport, NotRun, NotRunReason, next_steps, refusals, sample_tests as sample,
};

fn texts(page: &str, selector: &str) -> Vec<String> {
    let html = Html::parse_document(page);
    let selector = Selector::parse(selector).unwrap();
    let found = html.select(&selector);
    found
        .map(|it| {
            let text: String = it.text().collect();
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        })
        .collect()
}

fn page(mut report: NightReport) -> String {
    report.refused = refusals::refusals_of_night(&report.runs);
    report.first = next_steps::moves(&report);
    render(&report)
}

/// Returns the verdict, the main text of each card, and the next steps in order.
fn reported(page: &str) -> (String, Vec<String>, Vec<String>) {
    let verdict = texts(page, ".verdict").remove(0);
    (verdict, texts(page, ".card .big"), texts(page, ".moves .what"))
}

#[test]
fn good_night_requires_no_action() {
    let page = page(sample::night(vec![sample::run("tidy", "command")]));
    let (verdict, cards, moves) = reported(&page);
    assert_eq!(verdict, "All runs succeeded.");
    assert_eq!(cards, ["1 succeeded", "$0.02", "nothing", "nothing"]);
    assert!(moves.is_empty());
    assert!(page.contains("Nothing is waiting for you."), "{page}");
    assert_eq!(texts(&page, "#sandbox dt").len(), 2, "{page}");
}

#[test]
fn bad_night_names_the_first_step() {
    let mut report = sample::night(vec![
        sample::run("tidy", "command"),
        sample::failed("dream", Class::Auth, "claude: 401"),
        sample::failed("scrub", Class::Guard, "src/a.rs is not among what it may write"),
    ]);
    report.proposals = vec![sample::proposal(1, "x")];
    report.alerts = vec!["dream: failure; NOT DELIVERED to mail: refused".into()];
    report.undelivered = 1;
    let page = page(report);
    let (verdict, cards, moves) = reported(&page);
    assert_eq!(verdict, "2 of 3 did not succeed.");
    assert_eq!(cards[0], "2 failed 1 succeeded");
    assert_eq!(cards[2..], ["1 thing", "1 proposal"]);
    assert_eq!(
        moves,
        [
            "Look at dream: failed (auth)",
            "Look at scrub: failed (guard)",
            "Fix an alert channel",
            "Decide on 1 proposal"
        ]
    );
    // Failures are unfolded, and show the reason and the fix.
    let open = texts(&page, "details[open] .body");
    assert_eq!(open.len(), 2);
    assert!(open[0].contains("renew the key"), "{open:?}");
    assert_eq!(
        texts(&page, "#proposals .body .command"),
        [
            "runner dream accept 0000000000000001",
            "runner dream reject 0000000000000001",
            "runner dream show 0000000000000001"
        ]
    );
}

#[test]
fn jobs_that_did_not_run_come_first() {
    let mut stopped = sample::run("tidy", "command");
    stopped.outcome = Some(Outcome::skipped(SkipReason::Stopped, "stopped after 3 failures"));
    stopped.started = None;
    let mut report = sample::night(vec![sample::run("dream", "dream"), stopped]);
    report.not_run = vec![NotRun {
        job: "tidy".into(),
        because: NotRunReason::Skipped(SkipReason::Stopped),
        why: "stopped after 3 failures".into(),
    }];
    assert_eq!(report.headline(), "tidy (stopped) did not run; 1 succeeded, 1 skipped");
    let (verdict, cards, moves) = reported(&page(report.clone()));
    assert_eq!(verdict, "tidy (stopped) did not run. Everything else succeeded.");
    assert_eq!(cards[0], "1 skipped 1 succeeded");
    assert_eq!(moves, ["tidy did not run: stopped"]);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["not_run"][0]["because"], "skipped");
    assert_eq!(json["not_run"][0]["kind"], "stopped");
    let read: NightReport = serde_json::from_value(json).unwrap();
    assert_eq!(read, report);
}

#[test]
fn missing_sleep_inhibition_is_a_headline_figure() {
    let mut run = sample::run("dream", "dream");
    run.awake = Some(SleepInhibition {
        held: InhibitLevel::Nothing,
        by: String::new(),
        why: "no logind answers".into(),
    });
    let report = sample::night(vec![run, sample::run("tidy", "command")]);
    assert_eq!(report.headline(), "2 succeeded; 1 not kept awake");
    let (_, cards, _) = reported(&page(report));
    assert_eq!(cards[0], "2 succeeded 1 not kept awake");
}

#[test]
fn empty_and_crashed_nights_have_complete_pages() {
    let empty = page(sample::night(vec![]));
    let (verdict, cards, moves) = reported(&empty);
    assert_eq!(verdict, "Nothing was due.");
    assert_eq!(cards, ["nothing was due", "$0.00", "nothing", "nothing"]);
    assert!(moves.is_empty());
    assert!(empty.len() < 16_000, "{}", empty.len());

    let mut lost = sample::run("overnight", "overnight");
    lost.outcome = Some(Outcome::Lost { why: "its process was killed".into() });
    let mut crashed = sample::night(vec![lost]);
    crashed.open = vec!["dream".into()];
    crashed.dreamscapes = vec![crate::report::dreamscape::Dreamscape {
        job: "overnight".into(),
        run: "01R".into(),
        missing: Some("there is no summary of the run".into()),
        ..Default::default()
    }];
    let crashed = page(crashed);
    let (verdict, cards, moves) = reported(&crashed);
    assert_eq!(verdict, "It failed.");
    assert_eq!(cards[0], "1 lost 1 unfinished");
    assert_eq!(moves, ["Look at overnight: lost", "1 run unfinished"]);
    assert!(texts(&crashed, ".scape")[0].contains("No picture: there is no summary"));
    assert!(texts(&crashed, ".scape svg").is_empty());
}

#[test]
fn page_of_five_hundred_runs_is_small_and_folded() {
    let began = boot_time();
    let runs = (0..500)
        .map(|number| {
            let mut run = match number % 10 {
                0 => sample::failed("scrub", Class::Crash, "exit 3"),
                _ => sample::run("tidy", "command"),
            };
            run.job = format!("job-{number}");
            run.lines = (0..60).map(|line| format!("line {line} of what it did")).collect();
            run
        })
        .collect();
    let mut report = sample::night(runs);
    report.proposals =
        (0..200).map(|number| sample::proposal(number, "a note about tides")).collect();
    let page = page(report);
    print_line(&format!(
        "a page of 500 runs and 200 proposals: {} bytes in {:?}",
        page.len(),
        boot_time().saturating_sub(began)
    ));
    assert!(page.len() < 900_000, "{} bytes", page.len());
    assert_eq!(texts(&page, ".row").len(), 700, "every run and proposal has a row");
    // Only the rows outside folded lists are visible without a click, and three of them are open.
    let html = Html::parse_document(&page);
    let all = html.select(&Selector::parse(".row").unwrap()).count();
    let folded = html.select(&Selector::parse(".more .row").unwrap()).count();
    assert_eq!(all - folded, 12 + 12 + 10);
    assert_eq!(texts(&page, "details[open]").len(), 3);
    assert_eq!(texts(&page, ".moves li").len(), 5);
}

#[test]
fn the_dreamscape_is_drawn_from_its_figures() {
    let mut report = sample::night(vec![sample::run("overnight", "overnight")]);
    report.dreamscapes = sample::full("").dreamscapes;
    report.dreamscapes.truncate(1);
    let scape = &mut report.dreamscapes[0];
    scape.degraded = vec!["bead-sync: bd is not on PATH".into()];
    let first_tension = scape.tension.replace("codex would repair first".into());
    assert!(first_tension.is_some());
    let drawn = page(report.clone());
    assert_eq!(texts(&drawn, "figure > svg .flag").len(), 3);
    assert_eq!(texts(&drawn, "figure > svg .fault").len(), 1);
    // There is one cloud for the night, and one for each degraded iteration.
    assert_eq!(texts(&drawn, "figure > svg .cloud").len(), 5);
    assert!(texts(&drawn, "figure > svg .star").is_empty());
    assert!(texts(&drawn, ".legend").remove(0).contains("0.61 → 0.71 over 4 iterations"));
    assert_eq!(texts(&drawn, ".scape table tbody tr").len(), 4);

    let scape = &mut report.dreamscapes[0];
    scape.tension = None;
    scape.degraded.clear();
    scape.packets.clear();
    scape.land.iter_mut().for_each(|point| point.degraded.clear());
    let clear = page(report);
    for absent in [".flag", ".fault", ".cloud"] {
        assert!(texts(&clear, &format!("figure > svg {absent}")).is_empty(), "{absent}");
    }
    assert!(!texts(&clear, "figure > svg .star").is_empty());
}

#[test]
fn the_policy_allows_the_style_and_nothing_else() {
    let page = render(&sample::night(vec![]));
    assert!(
        page.contains(&format!("default-src 'none'; style-src 'sha256-{}'", style_digest())),
        "{page}"
    );
    assert_eq!(style_digest().len(), 44);
    // The digest must match the style as the parser reads it.
    assert_eq!(
        Html::parse_document(&page)
            .select(&Selector::parse("style").unwrap())
            .map(|it| it.text().collect::<String>())
            .collect::<Vec<_>>(),
        [STYLE]
    );
    for never in ["url(", "@import", "http:", "https:", "//", "expression"] {
        assert!(!STYLE.contains(never), "{never}");
    }
}

#[test]
fn every_value_of_a_template_is_escaped() {
    let value = "<b class=\"x\" id='y'>`&amp;`</b>\n\u{1b}[1m\u{202e}\0";
    let environment = environment();
    let template = "<p title=\"{{ value }}\">{{ 3 + 4 }}</p>";
    assert_eq!(
        environment.render_str(template, context! { value }).unwrap(),
        "<p title=\"&lt;b class=&quot;x&quot; id=&#x27;y&#x27;&gt;`&amp;amp;`&lt;&#x2f;b&gt; \
         \u{fffd}[1m\u{fffd}\u{fffd}\">7</p>"
    );
    assert!(environment.render_str("{{ unknown }}", ()).is_err());
    for (name, text) in TEMPLATES {
        // No value is exempt from escaping, and every attribute is in double quotes.
        for never in ["safe", "autoescape", "={{", "={%", "='"] {
            let text = text.replace("content=\"default-src 'none'", "");
            assert!(!text.contains(never), "{never} in {name}");
        }
    }
}

#[test]
fn a_failed_run_shows_its_files_and_replies() {
    let why = "exit 6; the sandbox closes the network (example.org); `network = true` opens it";
    let mut failed = sample::failed("fetch", Class::Exit, why);
    failed.files = Some(LogTail {
        folder: Some("/state/runs/01KA5V7Q4B".into()),
        log: vec!["the run begins".into(), "settled".into()],
        stdout: vec![],
        stderr: vec!["curl: (6) Could not resolve host: example.org".into()],
        replies: vec![ModelReply { backend: "claude".into(), text: "[\n  no JSON".into() }],
    });
    let page = page(sample::night(vec![failed, sample::run("tidy", "command")]));
    let html = Html::parse_document(&page);
    let open = Selector::parse("details[open] pre").unwrap();
    let tails: Vec<String> = html.select(&open).map(|it| it.text().collect()).collect();
    // A browser ignores the line break after <pre>, and shows all others.
    assert_eq!(
        tails,
        [
            "the run begins\nsettled\n",
            "curl: (6) Could not resolve host: example.org\n",
            "[\n  no JSON\n"
        ]
    );
    let named = texts(&page, "details[open] .faint");
    assert_eq!(named, ["last lines of log", "last lines of stderr", "reply of claude"]);
    let body = texts(&page, "details[open]").concat();
    for text in ["example.org", "`network = true`", "/state/runs/01KA5V7Q4B"] {
        assert!(body.contains(text), "{text}: {body}");
    }
    assert!(texts(&page, "details:not([open]) pre").is_empty());
}

/// Prints a line that the test harness does not capture.
fn print_line(line: &str) {
    use std::io::Write as _;
    let _closed = writeln!(std::io::stderr(), "{line}");
}
