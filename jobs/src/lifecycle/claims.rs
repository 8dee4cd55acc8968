//! Checks simple claims in a carry without the agent: claims that a file exists or contains some
//! text, that a commit exists, or that a command exits with a given code.
//!
//! ```text
//! command ──sandbox?──yes──> run again: nothing writable, no network ──> holds or fails
//!              │ no                    │ the sandbox blocked the command
//!              └───────────────────────┴──> its last recorded use ──none──> not checked
//! ```
//!
//! A model wrote the claims. This module must never run a command where it could change the
//! project, the host or the run's results, and must never quote a command's output.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runner_engine::process::{
    self, ChildSandbox, ChildSpec, ExitStatus, Limits, OutputVerdict, Reason, Stdin,
};
use runner_engine::sandbox::Sandbox;
use serde::{Deserialize, Serialize};

use super::audit::{CheckedClaim, ClaimFinding};
use crate::denied::is_denial;
use crate::steps::ToolStep;
use crate::{Context, JobError};

/// Maximum number of commands to run again for one entry.
const COMMANDS: usize = 5;
/// Time limit for one command.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum size of a command's output, and of a searched file, in bytes.
const LARGEST: usize = 1024 * 1024;

/// A claim that runner can check.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SimpleClaim<'c> {
    Exists { path: &'c str },
    Contains { path: &'c str, text: &'c str, form: Quoting },
    Commit { hash: &'c str },
    Ends { command: &'c str, code: i64, form: Quoting },
}

/// How a claim states a command or the content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quoting {
    /// Between quotes or backticks.
    Quoted,
    /// Without quotes, so the text may also be prose.
    Bare,
}

/// The result of running a command again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Rerun {
    /// The command exited with this code.
    Ended(i64),
    /// The reason why the command was not run, or why its result in the sandbox proves nothing.
    NotRun(String),
    /// The text is not a command.
    Prose,
}

/// The result of a check, with its reason.
struct Check(ClaimFinding, String);

/// Checks the claims that runner can check itself, and replaces the audit's findings on them. If
/// runner cannot currently check such a claim, it keeps the audit's finding, except that "holds"
/// becomes "unknown".
///
/// # Errors
/// Returns an error if git fails, or if a replay has no recorded result for a command.
pub fn recheck(
    ctx: &Context<'_>,
    steps: &[ToolStep],
    checked: &mut [CheckedClaim],
) -> Result<(), JobError> {
    let mut commands = 0;
    for one in checked {
        let claim = one.claim.clone();
        let Check(finding, why) = match simple(&claim, &|path| is_there(ctx, path)) {
            None => continue,
            Some(SimpleClaim::Exists { path }) => exists(ctx, path),
            Some(SimpleClaim::Contains { path, text, form }) => {
                match (contains(ctx, path, text), form) {
                    // Text without quotes may describe the content, so the agent's finding stands.
                    (Check(ClaimFinding::Fails, _), Quoting::Bare) if is_there(ctx, path) => {
                        continue;
                    }
                    (check, _) => check,
                }
            }
            Some(SimpleClaim::Commit { hash }) => match ctx.git.commit(hash)? {
                Some(_) => Check(ClaimFinding::Holds, "the commit exists".to_owned()),
                None => Check(ClaimFinding::Fails, "the repository has no such commit".to_owned()),
            },
            Some(SimpleClaim::Ends { command, code, form }) => {
                let again = match commands >= COMMANDS {
                    true => Rerun::NotRun(format!("only {COMMANDS} commands are run again")),
                    false => ctx.recording.through("claim", command, || {
                        Ok::<_, JobError>(match form == Quoting::Bare && is_prose(ctx, command) {
                            true => Rerun::Prose,
                            false => run_again(ctx, command),
                        })
                    })?,
                };
                if again == Rerun::Prose {
                    continue;
                }
                commands += 1;
                judge(&again, steps, (command, code))
            }
        };
        match finding {
            ClaimFinding::Unknown if one.finding == ClaimFinding::Fails => {}
            ClaimFinding::Unknown => one.why = format!("not checked: {why}"),
            _ => one.why = format!("runner checked it: {why}"),
        }
        if finding != ClaimFinding::Unknown || one.finding == ClaimFinding::Holds {
            one.finding = finding;
        }
    }
    Ok(())
}

