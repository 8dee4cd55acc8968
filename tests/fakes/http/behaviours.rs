//! The ways in which a provider misbehaves, in every dialect that supports them.

use std::time::Duration;

use super::dialect::{COST, Dialect, Why};
use super::{SeenRequest, Talk};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    // Unusual, but still complete answers.
    Good,
    WholeInOnePiece,
    CrLf,
    CarriageReturns,
    ByteByByte,
    CutCharacters,
    CommentsAndUnknown,
    ByteOrderMark,
    EarlyHints,
    NoLength,
    UsageMissing,
    UsageNegative,
    UsageAbsurd,
    UsageTwice,
    EndlessAfterTheEnd,
    ClosedAfterTheEnd,
    LongThoughts,
    NoLastWord,
    // Silence.
    NeverAnswers,
    DripsItsHead,
    HeadAlone,
    DripsSignsOfLife,
    StallsMidway,
    // Aborted answers.
    ClosesAtOnce,
    HalfAHead,
    CutBetweenEvents,
    CutMidEvent,
    CutBeforeTheLastWord,
    CutMidCharacter,
    ShortBody,
    BadChunk,
    // Not HTTP, or not the API.
    NoHttp,
    EndlessHead,
    WebPage,
    WrongContentType,
    NoContentType,
    NoContent,
    RedirectElsewhere,
    RedirectHere,
    GzipBomb,
    GzipUnsaid,
    // Not a valid answer.
    GiantEvent,
    EndlessText,
    NoJson,
    NoUtf8,
    EmptyAnswer,
    Prose,
    HalfJson,
    CutAtLength,
    Refuses,
    WantsATool,
    TextIsNoText,
    // Errors.
    BadRequest,
    NoKey,
    Forbidden,
    NoCredit,
    NoModel,
    NoSuchPath,
    TooLarge,
    LimitSeconds,
    LimitDate,
    LimitBare,
    LimitHeaders,
    QuotaGone,
    ServerError,
    BadGatewayPage,
    ComeBackLater,
    Overloaded,
    ErrorStalls,
    EndlessError,
    ErrorAmongEvents,
    LimitAmongEvents,
    ErrorInOnePiece,
    EchoesTheKey,
}

use Behaviour as B;

pub const ALL: [Behaviour; 74] = [
    B::Good,
    B::WholeInOnePiece,
    B::CrLf,
    B::CarriageReturns,
    B::ByteByByte,
    B::CutCharacters,
    B::CommentsAndUnknown,
    B::ByteOrderMark,
    B::EarlyHints,
    B::NoLength,
    B::UsageMissing,
    B::UsageNegative,
    B::UsageAbsurd,
    B::UsageTwice,
    B::EndlessAfterTheEnd,
    B::ClosedAfterTheEnd,
    B::LongThoughts,
    B::NoLastWord,
    B::NeverAnswers,
    B::DripsItsHead,
    B::HeadAlone,
    B::DripsSignsOfLife,
    B::StallsMidway,
    B::ClosesAtOnce,
    B::HalfAHead,
    B::CutBetweenEvents,
    B::CutMidEvent,
    B::CutBeforeTheLastWord,
    B::CutMidCharacter,
    B::ShortBody,
    B::BadChunk,
    B::NoHttp,
    B::EndlessHead,
    B::WebPage,
    B::WrongContentType,
    B::NoContentType,
    B::NoContent,
    B::RedirectElsewhere,
    B::RedirectHere,
    B::GzipBomb,
    B::GzipUnsaid,
    B::GiantEvent,
    B::EndlessText,
    B::NoJson,
    B::NoUtf8,
    B::EmptyAnswer,
    B::Prose,
    B::HalfJson,
    B::CutAtLength,
    B::Refuses,
    B::WantsATool,
    B::TextIsNoText,
    B::BadRequest,
    B::NoKey,
    B::Forbidden,
    B::NoCredit,
    B::NoModel,
    B::NoSuchPath,
    B::TooLarge,
    B::LimitSeconds,
    B::LimitDate,
    B::LimitBare,
    B::LimitHeaders,
    B::QuotaGone,
    B::ServerError,
    B::BadGatewayPage,
    B::ComeBackLater,
    B::Overloaded,
    B::ErrorStalls,
    B::EndlessError,
    B::ErrorAmongEvents,
    B::LimitAmongEvents,
    B::ErrorInOnePiece,
    B::EchoesTheKey,
];

/// The pieces of a good answer: JSON with UTF-8 characters of different lengths.
pub const PIECES: [&str; 4] = ["[\"ä€\",", "\"😀 x\"", ",\"z\\n\"", "]"];

