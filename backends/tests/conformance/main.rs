//! Checks every backend except `replay` against the contract in the documentation of `Backend`.
//!
//! Each row of [`IMPLEMENTATIONS`] puts its backend into a [`Situation`], or reports that the
//! situation does not apply. The number of cases that do not apply is printed. To add a backend,
//! add a row.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // test set-up may panic

mod agents;
mod apis;
mod hostile_http;
#[path = "../../../tests/fakes/http/mod.rs"]
mod http;
mod programs;
mod secure;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use runner_backends::{
    Backend, BackendError, BackendKind, BackendSpec, Builtin, NullSink, OwnedEvent, Phase, Reply,
    Request, RequestLimits, Scripted, Source, Step, Stop, Surroundings, Usage, VecSink, build,
};
use runner_engine::outcome::Class;
use runner_engine::process::Cancel;
use runner_engine::process::tree::kill_marked;
use runner_engine::time::{Clock, boot_time};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A value in the child's environment that must not appear in any error.
const CANARY: &str = "canary-5f1c0d-secret";
const DEADLINE: Duration = Duration::from_millis(200);
const NEVER: Duration = Duration::from_secs(60);
/// Tolerance for a loaded machine, far below `NEVER`.
const SLACK: Duration = Duration::from_secs(8);
const OUTPUT_CAP: usize = 256 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Situation {
    Good,
    GoodInAFile,
    UsageStated,
    UsageUnknown,
    SilentStart,
    Stall,
    Drip,
    Deaf,
    CancelledBefore,
    CancelledMidway,
    Prose,
    NotText,
    Empty,
    OverLong,
    LinkedFile,
    HalfFile,
    Crashes,
    LeavesProcesses,
    MissingProgram,
    MissingVariable,
    NoAuth,
    RateLimited,
    Refused,
    Unreachable,
    LeaksOnCrash,
    LeaksMalformed,
}
use Situation as S;

const SITUATIONS: [Situation; 26] = [
    S::Good,
    S::GoodInAFile,
    S::UsageStated,
    S::UsageUnknown,
    S::SilentStart,
    S::Stall,
    S::Drip,
    S::Deaf,
    S::CancelledBefore,
    S::CancelledMidway,
    S::Prose,
    S::NotText,
    S::Empty,
    S::OverLong,
    S::LinkedFile,
    S::HalfFile,
    S::Crashes,
    S::LeavesProcesses,
    S::MissingProgram,
    S::MissingVariable,
    S::NoAuth,
    S::RateLimited,
    S::Refused,
    S::Unreachable,
    S::LeaksOnCrash,
    S::LeaksMalformed,
];

/// A backend that has been put into a situation.
struct Case {
    backend: Arc<dyn Backend>,
    /// Returns the expected answer to this request.
    answer: fn(&Request) -> Value,
    /// Returns the number of times a model has been called.
    calls: Box<dyn Fn() -> usize>,
    /// A named pipe to which the program or the server writes once it has started working. Without
    /// a pipe, the request is cancelled as soon as the backend's future has been polled.
    begun: Option<PathBuf>,
}

type Factory = fn(Situation, &Path) -> Option<Case>;

const IMPLEMENTATIONS: [(&str, Factory); 8] = [
    ("builtin", builtin),
    ("scripted", scripted),
    ("command", command),
    ("claude", agents::claude),
    ("codex", agents::codex),
    ("anthropic", apis::anthropic),
    ("openai", apis::openai),
    ("ollama", apis::ollama),
];

fn builtin(situation: Situation, _: &Path) -> Option<Case> {
    match situation {
        S::Good | S::UsageStated | S::CancelledBefore => Some(Case {
            backend: Arc::new(Builtin::new("under-test")),
            answer: |request| request.rule_answer.clone(),
            calls: Box::new(|| 0),
            begun: None,
        }),
        _ => None,
    }
}

fn scripted(situation: Situation, _: &Path) -> Option<Case> {
    let usage = Some(Usage { input_tokens: 9, output_tokens: 3, ..Usage::default() });
    let stated = Reply {
        text: "[1]".into(),
        value: Some(json!([1])),
        usage,
        stop: Stop::End,
        notes: Vec::new(),
    };
    let why = String::from("said the script");
    let step = match situation {
        S::Good | S::UsageUnknown | S::CancelledBefore => Step::Answer(json!([1])),
        S::UsageStated => Step::Reply(stated),
        S::SilentStart | S::CancelledMidway => Step::Hang,
        S::Stall => Step::Stall("[1".into()),
        S::Prose => Step::Text("Sure! Here is the JSON:\n```json\n[1]\n```".into()),
        S::Empty => Step::Text(" \n".into()),
        S::Crashes => Step::Error(BackendError::Crash {
            status: "exit 3".into(),
            why,
            stderr_tail: String::new(),
        }),
        S::NoAuth => Step::Error(BackendError::Auth { why }),
        S::RateLimited => Step::Error(BackendError::RateLimited { until: None, why }),
        S::Refused => Step::Error(BackendError::Rejected { why }),
        S::Unreachable => Step::Error(BackendError::Unavailable { why }),
        _ => return None,
    };
    let backend = Arc::new(Scripted::new("under-test", [step.clone(), step]));
    let asked = backend.clone();
    Some(Case {
        backend,
        answer: |_| json!([1]),
        calls: Box::new(move || asked.asked().len()),
        begun: None,
    })
}

