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
    ("good", "answers correctly", |t| t.good(ANSWER)),
    ("reads-all", "reads its whole prompt, then answers correctly", |t| {
        let _ = t.prompt();
        t.good(ANSWER);
    }),
    ("silent-start", "never prints anything", |_| forever()),
    ("hang-after-result", "answers correctly, and does not exit", |t| {
        t.good(ANSWER);
        forever();
    }),
    ("drip", "prints a byte every few milliseconds, forever", |t| {
        loop {
            t.raw(b" ");
            pass(Duration::from_millis(5));
        }
    }),
    ("stall", "prints half an answer, then nothing", |t| {
        t.message("Half an ans", &Count::of(10, 3, 0.0001));
        if t.kind == ProgramKind::Command {
            t.raw(b"\"Half an ans");
        }
        forever();
    }),
    ("utf8-cut", "stops in the middle of a character", |t| {
        t.begin();
        t.raw(b"{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"caf\xc3");
    }),
    ("half-line", "stops in the middle of a line, and exits with 0", |t| {
        t.begin();
        t.raw(b"{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":fal");
    }),
    ("flood", "prints a gigabyte of lines", |t| {
        t.begin();
        let line = [b"x".repeat(1023), b"\n".to_vec()].concat().repeat(64);
        for _ in 0..16 * 1024 {
            t.raw(&line);
        }
        t.good(ANSWER);
    }),
    ("long-line", "prints a gigabyte in one line", |t| {
        t.begin();
        let piece = b"x".repeat(64 * 1024);
        for _ in 0..16 * 1024 {
            t.raw(&piece);
        }
        t.good(ANSWER);
    }),
    ("flood-stderr", "prints a gigabyte to standard error", |t| {
        let piece = b"x".repeat(64 * 1024);
        for _ in 0..16 * 1024 {
            if std::io::stderr().write_all(&piece).is_err() {
                break;
            }
        }
        t.good(ANSWER);
    }),
    ("holds-pipe", "exits, and its child keeps the pipe open", |t| {
        t.good(ANSWER);
        drop(leaf::start("hold", &[], Stdio::inherit()));
    }),
    ("apart", "exits, and its child runs in a separate session", |t| {
        wait_apart();
        t.good(ANSWER);
    }),
    ("daemon", "exits, and a grandchild continues without a parent", |t| {
        let _ = leaf::start("daemon", &[], Stdio::null()).wait();
        t.good(ANSWER);
    }),
    ("ignores-term", "hangs, and ignores TERM", |t| {
        ignore(&[
            signal_hook::consts::SIGTERM,
            signal_hook::consts::SIGINT,
            signal_hook::consts::SIGHUP,
        ]);
        t.begin();
        forever();
    }),
    ("relay", "exits, and leaves a process that repeatedly replaces itself with a new one", |t| {
        drop(leaf::start("relay", &["4000"], Stdio::null()));
        t.good(ANSWER);
    }),
    ("many-children", "exits, and leaves fifty children", |t| {
        for _ in 0..50 {
            drop(leaf::start("hold", &[], Stdio::null()));
        }
        t.good(ANSWER);
    }),
    ("empty", "exits with 0 and prints nothing", |_| {}),
    ("empty-answer", "exits with 0 and an empty answer", |t| {
        let count = Count::of(10, 0, 0.0001);
        t.message("", &count);
        t.done("", &count);
    }),
    ("error-with-0", "exits with 0 and an error in the answer", |t| {
        let _code = t.refuse(401, "Invalid API key");
    }),
    ("sigint-0", "interrupts itself, and exits with 0 without output", |_| {
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
    ("term-0", "exits with 0 on TERM, without an answer", |t| {
        let _ = signal_hook::flag::register_conditional_shutdown(
            signal_hook::consts::SIGTERM,
            0,
            Arc::new(AtomicBool::new(true)),
        );
        t.begin();
        forever();
    }),
    ("crash", "aborts", |_| {
        let _ = kill_process(getpid(), Signal::ABORT);
        forever();
    }),
    ("killed", "is killed", |t| {
        t.begin();
        let _ = kill_process(getpid(), Signal::KILL);
        forever();
    }),
    ("stops", "stops itself", |t| {
        t.begin();
        let _ = kill_process(getpid(), Signal::STOP);
        forever();
    }),
    ("exit-3", "answers correctly, and exits with 3", |t| {
        t.good(ANSWER);
        std::process::exit(3);
    }),
    ("artifact-cut", "writes half of its answer file", |t| {
        artifact(t, |path| fs::write(path, "[{\"id\": \"ab"))
    }),
    ("artifact-link", "the answer file is a symbolic link", |t| {
        artifact(t, |path| symlink("/etc/passwd", path));
    }),
    ("artifact-hard-link", "the answer file has two names", |t| {
        artifact(t, |path| {
            fs::write("other.json", "\"two names\"")?;
            fs::hard_link("other.json", path)
        });
    }),
    ("artifact-folder", "the answer file is a folder", |t| {
        artifact(t, |path| fs::create_dir(path));
    }),
    ("artifact-pipe", "the answer file is a pipe", |t| {
        artifact(t, |path| {
            let status = std::process::Command::new("mkfifo").arg(path).status()?;
            assert!(status.success());
            Ok(())
        });
    }),
    ("artifact-growing", "the answer file grows after the agent has exited", |t| {
        artifact(t, |path| {
            fs::write(path, "\"not yet\n")?;
            drop(leaf::start("write", &[path], Stdio::null()));
            Ok(())
        });
    }),
    ("artifact-huge", "the answer file is a sparse file of one gigabyte", |t| {
        artifact(t, |path| fs::File::create(path)?.set_len(1 << 30));
    }),
    ("writes-outside", "writes, removes and renames the target paths", |t| {
        for target in targets() {
            let _ = fs::write(&target, "the agent was here\n");
            let _ = fs::write(format!("{target}.new"), "the agent was here\n");
            let _ = fs::remove_file(&target);
            let _ = fs::rename(&target, format!("{target}.moved"));
        }
        t.tool("write", true);
        t.good(ANSWER);
    }),
    ("links-outside", "leaves links to the target paths, and writes to them", |t| {
        for (at, target) in targets().iter().enumerate() {
            let _ = symlink(target, format!("link-{at}"));
            let _ = fs::hard_link(target, format!("hard-{at}"));
            let _ = fs::write(format!("link-{at}"), "the agent was here\n");
            let _ = fs::write(format!("hard-{at}"), "the agent was here\n");
        }
        t.good(ANSWER);
    }),
    ("secret", "prints its secret", |t| {
        let secret = secret();
        eprintln!("warning: using {secret}");
        t.good(&format!("The key is {secret}, keep it safe."));
    }),
    ("secret-in-pieces", "prints its secret byte by byte, on both outputs", |t| {
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
    ("secret-in-error", "fails with its secret in the error message", |_| {
        eprintln!("cannot log in with {}", secret());
        std::process::exit(1);
    }),
    ("usage-huge", "answers, and reports the largest usage", |t| {
        // The count follows the answer, because runner would stop the agent when it reads the
        // count.
        t.message(ANSWER, &Count::of(1, 1, 0.0));
        let count = Count { read: json!(u64::MAX), written: json!(u64::MAX), cost: json!(1e300) };
        t.done(ANSWER, &count);
    }),
    ("usage-huge-before", "reports the largest usage, and does not answer", |t| {
        let count = Count { read: json!(u64::MAX), written: json!(u64::MAX), cost: json!(1e300) };
        t.message("still thinking", &count);
        forever();
    }),
    ("usage-negative", "answers, and reports negative usage", |t| {
        spent(t, json!(-5), json!(-7), json!(-3.5))
    }),
    ("usage-words", "answers, and reports usage that is not a number", |t| {
        spent(t, json!("many"), json!(null), json!([]))
    }),
    ("usage-fraction", "answers, and reports fractions of tokens", |t| {
        spent(t, json!(10.5), json!(2.5), json!(0.000_000_1))
    }),
    ("usage-dear", "answers, and reports a cost above the whole budget", |t| {
        t.message(ANSWER, &Count::of(1, 1, 0.0));
        t.done(ANSWER, &Count::of(10, 3, 900.0));
    }),
    ("window-nearly-used", "answers, and reports that little of the window is left", |t| {
        t.begin();
        if t.kind == ProgramKind::Claude {
            t.line(&json!({"type": "rate_limit_event", "rate_limit_info": {"status": "allowed",
                "rateLimitType": "five_hour", "utilization": 0.8, "resetsAt": 4_102_444_800_i64}}));
        }
        t.good(ANSWER);
    }),
    ("usage-none", "answers, and reports no usage", |t| {
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
    ("over-budget", "spends forever, more each time", |t| {
        let mut read = 1_000;
        loop {
            t.message("still thinking", &Count::of(read, read / 2, 0.01));
            read = (read * 2).min(1 << 40);
            pass(Duration::from_millis(5));
        }
    }),
    ("wrong-version", "rejects its arguments", |_| {
        eprintln!("error: unknown option '--output-format'");
        std::process::exit(1);
    }),
    ("asks", "asks for permission, and waits", |t| {
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
    ("limited", "reports a limit for the next hour", |t| {
        let code = t.refuse(429, "You've hit your usage limit. Try again in 1 hour.");
        std::process::exit(code);
    }),
    ("overloaded", "reports that its provider is overloaded", |t| {
        let code = t.refuse(529, "Overloaded");
        std::process::exit(code);
    }),
    ("overage", "uses paid overage beyond the subscription", |t| {
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
    ("denied", "is denied a tool, and still reports success", |t| {
        t.tool("touch /somewhere", true);
        t.good(ANSWER);
    }),
    ("garbage", "answers correctly among invalid lines", |t| {
        t.raw(b"npm WARN old\n\x1b[31mred\x1b[0m\n{}\n[]\nnull\n{\"type\":7}\n");
        t.good(ANSWER);
        t.raw(b"}{\n\n");
    }),
    ("nul", "answers correctly after NUL bytes", |t| {
        t.raw(b"\0\0\0\n");
        t.good(ANSWER);
    }),
    ("unknown-events", "answers correctly after unknown events", |t| {
        t.begin();
        for kind in ["telemetry", "result2", "", "stream_event", "item.updated", "turn.paused"] {
            t.line(&json!({"type": kind, "anything": [1, {"is_error": true}]}));
        }
        t.good(ANSWER);
    }),
    ("deep", "prints a value that is nested a hundred thousand levels deep", |t| {
        t.begin();
        t.raw(&b"[".repeat(100_000));
        t.raw(b"\n");
        t.good(ANSWER);
    }),
    ("crlf", "answers correctly with CRLF line endings", |t| {
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
    ("two-results", "prints two different final answers", |t| {
        t.good("the first");
        t.good("the second");
    }),
    ("result-then-error", "answers correctly, then reports an error", |t| {
        t.good(ANSWER);
        let code = t.refuse(500, "internal error");
        std::process::exit(code);
    }),
    ("escapes", "answers with terminal escapes and bidirectional overrides", |t| {
        t.good("fine \u{1b}]0;owned\u{7}\u{1b}[2J \u{202e}txt.exe\u{202c} \u{9b}31m end");
    }),
    ("closes-stdout", "closes its output and continues", |t| {
        t.begin();
        close_outputs();
        forever();
    }),
    ("early-exit", "exits before it reads anything", |_| std::process::exit(1)),
    ("fills-folder", "fills its folder with many files", |t| {
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
    ("big-file", "writes one very large file", |t| {
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
    ("obeys", "executes every order that it reads", obey),
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

/// Writes an executor's answer to a file. In the other dialects, answers correctly.
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

fn close_outputs() {
    // Redirecting the descriptors closes the pipes.
    let null = fs::File::options().write(true).open("/dev/null").unwrap();
    let _ = rustix::stdio::dup2_stdout(&null);
    let _ = rustix::stdio::dup2_stderr(&null);
}
