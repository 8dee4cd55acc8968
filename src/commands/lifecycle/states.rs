//! `runner lifecycle show`: shows the states of a cycle and the agent's position.

use jiff::Timestamp;
use runner_engine::outcome::Exit;
use runner_jobs::failmark;
use runner_jobs::lifecycle::cycle::BUILT_IN;
use runner_jobs::lifecycle::position::{self, Position};
use runner_jobs::lifecycle::spec::{CycleState, StateKind};
use runner_jobs::lifecycle::step::{CycleStep, TickFacts, step};
use serde::Serialize;

use super::{AgentArg, bad, of_agent};
use crate::commands::Cli;
use crate::cycles;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, safe, show};

/// Show the states of the cycle, the agent's current state, and when the next gate opens
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner lifecycle show --json | jq -r .position.state")]
pub(super) struct ShowArgs {
    #[command(flatten)]
    agent: AgentArg,
}

/// An agent's cycle, and the agent's position in the cycle.
#[derive(Debug, Serialize)]
struct CycleView {
    file: String,
    job: Option<String>,
    agent: String,
    failures: u32,
    position: Position,
    states: Vec<StateView>,
    /// The failure marker's message.
    #[serde(skip)]
    failed: Option<String>,
}

#[derive(Debug, Serialize)]
struct StateView {
    name: String,
    kind: StateKind,
    next: String,
    repeat: u32,
    min_interval_s: Option<i64>,
    backend: Option<String>,
    line: usize,
    ran: Option<Timestamp>,
    gate_until: Option<Timestamp>,
}

impl ShowArgs {
    pub(super) fn run(&self, cli: &Cli<'_>, here: &LoadedProject) -> Result<Exit, Failure> {
        let agent = self.agent.agent.as_str();
        let (job, cycle) = of_agent(here, agent);
        let spec = cycles::cycle_of(&here.root, &cycle)?;
        let at =
            position::read(&here.root, agent, &spec).map_err(|error| bad(&error, agent, &spec))?;
        let now = cli.env.wall()?;
        let failures = match (&job, cli.env.store_to_read()?) {
            (Some(job), Some(store)) => match store.job(&here.id, job) {
                Ok(row) => store.streak(row.id)?.failures,
                Err(_) => 0,
            },
            _ => 0,
        };
        let failed = job.as_deref().map(failmark::of_job);
        let failed = failed.and_then(|mark| failmark::read_at(&here.root, &mark));
        let mut states = Vec::new();
        for state in &spec.states {
            let ran = position::ran(&here.root, agent, &state.name)
                .map_err(|error| bad(&error, agent, &spec))?;
            let facts = TickFacts {
                job: job.as_deref().unwrap_or_default(),
                ran,
                failures: if state.name == at.state { failures } else { 0 },
                failed: failed.as_ref().map(|mark| mark.at),
            };
            let gate_until = match step(state, &facts, now) {
                CycleStep::Gate { until, .. } => Some(until),
                CycleStep::Go => None,
            };
            states.push(StateView::of(state, ran, gate_until));
        }
        cli.ui.show(&CycleView {
            file: cycles::file(&cycle).unwrap_or_else(|| BUILT_IN.to_owned()),
            job,
            agent: agent.to_owned(),
            failures,
            position: at,
            states,
            failed: failed.map(|mark| mark.message),
        });
        Ok(Exit::Done)
    }
}

impl StateView {
    fn of(state: &CycleState, ran: Option<Timestamp>, gate_until: Option<Timestamp>) -> Self {
        Self {
            name: state.name.clone(),
            kind: state.kind,
            next: state.next.clone(),
            repeat: state.repeat,
            min_interval_s: state.min_interval.map(|it| it.as_secs()),
            backend: state.backend.clone(),
            line: state.line,
            ran,
            gate_until,
        }
    }

    fn row(&self, position: &Position) -> Vec<String> {
        let is_current = self.name == position.state;
        let times = match (self.repeat, is_current) {
            (1, _) => String::new(),
            (most, true) => format!("{} of {most}", position.hits),
            (most, false) => format!("×{most}"),
        };
        let said = [
            self.ran.map(|ran| format!("ran {}", show::format_time(ran))),
            self.gate_until.map(|until| format!("gate closed until {}", show::format_time(until))),
        ];
        vec![
            format!("{} {}", if is_current { "→" } else { " " }, self.name),
            self.kind.as_str().to_owned(),
            times,
            format!("then {}", self.next),
            said.into_iter().flatten().collect::<Vec<_>>().join(", "),
        ]
    }
}

impl View for CycleView {
    fn print(&self, _ui: Ui) {
        let rows = self.states.iter().map(|state| state.row(&self.position));
        show::out(&show::table(&rows.collect::<Vec<_>>()));
        if self.failures > 0 {
            let why = self.failed.as_ref();
            let why = why.map_or_else(String::new, |message| format!(": {}", safe::line(message)));
            let failed = match self.failures {
                1 => "the last run failed".to_owned(),
                more => format!("the last {more} runs failed"),
            };
            show::out(&format!("{failed}{why}\n"));
        }
        if self.job.is_none() {
            show::out("no job runs this cycle: this agent has no job of kind lifecycle\n");
        }
    }
}
