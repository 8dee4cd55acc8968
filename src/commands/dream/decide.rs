//! `runner dream accept`, `reject`, `amend`, `skip`, `undo`: each makes one decision, for scripts
//! and people.

use runner_engine::outcome::Exit;
use runner_jobs::dream::decisions::Decision;
use runner_jobs::dream::review::{AppliedDecision, DecisionInput, DecisionRequest, IfChanged};
use serde::Serialize;

use super::{ReviewContext, failure};
use crate::commands::args::dream::DecisionNote;
use crate::ui::{Failure, Ui, safe, show};

/// A decision as the command line states it.
pub(super) struct DecisionArgs<'a> {
    ask: DecisionRequest<'a>,
}

impl<'a> DecisionArgs<'a> {
    pub(super) fn new(
        id: &'a str,
        verdict: DecisionInput,
        note: &'a DecisionNote,
        if_changed: IfChanged,
    ) -> Self {
        let note = note.note.as_deref();
        let ask = DecisionRequest { id, verdict, note, if_changed };
        Self { ask }
    }
}

/// The JSON form of a decision.
#[derive(Serialize)]
struct DoneJson<'d> {
    #[serde(flatten)]
    decision: &'d Decision,
    says: &'d str,
    changes: &'d [String],
    already: bool,
    run: Option<String>,
}

/// Carries out a decision on a proposal.
pub(super) fn decide(
    room: ReviewContext<'_>,
    how: &DecisionArgs<'_>,
    ui: Ui,
) -> Result<Exit, Failure> {
    let mut tools = room.tools()?;
    let done = room.desk(&mut tools).decide(&how.ask).map_err(failure)?;
    print_decision(&done, ui);
    Ok(Exit::Done)
}

/// Takes a decision back.
pub(super) fn undo(
    room: ReviewContext<'_>,
    id: &str,
    if_changed: IfChanged,
    ui: Ui,
) -> Result<Exit, Failure> {
    let mut tools = room.tools()?;
    let done = room.desk(&mut tools).undo(id, if_changed).map_err(failure)?;
    print_decision(&done, ui);
    Ok(Exit::Done)
}

fn print_decision(done: &AppliedDecision, ui: Ui) {
    if ui.json {
        show::json(&DoneJson {
            decision: &done.decision,
            says: &done.says,
            changes: &done.changes,
            already: done.already,
            run: done.run.as_ref().map(ToString::to_string),
        });
        return;
    }
    if !ui.quiet {
        let Decision { proposal_id, decision, .. } = &done.decision;
        let says = safe::line(&done.says);
        show::out(&format!("{proposal_id} {decision}: {says}\n"));
    }
}
