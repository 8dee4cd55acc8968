//! `runner guard`: implements an agent's hook, and checks whether a job may write a path or whether
//! a path could leak.

use std::io;
use std::path::{Path, PathBuf};

use runner_engine::git::Git;
use runner_engine::outcome::Exit;
use runner_jobs::dream::{DreamSpec, leak};
use runner_jobs::sessions::hints;
use serde::Serialize;

use super::Cli;
use crate::guard::hook::{self, WriteBounds};
use crate::guard::reach::{commits, of_job};
use crate::project::{self, LoadedProject, trust};
use crate::ui::{Failure, Ui, View, show};
use crate::{config, env};

/// Check whether paths may be written or could leak, from an agent's hook or on the command line
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner guard leak dreams/state.json")]
pub struct GuardArgs {
    #[command(subcommand)]
    command: GuardCommand,
}

#[derive(Debug, clap::Subcommand)]
enum GuardCommand {
    Hook(HookArgs),
    /// Check whether a job may write each path; exit code 1 if any path is not allowed
    #[command(
        after_help = "Example: runner guard write-scope --job dream dreams/state.json .git/config"
    )]
    WriteScope {
        /// The job's name in runner.toml [default: the project's dream job]
        #[arg(long)]
        job: Option<String>,
        /// The paths, relative to the current folder
        #[arg(required = true)]
        paths: Vec<String>,
    },
    /// Check that no path's contents can end up in git's history; exit code 1 if any path could
    /// leak
    #[command(after_help = "Example: runner guard leak dreams/state.json")]
    Leak {
        /// The paths, relative to the project's folder
        #[arg(required = true)]
        paths: Vec<String>,
    },
}

/// An agent's PreToolUse hook: reads its payload from standard input; exit code 2 refuses the tool call
///
/// The hook refuses early and gives the reason; the sandbox stops whatever the hook misses. A tool call is
/// also refused if the hook itself fails, or if the tool is unknown and its input names no path. If a command failed
/// repeatedly in finished sessions, the model is also shown what fixed the error. If neither `--job` nor `--write` is
/// given, every tool call that writes is refused.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner guard hook --job licences < payload.json")]
struct HookArgs {
    /// A folder or file that may be written (may be repeated)
    #[arg(long, value_name = "PATH")]
    write: Vec<PathBuf>,
    /// A path inside a writable folder that must not be written (may be repeated)
    #[arg(long, value_name = "PATH")]
    keep: Vec<PathBuf>,
    /// Use the limits of this job
    #[arg(long)]
    job: Option<String>,
    /// Another tool that writes nothing: its name, or a prefix followed by * (may be repeated)
    #[arg(long, value_name = "TOOL")]
    reads: Vec<String>,
}

impl GuardArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        match &self.command {
            GuardCommand::Hook(args) => Ok(args.run(cli)),
            GuardCommand::WriteScope { job, paths } => {
                let bounds = WriteBounds { private: None, ..bounds_of(cli, job.as_deref())? };
                Ok(answer(cli, paths, SCOPE, |path| bounds.allow(cli.here, path)))
            }
            GuardCommand::Leak { paths, .. } => {
                let root = project::find(cli.here)?;
                let git = Git::new(&root, &env::child_environment(), &env::marker()?);
                Ok(answer(cli, paths, LEAK, |path| {
                    let beneath = Path::new(path).strip_prefix(&root).ok().and_then(Path::to_str);
                    leak::check(&git, beneath.unwrap_or(path)).map_err(|leak| leak.to_string())
                }))
            }
        }
    }
}

impl HookArgs {
    fn run(&self, cli: &Cli<'_>) -> Exit {
        let payload =
            hook::read(io::stdin().lock()).map_err(|error| format!("the payload: {error}"));
        match payload.and_then(|payload| self.refusal(cli, &payload).map(|()| payload)) {
            Ok(payload) => {
                if let Some(text) = hint(cli, &payload) {
                    Ui::document(&background(&text));
                }
                Exit::Done
            }
            Err(why) => {
                // Only this exit code refuses the tool call, so every error exits with it. The JSON is
                // for agents that read a decision instead of the exit code.
                Ui::document(&decision(&why));
                show::complain(&why);
                Exit::Usage
            }
        }
    }

