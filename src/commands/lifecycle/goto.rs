//! `runner lifecycle goto`: moves an agent to the beginning of a state.

use runner_engine::digest::Digest;
use runner_engine::ids::RunId;
use runner_engine::outcome::Exit;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::scope::Expect;
use runner_jobs::failmark;
use runner_jobs::lifecycle::position::{self, Position};
use runner_jobs::lifecycle::spec::StateKind;
use runner_jobs::manual_edit::{self, ManualEdit};
use serde::Serialize;

use super::{AgentArg, named};
use crate::commands::{Cli, board};
use crate::cycles;
use crate::env;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View};

/// The job name of a run that sets a position manually. No configured job can have this name.
pub const GOTO: &str = "lifecycle:goto";

/// Move the agent to the beginning of a state
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner lifecycle goto rem")]
pub(super) struct GotoArgs {
    /// The state
    state: String,
    #[command(flatten)]
    agent: AgentArg,
}

#[derive(Debug, Serialize)]
struct NewPosition {
    state: String,
    hits: u32,
    run: RunId,
    #[serde(skip)]
    kind: StateKind,
}

impl View for NewPosition {
    fn print(&self, ui: Ui) {
        let kind = if self.kind == StateKind::Rem { "the dream" } else { "a run" };
        ui.info(&format!("{} is next ({kind})", self.state));
    }
}

impl GotoArgs {
    pub(super) fn run(&self, cli: &Cli<'_>, here: &LoadedProject) -> Result<Exit, Failure> {
        let (job, cycle) = named(here, &self.agent.agent)?;
        let spec = cycles::cycle_of(&here.root, cycle)?;
        let Some(state) = spec.state(&self.state) else {
            let names: Vec<&str> = spec.states.iter().map(|it| it.name.as_str()).collect();
            return Err(Failure::usage(format!(
                "the cycle has no state {:?} (states: {})",
                self.state,
                names.join(", ")
            )));
        };
        let mut store = cli.env.store()?;
        here.register(&mut store, cli.env.wall()?)?;
        let me = ProcessIdentity::me();
        let mut hand = board::edit_actor(cli.env, here, &me, &mut store)?;
        let mut held = hand.lock(GOTO).map_err(board::act_failure)?;
        let path = position::path(&self.agent.agent);
        let position = Position::at(&state.name);
        let act = ManualEdit {
            job: GOTO,
            allowed: &[".runner"],
            staging: manual_edit::STAGING,
            headline: format!("set to {}", state.name),
            lines: Vec::new(),
        };
        let run = hand
            .place(&mut held, &act, &mut |scope, _, _| {
                // The position is overwritten even if the current file is invalid.
                let seen = scope.inspect(&path, 1 << 20)?;
                let expect =
                    seen.map_or(Expect::Absent, |(bytes, _)| Expect::Digest(Digest::of(&bytes)));
                scope.stage(&path, format!("{position}\n").as_bytes(), expect)?;
                Ok(())
            })
            .map_err(board::act_failure)?;
        drop((held, hand));
        // The job's failures occurred in the state that the agent has left.
        let now = cli.env.wall()?;
        if let Ok(row) = store.job(&here.id, job) {
            store.acknowledge(&here.id, row.id, job, &env::person(), now)?;
        }
        // The job's settings name the failure marker's file.
        if here.check_trusted(job).is_ok() {
            failmark::remove(&here.root, &here.config.job(job)?.spec).map_err(|error| {
                Failure::cannot_write(format!("the failure marker of {job}: {error}"))
            })?;
        }
        cli.ui.show(&NewPosition { state: state.name.clone(), hits: 0, run, kind: state.kind });
        Ok(Exit::Done)
    }
}
