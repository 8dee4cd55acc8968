//! Tests the morning after each of many defects: the night's headline, the status, the alerts and
//! the tick's exit code.
//!
//! Every case runs the same night in a separate project. All failing cases are reported together,
//! so the whole effect of a change is visible.

mod machine;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::bad_input::Mounted;
use crate::fixture::{CommandOutput, Fixture, ended_within, skip};
use crate::http::Server;
use crate::http::behaviours::Behaviour as B;
use crate::http::dialect::Dialect;

const EVENING: &str = "2026-11-21T20:00:00Z";
const NIGHT: &str = "2026-11-22T02:30:00Z";
const MORNING: &str = "2026-11-22T07:00:00Z";
const FAKES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/backends/tests/fakes");

/// The expected state on the morning after the night, as a person sees it.
struct Morning {
    /// The exit code of the night's tick.
    exit: i32,
    /// The beginning of the night's headline.
    headline: &'static str,
    /// Texts that the status contains.
    status: &'static [&'static str],
    /// The kinds of the open alerts, in alphabetical order.
    alerts: &'static [&'static str],
}

struct Case {
    name: &'static str,
    /// The settings that are appended to the project's `runner.toml`.
    toml: String,
    prepare: fn(&Fixture),
    expected: Morning,
}

fn at(fixture: &Fixture, clock: &str, args: &[&str]) -> CommandOutput {
    CommandOutput::of(command(fixture, clock, args).output().unwrap())
}

fn command(fixture: &Fixture, clock: &str, args: &[&str]) -> Command {
    fixture.set_clock(clock);
    let mut command = fixture.runner_with_clock(args);
    if fixture.root().join("trusts-nothing").exists() {
        command.env_remove("RUNNER_CONFIG__TRUST__PATHS");
    }
    command
}

/// Creates the project in the evening, and then introduces the case's defect.
fn evening(case: &Case, fixture: Fixture) -> Fixture {
    at(&fixture, EVENING, &["init"]).ends(0);
    fixture.configure(&case.toml);
    fixture.write("ideas/note.md", "Maybe use a shorter name?\n");
    fixture.command("touch", &["-d", "2026-11-20T00:00:00Z", "ideas/note.md"]).status().unwrap();
    at(&fixture, EVENING, &["tick"]);
    (case.prepare)(&fixture);
    fixture
}

/// Ticks at the time of the night. Until the tick ends, advances the clock by one minute every five
/// seconds, because the tick may wait for another attempt.
fn night(fixture: &Fixture) -> CommandOutput {
    let mut tick = command(fixture, NIGHT, &["tick"]);
    let tick = tick.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut now: Timestamp = NIGHT.parse().unwrap();
    while !ended_within(tick.id(), Duration::from_secs(5)) {
        now = now.saturating_add(SignedDuration::from_mins(1)).unwrap();
        fixture.set_clock(now);
    }
    CommandOutput::of(tick.wait_with_output().unwrap())
}

/// Returns the differences between the expected state and the state that a person sees.
fn differences(case: &Case) -> Vec<String> {
    differences_in(case, Fixture::new())
}

fn differences_in(case: &Case, fixture: Fixture) -> Vec<String> {
    let fixture = evening(case, fixture);
    let tick = night(&fixture);
    let mut found = Vec::new();
    let expected = &case.expected;
    if tick.code != expected.exit {
        found.push(format!("exit {} instead of {}: {tick:?}", tick.code, expected.exit));
    }
    let status = at(&fixture, MORNING, &["status"]);
    let json = at(&fixture, MORNING, &["status", "--json"]).json();
    let headline = json["projects"][0]["last_night"]["headline"].as_str().unwrap_or("no night");
    if !headline.starts_with(expected.headline) {
        found.push(format!("headline {headline:?} instead of {:?}", expected.headline));
    }
    let worst = &json["projects"][0]["last_night"]["worst"];
    if headline.contains("did not run") && worst == "succeeded" {
        found.push(format!("the worst outcome is {worst} although a job did not run"));
    }
    for text in expected.status {
        if !status.out.contains(text) {
            found.push(format!("no {text:?} in the status:\n{}", status.out));
        }
    }
    let store = fixture.store();
    let mut rows =
        store.prepare("SELECT DISTINCT kind FROM alerts WHERE ended IS NULL ORDER BY 1").unwrap();
    let kinds = rows.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let kinds: Vec<String> = kinds.map(Result::unwrap).collect();
    if kinds != expected.alerts {
        found.push(format!("alerts {kinds:?} instead of {:?}", expected.alerts));
    }
    // The page must not report success if the headline reports a problem.
    let page = at(&fixture, MORNING, &["report", "--html"]);
    if page.code == 0 {
        let good =
            page.out.contains("All runs succeeded.") || page.out.contains("Nothing had to be");
        let quiet = page.out.contains("Nothing is waiting for you.");
        let well = headline.starts_with("1 succeeded");
        if (good || quiet) && !well && !expected.alerts.is_empty() {
            found.push("the page reports no problem".to_owned());
        }
        if headline.contains("did not run") != page.out.contains("did not run") {
            found.push("the page and the headline differ".to_owned());
        }
    }
    found.into_iter().map(|it| format!("{}: {it}", case.name)).collect()
}