    fn refusal(&self, cli: &Cli<'_>, payload: &[u8]) -> Result<(), String> {
        let mut bounds = match &self.job {
            Some(job) => bounds_of(cli, Some(job)).map_err(|failure| failure.to_string())?,
            None => WriteBounds::default(),
        };
        let whole = |path: &PathBuf| -> PathBuf {
            let path = cli.here.join(path);
            std::fs::canonicalize(&path).unwrap_or(path)
        };
        bounds.reads.extend(self.reads.iter().cloned());
        bounds.write.extend(self.write.iter().map(whole));
        bounds.keep.extend(self.keep.iter().map(whole));
        let children = env::child_environment();
        bounds.home = children.get("HOME").map(PathBuf::from);
        hook::judge(payload, &bounds)
    }
}

/// Returns the limits on writing for the given job, or by default for the project's dream job.
fn bounds_of(cli: &Cli<'_>, job: Option<&str>) -> Result<WriteBounds, Failure> {
    let root = project::find(cli.here)?;
    // No database is available inside the sandbox. The run was admitted with accepted settings, and
    // fails at the end if the configuration files have changed since.
    let here = match trust::in_run() {
        true => None,
        false => Some(LoadedProject::load(cli.env, &root)?),
    };
    let config = match &here {
        Some(here) => here.config.clone(),
        None => config::load(&cli.env.stack(Some(&root.join(project::FILE))))?,
    };
    let job = match job {
        Some(job) => job,
        None => config.job_of_kind::<DreamSpec>(None, "a dream", "runner init")?.0,
    };
    if let Some(here) = &here {
        here.check_trusted(job)?;
    }
    let spec = &config.job(job)?.spec;
    let (write, keep) = of_job(&root, spec, &config);
    let private = match spec.kind.of::<DreamSpec>() {
        Some(_) => Some(Git::new(&root, &env::child_environment(), &env::marker()?)),
        None => None,
    };
    let commits = spec.kind.works().is_some_and(commits).then_some(root);
    Ok(WriteBounds { write, keep, private, commits, ..WriteBounds::default() })
}

/// Returns a hint from the project's finished sessions about the command that an agent is about to
/// run, if there is one. The hint does not affect the decision.
fn hint(cli: &Cli<'_>, payload: &[u8]) -> Option<String> {
    let payload: serde_json::Value = serde_json::from_slice(payload).ok()?;
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let (tool, session) = (text(&payload["tool_name"])?, text(&payload["session_id"])?);
    let line = text(&payload["tool_input"]["command"])?;
    let root = project::find(cli.here).ok()?;
    let state = cli.env.cache_folder(&project::id_at(&root)?);
    hints::hint(&root, &state, &session, &tool, &line)
}

/// Formats background information for the model as the output of a `PreToolUse` hook.
fn background(text: &str) -> serde_json::Value {
    serde_json::json!({
        "hookSpecificOutput": { "hookEventName": "PreToolUse", "additionalContext": text }
    })
}

/// Formats a refusal as the output of a `PreToolUse` hook.
fn decision(why: &str) -> serde_json::Value {
    serde_json::json!({
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": why,
        }
    })
}

/// The messages for an allowed and a refused path.
type AnswerTexts = (&'static str, &'static str);

const SCOPE: AnswerTexts = ("may be written", "must not be written");
const LEAK: AnswerTexts = ("stays out of git: nothing written there can leak", "could leak");

#[derive(Serialize)]
#[serde(transparent)]
struct GuardAnswers<'a> {
    answers: Vec<GuardAnswer<'a>>,
    #[serde(skip)]
    texts: AnswerTexts,
}

#[derive(Serialize)]
struct GuardAnswer<'a> {
    path: &'a str,
    allowed: bool,
    why: Option<String>,
}

impl View for GuardAnswers<'_> {
    fn print(&self, _ui: Ui) {
        let (good, bad) = self.texts;
        for GuardAnswer { path, why, .. } in &self.answers {
            match why {
                None => show::out(&format!("{path}: {good}\n")),
                Some(why) => show::out(&format!("{path}: {bad}: {why}\n")),
            }
        }
    }
}

fn answer(
    cli: &Cli<'_>,
    paths: &[String],
    texts: AnswerTexts,
    judge: impl Fn(&str) -> Result<(), String>,
) -> Exit {
    let answers = paths.iter().map(|path| {
        let why = judge(path).err();
        GuardAnswer { path, allowed: why.is_none(), why }
    });
    let answers: Vec<GuardAnswer<'_>> = answers.collect();
    let all = answers.iter().all(|answer| answer.allowed);
    cli.ui.show(&GuardAnswers { answers, texts });
    if all { Exit::Done } else { Exit::Failed }
}