/// Parses a claim, or returns `None` if it has no simple form. `is_there` returns whether a
/// path exists in the project.
fn simple<'c>(claim: &'c str, is_there: &dyn Fn(&str) -> bool) -> Option<SimpleClaim<'c>> {
    let claim = claim.trim().trim_end_matches('.');
    if let Some(rest) = claim.strip_suffix("exists") {
        let rest = without(plain(rest), "the ");
        if let Some(hash) = rest.strip_prefix("commit ").map(plain) {
            let is_hash = hash.len() >= 7 && hash.bytes().all(|it| it.is_ascii_hexdigit());
            return is_hash.then_some(SimpleClaim::Commit { hash });
        }
        let path = file(rest).or_else(|| Some(plain(rest)).filter(|path| is_there(path)))?;
        return Some(SimpleClaim::Exists { path });
    }
    if let Some((path, text)) = claim.split_once(" contains ")
        && let Some(path) = file(path)
    {
        let (stated, text) = (text.trim(), plain(text));
        let form = if stated == text { Quoting::Bare } else { Quoting::Quoted };
        return (!text.is_empty()).then_some(SimpleClaim::Contains { path, text, form });
    }
    const FORMS: [&str; 9] = [
        " ended with ",
        " exited with ",
        " exits with ",
        " ends with ",
        " returned ",
        " returns ",
        " exits ",
        " exited ",
        " ended ",
    ];
    let (command, code) = FORMS.iter().find_map(|form| claim.rsplit_once(form))?;
    let mut code = plain(code);
    for word in ["exit ", "code ", "status "] {
        code = code.strip_prefix(word).unwrap_or(code);
    }
    let command = without(without(command.trim(), "the "), "command ").trim();
    let form = match plain(command) == command {
        true => Quoting::Bare,
        false => Quoting::Quoted,
    };
    let command = plain(command);
    let code = code.parse().ok().filter(|_| !command.is_empty())?;
    Some(SimpleClaim::Ends { command, code, form })
}

/// Removes a prefix from a string, ignoring case.
fn without<'t>(text: &'t str, word: &str) -> &'t str {
    match text.split_at_checked(word.len()) {
        Some((head, rest)) if head.eq_ignore_ascii_case(word) => rest,
        _ => text,
    }
}

/// Removes surrounding whitespace and one pair of quotes or backticks from a string.
fn plain(text: &str) -> &str {
    let text = text.trim();
    let quoted = ['`', '\'', '"'].into_iter();
    let mut quoted = quoted.filter_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote));
    quoted.next().unwrap_or(text)
}

/// Returns the path in a string such as "the file `a/b`", or `None` if the string contains no path
/// or the path could lie outside the project.
fn file(text: &str) -> Option<&str> {
    let text = without(plain(text), "the ");
    let mut kinds = ["file ", "folder ", "directory "].into_iter();
    let named = kinds.find_map(|kind| text.strip_prefix(kind)).map(plain);
    let path = named.unwrap_or(text);
    let is_path = (named.is_some() || path.contains(['.', '/']))
        && !path.is_empty()
        && !path.contains(char::is_whitespace)
        && !path.starts_with('/')
        && !path.split('/').any(|part| part == "..");
    is_path.then_some(path)
}

/// Returns whether the project has a file or a folder at the path.
fn is_there(ctx: &Context<'_>, path: &str) -> bool {
    let path = path.trim_end_matches('/');
    // Nothing exists below a file.
    let mut above = path.match_indices('/').map(|(at, _)| &path[..at]);
    ctx.files.is_there(path) && !above.any(|folder| ctx.files.is_file(folder))
}