#[track_caller]
fn check(cases: Vec<Case>) {
    let all: Vec<String> = std::thread::scope(|scope| {
        let half = cases.len().div_ceil(2);
        let workers: Vec<_> = cases
            .chunks(half)
            .map(|part| scope.spawn(|| part.iter().flat_map(differences).collect::<Vec<_>>()))
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(all.is_empty(), "{} differences:\n{}", all.len(), all.join("\n"));
}

fn nothing(_: &Fixture) {}

/// Returns the settings of a job `ask` that asks the backend `mine`.
fn asks(backend: &str) -> String {
    format!(
        "[jobs.dream]\nenabled = false\n[backends.mine]\n{backend}\n\
         [jobs.ask]\nkind = \"prompt\"\nprompt = \"?\"\nto = \"notes/{{date}}.md\"\nbackend = \"mine\"\nretries = 0\n"
    )
}

/// Returns the settings of a job `tidy` that runs a script.
fn runs(script: &str, more: &str) -> String {
    format!(
        "[jobs.dream]\nenabled = false\n[jobs.tidy]\nkind = \"command\"\nprogram = \"sh\"\n\
         args = [\"-c\", {script:?}]\nretries = 0\n{more}"
    )
}

fn keys(fixture: &Fixture, text: &str, mode: u32) {
    let path = fixture.root().join("keys");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

const FAILED: &[&str] = &["failure"];
const STOPPED: &[&str] = &["breaker", "failure"];

#[test]
fn unusable_backends_are_reported() {
    let case = |name, backend: &str, prepare, exit, headline, status| Case {
        name,
        toml: asks(backend),
        prepare,
        expected: Morning { exit, headline, status, alerts: FAILED },
    };
    let auth = "ask (auth) did not run; 1 failed";
    let environment = "ask (environment) did not run; 1 failed";
    let claude = format!("type = \"claude\"\nprogram = \"{FAKES}/claude\"");
    check(vec![
        case("no login", &claude, nothing, 77, auth, &["FAILED", "not logged in", "next due"]),
        case(
            "a variable that is not set",
            &format!("{claude}\nenv = [\"NOT_SET_ANYWHERE\"]"),
            nothing,
            78,
            environment,
            &["NOT_SET_ANYWHERE"],
        ),
        case(
            "a missing key file",
            &format!("{claude}\nenv_file = \"~/keys\""),
            nothing,
            77,
            auth,
            &["not logged in", "keys"],
        ),
        case(
            "a key file that others can read",
            &format!("{claude}\nenv_file = \"~/keys\""),
            |fixture| keys(fixture, "ANTHROPIC_API_KEY=k\n", 0o644),
            77,
            auth,
            &["chmod 600"],
        ),
        case(
            "a missing program",
            "type = \"claude\"\nprogram = \"no-such-agent\"",
            nothing,
            69,
            "ask (not-installed) did not run; 1 failed",
            &["no-such-agent", "npm install"],
        ),
        case(
            "a program that is a folder",
            "type = \"command\"\nprogram = \"/tmp\"",
            nothing,
            69,
            "ask (not-installed) did not run; 1 failed",
            &["/tmp"],
        ),
        case(
            "an API without a key",
            "type = \"anthropic\"\nmodel = \"m\"\nbase_url = \"http://127.0.0.1:9\"\nkey = \"NOT_SET_ANYWHERE\"",
            nothing,
            77,
            auth,
            &["not logged in", "NOT_SET_ANYWHERE"],
        ),
        case(
            "a key with a line break",
            "type = \"anthropic\"\nmodel = \"m\"\nbase_url = \"http://127.0.0.1:9\"\nkey = \"K\"\nenv_file = \"~/keys\"",
            |fixture| keys(fixture, "K=\"a b\"\n", 0o600),
            77,
            auth,
            &["K contains"],
        ),
    ]);
}

#[test]
fn provider_refusals_are_reported() {
    let served = |behaviour: B| {
        let server = Server::start(move |talk, seen| {
            behaviour.answer(Dialect::Messages, talk, seen, "http://127.0.0.1:1");
        });
        let url = server.url();
        (server, url)
    };
    let case = |name, url: &str, exit, headline, status, alerts| Case {
        name,
        toml: asks(&format!(
            "type = \"anthropic\"\nmodel = \"m\"\nbase_url = \"{url}\"\nkey = \"K\"\nenv_file = \"~/keys\""
        )),
        prepare: |fixture| keys(fixture, "K=k-123456\n", 0o600),
        expected: Morning { exit, headline, status, alerts },
    };
    let mut servers = Vec::new();
    let mut url = |behaviour| {
        let (server, url) = served(behaviour);
        servers.push(server);
        url
    };
    check(vec![
        case(
            "a wrong key",
            &url(B::NoKey),
            77,
            "1 failed",
            &["STOPPED", "nothing; each job with a schedule is stopped", "not authorized"],
            STOPPED,
        ),
        case("no credit left", &url(B::NoCredit), 1, "1 failed", &["over-budget"], FAILED),
        case("an unknown model", &url(B::NoModel), 69, "1 failed", &["not-installed"], FAILED),
        case(
            "a limit with a known end",
            &url(B::LimitSeconds),
            0,
            "1 unfinished",
            &["queued"],
            &[],
        ),
        case("an HTML page", &url(B::WebPage), 69, "1 failed", &["unavailable"], FAILED),
        case(
            "no network",
            "http://127.0.0.1:1",
            69,
            "ask (rate-limited) did not run; 1 failed",
            &["unavailable"],
            FAILED,
        ),
    ]);
}

#[test]
fn failed_jobs_are_reported() {
    let case = |name, toml: String, exit, headline, status, alerts| Case {
        name,
        toml,
        prepare: nothing,
        expected: Morning { exit, headline, status, alerts },
    };
    let artifact = "artifacts = [{ from = \"a.json\", to = \"out/a.json\" }]\n";
    check(vec![
        case("a good job", runs("true", ""), 0, "1 succeeded", &["1 succeeded"], &[]),
        case("exit 3", runs("exit 3", ""), 1, "1 failed", &["exit 3"], FAILED),
        case("a signal", runs("kill -9 $$", ""), 1, "1 failed", &["signal 9"], FAILED),
        case("a missing artifact", runs("true", artifact), 1, "1 failed", &["a.json"], FAILED),
        case(
            "a half-written artifact",
            runs("printf '{' > $RUNNER_OUT/a.json", artifact),
            1,
            "1 failed",
            &["malformed"],
            FAILED,
        ),
        case(
            "a job that is too slow",
            runs("exec sleep 60", "timeout = \"1s\"\n"),
            1,
            "1 timed-out",
            &["timed-out"],
            FAILED,
        ),
        case(
            "a write that the sandbox refuses",
            runs("echo x > ../outside", ""),
            1,
            "1 failed",
            &["../outside"],
            FAILED,
        ),
        case(
            "a folder that the job may not write",
            runs("mkdir -p docs && echo x > docs/a", "writes = [\"out\"]\n"),
            1,
            "1 failed",
            &["FAILED"],
            FAILED,
        ),
        case(
            "a program that is not installed",
            "[jobs.dream]\nenabled = false\n[jobs.tidy]\nkind = \"command\"\nprogram = \"no-such-program\"\n".to_owned(),
            69,
            "1 failed",
            &["not-installed"],
            FAILED,
        ),
        case(
            "a budget that is too small",
            asks("type = \"command\"\nprogram = \"echo\"\nargs = [\"x\"]") + "[jobs.ask.budget]\ncalls = 0\n",
            1,
            "1 failed",
            &["over-budget"],
            FAILED,
        ),
        case(
            "a night without a budget",
            asks("type = \"command\"\nprogram = \"echo\"\nargs = [\"x\"]") + "[night.budget]\ncalls = 0\n",
            1,
            "ask (over-budget) did not run; 1 failed",
            &["over-budget"],
            FAILED,
        ),
        case(
            "a follower of a failed job",
            runs("exit 3", "[jobs.after]\nkind = \"command\"\nprogram = \"true\"\ntrigger = \"after tidy\"\n"),
            1,
            "after (unfollowed) did not run; 1 skipped, 1 failed",
            &["exit 3"],
            FAILED,
        ),
        case(
            "a question without a model",
            asks("type = \"builtin\""),
            0,
            "1 degraded",
            &["1 degraded"],
            &[],
        ),
        case(
            "an empty answer",
            asks("type = \"command\"\nprogram = \"true\""),
            1,
            "1 failed",
            &["FAILED"],
            FAILED,
        ),
    ]);
}

#[test]
fn project_defects_are_reported() {
    let dream = "[jobs.dream]\nretries = 0\n";
    let case = |name, toml: &str, prepare, exit, headline, status, alerts| Case {
        name,
        toml: toml.to_owned(),
        prepare,
        expected: Morning { exit, headline, status, alerts },
    };
    check(vec![
        case(
            "a dirty work tree",
            dream,
            |fixture| {
                fixture.write("ideas/known.md", "one\n");
                fixture.git(&["add", "ideas/known.md"]);
                fixture.git(&["commit", "--quiet", "-m", "Keep it"]);
                fixture.write("ideas/known.md", "two\n");
            },
            0,
            "dream (still waiting) did not run",
            &["queued"],
            &[],
        ),
        case(
            "an unfinished merge",
            dream,
            |fixture| fixture.write(".git/MERGE_HEAD", "x\n"),
            0,
            "dream (still waiting) did not run",
            &["queued"],
            &[],
        ),
        case(
            "a damaged state file",
            dream,
            |fixture| fixture.write("dreams/state.json", "{"),
            78,
            "1 failed",
            &["dreams/state.json"],
            FAILED,
        ),
        case(
            "a dreams folder that git tracks",
            dream,
            |fixture| {
                fixture.write("dreams/state.json", "[]\n");
                fixture.git(&["add", "--force", "dreams/state.json"]);
                fixture.git(&["commit", "--quiet", "-m", "Track it"]);
            },
            1,
            "1 failed",
            &["is tracked by git"],
            FAILED,
        ),
        case(
            "a file in place of the dreams folder",
            dream,
            |fixture| {
                let _gone = fs::remove_dir_all(fixture.path("dreams"));
                fixture.write("dreams", "x");
            },
            78,
            "dream (environment) did not run",
            &["FAILED"],
            FAILED,
        ),
        case(
            "no notes",
            dream,
            |fixture| fs::remove_file(fixture.path("ideas/note.md")).unwrap(),
            0,
            "1 skipped",
            &["1 skipped"],
            &[],
        ),
        case(
            "settings that cannot be read",
            dream,
            |fixture| fixture.configure("[nonsense]\n"),
            78,
            "dream (still waiting) did not run",
            &["TROUBLE", "nonsense"],
            &[],
        ),
        case(
            "a change that nobody accepted",
            dream,
            |fixture| {
                // The user trusts no folder, and a pull brings new settings of a job.
                fs::write(fixture.root().join("trusts-nothing"), "").unwrap();
                fs::write(
                    fixture.root().join("config/runner/config.toml"),
                    "[defaults]\nstagger = \"0s\"\n[notify]\nwindow = \"0s\"\n",
                )
                .unwrap();
                fixture.configure("[jobs.dream.budget]\ncalls = 99\n");
            },
            78,
            "dream (still waiting) did not run",
            &["TROUBLE", "runner.toml has not been accepted yet", "fix: runner trust"],
            &[],
        ),
        case(
            "a file in place of the reports",
            dream,
            |fixture| fixture.write(".runner/reports", "x"),
            1,
            "1 succeeded",
            &["has no report file", "to print the report: runner report"],
            &["failure"],
        ),
        case(
            "a project that is gone",
            dream,
            |fixture| {
                fs::rename(fixture.project(), fixture.root().join("elsewhere"))
                    .and_then(|()| fs::create_dir(fixture.project()))
                    .unwrap()
            },
            78,
            "no night",
            &["TROUBLE", "runner projects"],
            &["missed"],
        ),
        case(
            "a paused job",
            dream,
            |fixture| {
                at(fixture, EVENING, &["pause", "dream"]).ends(0);
            },
            0,
            "no night",
            &["paused"],
            &[],
        ),
        case(
            "a disabled job",
            "[jobs.dream]\nenabled = false\n",
            nothing,
            0,
            "no night",
            &["no job has a schedule"],
            &[],
        ),
    ]);
}
