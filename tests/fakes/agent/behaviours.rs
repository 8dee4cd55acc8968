//! The ways in which the agent misbehaves, by name.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use serde_json::json;

use crate::dialect::{Conversation, Count, ProgramKind};
use crate::leaf::{self, forever, pass};
use crate::obey::obey;

/// A behaviour: its name, its description and its action.
type Behaviour = (&'static str, &'static str, fn(&mut Conversation));

const ANSWER: &str = "All is well, says the agent.";
/// The file to which an executor writes its answer.
const ARTIFACT: &str = "proposals.json";

pub const ALL: &[Behaviour] = &[
    ("good", "a good answer", |t| t.good(ANSWER)),
    ("reads-all", "reads its whole prompt, then a good answer", |t| {
        let _ = t.prompt();
        t.good(ANSWER);
    }),
    ("silent-start", "never says anything", |_| forever()),
    ("hang-after-result", "a good answer, and does not end", |t| {
        t.good(ANSWER);
        forever();
    }),
    ("drip", "a byte every few milliseconds, for ever", |t| {
        loop {
            t.raw(b" ");
            pass(Duration::from_millis(5));
        }
    }),
    ("stall", "half an answer, then silence", |t| {
        t.message("Half an ans", &Count::of(10, 3, 0.0001));
        if t.kind == ProgramKind::Command {
            t.raw(b"\"Half an ans");
        }
        forever();
    }),
    ("utf8-cut", "ends in the midst of a character", |t| {
        t.begin();
        t.raw(b"{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"caf\xc3");
    }),
    ("half-line", "ends in the midst of a line, with 0", |t| {
        t.begin();
        t.raw(b"{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":fal");
    }),
    ("flood", "a gigabyte of lines", |t| {
        t.begin();
        let line = [b"x".repeat(1023), b"\n".to_vec()].concat().repeat(64);
        for _ in 0..16 * 1024 {
            t.raw(&line);
        }
        t.good(ANSWER);
    }),
    ("long-line", "a gigabyte in one line", |t| {
        t.begin();
        let piece = b"x".repeat(64 * 1024);
        for _ in 0..16 * 1024 {
            t.raw(&piece);
        }
        t.good(ANSWER);
    }),
    ("flood-stderr", "a gigabyte on standard error", |t| {
        let piece = b"x".repeat(64 * 1024);
        for _ in 0..16 * 1024 {
            if std::io::stderr().write_all(&piece).is_err() {
                break;
            }
        }
        t.good(ANSWER);
    }),
    ("holds-pipe", "ends, and a grandchild keeps the pipe", |t| {
        t.good(ANSWER);
        drop(leaf::start("hold", &[], Stdio::inherit()));
    }),
    ("apart", "ends, and a grandchild lives in a session of its own", |t| {
        wait_apart();
        t.good(ANSWER);
    }),
    ("daemon", "ends, and a great-grandchild lives on without a parent", |t| {
        let _ = leaf::start("daemon", &[], Stdio::null()).wait();
        t.good(ANSWER);
    }),
    ("ignores-term", "hangs, and does not hear TERM", |t| {
        ignore(&[
            signal_hook::consts::SIGTERM,
            signal_hook::consts::SIGINT,
            signal_hook::consts::SIGHUP,
        ]);
        t.begin();
        forever();
    }),
    ("relay", "ends, and its children hand on to their children", |t| {
        drop(leaf::start("relay", &["4000"], Stdio::null()));
        t.good(ANSWER);
    }),
    ("many-children", "ends, and leaves fifty of them", |t| {
        for _ in 0..50 {
            drop(leaf::start("hold", &[], Stdio::null()));
        }
        t.good(ANSWER);
    }),
    ("empty", "0 without a word", |_| {}),
    ("empty-answer", "0 with an answer of nothing", |t| {
        let count = Count::of(10, 0, 0.0001);
        t.message("", &count);
        t.done("", &count);
    }),
    ("error-with-0", "0 with an error in the answer", |t| {
        let _code = t.refuse(401, "Invalid API key");
    }),
    ("sigint-0", "interrupted, it ends with 0 and nothing said", |_| {
        let heard = Arc::new(AtomicBool::new(false));
        let _ = signal_hook::flag::register_conditional_shutdown(
            signal_hook::consts::SIGINT,
            0,
            Arc::new(AtomicBool::new(true)),
        );
        let _ = signal_hook::flag::register(signal_hook::consts::SIGINT, heard);
        let _ = kill_process(getpid(), Signal::INT);
        forever();
    }),
    ("term-0", "asked to end, it ends with 0 and nothing said", |t| {
        let _ = signal_hook::flag::register_conditional_shutdown(
            signal_hook::consts::SIGTERM,
            0,
            Arc::new(AtomicBool::new(true)),
        );
        t.begin();
        forever();
    }),
    ("crash", "dies of a signal", |_| {
        let _ = kill_process(getpid(), Signal::ABORT);
        forever();
    }),
    ("killed", "is killed from outside", |t| {
        t.begin();
        let _ = kill_process(getpid(), Signal::KILL);
        forever();
    }),
    ("stops", "stops itself", |t| {
        t.begin();
        let _ = kill_process(getpid(), Signal::STOP);
        forever();
    }),
    ("exit-3", "a good answer, and exit 3", |t| {
        t.good(ANSWER);
        std::process::exit(3);
    }),
    ("artifact-cut", "half of the file of its answer", |t| {
        artifact(t, |path| fs::write(path, "[{\"id\": \"ab"))
    }),
    ("artifact-link", "the file of its answer is a link", |t| {
        artifact(t, |path| symlink("/etc/passwd", path));
    }),
    ("artifact-hard-link", "the file of its answer has two names", |t| {
        artifact(t, |path| {
            fs::write("other.json", "\"two names\"")?;
            fs::hard_link("other.json", path)
        });
    }),
    ("artifact-folder", "the file of its answer is a folder", |t| {
        artifact(t, |path| fs::create_dir(path));
    }),
    ("artifact-pipe", "the file of its answer is a pipe", |t| {
        artifact(t, |path| {
            let status = std::process::Command::new("mkfifo").arg(path).status()?;
            assert!(status.success());
            Ok(())
        });
    }),
    ("artifact-growing", "the file of its answer is still written after its end", |t| {
        artifact(t, |path| {
            fs::write(path, "\"not yet\n")?;
            drop(leaf::start("write", &[path], Stdio::null()));
            Ok(())
        });
    }),
    ("artifact-huge", "the file of its answer has a gigabyte, most of it a hole", |t| {
        artifact(t, |path| fs::File::create(path)?.set_len(1 << 30));
    }),
    ("writes-outside", "writes wherever it was told to", |t| {
        for target in targets() {
            let _ = fs::write(&target, "the agent was here\n");
            let _ = fs::write(format!("{target}.new"), "the agent was here\n");
            let _ = fs::remove_file(&target);
            let _ = fs::rename(&target, format!("{target}.moved"));
        }
        t.tool("write", true);
        t.good(ANSWER);
    }),
    ("links-outside", "leaves links to wherever it was told to", |t| {
        for (at, target) in targets().iter().enumerate() {
            let _ = symlink(target, format!("link-{at}"));
            let _ = fs::hard_link(target, format!("hard-{at}"));
            let _ = fs::write(format!("link-{at}"), "the agent was here\n");
            let _ = fs::write(format!("hard-{at}"), "the agent was here\n");
        }
        t.good(ANSWER);
    }),
    ("secret", "prints the secret it was handed", |t| {
        let secret = secret();
        eprintln!("warning: using {secret}");
        t.good(&format!("The key is {secret}, keep it safe."));
    }),
    ("secret-in-pieces", "prints the secret a byte at a time, on both outputs", |t| {
        for byte in secret().bytes() {
            t.raw(&[byte]);
            let _ = std::io::stderr().write_all(&[byte]);
            pass(Duration::from_millis(1));
        }
        t.raw(b"\n");
        let secret = secret();
        let (a, b) = secret.split_at(secret.len() / 2);
        let count = Count::of(10, 3, 0.0001);
        t.message(a, &count);
        t.message(b, &count);
        t.done(&secret, &count);
    }),
    ("secret-in-error", "fails, with the secret in its last words", |_| {
        eprintln!("cannot log in with {}", secret());
        std::process::exit(1);
    }),
    ("usage-huge", "an answer of more tokens than there are", |t| {
        // The count follows the answer, because runner would stop the agent at the count.
        t.message(ANSWER, &Count::of(1, 1, 0.0));
        let count = Count { read: json!(u64::MAX), written: json!(u64::MAX), cost: json!(1e300) };
        t.done(ANSWER, &count);
    }),
    ("usage-huge-before", "more tokens than there are, and then it goes on", |t| {
        let count = Count { read: json!(u64::MAX), written: json!(u64::MAX), cost: json!(1e300) };
        t.message("still thinking", &count);
        forever();
    }),
    ("usage-negative", "an answer of fewer than none", |t| {
        spent(t, json!(-5), json!(-7), json!(-3.5))
    }),
    ("usage-words", "an answer whose usage is no number", |t| {
        spent(t, json!("many"), json!(null), json!([]))
    }),
    ("usage-fraction", "an answer of tokens and a half", |t| {
        spent(t, json!(10.5), json!(2.5), json!(0.000_000_1))
    }),
    ("usage-dear", "an answer that costs more than the whole budget", |t| {
        t.message(ANSWER, &Count::of(1, 1, 0.0));
        t.done(ANSWER, &Count::of(10, 3, 900.0));
    }),
    ("window-nearly-used", "an answer, after which little of the window is left", |t| {
        t.begin();
        if t.kind == ProgramKind::Claude {
            t.line(&json!({"type": "rate_limit_event", "rate_limit_info": {"status": "allowed",
                "rateLimitType": "five_hour", "utilization": 0.8, "resetsAt": 4_102_444_800_i64}}));
        }
        t.good(ANSWER);
    }),
    ("usage-none", "an answer that says nothing of what it cost", |t| {
        t.begin();
        match t.kind {
            ProgramKind::Claude => {
                let mut result = t.result(ANSWER, &Count::of(0, 0, 0.0));
                for key in ["usage", "modelUsage", "total_cost_usd"] {
                    result.as_object_mut().unwrap().remove(key);
                }
                t.line(&result);
            }
            ProgramKind::Codex => {
                t.message(ANSWER, &Count::of(0, 0, 0.0));
                t.line(&json!({"type": "turn.completed"}));
            }
            ProgramKind::Command => t.done(ANSWER, &Count::of(0, 0, 0.0)),
        }
    }),
    ("over-budget", "goes on spending, more each time, for ever", |t| {
        let mut read = 1_000;
        loop {
            t.message("still thinking", &Count::of(read, read / 2, 0.01));
            read = (read * 2).min(1 << 40);
            pass(Duration::from_millis(5));
        }
    }),
    ("wrong-version", "does not know its arguments", |_| {
        eprintln!("error: unknown option '--output-format'");
        std::process::exit(1);
    }),
    ("asks", "asks whether it may, and waits", |t| {
        t.begin();
        t.raw(b"Do you want to allow this? [y/N] ");
        let _ = t.prompt();
        let _ = std::io::stdin().read_line(&mut String::new());
        forever();
    }),
    ("auth", "is not logged in", |t| {
        let code = t.refuse(401, "Not logged in. Please run /login");
        std::process::exit(code);
    }),
    ("limited", "is limited for the next hour", |t| {
        let code = t.refuse(429, "You've hit your usage limit. Try again in 1 hour.");
        std::process::exit(code);
    }),
    ("overloaded", "finds its provider overloaded", |t| {
        let code = t.refuse(529, "Overloaded");
        std::process::exit(code);
    }),
    ("overage", "is paid for beyond the subscription", |t| {
        t.begin();
        if t.kind == ProgramKind::Claude {
            t.line(
                &json!({"type": "rate_limit_event", "rate_limit_info": {"status": "allowed",
                "rateLimitType": "five_hour", "overageStatus": "allowed", "isUsingOverage": true}}),
            );
            pass(Duration::from_secs(5));
        }
        t.good(ANSWER);
    }),
    ("max-turns", "runs out of turns", |t| {
        t.begin();
        if t.kind == ProgramKind::Claude {
            let mut result = t.result("", &Count::of(10, 3, 0.0001));
            result["subtype"] = json!("error_max_turns");
            result["is_error"] = json!(true);
            result["errors"] = json!(["Reached maximum number of turns (2)"]);
            result.as_object_mut().unwrap().remove("result");
            t.line(&result);
        } else {
            let _code = t.refuse(400, "too many turns");
        }
        std::process::exit(1);
    }),
    ("denied", "was not permitted what it wanted, and says all is well", |t| {
        t.tool("touch /somewhere", true);
        t.good(ANSWER);
    }),
    ("garbage", "a good answer among lines of garbage", |t| {
        t.raw(b"npm WARN old\n\x1b[31mred\x1b[0m\n{}\n[]\nnull\n{\"type\":7}\n");
        t.good(ANSWER);
        t.raw(b"}{\n\n");
    }),
    ("nul", "a good answer among NULs", |t| {
        t.raw(b"\0\0\0\n");
        t.good(ANSWER);
    }),
    ("unknown-events", "a good answer among events that nobody knows", |t| {
        t.begin();
        for kind in ["telemetry", "result2", "", "stream_event", "item.updated", "turn.paused"] {
            t.line(&json!({"type": kind, "anything": [1, {"is_error": true}]}));
        }
        t.good(ANSWER);
    }),
    ("deep", "an answer nested a hundred thousand deep", |t| {
        t.begin();
        t.raw(&b"[".repeat(100_000));
        t.raw(b"\n");
        t.good(ANSWER);
    }),
    ("crlf", "a good answer in lines that end as on Windows", |t| {
        t.begin();
        let count = Count::of(10, 3, 0.0001);
        match t.kind {
            ProgramKind::Claude => t.raw(format!("{}\r\n", t.result(ANSWER, &count)).as_bytes()),
            ProgramKind::Codex => {
                t.message(ANSWER, &count);
                t.raw(b"{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":10,\"output_tokens\":3}}\r\n");
            }
            ProgramKind::Command => t.raw(format!("{}\r\n", json!(ANSWER)).as_bytes()),
        }
    }),
    ("two-results", "two last answers that differ", |t| {
        t.good("the first");
        t.good("the second");
    }),
    ("result-then-error", "a good answer, then an error", |t| {
        t.good(ANSWER);
        let code = t.refuse(500, "internal error");
        std::process::exit(code);
    }),
    ("escapes", "an answer with terminal escapes and turned writing", |t| {
        t.good("fine \u{1b}]0;owned\u{7}\u{1b}[2J \u{202e}txt.exe\u{202c} \u{9b}31m end");
    }),
    ("closes-stdout", "closes its output and goes on", |t| {
        t.begin();
        leaf_closes_stdout();
        forever();
    }),
    ("early-exit", "ends before it has read anything", |_| std::process::exit(1)),
    ("fills-folder", "fills its folder, file by file", |t| {
        t.begin();
        let piece = vec![7u8; 1 << 20];
        for at in 0..4096 {
            if fs::write(format!("fill-{at}"), &piece).is_err() {
                break;
            }
            t.raw(b"\n");
            pass(Duration::from_millis(5));
        }
        t.good(ANSWER);
    }),
    ("big-file", "writes one file without end", |t| {
        t.begin();
        let piece = vec![7u8; 1 << 20];
        if let Ok(mut file) = fs::File::create("big") {
            for _ in 0..8192 {
                if file.write_all(&piece).is_err() {
                    break;
                }
            }
        }
        t.good(ANSWER);
    }),
    ("obeys", "carries out every order that it reads", obey),
];

/// Returns the paths that the agent should try to reach, from `$HOME/targets`.
fn targets() -> Vec<String> {
    let home = std::env::var("HOME").unwrap_or_default();
    let text = fs::read_to_string(format!("{home}/targets")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn secret() -> String {
    std::env::var("CANARY_KEY").unwrap_or_else(|_| "no-canary-was-handed-to-me".to_owned())
}

/// Writes an executor's answer to a file. The other dialects have no such file.
fn artifact(dialect: &mut Conversation, make: impl FnOnce(&str) -> std::io::Result<()>) {
    if dialect.kind == ProgramKind::Command {
        let _ = make(ARTIFACT);
    } else {
        dialect.good(ANSWER);
    }
}

fn spent(
    dialect: &mut Conversation,
    read: serde_json::Value,
    written: serde_json::Value,
    cost: serde_json::Value,
) {
    let count = Count { read, written, cost };
    dialect.message(ANSWER, &count);
    dialect.done(ANSWER, &count);
}

fn ignore(signals: &[i32]) {
    for signal in signals {
        let _ = signal_hook::flag::register(*signal, Arc::new(AtomicBool::new(false)));
    }
}

/// Starts a process in a separate session, and waits until that process runs.
fn wait_apart() {
    use std::io::Read as _;
    let mut pipe = leaf::start("apart", &[], Stdio::piped()).stdout.unwrap();
    let mut word = [0; 6];
    let _ = pipe.read_exact(&mut word);
}

fn leaf_closes_stdout() {
    // Redirecting the descriptor closes the pipe.
    let null = fs::File::options().write(true).open("/dev/null").unwrap();
    let _ = rustix::stdio::dup2_stdout(&null);
    let _ = rustix::stdio::dup2_stderr(&null);
}