/// Returns whether unquoted text is prose: it begins neither with the name of a program nor with a
/// word or an assignment that often begins a shell command. "test" is common in prose, so it is
/// treated as a program only if an option or `!` follows.
fn is_prose(ctx: &Context<'_>, words: &str) -> bool {
    let (first, rest) = words.split_once(' ').unwrap_or((words, ""));
    let path = ctx.programs.env().get("PATH").map_or("", String::as_str);
    let found = process::find_program(Path::new(first), ctx.files.root(), path);
    let of_shell = matches!(first, "cd" | "!" | "export") || first.contains('=');
    (found.is_err() && !of_shell) || (first == "test" && !rest.starts_with(['-', '!']))
}

fn exists(ctx: &Context<'_>, path: &str) -> Check {
    match is_there(ctx, path) {
        true => Check(ClaimFinding::Holds, "it exists".to_owned()),
        false => Check(ClaimFinding::Fails, "there is no such file or folder".to_owned()),
    }
}

fn contains(ctx: &Context<'_>, path: &str, text: &str) -> Check {
    match ctx.files.inspect(path, LARGEST as u64) {
        Ok(None) => Check(ClaimFinding::Fails, "there is no such file".to_owned()),
        Err(error) => Check(ClaimFinding::Unknown, error.to_string()),
        Ok(Some((bytes, _))) => match String::from_utf8_lossy(&bytes).contains(text) {
            true => Check(ClaimFinding::Holds, "the file contains it".to_owned()),
            false => Check(ClaimFinding::Fails, "the file does not contain it".to_owned()),
        },
    }
}

/// Decides on a claim about a command. If the command could not be run again, its last recorded use
/// decides.
fn judge(again: &Rerun, steps: &[ToolStep], (command, code): (&str, i64)) -> Check {
    let finding = |ended: i64| match ended == code {
        true => ClaimFinding::Holds,
        false => ClaimFinding::Fails,
    };
    let why = match again {
        // A shell exits with these codes if it cannot start a program.
        Rerun::Ended(ended @ (126 | 127)) => {
            &format!("run again without write access, it could not be started ({ended})")
        }
        Rerun::Prose => "it is not a command",
        Rerun::Ended(ended) => {
            let why = format!("run again without write access, it ended with {ended}");
            return Check(finding(*ended), why);
        }
        Rerun::NotRun(why) => why,
    };
    let used = steps.iter().rev().find(|step| {
        let cmd = step.args.as_ref().and_then(|args| args.cmd.as_deref());
        cmd.is_some_and(|cmd| cmd.trim() == command)
    });
    match used.map(|step| step.exit_code) {
        Some(ended) => {
            let why = format!("its last recorded use ended with {ended} ({why})");
            Check(finding(ended), why)
        }
        None => Check(ClaimFinding::Unknown, why.to_owned()),
    }
}

