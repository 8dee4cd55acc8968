//! Checks in every dialect that each kind of provider misbehaviour produces the correct outcome.

use std::time::Duration;

use runner_backends::{Backend, BackendError as E, Phase, Reply, Request, Usage, VecSink};
use runner_engine::process::Cancel;
use runner_engine::time::boot_time;
use serde_json::json;

use super::http::behaviours::{ALL, Behaviour as B};
use super::http::dialect::{self, Dialect};
use super::http::{Server, behaviours};
use super::{CANARY, NEVER, Situation, apis, block_on, request};

const DEADLINE: Duration = Duration::from_millis(150);
/// Tolerance for a loaded machine, far below `NEVER`.
const SLACK: Duration = Duration::from_secs(8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    /// A complete answer with this usage.
    Answer(Option<Usage>),
    Silent(Phase),
    Unavailable,
    Malformed,
    Truncated,
    Rejected,
    Auth,
    NotInstalled,
    OverBudget,
    /// A limit, with or without its reset time.
    RateLimited(bool),
}

fn right(behaviour: B, dialect: Dialect) -> Right {
    let (read, cached, written) = dialect::COST.unwrap();
    let figure = |it: i64| u64::try_from(it).unwrap();
    let usage = Usage {
        input_tokens: figure(read),
        output_tokens: figure(written),
        cached_input_tokens: if dialect == Dialect::Ollama { 0 } else { figure(cached) },
        // Requests to Ollama on this host cost nothing.
        cost_micros: (dialect == Dialect::Ollama).then_some(0),
    };
    match behaviour {
        B::UsageMissing | B::UsageNegative | B::UsageAbsurd => Right::Answer(None),
        B::Good
        | B::WholeInOnePiece
        | B::CrLf
        | B::CarriageReturns
        | B::ByteByByte
        | B::CutCharacters
        | B::CommentsAndUnknown
        | B::ByteOrderMark
        | B::EarlyHints
        | B::NoLength
        | B::UsageTwice
        | B::EndlessAfterTheEnd
        | B::ClosedAfterTheEnd
        | B::LongThoughts
        | B::NoLastWord => Right::Answer(Some(usage)),
        B::NeverAnswers | B::DripsItsHead | B::HeadAlone => Right::Silent(Phase::FirstByte),
        B::DripsSignsOfLife => Right::Silent(Phase::Total),
        B::StallsMidway => Right::Silent(Phase::Idle),
        B::ClosesAtOnce
        | B::HalfAHead
        | B::CutBetweenEvents
        | B::CutMidEvent
        | B::CutBeforeTheLastWord
        | B::CutMidCharacter
        | B::ShortBody
        | B::BadChunk
        | B::NoHttp
        | B::EndlessHead
        | B::WebPage
        | B::WrongContentType
        | B::NoContentType
        | B::NoContent
        | B::GzipUnsaid
        | B::ServerError
        | B::BadGatewayPage
        | B::Overloaded
        | B::ErrorStalls
        | B::EndlessError
        | B::ErrorAmongEvents
        | B::ErrorInOnePiece => Right::Unavailable,
        B::GzipBomb
        | B::GiantEvent
        | B::EndlessText
        | B::NoJson
        | B::NoUtf8
        | B::EmptyAnswer
        | B::Prose
        | B::HalfJson
        | B::WantsATool
        | B::TextIsNoText => Right::Malformed,
        B::CutAtLength => Right::Truncated,
        B::RedirectElsewhere
        | B::RedirectHere
        | B::Refuses
        | B::BadRequest
        | B::NoSuchPath
        | B::TooLarge
        | B::EchoesTheKey => Right::Rejected,
        B::NoKey | B::Forbidden => Right::Auth,
        B::NoCredit | B::QuotaGone => Right::OverBudget,
        B::NoModel => Right::NotInstalled,
        B::LimitSeconds | B::LimitDate | B::LimitHeaders | B::ComeBackLater => {
            Right::RateLimited(true)
        }
        B::LimitBare | B::LimitAmongEvents => Right::RateLimited(false),
    }
}

