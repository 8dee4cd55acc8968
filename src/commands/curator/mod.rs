//! `runner curator`: shows the state of the local curator, fills its queue, and starts runs that
//! process the queue.
//!
//! Only a run of a job of kind `curator` may process a job file. `status` must answer within two
//! seconds, even if the engine does not.

mod compact;
mod diagnose;
mod enqueue;
mod event;
mod events;
mod model;
mod setup;
mod text;
mod work;

use std::io;

use runner_engine::outcome::Exit;
use runner_jobs::curator::queue::Worker;
use runner_text::shell_word;

use super::Cli;
use crate::project::LoadedProject;
use crate::ui::{Failure, show};

const SCHEMA: &str = include_str!("../../../config/schemas/curator-status.schema.json");

/// Control the local curator, which processes notes by day from a queue of job files
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner curator enqueue --kind lint-wiki && runner curator work")]
pub struct CuratorArgs {
    #[command(subcommand)]
    command: CuratorCommand,
}

#[derive(Debug, clap::Subcommand)]
enum CuratorCommand {
    /// Show the state of the worker, queue, notes, engine and model; answers within two seconds
    #[command(after_help = "Example: runner curator status --json | jq '.health.state'")]
    Status {
        /// Print the JSON schema of the --json output
        #[arg(long, conflicts_with = "json")]
        schema: bool,
    },
    /// Find problems with the curator; each comes with the command that fixes it
    ///
    /// Exit code 1 when something is wrong.
    #[command(after_help = "Example: runner curator diagnose --json | jq -r '.[].hint'")]
    Diagnose,
    Enqueue(enqueue::EnqueueArgs),
    Work(work::WorkArgs),
    Compact(compact::CompactArgs),
    Event(event::EventArgs),
    Events(events::EventsArgs),
    Setup(setup::SetupArgs),
}

impl CuratorArgs {
    pub fn is_dry(&self) -> bool {
        matches!(&self.command, CuratorCommand::Compact(compact) if compact.is_dry())
    }

    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        if let CuratorCommand::Status { schema: true, .. } = self.command {
            show::out(SCHEMA);
            return Ok(Exit::Done);
        }
        let project = match self.is_dry() {
            true => LoadedProject::load_for_dry_run(cli.env, cli.here),
            false => LoadedProject::load(cli.env, cli.here),
        };
        let project = project?.trusted()?;
        dispatch!(&self.command, CuratorCommand: Enqueue Work Compact Event Events Setup => run(cli, &project);
            CuratorCommand::Status { .. } => {
                cli.ui.show(&model::gather(&project, cli.env.wall()?));
                Ok(Exit::Done)
            }
            CuratorCommand::Diagnose => diagnose::run(cli, &project))
    }
}

fn worker(project: &LoadedProject) -> Result<Worker, Failure> {
    let dir = &project.config.curator.spec.worker_dir;
    Worker::of(&project.root, dir).map_err(|why| {
        Failure::configuration(why).hint("runner config set curator.worker_dir .runner/curator")
    })
}

fn disk(worker: &Worker, error: &io::Error) -> Failure {
    let folder = worker.folder().display();
    Failure::cannot_write(format!("the worker's folder {folder} cannot be used: {error}"))
        .hint(format!("ls -ld {}", shell_word(&folder)))
}
