//! Channels that are programs: a desktop notification, a command, an email.
//!
//! The message is data: it is a separate argument after everything that could be an option, or it
//! is passed on standard input. A program that the user configures starts inside the sandbox,
//! unless its channel turns the sandbox off. The programs for desktop notifications, which runner
//! chooses, start outside it, because they must reach the desktop's bus. No program is started
//! through a shell.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runner_engine::process::{
    self, Cancel, ChildSpec, ExitStatus, Limits, OutputVerdict, Reason, Stdin,
};
use runner_engine::sandbox::placeholders::FOLDER;
use runner_engine::sandbox::{Sandbox, SandboxedStart};
use runner_text::redact::{self, Redacted};

use super::mail::{self, Mail};
use super::message::Message;
use crate::config::notify::Program;
use crate::env::{self, Env};

/// Time limit for a program.
const TOTAL: Duration = Duration::from_secs(20);
/// Maximum size of a program's output, in bytes.
const OUTPUT: usize = 1 << 20;
/// Maximum number of characters from the end of a program's output to include in an error.
const TAIL: usize = 200;
/// The environment variables that a program needs to reach the desktop's notification service.
const DESKTOP: [&str; 4] =
    ["DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "DISPLAY", "WAYLAND_DISPLAY"];

/// Shows the message as a desktop notification.
pub fn desktop(home: &Env, message: &Message) -> Result<(), String> {
    let mut env = env::child_environment();
    env.extend(env::named(DESKTOP.into_iter()));
    if !env.contains_key("DBUS_SESSION_BUS_ADDRESS") {
        // A tick started by a host scheduler lacks the session's variables, but the session bus has
        // a well-known path.
        let bus = format!("/run/user/{}/bus", rustix::process::getuid().as_raw());
        if Path::new(&bus).exists() {
            env.insert("DBUS_SESSION_BUS_ADDRESS".to_owned(), format!("unix:path={bus}"));
        }
    }
    let (program, args) = if let Some(found) = env::host_program("notify-send") {
        (found, notify_send(message))
    } else if let Some(found) = env::host_program("osascript") {
        (found, osascript(message))
    } else {
        return Err(
            "neither notify-send nor osascript is in PATH (Debian: apt install libnotify-bin)"
                .to_owned(),
        );
    };
    let child = ChannelProgram {
        program,
        args,
        env,
        cwd: home.state.clone(),
        stdin: Stdin::Null,
        sandbox_start: None,
        secrets: Vec::new(),
    };
    child.run()
}

fn notify_send(message: &Message) -> Vec<String> {
    // The notification server may interpret the body as markup, so special characters are escaped.
    let body = message.text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    ["--app-name=runner", "--urgency=critical", "--", &message.subject, &body]
        .map(str::to_owned)
        .to_vec()
}

fn osascript(message: &Message) -> Vec<String> {
    let subject = format!("runner: {}", message.subject);
    let text = format!("runner: {}", message.text);
    [
        "-e",
        "on run argv",
        "-e",
        "display notification (item 2 of argv) with title (item 1 of argv)",
        "-e",
        "end run",
        &subject,
        &text,
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Passes the message as JSON to a program.
pub fn command(home: &Env, program: &Program, message: &Message) -> Result<(), String> {
    own(home, program, message, message.json())
}

/// Passes the message as an email to a program like sendmail.
pub fn email(
    home: &Env,
    program: &Program,
    recipient: &str,
    sender: Option<&str>,
    message: &Message,
) -> Result<(), String> {
    let mail = Mail {
        recipient,
        sender,
        subject: &message.subject,
        text: &message.text,
        id: message.id(),
        host: message.host(),
        at: message.at(),
    };
    own(home, program, message, mail::bytes(&mail))
}

/// Runs a user-configured program.
fn own(home: &Env, program: &Program, message: &Message, input: Vec<u8>) -> Result<(), String> {
    let named = env::named(program.env.iter().map(String::as_str));
    if let Some(missing) = program.env.iter().find(|name| !named.contains_key(*name)) {
        return Err(format!("{missing} is not set in this environment"));
    }
    let secrets = named.values().cloned().collect();
    let mut env = env::child_environment();
    env.extend(named);
    let child = ChannelProgram {
        program: PathBuf::from(&program.program),
        args: program.args.clone(),
        env,
        cwd: match message.root.is_dir() {
            true => message.root.clone(),
            false => home.state.clone(),
        },
        stdin: Stdin::Bytes(input),
        sandbox_start: Some(sandbox_start(home, program.off)?),
        secrets,
    };
    child.run()
}

/// Returns a sandbox in which the program may write only temporary files and may use the network.
/// `off` disables the sandbox.
fn sandbox_start(home: &Env, off: bool) -> Result<SandboxedStart, String> {
    let cannot =
        |error: std::io::Error| format!("cannot create a folder for temporary files: {error}");
    let temp = home.state.join("alerts");
    fs::create_dir_all(&temp).map_err(cannot)?;
    let state = fs::canonicalize(&home.state).map_err(cannot)?;
    Ok(SandboxedStart {
        launcher: env::executable().map_err(|failure| failure.to_string())?,
        sandbox: Sandbox {
            off,
            hide: vec![state.clone()],
            network: true,
            temp: Some(state.join("alerts").join("tmp")),
            blockers: Some(state.join(FOLDER)),
            ..Sandbox::default()
        },
    })
}

struct ChannelProgram {
    program: PathBuf,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    cwd: PathBuf,
    stdin: Stdin,
    sandbox_start: Option<SandboxedStart>,
    secrets: Vec<String>,
}

impl ChannelProgram {
    fn run(self) -> Result<(), String> {
        let shown = self.program.display().to_string();
        let spec = ChildSpec {
            program: self.program,
            args: self.args.into_iter().map(OsString::from).collect(),
            cwd: self.cwd,
            env: self.env,
            stdin: self.stdin,
            limits: Limits {
                total: Some(TOTAL),
                term_to_kill: Duration::from_secs(2),
                output_cap: OUTPUT,
                ..Limits::default()
            },
            marker: env::marker().map_err(|failure| failure.to_string())?,
            sandbox: self.sandbox_start.into(),
        };
        let cancel = Cancel::new().map_err(|error| error.to_string())?;
        let ended = process::run(&spec, &cancel, &mut |_, _| OutputVerdict::Continue)
            .map_err(|error| error.to_string())?;
        redact::learn(self.secrets);
        match (ended.reason, ended.status) {
            (Reason::Exited, ExitStatus::Exit(0)) => Ok(()),
            (Reason::Exited, status) => {
                let said = match ended.stderr.is_empty() {
                    true => &ended.stdout,
                    false => &ended.stderr,
                };
                let said = String::from_utf8_lossy(said).into_owned();
                let words: Vec<&str> = said.split_whitespace().collect();
                let last = Redacted::of(&words.join(" ")).tail(TAIL);
                Err(format!("{shown} ended with {status}: {last}"))
            }
            (Reason::TotalDeadline, _) => {
                Err(format!("{shown} did not finish within {} s and was stopped", TOTAL.as_secs()))
            }
            (reason, _) => Err(format!("{shown} was stopped: {reason:?}")),
        }
    }
}
