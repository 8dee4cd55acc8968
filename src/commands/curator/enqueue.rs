//! `runner curator enqueue`: puts a job file into the queue.

use std::path::{Path, PathBuf};

use runner_engine::outcome::Exit;
use runner_jobs::curator::Source;
use runner_jobs::curator::job::{CuratorJobKind, JobFile};
use serde::Serialize;

use super::{disk, model, worker};
use crate::commands::Cli;
use crate::config::curator::kind as kind_of;
use crate::env::Env;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, show};

/// Put a job file into the queue
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: runner curator enqueue --kind ingest-claude-session --source ~/.claude/projects/-p/s.jsonl"
)]
pub struct EnqueueArgs {
    /// The job kind: lint-wiki, dream-seed or ingest-claude-session
    #[arg(long)]
    kind: String,
    /// The file that the job is about, such as a note or a transcript
    #[arg(long, value_name = "PATH")]
    source: Option<PathBuf>,
    /// The first line of the source to process, counting from 1
    #[arg(long, value_name = "N", requires = "source", value_parser = clap::value_parser!(u64).range(1..))]
    chunk_start: Option<u64>,
    /// The last line of the source to process
    #[arg(long, value_name = "N", requires = "source", value_parser = clap::value_parser!(u64).range(1..))]
    chunk_end: Option<u64>,
    /// The priority; jobs with a higher priority start first
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
}

#[derive(Serialize)]
#[serde(transparent)]
struct EnqueuedJob {
    job: JobFile,
    /// Whether the project has a job of kind curator, which processes the queue.
    #[serde(skip)]
    served: bool,
}

impl View for EnqueuedJob {
    fn print(&self, ui: Ui) {
        ui.info(&format!("{} is queued", self.job.id));
        if !self.served {
            show::complain("no job processes the queue automatically\n  fix: runner curator work");
        }
    }
}

impl EnqueueArgs {
    pub fn run(&self, cli: &Cli<'_>, project: &LoadedProject) -> Result<Exit, Failure> {
        let kind = &self.kind;
        let source = match &self.source {
            None => None,
            Some(path) => Some(Source {
                path: named(cli.env, path)?,
                chunk_start: self.chunk_start,
                chunk_end: self.chunk_end,
            }),
        };
        let listed = &project.config.curator.spec.kinds;
        let known = kind_of(kind).map_err(|why| Failure::usage(format!("--kind: {why}")))?;
        if !listed.contains(&known) {
            let words: Vec<&str> = listed.iter().map(|kind| kind.as_str()).collect();
            return Err(Failure::usage(format!(
                "--kind {kind}: [curator] kinds lists only {}",
                words.join(", ")
            ))
            .hint("runner config get curator.kinds"));
        }
        if known == CuratorJobKind::IngestClaudeSession && source.is_none() {
            let what = format!("--kind {kind} needs --source, the path of the transcript");
            return Err(Failure::usage(what));
        }
        if source.is_some()
            && let (Some(start), Some(end)) = (self.chunk_start, self.chunk_end)
            && end < start
        {
            let what = format!("--chunk-end {end} comes before --chunk-start {start}");
            return Err(Failure::usage(what));
        }
        let worker = worker(project)?;
        let job = worker
            .enqueue(known, source, self.priority, cli.env.wall()?)
            .map_err(|error| disk(&worker, &error))?;
        let served = model::job_of(project).is_some();
        cli.ui.show(&EnqueuedJob { job, served });
        Ok(Exit::Done)
    }
}

/// Returns the file's canonical path. The file must exist, and the path must be UTF-8.
fn named(home: &Env, path: &Path) -> Result<String, Failure> {
    let whole = std::fs::canonicalize(home.here.join(path)).map_err(|error| {
        Failure::data(format!("--source {}: {error}", path.display()))
            .hint("name a file that exists: runner curator enqueue --kind KIND --source PATH")
    })?;
    whole.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::data(format!("--source {}: the path must be UTF-8", whole.display()))
    })
}
