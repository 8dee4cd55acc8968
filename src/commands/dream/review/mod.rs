//! `runner dream review`: the loop around the state machine. It passes keys in, carries out the
//! effects one by one and passes their results back.

mod effect;
mod machine;
mod view;

use runner_engine::outcome::Exit;
use runner_jobs::dream::review::{
    Consent, Decider, DecisionInput, DecisionRequest, IfChanged, IfExposed, PastDecisions,
    ProposalItem, ReviewError,
};

use super::DreamJobArg;
use super::context::{ReviewContext, Tools, failure};
use super::filter::ProposalFilter;
use crate::commands::Cli;
use crate::env;
use crate::ui::screen::{self, Input, Screen};
use crate::ui::{Failure, safe, show};
use effect::{Effect, News};
use machine::{Detail, Review};

/// Review the undecided proposals one at a time on a terminal
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner dream review --confidence high")]
pub(super) struct ReviewArgs {
    #[command(flatten)]
    filter: ProposalFilter,
    #[command(flatten)]
    which: DreamJobArg,
}

impl ReviewArgs {
    /// Runs the review until the person leaves.
    pub(super) fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        if !screen::there_is_one() {
            return Err(Failure::usage("a review needs a terminal")
                .hint("runner dream list --json, then runner dream accept|reject|amend|skip ID"));
        }
        let context = ReviewContext::open(cli, &self.which)?;
        let proposals = context.proposals()?;
        let mut past = context.past(&proposals)?;
        let mut review = Review::new(proposals.items, self.filter.clone());
        if review.counts().0 == 0 {
            show::out("no undecided proposals; `runner dream run` looks for more\n");
            return Ok(Exit::Done);
        }
        let mut tools = context.tools()?;
        let mut stopped;
        let decided = {
            let cannot =
                |error| Failure::environment(format!("the terminal cannot be used: {error}"));
            let mut screen = Screen::open(env::setting("NO_COLOR").is_none()).map_err(cannot)?;
            loop {
                if let Some(item) = review.wants_detail() {
                    let detail = detail(&context.decider(&mut tools), item, &past);
                    review.detail = Some(detail);
                }
                let (width, height) = screen.size();
                let rows = view::rows(&mut review, width, height);
                // If painting fails, the terminal is gone, so the review ends.
                let input = match screen.paint(rows) {
                    Ok(()) => screen.next(),
                    Err(_gone) => Input::Stop,
                };
                stopped = input == Input::Stop;
                match review.update(input) {
                    None => {}
                    Some(Effect::Quit) => break review.counts().1,
                    Some(effect) => {
                        let news = carry_out(&context, &mut tools, effect)?;
                        // Other processes may have made decisions, or a pass may have added proposals.
                        let proposals = context.read()?;
                        past = context.past(&proposals)?;
                        review.reload(proposals.items);
                        review.handle_result(news);
                    }
                }
            }
        };
        let (open, _) = review.counts();
        // The summary is printed only on a terminal. Each decision was already written when it was
        // made.
        if screen::there_is_one() {
            show::out(&format!("{decided} decided, {open} left\n"));
        }
        Ok(if stopped { Exit::Cancelled } else { Exit::Done })
    }
}

/// Carries out an effect. A refusal is a result; an error that leaves a file half written or the
/// database unusable ends the review.
fn carry_out(
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
        Effect::Quit => unreachable!("the loop has ended"),
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
            | ReviewError::Conflict(_)
            | ReviewError::Internal(_)),
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

/// Loads the idea's text, the effect of accepting the proposal, and earlier decisions on proposals
/// like it.
fn detail(decider: &Decider<'_>, item: &ProposalItem, past: &PastDecisions) -> Detail {
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
