//! Decisions made in the application, using the same code as `runner dream accept` and related
//! commands.

use runner_jobs::dream::review::{
    Consent, Decider, DecisionInput, DecisionRequest, IfChanged, IfExposed, PastDecisions,
    ProposalItem, ReviewError,
};

use crate::commands::dream::{ReviewContext, Tools, failure};
use crate::tui::proposals::{Detail, Effect, News};
use crate::ui::{Failure, safe};

/// Carries out an effect. A refusal is a result. A database error, an unfinished change, a conflict
/// with another program's change, and an internal error end the review.
pub(super) fn carry_out(
    context: &ReviewContext<'_>,
    tools: &mut Tools,
    effect: Effect,
) -> Result<News, Failure> {
    let mut decider = context.decider(tools);
    let given = match &effect {
        Effect::Decide { consent, .. } => *consent,
        _ => Consent::default(),
    };
    let done = match &effect {
        Effect::Decide { id, verdict, note, .. } => decider.decide(&DecisionRequest {
            id,
            verdict: verdict.clone(),
            note: note.as_deref(),
            consent: given,
        }),
        Effect::Undo(id) => decider.undo(id, IfChanged::Refuse),
        Effect::Quit => unreachable!("the application has ended"),
    };
    match done {
        Ok(done) if done.already => Ok(News::Refused { why: done.says, needs: None }),
        Ok(done) => {
            let id = done.decision.proposal_id;
            Ok(match effect {
                Effect::Undo(_) => News::Undone { id, says: format!("undone: {}", done.says) },
                _ => {
                    News::Decided { id, says: format!("{}: {}", done.decision.decision, done.says) }
                }
            })
        }
        Err(
            error @ (ReviewError::Ledger(_)
            | ReviewError::Unfinished { .. }
            | ReviewError::Conflict(_)),
        ) => Err(failure(error)),
        Err(error) => Ok(News::Refused {
            needs: match &error {
                ReviewError::Stale { .. } => {
                    Some(Consent { if_changed: IfChanged::Proceed, ..given })
                }
                ReviewError::Exposed { .. } => {
                    Some(Consent { if_exposed: IfExposed::Publish, ..given })
                }
                _ => None,
            },
            why: error.to_string(),
        }),
    }
}

/// Loads the idea's text, the effect of accepting the proposal, and earlier decisions on similar
/// proposals.
pub(super) fn detail(decider: &Decider<'_>, item: &ProposalItem, past: &PastDecisions) -> Detail {
    let text = match decider.text(&item.proposal.targets[0]) {
        Ok(bytes) => safe::lines(&bytes),
        Err(error) => vec![safe::line(&error.to_string())],
    };
    let plan = decider.preview(item, &DecisionInput::Accept);
    Detail {
        id: item.proposal.id.clone(),
        text,
        like: past.like(&item.proposal).describe(),
        plan: plan.map(|plan| (plan.says, plan.preview)).map_err(|error| error.to_string()),
    }
}