fn found(result: &Result<Reply, E>) -> Option<Right> {
    Some(match result {
        Ok(reply) => Right::Answer(reply.usage),
        Err(E::Silent { phase, .. }) => Right::Silent(*phase),
        Err(E::Unavailable { .. }) => Right::Unavailable,
        Err(E::Malformed { .. }) => Right::Malformed,
        Err(E::Truncated { .. }) => Right::Truncated,
        Err(E::Rejected { .. }) => Right::Rejected,
        Err(E::Auth { .. }) => Right::Auth,
        Err(E::NotInstalled { .. }) => Right::NotInstalled,
        Err(E::OverBudget { .. }) => Right::OverBudget,
        Err(E::RateLimited { until, .. }) => Right::RateLimited(until.is_some()),
        Err(_) => return None,
    })
}

fn word(right: Right) -> &'static str {
    match right {
        Right::Answer(Some(_)) => "answer",
        Right::Answer(None) => "answer, no usage",
        Right::Silent(Phase::FirstByte) => "silent: first byte",
        Right::Silent(Phase::Idle) => "silent: idle",
        Right::Silent(Phase::Total) => "silent: total",
        Right::Silent(Phase::Connect) => "silent: connect",
        Right::Unavailable => "unavailable",
        Right::Malformed => "malformed",
        Right::Truncated => "truncated",
        Right::Rejected => "rejected",
        Right::Auth => "auth",
        Right::NotInstalled => "not installed",
        Right::OverBudget => "over budget",
        Right::RateLimited(true) => "limited until",
        Right::RateLimited(false) => "limited",
    }
}

pub fn kind(dialect: Dialect) -> (&'static str, Option<String>) {
    match dialect {
        Dialect::Messages => ("anthropic", None),
        Dialect::Chat => ("openai", None),
        Dialect::Responses => ("openai", Some("responses".to_owned())),
        Dialect::Ollama => ("ollama", None),
    }
}

/// Returns a short question. A deadline is shortened only for a behaviour that tests it.
pub fn question(behaviour: Option<B>) -> Request {
    let mut request = Request {
        sources: Vec::new(),
        run_dir: None,
        ..request(Situation::Good, std::path::Path::new("/"), 1)
    };
    let limits = &mut request.limits;
    match behaviour {
        Some(B::NeverAnswers | B::DripsItsHead | B::HeadAlone) => limits.first_byte = DEADLINE,
        Some(B::StallsMidway | B::ErrorStalls) => limits.idle = DEADLINE,
        Some(B::DripsSignsOfLife) => limits.total = DEADLINE,
        _ => {}
    }
    request
}

fn ask(backend: &dyn Backend, request: &Request) -> (Result<Reply, E>, VecSink) {
    let cancel = Cancel::new().unwrap();
    let mut sink = VecSink::default();
    let result = block_on(backend.run(request, &mut sink, &cancel));
    (result, sink)
}

/// Returns the peak memory of this process since [`forget_peak`], in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn forget_peak() {
    let _unless_forbidden = std::fs::write("/proc/self/clear_refs", "5");
}