impl Behaviour {
    pub fn is_in(self, dialect: Dialect) -> bool {
        match self {
            B::CarriageReturns | B::ByteOrderMark => dialect.is_sse(),
            // This dialect's last event, `[DONE]`, is not needed for a complete answer.
            B::NoLastWord => dialect == Dialect::Chat,
            B::CutBeforeTheLastWord => matches!(dialect, Dialect::Chat | Dialect::Messages),
            // Ollama's models can refuse only in their text.
            B::Refuses => dialect != Dialect::Ollama,
            _ => true,
        }
    }

    /// Answers one request. `elsewhere` is the target of a redirect.
    pub fn answer(self, dialect: Dialect, talk: &mut Talk, seen: &SeenRequest, elsewhere: &str) {
        let kind = dialect.content_type();
        let stream = [("content-type", kind), ("transfer-encoding", "chunked")];
        let good = dialect.events(&PIECES, Why::Done, COST);
        let all = good.concat();
        let text = PIECES.concat();
        let mut events = |events: &[String]| {
            talk.head(200, &stream);
            events.iter().for_each(|event| talk.chunk(event));
            talk.end();
        };
        let of = |pieces: &[&str], why| dialect.events(pieces, why, COST);
        match self {
            B::Good => events(&good),
            B::CrLf => events(&good.map_all(|it| it.replace('\n', "\r\n"))),
            B::CarriageReturns => events(&good.map_all(|it| it.replace('\n', "\r"))),
            B::UsageMissing => events(&dialect.events(&PIECES, Why::Done, None)),
            B::UsageNegative => {
                events(&dialect.events(&PIECES, Why::Done, Some((-120, -140, -30))))
            }
            B::UsageAbsurd => {
                let cost = Some((1 << 60, 0, 1 << 60));
                events(&dialect.events(&PIECES, Why::Done, cost));
            }
            B::UsageTwice => {
                let mut twice = good.clone();
                twice.insert(1, dialect.begin(COST));
                if dialect == Dialect::Chat {
                    twice.insert(2, dialect.cost(COST));
                }
                events(&twice);
            }
            B::ByteOrderMark => events(&["\u{feff}".to_owned(), all]),
            B::CommentsAndUnknown => {
                let mut more = Vec::new();
                for event in &good {
                    if dialect.is_sse() {
                        more.push(
                            ": alive\n\nevent: ping\ndata: {\"type\": \"ping\", \"new\": [1]}\n\n"
                                .to_owned(),
                        );
                        more.push("id: 7\nretry: 10\n\n\n".to_owned());
                    } else {
                        more.push(
                            "\n{\"model\": \"m\", \"new\": [1], \"done\": false}\n".to_owned(),
                        );
                    }
                    more.push(event.clone());
                }
                events(&more);
            }
            B::CutAtLength => events(&of(&["[1"], Why::Length)),
            B::Refuses => events(&of(&[], Why::Refusal)),
            B::WantsATool => events(&of(&[], Why::Tool)),
            B::EmptyAnswer => events(&of(&[" ", "\n"], Why::Done)),
            B::Prose => events(&of(&["Sure! Here it is:\n```json\n[1]\n```"], Why::Done)),
            B::HalfJson => events(&of(&["[1, "], Why::Done)),
            B::NoJson => events(&[good[0].clone(), garbage(dialect), good[1].clone()]),
            B::TextIsNoText => {
                let odd = dialect.piece("@@").replace("\"@@\"", "{\"parts\": [1]}");
                events(&[good[0].clone(), odd, good[good.len() - 1].clone()]);
            }
            B::ErrorAmongEvents => {
                let error = dialect.error("overloaded_error", "Overloaded: unexpected EOF");
                events(&[good[0].clone(), good[1].clone(), error]);
            }
            B::LimitAmongEvents => {
                let error =
                    dialect.error("rate_limit_error", "rate limit reached, try again later");
                events(&[good[0].clone(), error]);
            }
            B::CutBetweenEvents => events(&good[..good.len() - 2]),
            B::CutMidEvent => {
                let last = good[good.len() - 2].as_str();
                let mut cut = good[..good.len() - 2].to_vec();
                cut.push(last[..last.len() / 2].to_owned());
                events(&cut);
            }
            B::NoLastWord => events(&good.map_all(|it| it.replace("data: [DONE]\n\n", ""))),
            B::CutBeforeTheLastWord => {
                // The cut is between the stop reason and the last event.
                let (reason, last) = match dialect {
                    Dialect::Chat => ("\"finish_reason\":\"stop\"", "\n\n"),
                    _ => ("message_delta", "\n\n"),
                };
                let at = all.find(reason).unwrap();
                let end = at + all[at..].find(last).unwrap() + last.len();
                events(&[all[..end].to_owned()]);
            }
            B::GzipUnsaid => {
                talk.head(200, &stream);
                talk.chunk(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x4b\x4c\x4a\x06\x00");
                talk.end();
            }
            B::ByteByByte => {
                talk.head(200, &stream);
                for byte in all.as_bytes().chunks(1) {
                    talk.chunk(byte);
                }
                talk.end();
            }
            B::CutCharacters => {
                talk.head(200, &stream);
                // Every cut is inside a multibyte character.
                let bytes = all.as_bytes();
                let mut begun = 0;
                for at in 1..bytes.len() {
                    if bytes[at] & 0xC0 == 0x80 {
                        talk.chunk(&bytes[begun..at]);
                        begun = at;
                    }
                }
                talk.chunk(&bytes[begun..]);
                talk.end();
            }
            B::EarlyHints => {
                talk.send("HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n");
                talk.head(200, &stream);
                talk.chunk(all);
                talk.end();
            }
            B::NoLength => {
                talk.send(format!("HTTP/1.0 200 OK\r\ncontent-type: {kind}\r\n\r\n{all}"));
                talk.gone = true;
            }
            B::WholeInOnePiece => {
                let kind = [("content-type", "application/json; charset=utf-8")];
                talk.reply(200, &kind, dialect.whole(&text, COST));
            }
            B::EndlessAfterTheEnd => {
                talk.head(200, &stream);
                talk.chunk(all);
                while !talk.gone {
                    talk.chunk(": more\n\n".repeat(100));
                }
            }
            B::ClosedAfterTheEnd => {
                talk.head(200, &stream);
                talk.chunk(all);
                talk.gone = true;
            }
            B::LongThoughts => {
                talk.head(200, &stream);
                talk.chunk(&good[0]);
                let thought = dialect.thought(&"hm ".repeat(10_000));
                for _ in 0..1_700 {
                    talk.chunk(&thought);
                }
                good[1..].iter().for_each(|event| talk.chunk(event));
                talk.end();
            }
            B::NeverAnswers => talk.wait(),
            B::DripsItsHead => {
                talk.send("HTTP/1.1 200 OK\r\nx-slow: ");
                while !talk.gone {
                    talk.send("y");
                    talk.pause(Duration::from_millis(10));
                }
            }
            B::HeadAlone => {
                talk.head(200, &stream);
                talk.wait();
            }
            B::DripsSignsOfLife => {
                talk.head(200, &stream);
                while !talk.gone {
                    talk.chunk(if dialect.is_sse() { ": alive\n\n" } else { "\n" });
                    talk.pause(Duration::from_millis(10));
                }
            }
            B::StallsMidway => {
                talk.head(200, &stream);
                talk.chunk(&good[0]);
                talk.chunk(&good[1]);
                talk.wait();
            }
            B::ClosesAtOnce => talk.gone = true,
            B::HalfAHead => {
                talk.send("HTTP/1.1 200 OK\r\ncontent-ty");
                talk.gone = true;
            }
            B::CutMidCharacter => {
                talk.head(200, &stream);
                talk.chunk(&good[0]);
                let piece = dialect.piece("[\"€").into_bytes();
                let at = piece.windows(2).position(|two| two == [0xE2, 0x82]).unwrap();
                talk.chunk(&piece[..=at]);
                talk.gone = true;
            }
            B::ShortBody => {
                let body = dialect.whole(&text, COST);
                let length = (body.len() + 100).to_string();
                talk.head(
                    200,
                    &[("content-type", "application/json"), ("content-length", &length)],
                );
                talk.send(body);
                talk.gone = true;
            }
            B::BadChunk => {
                talk.head(200, &stream);
                talk.chunk(&good[0]);
                talk.send("zz\r\nnonsense\r\n");
                talk.gone = true;
            }
            B::NoHttp => {
                talk.send("SSH-2.0-OpenSSH_9.2\r\n\r\n");
                talk.gone = true;
            }
            B::EndlessHead => {
                talk.send("HTTP/1.1 200 OK\r\n");
                let mut number = 0;
                while !talk.gone {
                    number += 1;
                    talk.send(format!("x-{number}: {}\r\n", "y".repeat(1_000)));
                }
            }
            B::WebPage => {
                let page = "<html><body>Sign in to the network</body></html>";
                talk.reply(200, &[("content-type", "text/html")], page);
            }
            B::WrongContentType => talk.reply(200, &[("content-type", "text/plain")], all),
            B::NoContentType => talk.reply(200, &[], all),
            B::NoContent => talk.head(204, &[]),
            B::RedirectElsewhere => {
                let to = format!("{elsewhere}/v1/messages?token=secret");
                talk.reply(307, &[("location", &to)], "");
            }
            B::RedirectHere => {
                let path = seen.line.split(' ').nth(1).unwrap_or("/");
                talk.reply(302, &[("location", &format!("{path}/"))], "");
            }
            B::GzipBomb => {
                let headers = [
                    ("content-type", kind),
                    ("content-encoding", "gzip"),
                    ("transfer-encoding", "chunked"),
                ];
                talk.head(200, &headers);
                talk.chunk(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03");
                while !talk.gone {
                    talk.chunk([0xed; 4_096]);
                }
            }
            B::GiantEvent => {
                talk.head(200, &stream);
                talk.chunk(&good[0]);
                talk.chunk(if dialect.is_sse() { "data: {\"x\": \"" } else { "{\"x\": \"" });
                let part = "x".repeat(1024 * 1024);
                while !talk.gone {
                    talk.chunk(&part);
                }
            }
            B::EndlessText => {
                talk.head(200, &stream);
                talk.chunk(&good[0]);
                let piece = dialect.piece(&"x".repeat(64 * 1024));
                while !talk.gone {
                    talk.chunk(&piece);
                }
            }
            B::NoUtf8 => {
                let piece = dialect.piece("@@").into_bytes();
                let at = piece.windows(2).position(|two| two == b"@@").unwrap();
                let mut bad = piece.clone();
                bad[at] = 0xff;
                talk.head(200, &stream);
                talk.chunk(&good[0]);
                talk.chunk(bad);
                talk.chunk(&good[good.len() - 1]);
                talk.end();
            }
            other => other.refuse(dialect, talk, seen),
        }
    }

    /// Answers with an error.
    fn refuse(self, dialect: Dialect, talk: &mut Talk, seen: &SeenRequest) {
        let json = ("content-type", "application/json");
        let mut say = |status, kind: &str, words: &str, more: &[(&str, &str)]| {
            let headers = [&[json], more].concat();
            talk.reply(status, &headers, dialect.refusal(kind, words));
        };
        match self {
            B::BadRequest => say(400, "invalid_request_error", "temperature: not a number", &[]),
            B::NoKey => say(401, "authentication_error", "invalid x-api-key", &[]),
            B::Forbidden => say(403, "permission_error", "not for you", &[]),
            B::NoCredit => say(402, "billing_error", "Your credit balance is too low", &[]),
            B::NoModel => say(404, "not_found_error", "model \"m\" not found", &[]),
            B::NoSuchPath => talk.reply(404, &[("content-type", "text/html")], "<html>404</html>"),
            B::TooLarge => say(413, "request_too_large", "too large", &[]),
            B::LimitSeconds => {
                say(429, "rate_limit_error", "slow down", &[("retry-after", "3600")])
            }
            B::LimitDate => {
                let date = ("retry-after", "Fri, 31 Dec 2100 23:59:59 GMT");
                say(429, "rate_limit_error", "slow down", &[date]);
            }
            B::LimitBare => say(429, "rate_limit_error", "slow down", &[]),
            B::LimitHeaders => {
                let headers = match dialect {
                    Dialect::Messages => [
                        ("anthropic-ratelimit-tokens-remaining", "0"),
                        ("anthropic-ratelimit-tokens-reset", "2100-12-31T23:59:59Z"),
                    ],
                    _ => [
                        ("x-ratelimit-remaining-tokens", "0"),
                        ("x-ratelimit-reset-tokens", "1h0m30s"),
                    ],
                };
                say(429, "rate_limit_error", "slow down", &headers);
            }
            B::QuotaGone => say(429, "insufficient_quota", "You exceeded your current quota", &[]),
            B::ServerError => say(500, "api_error", "Internal server error", &[]),
            B::BadGatewayPage => {
                talk.reply(502, &[("content-type", "text/html")], "<html>502</html>")
            }
            B::ComeBackLater => say(503, "api_error", "maintenance", &[("retry-after", "3600")]),
            B::Overloaded => say(529, "overloaded_error", "Overloaded", &[]),
            B::ErrorStalls => {
                talk.head(500, &[json, ("content-length", "100")]);
                talk.send("{\"error\": ");
                talk.wait();
            }
            B::EndlessError => {
                talk.head(500, &[json, ("transfer-encoding", "chunked")]);
                let part = "x".repeat(16 * 1024);
                while !talk.gone {
                    talk.chunk(&part);
                }
            }
            B::ErrorInOnePiece => {
                talk.reply(200, &[json], dialect.refusal("overloaded_error", "Overloaded"));
            }
            B::EchoesTheKey => {
                let headers = seen.headers.join("; ");
                say(400, "invalid_request_error", &format!("you sent {headers}"), &[]);
            }
            other => panic!("{other:?} has no answer"),
        }
    }
}

fn garbage(dialect: Dialect) -> String {
    match dialect.is_sse() {
        true => "data: {not json}\n\n".to_owned(),
        false => "{not json}\n".to_owned(),
    }
}

trait MapAll {
    fn map_all(&self, change: impl Fn(&str) -> String) -> Vec<String>;
}

impl MapAll for Vec<String> {
    fn map_all(&self, change: impl Fn(&str) -> String) -> Vec<String> {
        self.iter().map(|one| change(one)).collect()
    }
}
