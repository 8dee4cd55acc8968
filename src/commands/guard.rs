//! `runner guard`: the hook of an agent, and checks whether a job may write a path and whether a
//! path could leak.

use std::io;
use std::path::{Path, PathBuf};

use runner_engine::git::Git;
use runner_engine::outcome::Exit;
use runner_jobs::dream::leak;
use serde::Serialize;

use crate::commands::args::GuardCommand;
use crate::env::{self, Env};
use crate::guard::hook::{self, WriteBounds};
use crate::guard::reach::of_job;
use crate::ui::Failure;
use crate::ui::{Ui, show};
use crate::{config, project};

/// Carries out one of the `guard` commands.
pub fn run(home: &Env, here: &Path, command: &GuardCommand, ui: Ui) -> Result<Exit, Failure> {
    match command {
        GuardCommand::Hook { write, keep, job, reads } => {
            let judged = refusal(home, here, write, keep, job.as_deref(), reads);
            Ok(match judged {
                Ok(()) => Exit::Done,
                Err(why) => {
                    // Only this exit code refuses the tool, so every error ends with it. The
                    // printed decision is for programs that read it instead of the exit code.
                    show::json(&decision(&why));
                    show::complain(&why);
                    Exit::Usage
                }
            })
        }
        GuardCommand::WriteScope { job, paths, .. } => {
            let bounds = bounds_of(home, here, job)?;
            answer(paths, ui, SCOPE, |path| bounds.allow(here, path))
        }
        GuardCommand::Leak { paths, .. } => {
            let root = project::find(here)?;
            let git = Git::new(&root, &env::child_environment(), &env::marker()?);
            answer(paths, ui, LEAK, |path| {
                let beneath = Path::new(path).strip_prefix(&root).ok().and_then(Path::to_str);
                leak::check(&git, beneath.unwrap_or(path)).map_err(|leak| leak.to_string())
            })
        }
    }
}

fn refusal(
    home: &Env,
    here: &Path,
    write: &[PathBuf],
    keep: &[PathBuf],
    job: Option<&str>,
    reads: &[String],
) -> Result<(), String> {
    let payload =
        hook::read(io::stdin().lock()).map_err(|error| format!("the payload: {error}"))?;
    let mut bounds = match job {
        Some(job) => bounds_of(home, here, job).map_err(|failure| failure.to_string())?,
        None => WriteBounds::default(),
    };
    let whole = |path: &PathBuf| -> PathBuf {
        let path = here.join(path);
        std::fs::canonicalize(&path).unwrap_or(path)
    };
    bounds.reads.extend(reads.iter().cloned());
    bounds.write.extend(write.iter().map(whole));
    bounds.keep.extend(keep.iter().map(whole));
    let children = env::child_environment();
    bounds.home = children.get("HOME").map(PathBuf::from);
    hook::judge(&payload, &bounds)
}

fn bounds_of(home: &Env, here: &Path, job: &str) -> Result<WriteBounds, Failure> {
    // Inside the sandbox there is no database to identify the project, and nothing here depends on
    // its id.
    let root = project::find(here)?;
    let config = config::load(&home.stack(Some(&root.join(project::FILE))))?;
    let (write, keep) = of_job(&root, &config.job(job)?.spec, &config);
    Ok(WriteBounds { write, keep, reads: Vec::new(), home: None })
}

/// Formats a refusal as an agent's hook prints it.
fn decision(why: &str) -> serde_json::Value {
    serde_json::json!({
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": why,
        }
    })
}

/// The text for a path that passes, and the text for one that does not.
type AnswerTexts = (&'static str, &'static str);

const SCOPE: AnswerTexts = ("may be written", "must not be written");
const LEAK: AnswerTexts = ("stays out of git: nothing written there can leak", "could leak");

#[derive(Serialize)]
struct GuardAnswer<'a> {
    path: &'a str,
    allowed: bool,
    why: Option<String>,
}

fn answer(
    paths: &[String],
    ui: Ui,
    (good, bad): AnswerTexts,
    judge: impl Fn(&str) -> Result<(), String>,
) -> Result<Exit, Failure> {
    let answers: Vec<GuardAnswer<'_>> = paths
        .iter()
        .map(|path| {
            let why = judge(path).err();
            GuardAnswer { path, allowed: why.is_none(), why }
        })
        .collect();
    if ui.json {
        show::json(&answers);
    } else {
        for answer in &answers {
            match &answer.why {
                None => show::out(&format!("{}: {good}\n", answer.path)),
                Some(why) => show::out(&format!("{}: {bad}: {why}\n", answer.path)),
            }
        }
    }
    let all = answers.iter().all(|answer| answer.allowed);
    Ok(if all { Exit::Done } else { Exit::Failed })
}
