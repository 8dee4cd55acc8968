//! Asks the questions of a pass, and collects the usable proposals.
//!
//! ```text
//! ideas ──> batches ──> ask ──> elements ──> proposals
//!                        ^                      │ an idea has none
//!                        └── once more, after all batches, with the reasons
//! ```
//!
//! Each batch is handled separately, so an unusable reply affects only the ideas of its batch. An
//! error stops further questions. It ends the pass only if the run was cancelled or the database
//! cannot be used.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use runner_backends::{BackendError, Reply, Request};
use runner_text::counted;
use serde_json::json;

use super::answer::{elements, fits};
use super::classify::{ClassifiedIdea, ClassifiedIdeas};
use super::external::Submission;
use super::proposal::{self, CheckedReply, Offer, Proposal, Refused};
use super::request::{self, QuestionFacts};
use crate::spender::AskError;
use crate::{Context, JobError};

/// The part of a run's time that is reserved for the work after the answer.
const AFTERWARDS: Duration = Duration::from_secs(30);
/// The recording key for the backend's window.
const WINDOW: &str = "window";

/// Which of the two questions about an idea is asked.
#[derive(Clone, Copy, Debug)]
enum Attempt<'a> {
    First,
    /// A question about ideas that the first reply did not answer.
    Second {
        /// Why parts of the first reply could not be used.
        problems: &'a [String],
    },
}

/// The usable part of the replies, and facts about the rest.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) proposals: Vec<Proposal>,
    /// The lines that the replies quote from a commit's changes, keyed by idea.
    pub(super) quotes: BTreeMap<String, String>,
    pub(super) refused: Vec<Refused>,
    pub(super) notes: Vec<String>,
    /// The ideas for which a reply was received.
    pub(super) asked: BTreeSet<String>,
    /// The ideas for which a backend sent a malformed or truncated answer.
    pub(super) unread: BTreeSet<String>,
    /// The error after which no more questions were asked.
    pub(super) error: Option<JobError>,
    /// Number of requests so far.
    requests: u32,
}

/// Returns the first request of each batch, with the number of ideas in it.
pub(super) fn requests(
    ctx: &Context<'_>,
    facts: &QuestionFacts<'_>,
    judged: &ClassifiedIdeas,
) -> Vec<(Request, u64)> {
    let window = window(ctx);
    let all: Vec<&ClassifiedIdea> = judged.shown.iter().collect();
    let mut left = all.as_slice();
    let batches = request::batches(facts, &all, window).into_iter().enumerate();
    batches
        .map(|(number, count)| {
            let (batch, rest) = left.split_at(count);
            left = rest;
            let offer = offer_of(&judged.offer, batch);
            let number = u32::try_from(number + 1).unwrap_or(u32::MAX);
            (question(ctx, facts, (batch, &offer), (number, &[]), window), count as u64)
        })
        .collect()
}

/// Asks about all shown ideas. Divides them into requests that fit the window of the backend, or
/// the window of the fallback that replaces it.
///
/// # Errors
/// Returns an error only if the run was cancelled or the database cannot be used. Any other error
/// is part of the result.
pub(super) fn ask(
    ctx: &mut Context<'_>,
    facts: &QuestionFacts<'_>,
    judged: &ClassifiedIdeas,
) -> Result<Answers, JobError> {
    let mut answers = Answers::default();
    let all: Vec<&ClassifiedIdea> = judged.shown.iter().collect();
    let mut left = all.as_slice();
    let mut incomplete = Vec::new();
    let mut window = self::window(ctx);
    let mut batches = VecDeque::from(request::batches(facts, left, window));
    while let Some(count) = batches.pop_front() {
        let (batch, rest) = left.split_at(count);
        let problems = answers.batch(ctx, facts, (batch, &judged.offer), Attempt::First)?;
        // A fallback may have a different window.
        let is_new = std::mem::replace(&mut window, self::window(ctx)) != window;
        let rejected = answers.error.take_if(|error| is_new && is_rejection(error));
        if answers.error.is_some() {
            break;
        }
        if rejected.is_none() {
            left = rest;
            let missing = answers.missing(batch);
            // The rule-based answer would be the same again.
            if !missing.is_empty() && !ctx.spender.answers_by_rule() {
                incomplete.push((missing, problems));
            }
        }
        if is_new && !left.is_empty() {
            batches = request::batches(facts, left, window).into();
        }
    }
    // The second questions come last, so that they use only budget that no first question needs.
    if answers.error.is_none() {
        'all: for (missing, problems) in incomplete {
            let again = Attempt::Second { problems: &problems };
            let mut left = missing.as_slice();
            for count in request::batches(facts, left, self::window(ctx)) {
                let (batch, rest) = left.split_at(count);
                left = rest;
                answers.batch(ctx, facts, (batch, &judged.offer), again)?;
                // The first replies are kept regardless of the results of the second requests.
                if let Some(error) = answers.error.take_if(|error| !ends_the_run(error)) {
                    answers.notes.push(format!("no second answer: {}", error.whole()));
                    break 'all;
                }
            }
        }
    }
    if let Some(error) = answers.error.take_if(|error| ends_the_run(error)) {
        return Err(error);
    }
    Ok(answers)
}

