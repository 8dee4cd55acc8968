//! `runner sessions`: analyzes the sessions of coding agents in a project, and shows the findings.
//!
//! Only a job of kind `sessions` may change the findings and the artifacts. The commands themselves
//! only read them.

mod artifacts;
pub(super) mod list;
mod show;

use clap::builder::NonEmptyStringValueParser;
use runner_engine::outcome::{Exit, Outcome, SkipReason};
use runner_jobs::Kind as _;
use runner_jobs::sessions::{Digests, KIND, SessionFolder, SessionsSpec, resume_packet};
use serde::Serialize;

use super::run::{self, ManualRun};
use super::{Cli, default_job};
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, safe, show as text};

/// Analyze finished sessions of coding agents, and show what is worth knowing in the next one
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner sessions analyze && runner sessions resume")]
pub struct SessionsArgs {
    #[command(subcommand)]
    command: SessionsCommand,
}

#[derive(Debug, clap::Subcommand)]
enum SessionsCommand {
    /// List the sessions of this project, newest first
    #[command(after_help = "Example: runner sessions list --json | jq -r '.[].session'")]
    List,
    /// Show the findings about a session: phases, errors, repairs, loops, trust, commands
    #[command(after_help = "Example: runner sessions show")]
    Show {
        /// The session's id, or an unambiguous prefix of it [default: the newest one]
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        session: Option<String>,
    },
    /// Analyze the idle sessions with new events, or one session now
    #[command(after_help = "Example: runner sessions analyze --all")]
    Analyze {
        /// The session's id, or the path of its transcript
        session: Option<String>,
        /// Analyze all idle sessions again
        #[arg(long, conflicts_with = "session")]
        all: bool,
    },
    Artifacts(artifacts::ArtifactsArgs),
    /// Print the resume packet that the next session gets
    #[command(after_help = "Example: runner sessions resume --json | jq .active_files")]
    Resume,
    /// Analyze a session that has ended, without waiting for it to become idle
    #[command(after_help = "Example: runner sessions end 01234567-89ab-cdef-0123-456789abcdef")]
    End {
        /// The session's id, or the path of its transcript
        session: String,
    },
}

impl SessionsArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let project = LoadedProject::load(cli.env, cli.here)?.trusted()?;
        match &self.command {
            SessionsCommand::List => list::run(cli, &project),
            SessionsCommand::Show { session } => show::run(cli, &project, session.as_deref()),
            SessionsCommand::Analyze { session, all } => {
                let mut settings = Vec::new();
                if let Some(session) = session {
                    settings.push(("session".to_owned(), quoted(&whole(cli, session))));
                }
                if *all {
                    settings.push(("all".to_owned(), "true".to_owned()));
                }
                work(cli, project, settings)
            }
            SessionsCommand::Artifacts(args) => args.run(cli, project),
            SessionsCommand::Resume => resume(cli, &project),
            SessionsCommand::End { session } => {
                let session = ("session".to_owned(), quoted(&whole(cli, session)));
                work(cli, project, vec![session, ("ended".to_owned(), "true".to_owned())])
            }
        }
    }
}

/// Returns the absolute path if `session` is the path of a file, and otherwise `session` unchanged.
fn whole(cli: &Cli<'_>, session: &str) -> String {
    let path = cli.env.here.join(session);
    let path = path.is_file().then(|| std::fs::canonicalize(&path).ok()).flatten();
    path.and_then(|path| path.to_str().map(str::to_owned)).unwrap_or_else(|| session.to_owned())
}

/// Formats a string as a TOML string.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Returns the settings and the name of the project's first job of kind `sessions`, or the default
/// settings if there is no such job.
fn settings(project: &LoadedProject) -> (SessionsSpec, Option<&str>) {
    let jobs = project.config.jobs.iter();
    let mut found =
        jobs.filter_map(|(name, job)| Some((name, job.spec.kind.of::<SessionsSpec>()?)));
    match found.next() {
        Some((name, spec)) => (spec.clone(), Some(name)),
        None => {
            let mut spec = SessionsSpec::default();
            spec.steps.clone_from(&project.config.lifecycle.steps);
            (spec, None)
        }
    }
}

/// Reads the findings and the artifacts.
fn load(cli: &Cli<'_>, project: &LoadedProject, spec: &SessionsSpec) -> SessionFolder {
    let digests = Digests::load(&cli.env.cache_folder(&project.id));
    SessionFolder::load(&project.root, &spec.folder, &digests)
}

/// Runs the project's job of kind `sessions` once. A project without such a job gets one that runs
/// only manually. If the run is deferred, or is skipped because another run is active, the exit
/// code is not 0, because nothing was analyzed.
fn work(
    cli: &Cli<'_>,
    project: LoadedProject,
    wanted: Vec<(String, String)>,
) -> Result<Exit, Failure> {
    let name = settings(&project).1.map(str::to_owned);
    let (project, name) = match name {
        Some(name) => (project, name),
        None => {
            let added = [("kind", SessionsSpec::default().name()), ("trigger", "manual")];
            let added = added.map(|(key, value)| (format!("jobs.{KIND}.{key}"), value.to_owned()));
            (default_job::add(cli, &project.root, &added)?, KIND.to_owned())
        }
    };
    let how = ManualRun::new(cli, wanted);
    let (exit, outcome) = run::settled(cli.env, &project, &name, None, how)?;
    Ok(match outcome {
        Some(Outcome::Skipped { reason: SkipReason::Busy, .. }) => Exit::TryLater,
        _ => exit,
    })
}

/// The resume packet, printed as the next session gets it.
#[derive(Serialize)]
#[serde(transparent)]
struct ResumeView {
    packet: runner_jobs::sessions::resume::Packet,
    #[serde(skip)]
    text: String,
}

impl View for ResumeView {
    fn print(&self, _ui: Ui) {
        text::out(&self.text.lines().map(|line| safe::line(line) + "\n").collect::<String>());
    }
}

fn resume(cli: &Cli<'_>, project: &LoadedProject) -> Result<Exit, Failure> {
    let (spec, _) = settings(project);
    let state = cli.env.cache_folder(&project.id);
    let found = load(cli, project, &spec).packet.zip(resume_packet(&project.root, &state));
    let Some((packet, text)) = found else {
        return Err(Failure::data("there is no resume packet: no session has been analyzed")
            .hint("runner sessions analyze"));
    };
    cli.ui.show(&ResumeView { packet, text });
    Ok(Exit::Done)
}
