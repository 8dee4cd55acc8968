//! `runner board`: shows a project's tasks and changes them.

pub(super) mod change;
mod history;
pub(super) mod tasks;

use runner_engine::outcome::Exit;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::store::Store;
use runner_jobs::Kind;
use runner_jobs::lifecycle::BOARD;
use runner_jobs::lifecycle::board::{BoardError, BoardRequest};
use runner_jobs::lifecycle::cycle::CycleSpec;
use runner_jobs::lifecycle::rem::RemSpec;
use runner_jobs::lifecycle::work::WorkSpec;
use runner_jobs::manual_edit::{EditActor, ManualEditError};
use runner_text::org::BoardForm;
use runner_text::shell_word;

use super::Cli;
use crate::env::Env;
use crate::filesystem;
use crate::project::LoadedProject;
use crate::ui::{Failure, safe};

/// Show the board of tasks, apply the newest dream's verdicts, or pick, add or finish a task
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner board show")]
pub struct BoardArgs {
    #[command(subcommand)]
    command: BoardCommand,
}

#[derive(Debug, clap::Subcommand)]
enum BoardCommand {
    /// Print each task with its keyword, line and heading
    #[command(
        after_help = "Example: runner board show --json | jq -r '.tasks[] | select(.keyword == \"NEXT\").heading'"
    )]
    Show {
        #[command(flatten)]
        which: BoardArg,
    },
    /// List problems on the board: repeated or missing headings, unknown keywords, and several
    /// tasks DOING at once; exit code 1 if there are any
    #[command(after_help = "Example: runner board lint || $EDITOR plan.org")]
    Lint {
        #[command(flatten)]
        which: BoardArg,
    },
    /// Apply the newest entry's verdicts, once; a verdict that does not name exactly one task is
    /// reported
    #[command(after_help = "Example: runner board apply --json | jq '.records[].unresolved'")]
    Apply {
        #[command(flatten)]
        which: BoardArg,
    },
    /// Begin the next task: the first NEXT, or else a task that is already DOING, or else the top
    /// TODO
    #[command(after_help = "Example: runner board pick")]
    Pick {
        #[command(flatten)]
        which: BoardArg,
    },
    /// Add an open task after all others
    #[command(after_help = "Example: runner board add 'tide tables load without a network'")]
    Add {
        /// The heading of the task
        heading: String,
        #[command(flatten)]
        which: BoardArg,
    },
    /// Mark a task as done
    #[command(after_help = "Example: runner board done 'tide tables load without a network'")]
    Done {
        /// The heading of the task
        heading: String,
        #[command(flatten)]
        which: BoardArg,
    },
    /// List the changes to the board, newest first: time, kind, entry and moved tasks
    #[command(after_help = "Example: runner board history --limit 5")]
    History {
        /// Maximum number of changes; 0 means all
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
}

/// Selects a board and its agent.
#[derive(Debug, clap::Args)]
pub struct BoardArg {
    /// The path of the board inside the project [default: that of the agent's jobs, else plan.org]
    #[arg(long, value_name = "FILE")]
    pub board: Option<String>,
    /// The agent [default: the one without a name]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub agent: String,
}

impl BoardArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let here = LoadedProject::load(cli.env, cli.here)?;
        match &self.command {
            BoardCommand::Show { which, .. } => tasks::show(cli, &here, which),
            BoardCommand::Lint { which, .. } => tasks::lint(cli, &here, which),
            BoardCommand::Apply { which, .. } => change::apply(cli, &here, which),
            BoardCommand::Pick { which } => change::edit(cli, &here, which, &BoardRequest::Pick),
            BoardCommand::Add { heading, which } => {
                change::edit(cli, &here, which, &BoardRequest::Add(heading))
            }
            BoardCommand::Done { heading, which } => {
                change::edit(cli, &here, which, &BoardRequest::Done(heading))
            }
            BoardCommand::History { limit, .. } => history::history(cli, &here, *limit),
        }
    }
}

/// Returns the agent and the board of a lifecycle job, or `None` for a job of another kind. The
/// default agent has an empty name.
pub(super) fn agent_and_board(kind: &dyn Kind) -> Option<(&str, &str)> {
    let cycle = kind.of::<CycleSpec>().map(|it| (it.agent.as_str(), it.board.as_str()));
    let work = || kind.of::<WorkSpec>().map(|it| (it.agent.as_str(), it.board.as_str()));
    let rem = || {
        let rem = kind.of::<RemSpec>()?;
        Some((rem.agent.as_deref().unwrap_or_default(), rem.board.as_str()))
    };
    cycle.or_else(work).or_else(rem)
}

/// Returns the board's path: the given path, else that of the agent's jobs, else the default.
pub(super) fn path(here: &LoadedProject, which: &BoardArg) -> String {
    let of_agent = || {
        let kinds = here.config.jobs.values().map(|job| &*job.spec.kind);
        let own = kinds.filter_map(|kind| Some((kind, agent_and_board(kind)?)));
        let own = own.filter(|(_, (agent, _))| *agent == which.agent);
        // A rem job only reads the board, so jobs that work on it come first.
        let first = own.min_by_key(|(kind, _)| kind.of::<RemSpec>().is_some());
        first.map(|(_, (_, board))| board.to_owned())
    };
    let named = which.board.clone().or_else(of_agent);
    named.unwrap_or_else(|| BOARD.to_owned())
}

/// Creates an actor that edits the project for this command.
pub(super) fn edit_actor<'h>(
    home: &'h Env,
    here: &'h LoadedProject,
    me: &'h ProcessIdentity,
    store: &'h mut Store,
) -> Result<EditActor<'h>, Failure> {
    let root = &here.root;
    Ok(EditActor {
        root,
        project: &here.id,
        state: &home.state,
        clock: &home.clock,
        me,
        store,
        free_bytes: filesystem::free_bytes(root)?,
    })
}

fn failure(error: BoardError, path: &str) -> Failure {
    let what = safe::line(&runner_engine::error_chain::whole(&error));
    match error {
        BoardError::Missing(_) => {
            let example = match BoardForm::of(path) {
                BoardForm::Org => "* TODO the first task",
                BoardForm::Markdown => "- [ ] the first task",
            };
            Failure::data(what).hint(format!("echo '{example}' > {}", shell_word(path)))
        }
        BoardError::Unreadable { .. } => Failure::data(what),
        BoardError::Cannot(_) => Failure::data(what).hint("runner board show"),
        BoardError::Internal { .. } => Failure::internal(what),
        BoardError::Act(error) => act_failure(error),
    }
}

pub(super) fn act_failure(error: ManualEditError) -> Failure {
    let what = safe::line(&runner_engine::error_chain::whole(&error));
    match error {
        ManualEditError::Busy(_) | ManualEditError::Changed(_) => {
            Failure::later(what).hint("run the command again")
        }
        ManualEditError::Guard(_) | ManualEditError::Conflict(_) => Failure::refused(what),
        ManualEditError::Disk(_) => Failure::cannot_write(what),
        ManualEditError::Unfinished { .. } => Failure::cannot_write(what).hint("runner tick"),
        ManualEditError::Ledger(error) => error.into(),
    }
}