#[test]
fn each_behaviour_has_the_expected_outcome() {
    let elsewhere = Server::start(|talk, _| talk.reply(200, &[], "the key, please"));
    let mut rows = vec![format!(
        "{:<20} {:<18} {:<18} {:<18} {:<18}",
        "", "anthropic", "openai chat", "openai responses", "ollama"
    )];
    let (mut cells, mut absent) = (0, 0);
    for behaviour in ALL {
        let mut row = format!("{behaviour:?}");
        row = format!("{row:<20}");
        for dialect in dialect::ALL {
            if !behaviour.is_in(dialect) {
                absent += 1;
                row.push_str(&format!(" {:<18}", "-"));
                continue;
            }
            let name = format!("{behaviour:?} in {dialect:?}");
            let away = elsewhere.url();
            let server = Server::start(move |talk, seen| {
                assert_eq!(Dialect::of(&seen.line), dialect, "{}", seen.line);
                behaviour.answer(dialect, talk, seen, &away);
            });
            let (kind, api) = kind(dialect);
            let base = match kind {
                "openai" => format!("{}/v1", server.url()),
                _ => server.url(),
            };
            let backend = apis::backend(kind, &base, json!({ "api": api }));
            let request = question(Some(behaviour));
            forget_peak();
            let before = peak();
            let began = boot_time();
            let (result, sink) = ask(&*backend, &request);
            let took = boot_time() - began;
            let wanted = right(behaviour, dialect);
            assert_eq!(found(&result), Some(wanted), "{name}: {result:?}");
            // Reading fifty megabytes is slow on a loaded machine.
            let most = if behaviour == B::LongThoughts { NEVER } else { SLACK };
            assert!(took < most, "{name} took {took:?}");
            if matches!(wanted, Right::Silent(_)) {
                assert!(took >= DEADLINE, "{name} gave up before the deadline, after {took:?}");
            }
            if behaviour == B::LongThoughts {
                let grown = peak().saturating_sub(before);
                assert!(grown < 32 * 1024, "{name}: reading 50 MB took {grown} KiB of memory");
            }
            if let Ok(reply) = &result {
                assert_eq!(reply.value, Some(json!(["ä€", "😀 x", "z\n"])), "{name}");
                assert_eq!(reply.text, behaviours::PIECES.concat(), "{name} lost text");
            }
            let all = format!("{result:?} {sink:?}");
            assert!(!all.contains(CANARY), "{name} shows the key: {all}");
            assert_eq!(server.calls(), 1, "{name} did not send exactly one request");
            cells += 1;
            row.push_str(&format!(" {:<18}", word(wanted)));
        }
        rows.push(row.trim_end().to_owned());
    }
    assert!(elsewhere.seen().is_empty(), "a key was sent to another server");
    rows.push(format!(
        "hostile http: {} behaviours × 4 dialects, {cells} cells, {absent} not applicable",
        ALL.len()
    ));
    // Writing to stderr directly bypasses the output capture of the test harness.
    let _closed =
        std::io::Write::write_all(&mut std::io::stderr(), (rows.join("\n") + "\n").as_bytes());
}

#[test]
fn failed_connection_is_not_reused() {
    // The error is followed by bytes that look like the answer to the next question.
    let server = Server::start(|talk, _| {
        let bad = "HTTP/1.1 500 x\r\ncontent-length: 0\r\n\r\nHTTP/1.1 200 OK\r\n\
            content-type: application/json\r\ncontent-length: 14\r\n\r\n{\"planted\": 1}";
        talk.send(bad);
    });
    let backend = apis::backend("openai", &server.url(), json!({}));
    for _ in 0..3 {
        let (result, _) = ask(&*backend, &question(None));
        assert!(matches!(result, Err(E::Unavailable { .. })), "{result:?}");
    }
    assert_eq!(server.calls(), 3);
}

#[test]
fn cancelled_request_closes_its_connection() {
    for dialect in dialect::ALL {
        let (gone, hung_up) = std::sync::mpsc::channel();
        let gone = std::sync::Mutex::new(gone);
        let server = Server::start(move |talk, seen| {
            gone.lock().unwrap().send(()).unwrap();
            B::StallsMidway.answer(dialect, talk, seen, "");
            assert!(talk.gone);
            gone.lock().unwrap().send(()).unwrap();
        });
        let (kind, api) = kind(dialect);
        let backend = apis::backend(kind, &server.url(), json!({ "api": api }));
        let cancel = Cancel::new().unwrap();
        let (request, mut sink) = (question(None), VecSink::default());
        let mut pulled = Duration::ZERO;
        let result = block_on(async {
            let pull = async {
                let hung_up = &hung_up;
                tokio::task::yield_now().await;
                while hung_up.try_recv().is_err() {
                    tokio::task::yield_now().await;
                }
                pulled = boot_time();
                cancel.cancel("stopped");
            };
            tokio::join!(backend.run(&request, &mut sink, &cancel), pull).0
        });
        let took = boot_time() - pulled;
        assert!(matches!(result, Err(E::Cancelled { .. })), "{result:?}");
        assert!(took < Duration::from_secs(2), "{dialect:?} took {took:?}");
        hung_up.recv_timeout(NEVER).unwrap();
    }
}