fn command(situation: Situation, place: &Path) -> Option<Case> {
    // Each run appends one line to `calls`, which is outside its run folder.
    let body = match situation {
        S::Good | S::UsageUnknown | S::CancelledBefore => "cat",
        S::GoodInAFile => "echo thinking aloud; cat >proposals.json",
        S::SilentStart => "exec sleep 1000",
        S::Stall => "printf '[1'; exec sleep 1000",
        S::Drip => "while :; do printf ' '; sleep 0.02; done",
        S::Deaf => "exec <&-; echo '[1]'; exec >&- 2>&-; exec sleep 1000",
        S::CancelledMidway => "echo >\"$FIFO\"; exec sleep 1000",
        S::Prose => "printf 'Sure! Here is the JSON:\\n```json\\n[1]\\n```\\n'",
        S::NotText => "printf '\"\\377\\376\"'",
        S::Empty => "cat >/dev/null; echo",
        S::OverLong => "exec yes",
        S::LinkedFile => "echo '[1]' >other; ln -s other proposals.json; echo '[1]'",
        S::HalfFile => "printf '[1, ' >proposals.json; echo '[1]'",
        S::Crashes => "cat; echo '[1]' >proposals.json; echo broken >&2; exit 3",
        S::LeavesProcesses => "setsid -f sleep 1000; sleep 1000 & cat",
        S::LeaksOnCrash => "echo \"using $SECRET for $SECRET\" >&2; exit 1",
        S::LeaksMalformed => "echo \"my key is $SECRET\"",
        S::MissingProgram | S::MissingVariable => "cat",
        S::UsageStated | S::NoAuth | S::RateLimited | S::Refused | S::Unreachable => return None,
    };
    let script = place.join("agent.sh");
    let calls = place.join("calls");
    let fifo = place.join("fifo");
    fs::write(&script, format!("echo call >>\"$CALLS\"\n{body}\n")).unwrap();
    let begun = (situation == S::CancelledMidway).then(|| {
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).unwrap();
        fifo.clone()
    });
    let env: BTreeMap<String, String> = [
        ("PATH", "/usr/bin:/bin"),
        ("SECRET", CANARY),
        ("CALLS", calls.to_str().unwrap()),
        ("FIFO", fifo.to_str().unwrap()),
        ("NOT_NAMED", "never handed on"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let mut names = vec!["SECRET".to_owned(), "CALLS".to_owned(), "FIFO".to_owned()];
    if situation == S::MissingVariable {
        names.push("NOBODY_SET_THIS".to_owned());
    }
    let program = if situation == S::MissingProgram { "no-such-agent" } else { "sh" };
    let settings = json!({
        "program": program, "args": [script], "env": names, "output_cap": OUTPUT_CAP,
    });
    Some(Case {
        backend: build(&spec("command", settings), &around(&env)).unwrap(),
        // The scripts return the request itself as the answer.
        answer: |request| serde_json::to_value(request).unwrap(),
        calls: Box::new(move || fs::read_to_string(&calls).map_or(0, |text| text.lines().count())),
        begun,
    })
}

fn request(situation: Situation, run_dir: &Path, number: u32) -> Request {
    let mut limits = RequestLimits {
        max_output_tokens: 1_000,
        connect: NEVER,
        first_byte: NEVER,
        idle: NEVER,
        total: NEVER,
        ..RequestLimits::default()
    };
    match situation {
        S::SilentStart => limits.first_byte = DEADLINE,
        S::Stall => limits.idle = DEADLINE,
        S::Drip | S::Deaf => limits.total = DEADLINE,
        _ => {}
    }
    // The text exceeds the capacity of a pipe, so a program that does not read would block its
    // writer.
    let fenced = format!("<<<UNTRUSTED {number}>>>{}<<<END {number}>>>", "ä".repeat(40_000));
    Request {
        // The folder's name distinguishes tests that run in parallel.
        id: format!("conformance{}/{number}", run_dir.display()),
        purpose: "conformance".into(),
        instructions: "choose".into(),
        sources: vec![Source::new("ideas/a.md", fenced)],
        rule_answer: json!([{"id": number, "status": "sidenote"}]),
        offer: json!({"ids": [number]}),
        schema: Some(json!({"type": "array"})),
        limits,
        run_dir: Some(run_dir.to_owned()),
        work: None,
        form: runner_backends::AnswerForm::default(),
    }
}

/// The result that the contract requires in this situation.
enum Expected {
    Answer,
    Error(Class, fn(&BackendError) -> bool),
}

fn expected(situation: Situation) -> Expected {
    use BackendError as E;
    use Expected::{Answer, Error};
    match situation {
        S::Good | S::GoodInAFile | S::UsageStated | S::UsageUnknown | S::LeavesProcesses => Answer,
        S::SilentStart => Error(Class::Silent, |error| phase(error) == Some(Phase::FirstByte)),
        S::Stall => Error(Class::Silent, |error| phase(error) == Some(Phase::Idle)),
        S::Drip | S::Deaf => Error(Class::Silent, |error| phase(error) == Some(Phase::Total)),
        S::CancelledBefore | S::CancelledMidway => {
            Error(Class::Crash, |error| *error == E::Cancelled { why: "stopped".into() })
        }
        S::Prose
        | S::NotText
        | S::Empty
        | S::OverLong
        | S::LinkedFile
        | S::HalfFile
        | S::LeaksMalformed => {
            Error(Class::Malformed, |error| matches!(error, E::Malformed { .. }))
        }
        S::Crashes | S::LeaksOnCrash => {
            Error(Class::Crash, |error| matches!(error, E::Crash { .. }))
        }
        S::MissingProgram => {
            Error(Class::NotInstalled, |error| matches!(error, E::NotInstalled { .. }))
        }
        S::MissingVariable | S::Refused => {
            Error(Class::Environment, |error| matches!(error, E::Rejected { .. }))
        }
        S::NoAuth => Error(Class::Auth, |error| matches!(error, E::Auth { .. })),
        S::RateLimited => Error(Class::RateLimited, |error| matches!(error, E::RateLimited { .. })),
        S::Unreachable => Error(Class::RateLimited, |error| matches!(error, E::Unavailable { .. })),
    }
}

fn phase(error: &BackendError) -> Option<Phase> {
    match error {
        BackendError::Silent { phase, .. } => Some(*phase),
        _ => None,
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Creates a temporary folder with a run folder in it.
fn place() -> (TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let run_dir = place.path().join("run");
    fs::create_dir(&run_dir).unwrap();
    (place, run_dir)
}

/// Calls `check` with the name and the backend of every applicable case.
fn each_case(mut check: impl FnMut(&str, Situation, Case, &Path)) {
    for (name, factory) in IMPLEMENTATIONS {
        for situation in SITUATIONS {
            let (place, run_dir) = place();
            if let Some(case) = factory(situation, place.path()) {
                check(&format!("{name} in {situation:?}"), situation, case, &run_dir);
            }
        }
    }
}

/// Sends one request, and triggers the cancellation token if the situation requires it.
fn ask(
    situation: Situation,
    case: &Case,
    request: &Request,
    sink: &mut VecSink,
) -> Result<Reply, BackendError> {
    let cancel = Cancel::new().unwrap();
    if situation == S::CancelledBefore {
        cancel.cancel("stopped");
    }
    block_on(async {
        let pull = async {
            if situation == S::CancelledMidway {
                if let Some(fifo) = case.begun.clone() {
                    tokio::task::spawn_blocking(move || fs::read(fifo).unwrap()).await.unwrap();
                }
                cancel.cancel("stopped");
            }
        };
        tokio::join!(case.backend.run(request, sink, &cancel), pull).0
    })
}

#[test]
fn each_situation_has_the_required_outcome() {
    let mut applicable = 0;
    each_case(|name, situation, case, run_dir| {
        applicable += 1;
        let request = request(situation, run_dir, 1);
        let before = request.clone();
        let mut sink = VecSink::default();
        let began = boot_time();
        let result = ask(situation, &case, &request, &mut sink);
        let took = boot_time() - began;
        assert!(took < DEADLINE + SLACK, "{name} took {took:?}");
        assert_eq!(request, before, "{name} changed the request");
        assert_eq!(case.backend.name(), "under-test", "{name}");
        assert_eq!(kill_marked(&request.id).count, 0, "{name} left a process running");
        match (expected(situation), result) {
            (Expected::Answer, Ok(reply)) => {
                let answer = (case.answer)(&request);
                assert_eq!(reply.value.as_ref(), Some(&answer), "{name}");
                let text: Value = serde_json::from_str(&reply.text).unwrap();
                assert_eq!(text, answer, "{name}: the text does not match the value");
                let heard = OwnedEvent::Text(reply.text.clone());
                assert!(
                    sink.events.contains(&heard),
                    "{name} did not report the answer to the sink"
                );
                let noted = reply.notes.iter().any(|note| note.contains("left behind"));
                assert_eq!(noted, situation == S::LeavesProcesses, "{name}: {:?}", reply.notes);
                match situation {
                    S::UsageUnknown => assert_eq!(reply.usage, None, "{name}"),
                    S::UsageStated => assert!(reply.usage.is_some(), "{name}"),
                    _ => {}
                }
            }
            (Expected::Error(class, is_it), Err(error)) => {
                assert!(is_it(&error), "{name}: {error:?}");
                assert_eq!(error.class(), class, "{name}: {error:?}");
                let all = format!("{error} {error:?} {}", serde_json::to_string(&error).unwrap());
                assert!(!all.contains(CANARY), "{name} shows a secret: {all}");
                let outcome = error.outcome(Timestamp::UNIX_EPOCH);
                let timed_out = phase(&error) == Some(Phase::Total);
                assert_eq!(outcome.as_str() == "timed-out", timed_out, "{name}: {outcome}");
                if phase(&error).is_some() {
                    assert!(took >= DEADLINE, "{name} gave up before the deadline, after {took:?}");
                }
            }
            (_, result) => panic!("{name}: {result:?}"),
        }
    });
    let (rows, columns) = (IMPLEMENTATIONS.len(), SITUATIONS.len());
    let line = format!(
        "conformance: {rows} implementations × {columns} situations, {} not applicable",
        rows * columns - applicable
    );
    // Writing to stderr directly bypasses the output capture of the test harness.
    let _closed = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{line}\n"));
}

#[test]
fn preflight_finds_missing_parts_without_calls() {
    each_case(|name, situation, case, _| {
        let preflight = case.backend.preflight();
        let missing = matches!(situation, S::MissingProgram | S::MissingVariable);
        assert_eq!(preflight.is_err(), missing, "{name}: {preflight:?}");
        assert_eq!((case.calls)(), 0, "{name} made a call");
        if let Err(error) = preflight {
            assert!(!error.to_string().contains(CANARY), "{name}: {error}");
        }
    });
    let error = BackendError::Auth { why: "no key".into() };
    let double = Scripted::new("double", []).failing_preflight(error.clone());
    assert_eq!(double.preflight(), Err(error));
}

#[test]
fn one_run_makes_one_call() {
    each_case(|name, situation, case, run_dir| {
        let request = request(situation, run_dir, 1);
        let _ = ask(situation, &case, &request, &mut VecSink::default());
        let none = matches!(situation, S::CancelledBefore | S::MissingProgram | S::MissingVariable)
            || name.starts_with("builtin");
        assert_eq!((case.calls)(), usize::from(!none), "{name}");
    });
}

#[test]
fn concurrent_runs_do_not_mix() {
    for (name, factory) in IMPLEMENTATIONS {
        let ((place, one_dir), (_other, two_dir)) = (self::place(), self::place());
        let case = factory(S::Good, place.path()).unwrap();
        let (one, two) = (request(S::Good, &one_dir, 1), request(S::Good, &two_dir, 2));
        let cancel = Cancel::new().unwrap();
        let (mut first, mut second) = (NullSink, VecSink::default());
        let (left, right) = block_on(async {
            tokio::join!(
                case.backend.run(&one, &mut first, &cancel),
                case.backend.run(&two, &mut second, &cancel)
            )
        });
        assert_eq!(left.unwrap().value, Some((case.answer)(&one)), "{name}");
        assert_eq!(right.unwrap().value, Some((case.answer)(&two)), "{name}");
    }
}

#[test]
fn descriptions_state_the_containment() {
    let mut described = BTreeSet::new();
    each_case(|name, _, case, _| {
        let description = case.backend.describe();
        assert_eq!(description, case.backend.describe(), "{name}");
        assert!(!description.containment.is_empty(), "{name}");
        described.insert(description.kind);
    });
    assert_eq!(described, IMPLEMENTATIONS.map(|(name, _)| name.to_owned()).into());
}

/// Returns the specification of a backend of the type `kind` with these settings.
fn spec(kind: &str, mut settings: Value) -> BackendSpec {
    BackendSpec::new("under-test", BackendKind::read(kind, &mut settings).unwrap())
}

fn around(env: &BTreeMap<String, String>) -> Surroundings<'_> {
    Surroundings { env, sandbox_start: None, slots: None, clock: &Clock::Host }
}