/// Runs a command in the sandbox used for the run's programs, without write access to the project
/// and without network access.
fn run_again(ctx: &Context<'_>, command: &str) -> Rerun {
    let ChildSandbox::Launched(mut start) = ctx.programs.sandbox() else {
        return Rerun::NotRun("this run has no sandbox".to_owned());
    };
    if start.sandbox.off {
        return Rerun::NotRun("the sandbox of this job is off".to_owned());
    }
    start.sandbox = Sandbox {
        write: Vec::new(),
        keep: Vec::new(),
        own: Vec::new(),
        git: None,
        network: false,
        hosts: Vec::new(),
        ..start.sandbox
    };
    let child = ChildSpec {
        program: PathBuf::from("sh"),
        args: ["-c", command].map(OsString::from).to_vec(),
        cwd: ctx.files.root().to_owned(),
        env: ctx.programs.env().clone(),
        stdin: Stdin::Null,
        limits: Limits {
            total: Some(PATIENCE.min(ctx.clock.left())),
            output_cap: LARGEST,
            ..Limits::default()
        },
        marker: ctx.admitted.run().to_string(),
        sandbox: ChildSandbox::Launched(start),
    };
    let ended = match process::run(&child, &ctx.cancel, &mut |_, _| OutputVerdict::Continue) {
        Ok(ended) => ended,
        Err(error) => return Rerun::NotRun(error.to_string()),
    };
    match (&ended.reason, ended.status) {
        (Reason::Exited, ExitStatus::Exit(0)) => Rerun::Ended(0),
        (Reason::Exited, ExitStatus::Exit(code)) => {
            let said = [&ended.stdout, &ended.stderr].map(|it| String::from_utf8_lossy(it));
            match said.iter().any(|said| is_denial(said)) {
                true => Rerun::NotRun("it needs to write files or to use the network".to_owned()),
                false => Rerun::Ended(i64::from(code)),
            }
        }
        _ => Rerun::NotRun("it did not finish within its limits".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::Args;

    #[test]
    fn simple_forms_are_parsed() {
        use SimpleClaim::{Commit, Contains, Ends, Exists};
        let ends = |command, code| Some(Ends { command, code, form: Quoting::Quoted });
        let bare = |command, code| Some(Ends { command, code, form: Quoting::Bare });
        for (claim, expected) in [
            ("a.txt exists", Some(Exists { path: "a.txt" })),
            ("the file `LICENSE` exists.", Some(Exists { path: "LICENSE" })),
            (
                "tides.py contains `def local`",
                Some(Contains { path: "tides.py", text: "def local", form: Quoting::Quoted }),
            ),
            ("file \"a b\" contains x", None),
            ("commit `39ff213` exists", Some(Commit { hash: "39ff213" })),
            ("commit of today exists", None),
            ("`make site` ended with 0", ends("make site", 0)),
            ("make test ended 0", bare("make test", 0)),
            ("the command `make ok` ended with 0", ends("make ok", 0)),
            ("The command make ok ended with 0", bare("make ok", 0)),
            ("the test suite ended with 0", bare("test suite", 0)),
            ("`cd x; test -e y` ended with 0", ends("cd x; test -e y", 0)),
            ("docs/ exists", Some(Exists { path: "docs/" })),
            ("the folder `docs` exists", Some(Exists { path: "docs" })),
            ("Makefile exists", Some(Exists { path: "Makefile" })),
            ("harmony exists", None),
            ("`make test` exited with code 2", ends("make test", 2)),
            ("`sh -c 'exit 3'` ended with 3", ends("sh -c 'exit 3'", 3)),
            ("`python3 -m unittest -q` exits 0", ends("python3 -m unittest -q", 0)),
            ("`test -e x` exits with exit code 1.", ends("test -e x", 1)),
            ("../../etc/passwd exists", None),
            ("/etc/passwd contains root", None),
            ("no broken link exists", None),
            ("the week ended well", None),
            ("the page renders", None),
        ] {
            assert_eq!(simple(claim, &|path| path == "Makefile"), expected, "{claim}");
        }
    }

    #[test]
    fn last_recorded_use_decides_after_failed_rerun() {
        let step = |cmd: &str, exit_code| ToolStep {
            args: Some(Args { cmd: Some(cmd.into()), ..Args::default() }),
            exit_code,
            ..ToolStep::default()
        };
        let steps = [step("make test", 0), step("make test", 2)];
        let not_run = Rerun::NotRun("x".to_owned());
        for (again, command, code, expected) in [
            (&not_run, "make test", 0, ClaimFinding::Fails),
            (&not_run, "make test", 2, ClaimFinding::Holds),
            (&not_run, "make site", 0, ClaimFinding::Unknown),
            (&Rerun::Ended(0), "make test", 0, ClaimFinding::Holds),
            (&Rerun::Ended(1), "make site", 0, ClaimFinding::Fails),
            (&Rerun::Ended(127), "make site", 0, ClaimFinding::Unknown),
            (&Rerun::Ended(126), "make test", 2, ClaimFinding::Holds),
        ] {
            assert_eq!(judge(again, &steps, (command, code)).0, expected, "{again:?} {command}");
        }
    }
}