/// Extracts the proposals from the answer to an external request, which is one batch.
///
/// # Errors
/// Returns [`JobError::Nothing`] if the answer is only about ideas that no longer need one.
pub(super) fn take(submission: &Submission, judged: &ClassifiedIdeas) -> Result<Answers, JobError> {
    let mut answers = Answers::default();
    let all: Vec<&ClassifiedIdea> = judged.shown.iter().collect();
    let offer = Offer { sources: submission.sources().to_vec(), ..judged.offer.clone() };
    let mut reply = checked(&submission.reply(), offer.sources.len(), &offer);
    let total = reply.proposals.len();
    reply.proposals.retain(|proposal| judged.of(&proposal.targets[0]).is_some());
    let settled = total - reply.proposals.len();
    if settled > 0 {
        let what = "about ideas that are gone, or that a later pass or decision has settled";
        if reply.proposals.is_empty() {
            return Err(JobError::Nothing(format!("the answer is only {what}")));
        }
        answers.notes.push(format!("{} {what}", counted(settled, "proposal")));
    }
    answers.take(&all, reply);
    answers.notes.push(submission.described());
    Ok(answers)
}

/// Returns whether a backend, or the spender on its behalf, rejected the request.
fn is_rejection(error: &JobError) -> bool {
    matches!(error, JobError::Backend(BackendError::Rejected { .. }))
}

/// Returns whether an error ends the whole run, regardless of earlier answers.
fn ends_the_run(error: &JobError) -> bool {
    matches!(error, JobError::Cancelled { .. } | JobError::Ledger(_))
        || matches!(error, JobError::Backend(BackendError::Cancelled { .. }))
}

impl Answers {
    /// Asks one question and keeps the usable proposals. Returns the problems with the reply. An
    /// error from the backend or the budget is recorded in `error`.
    fn batch(
        &mut self,
        ctx: &mut Context<'_>,
        facts: &QuestionFacts<'_>,
        (batch, offer): (&[&ClassifiedIdea], &Offer),
        attempt: Attempt<'_>,
    ) -> Result<Vec<String>, JobError> {
        let offer = offer_of(offer, batch);
        self.requests += 1;
        // The first question about an idea has already been charged as one idea.
        let (problems, ideas) = match attempt {
            Attempt::First => (&[][..], batch.len() as u64),
            Attempt::Second { problems } => (problems, 0),
        };
        let asked = (self.requests, problems);
        let request = question(ctx, facts, (batch, &offer), asked, window(ctx));
        let reply = match ctx.spender.ask_divisible(&request, ideas) {
            Ok(reply) => reply,
            Err(error) => {
                // The ideas may have caused the malformed or truncated answer.
                if matches!(
                    error,
                    AskError::Backend(
                        BackendError::Malformed { .. } | BackendError::Truncated { .. }
                    )
                ) {
                    self.unread.extend(batch.iter().map(|one| one.path.clone()));
                }
                self.error = Some(error.into());
                return Ok(Vec::new());
            }
        };
        Ok(self.take(batch, checked(&reply, batch.len(), &offer)))
    }

    /// Adds the content of a checked reply, and returns any problems with the reply.
    fn take(&mut self, batch: &[&ClassifiedIdea], reply: CheckedReply) -> Vec<String> {
        self.asked.extend(batch.iter().map(|one| one.path.clone()));
        let problems = reply.refused.iter().map(|refused| refused.why.clone()).collect();
        self.proposals.extend(reply.proposals);
        self.refused.extend(reply.refused);
        self.quotes.extend(reply.quotes);
        problems
    }

    fn missing<'a>(&self, batch: &[&'a ClassifiedIdea]) -> Vec<&'a ClassifiedIdea> {
        let answered: BTreeSet<&str> =
            self.proposals.iter().map(|proposal| proposal.targets[0].as_str()).collect();
        batch.iter().copied().filter(|one| !answered.contains(&*one.path)).collect()
    }
}

fn checked(reply: &Reply, shown: usize, offer: &Offer) -> CheckedReply {
    match fits(reply, shown) {
        Ok(()) => proposal::check(elements(reply), offer),
        Err(why) => refused(why),
    }
}

fn refused(why: String) -> CheckedReply {
    CheckedReply { refused: vec![Refused { index: 0, why }], ..CheckedReply::default() }
}

/// Returns the part of an offer that concerns these ideas.
fn offer_of(offer: &Offer, batch: &[&ClassifiedIdea]) -> Offer {
    Offer {
        sources: batch.iter().map(|one| one.path.clone()).collect(),
        destinations: offer.destinations.clone(),
        digests: offer.digests.clone(),
    }
}

/// Returns the backend's window in tokens. A replayed run uses the recorded run's window, so that
/// it asks the same questions.
fn window(ctx: &Context<'_>) -> Option<u64> {
    if ctx.recording.replays() {
        let answer = ctx.recording.recall(WINDOW, "");
        return answer.ok().and_then(|answer| answer.facts.as_u64());
    }
    let window = ctx.spender.window();
    ctx.recording.note(WINDOW, "", json!(window), None);
    window
}

fn question(
    ctx: &Context<'_>,
    facts: &QuestionFacts<'_>,
    (batch, offer): (&[&ClassifiedIdea], &Offer),
    (number, problems): (u32, &[String]),
    window: Option<u64>,
) -> Request {
    let mut frame = ctx.frame(number);
    // Even in a short run, most of the time is reserved for the answer.
    frame.total =
        frame.total.saturating_sub(AFTERWARDS.min(frame.total / 4)).max(Duration::from_secs(1));
    request::build(&frame, facts, batch, (offer, problems), window)
}
