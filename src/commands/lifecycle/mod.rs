//! `runner lifecycle`: checks and shows an agent's cycle, moves the agent, and runs one step
//! manually.

mod adopt;
mod check;
mod goto;
mod history;
mod orient;
mod states;

use runner_engine::error_chain::whole;
use runner_engine::outcome::Exit;
use runner_jobs::lifecycle::cycle::CycleSpec;
use runner_jobs::lifecycle::position::{BadPosition, reset};
use runner_jobs::lifecycle::spec::Spec;

use super::Cli;
use super::run::{self, ManualRun};
use crate::project::LoadedProject;
use crate::ui::{Failure, safe};

pub use check::of_jobs as cycle_mistakes;
pub use goto::GOTO;

/// Show an agent's cycle, with its states and the agent's position, or run one step manually
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner lifecycle show")]
pub struct LifecycleArgs {
    #[command(subcommand)]
    command: LifecycleCommand,
}

#[derive(Debug, clap::Subcommand)]
enum LifecycleCommand {
    Check(check::CheckArgs),
    Show(states::ShowArgs),
    Tick(TickArgs),
    Goto(goto::GotoArgs),
    Orient(orient::OrientArgs),
    History(history::HistoryArgs),
    Adopt(adopt::AdoptArgs),
}

/// Run one step now; while a gate is closed, the step is skipped, as in a scheduled run
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner lifecycle tick && runner lifecycle show")]
struct TickArgs {
    #[command(flatten)]
    agent: AgentArg,
}

#[derive(Debug, clap::Args)]
struct AgentArg {
    /// The agent [default: the one without a name]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    agent: String,
}

impl LifecycleArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let here = LoadedProject::load(cli.env, cli.here)?;
        dispatch!(&self.command, LifecycleCommand: Check Show Goto Orient History Adopt => run(cli, &here);
            LifecycleCommand::Tick(args) => {
                let (job, _) = named(&here, &args.agent.agent)?;
                let how = ManualRun { deferral_is_normal: true, ..ManualRun::new(cli, Vec::new()) };
                run::once(cli.env, &here, job, None, how)
            }
        )
    }
}

/// Returns an agent's lifecycle job and its settings. Without such a job, returns the settings of
/// the built-in cycle.
fn of_agent(here: &LoadedProject, agent: &str) -> (Option<String>, CycleSpec) {
    let found = here.config.jobs.iter().find_map(|(name, job)| {
        let cycle = job.spec.kind.of::<CycleSpec>()?;
        (cycle.agent == agent).then(|| (name.clone(), cycle.clone()))
    });
    match found {
        Some((name, cycle)) => (Some(name), cycle),
        None => {
            let cycle = CycleSpec { agent: agent.to_owned(), ..CycleSpec::default() };
            (None, cycle)
        }
    }
}

/// Returns an agent's lifecycle job and its settings, or an error if there is no such job.
fn named<'h>(here: &'h LoadedProject, agent: &str) -> Result<(&'h str, &'h CycleSpec), Failure> {
    let cycles = || {
        here.config
            .jobs
            .iter()
            .filter_map(|(name, job)| Some((name.as_str(), job.spec.kind.of::<CycleSpec>()?)))
    };
    if let Some(found) = cycles().find(|(_, cycle)| cycle.agent == agent) {
        return Ok(found);
    }
    let agents: Vec<&str> = cycles().map(|(_, cycle)| cycle.agent.as_str()).collect();
    Err(if agents.is_empty() {
        Failure::configuration("this project has no job of kind lifecycle")
            .hint("runner config set jobs.lifecycle.kind lifecycle")
    } else {
        let whose = if agent.is_empty() {
            "no cycle for the unnamed agent".to_owned()
        } else {
            format!("no cycle for the agent {agent:?}")
        };
        let named = agents.iter().map(|name| match *name {
            "" => "the unnamed agent".to_owned(),
            name => format!("the agent {name:?}"),
        });
        let named: Vec<String> = named.collect();
        let hint = match agents.iter().find(|name| !name.is_empty()) {
            Some(name) => format!("add --agent {name}"),
            None => "omit --agent".to_owned(),
        };
        Failure::usage(format!("this project has {whose}; it has cycles for {}", named.join(", ")))
            .hint(hint)
    })
}

fn bad(error: &BadPosition, agent: &str, spec: &Spec) -> Failure {
    Failure::environment(safe::line(&whole(error))).hint(reset(agent, &spec.first().name))
}
