//! Records the user's decisions on proposals and carries them out.
//!
//! ```text
//! undecided ──accept, amend──> the action is carried out ─┐
//!     │ ▲   ──reject, skip───> nothing is touched ────────┤──> a line in the decisions file
//!     │ └──────────────────────── undo ───────────────────┘
//!     └── its ideas changed: refused unless forced
//! ```
//!
//! Another decision may follow `skipped` without an undo, because a user who skipped a proposal may
//! reconsider it later. Any other decision must first be undone.

use std::path::Path;

use jiff::Timestamp;
use runner_engine::error_chain::whole;
use runner_engine::git::{Git, GitError};
use runner_engine::ids::{ProjectId, RunId};
use runner_engine::process_id::ProcessIdentity;
use runner_engine::scope::Scope;
use runner_engine::store::{Store, StoreError};
use runner_engine::time::Clock;
use runner_text::redact::Redactor;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::LONGEST;
use super::super::decisions::Decision;
use super::super::proposal::Action;
use super::super::spec::DreamSpec;
use super::guard::{self, Refused};
use super::plan::{ActionPlan, Source, Stamp, plan};
use super::proposals::{self, ProposalItem, Proposals, ProposalsError, Stale};

/// Records decisions and carries them out.
pub struct Decider<'a> {
    /// The project's canonical root.
    pub root: &'a Path,
    /// The settings of the project's dream.
    pub spec: &'a DreamSpec,
    pub project: &'a ProjectId,
    /// Runner's state folder, which contains the job locks.
    pub state: &'a Path,
    /// The project's cache folder, which must exist.
    pub cache: &'a Path,
    pub git: &'a Git,
    pub clock: &'a Clock,
    pub me: &'a ProcessIdentity,
    /// The store that records an act's run.
    pub store: &'a mut Store,
    /// Removes secrets from the user's note on a decision.
    pub redactor: &'a Redactor,
    /// Free space, in bytes, on the file system where the decision is written.
    pub free_bytes: u64,
}

/// The user's verdict on a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecisionInput {
    /// Carry out the proposal.
    Accept,
    /// Reject the proposal as wrong.
    Reject,
    /// Carry out another action instead.
    Amend {
        /// The action to carry out instead.
        action: Action,
        /// The destination of a merge, if it differs from the proposed one or none was proposed.
        into: Option<String>,
    },
    /// Leave the idea as it is, and do not make the same proposal again until the idea changes.
    Skip,
}

impl DecisionInput {
    /// Returns the verdict as it is written in the decisions file.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Accept => "accepted",
            Self::Reject => "rejected",
            Self::Amend { .. } => "amended",
            Self::Skip => "skipped",
        }
    }
}

/// How to treat a decision whose files have changed since the proposal was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfChanged {
    #[default]
    Refuse,
    /// Carry out the decision anyway.
    Proceed,
}

/// How to treat a decision that writes text from a private idea to a path that git does not ignore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfExposed {
    #[default]
    Refuse,
    /// Carry out the decision anyway.
    Publish,
}

/// The objections that the user has overruled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Consent {
    pub if_changed: IfChanged,
    pub if_exposed: IfExposed,
}

/// A request for a decision.
#[derive(Clone, Debug)]
pub struct DecisionRequest<'a> {
    /// The proposal's id, or an unambiguous prefix of it.
    pub id: &'a str,
    pub verdict: DecisionInput,
    /// The user's note on the decision.
    pub note: Option<&'a str>,
    /// The objections that the user has overruled.
    pub consent: Consent,
}

/// The result of a decision.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct AppliedDecision {
    /// The decision, as it was written.
    #[serde(flatten)]
    pub decision: Decision,
    /// A short description of the effect.
    pub says: String,
    /// The files that were written or removed, except runner's own files.
    pub changes: Vec<String>,
    /// Whether the same decision had been made before, in which case nothing was done.
    pub already: bool,
    /// The run that published the decision; `None` if nothing was done.
    pub run: Option<RunId>,
}

/// Why a decision was not made or not carried out.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    #[error("there is no proposal {0}")]
    NotFound(String),
    /// Several proposals have this prefix.
    #[error("{} proposals begin with {id}: {}", .found.len(), .found.join(", "))]
    Several {
        /// The id that was given.
        id: String,
        /// The proposals with this prefix.
        found: Vec<String>,
    },
    /// The proposal already has another decision.
    #[error("{} was {} at {}", .0.proposal_id, .0.decision, .0.at)]
    Decided(Box<Decision>),
    /// The proposal does not apply to the current content.
    #[error("{path}: {}", .stale.describe())]
    Stale {
        path: String,
        /// Why the proposal does not apply.
        stale: Stale,
    },
    /// The action cannot be carried out on this idea.
    #[error("{0}")]
    Cannot(String),
    #[error("{0}")]
    Guard(String),
    /// The text of a private idea would become visible to anyone with access to the repository.
    #[error(
        "{from} is private, and git does not ignore {to}: once {to} is committed, anyone with access to the repository can read the text there"
    )]
    Exposed {
        from: String,
        /// The path at which the text would become visible.
        to: String,
    },
    /// A file changed during both attempts, or since the decision to undo.
    #[error("{0}")]
    Changed(String),
    /// Another decision or undo is in progress.
    #[error("{0}")]
    Busy(String),
    /// Another process changed a target during the publication.
    #[error("{0}")]
    Conflict(String),
    /// The edit is only partly published; the next command or tick completes it.
    #[error("run {run} is only partly published: {why}")]
    Unfinished { run: RunId, why: String },
    /// The state file is invalid.
    #[error("{path} is not a valid dream state file: {why}")]
    State { path: String, why: String },
    /// A disk or environment error.
    #[error("{0}")]
    Disk(String),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Book(#[from] ProposalsError),
    #[error(transparent)]
    Ledger(#[from] StoreError),
}

impl Decider<'_> {
    /// Decides on one proposal and carries the decision out.
    ///
    /// # Errors
    /// Returns a [`ReviewError`]. After every error except `Conflict`, `Unfinished` and
    /// `Ledger`, nothing has changed.
    pub fn decide(&mut self, ask: &DecisionRequest<'_>) -> Result<AppliedDecision, ReviewError> {
        let mut held = self.take_locks()?;
        let mut tries = 0;
        loop {
            tries += 1;
            let book = Proposals::read(self.root, self.spec)?;
            let item = found(&book, ask.id)?;
            if let Some(before) = &item.decision
                && before.decision != "skipped"
            {
                return stands(before, &ask.verdict, item);
            }
            if let (Some(before), DecisionInput::Skip) = (&item.decision, &ask.verdict) {
                return stands(before, &ask.verdict, item);
            }
            let now = self.now()?;
            let (action, plan) = self.planned(item, &ask.verdict, ask.consent.if_changed, now)?;
            let proposal = &item.proposal;
            let mut decision = Decision::new(&proposal.id, ask.verdict.as_str(), action, now);
            decision.targets_hash = item.hash().map(str::to_owned);
            if let DecisionInput::Amend { action: Action::Merge, into } = &ask.verdict {
                decision.into.clone_from(into);
            }
            let note = ask.note.map(str::trim).filter(|note| !note.is_empty());
            decision.note = note.map(|note| self.redactor.redact(note).into_owned());
            match self.place(&mut held, &plan, &decision, ask.consent.if_exposed) {
                Ok(run) => {
                    let changes = plan.changes.iter().map(|it| it.path().to_owned()).collect();
                    return Ok(AppliedDecision {
                        decision,
                        says: plan.says,
                        changes,
                        already: false,
                        run: Some(run),
                    });
                }
                // A file changed after the plan was made: try once more with the current content.
                Err(ReviewError::Changed(_)) if tries == 1 => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the changes that a verdict would make now.
    ///
    /// # Errors
    /// Returns those errors of [`Decider::decide`] that concern the action and its paths, except
    /// `Stale` and `Exposed`.
    pub fn preview(
        &self,
        item: &ProposalItem,
        verdict: &DecisionInput,
    ) -> Result<ActionPlan, ReviewError> {
        let (_, mut plan) = self.planned(item, verdict, IfChanged::Proceed, self.now()?)?;
        match self.guard(&plan, IfExposed::Refuse) {
            Err(error @ ReviewError::Exposed { .. }) => {
                plan.says.push_str(&format!("; this needs --publish: {error}"));
            }
            guarded => guarded?,
        }
        Ok(plan)
    }

    /// Returns the current content of an idea.
    ///
    /// # Errors
    /// Returns an error if the idea does not exist or cannot be read.
    pub fn text(&self, path: &str) -> Result<Vec<u8>, ReviewError> {
        Ok(source(&self.read_scope()?, path)?.bytes)
    }

    pub(super) fn now(&self) -> Result<Timestamp, ReviewError> {
        match self.clock.read() {
            Ok(reading) => Ok(reading.wall),
            Err(error) => Err(ReviewError::Disk(error.to_string())),
        }
    }

    /// Returns the action that a verdict chooses, and the plan that carries out the verdict. For a
    /// rejected or skipped proposal, returns the proposed action and an empty plan.
    fn planned(
        &self,
        item: &ProposalItem,
        verdict: &DecisionInput,
        if_changed: IfChanged,
        now: Timestamp,
    ) -> Result<(Action, ActionPlan), ReviewError> {
        let proposal = &item.proposal;
        let (action, into) = match verdict {
            DecisionInput::Reject | DecisionInput::Skip => {
                let says = match verdict {
                    DecisionInput::Reject => "nothing is done".to_owned(),
                    _ => "the idea is left as it is until it changes".to_owned(),
                };
                let plan = ActionPlan { says, ..ActionPlan::default() };
                return Ok((proposal.action, plan));
            }
            DecisionInput::Accept => (proposal.action, proposal.targets.get(1)),
            DecisionInput::Amend { action, into } => {
                (*action, into.as_ref().or_else(|| proposal.targets.get(1)))
            }
        };
        let path = &proposal.targets[0];
        if let Some(stale) = item.stale.filter(|_| if_changed == IfChanged::Refuse) {
            let path = path.clone();
            return Err(ReviewError::Stale { path, stale });
        }
        let into = into.filter(|_| action == Action::Merge);
        if let Some(into) = into {
            proposals::idea(into, self.spec).map_err(ReviewError::Cannot)?;
            if into == path {
                let why = format!("{path} cannot be merged into itself");
                return Err(ReviewError::Cannot(why));
            }
        } else if action == Action::Merge {
            let why = "a merge needs an idea to merge into: --into PATH".to_owned();
            return Err(ReviewError::Cannot(why));
        }
        let scope = self.read_scope()?;
        let from = source(&scope, path)?;
        let into = into.map(|into| source(&scope, into)).transpose()?;
        let stamp = Stamp { id: &proposal.id, decision: verdict.as_str(), at: now };
        // The path is taken if anything exists there, including a folder or a link.
        let taken = |path: &str| self.root.join(path).symlink_metadata().is_ok();
        let plan = plan(action, &from, into.as_ref(), stamp, (self.spec, taken));
        let mut plan = plan.map_err(ReviewError::Cannot)?;
        if item.stale.is_some() {
            // No pass is known to have read the current content, so it must not be recorded as
            // triaged.
            plan.marks.iter_mut().for_each(|(_, mark)| mark.hash = None);
        }
        Ok((action, plan))
    }

    /// Applies the path rules for acts to every path that a plan writes, including runner's own
    /// files.
    pub(super) fn guard(
        &self,
        plan: &ActionPlan,
        if_exposed: IfExposed,
    ) -> Result<(), ReviewError> {
        let (decisions, state) = (self.spec.decisions_path(), self.spec.state_path());
        let backup = format!("{}/.undo/act.json", self.spec.dreams);
        let mut own = vec![decisions.as_str()];
        if !plan.changes.is_empty() {
            own.push(&backup);
        }
        if !plan.marks.is_empty() {
            own.push(&state);
        }
        match guard::check(self.git, self.spec, plan, &own) {
            Ok(()) => Ok(()),
            Err(Refused::Guard(why)) => Err(ReviewError::Guard(why)),
            Err(Refused::Exposed { .. }) if if_exposed == IfExposed::Publish => Ok(()),
            Err(Refused::Exposed { from, to }) => Err(ReviewError::Exposed { from, to }),
            Err(Refused::Git(error)) => Err(error.into()),
        }
    }
}

fn found<'b>(book: &'b Proposals, id: &str) -> Result<&'b ProposalItem, ReviewError> {
    book.find(id).map_err(|found| match found.len() {
        0 => ReviewError::NotFound(id.to_owned()),
        _ => ReviewError::Several {
            id: id.to_owned(),
            found: found.into_iter().map(str::to_owned).collect(),
        },
    })
}

/// Compares a verdict with an earlier decision. Succeeds, without any effect, if the verdict
/// repeats the decision, its action and its destination; any other verdict is an error.
fn stands(
    before: &Decision,
    verdict: &DecisionInput,
    item: &ProposalItem,
) -> Result<AppliedDecision, ReviewError> {
    let proposed = item.proposal.targets.get(1);
    let (action, into) = match verdict {
        DecisionInput::Amend { action, into } => (*action, into.as_ref().or(proposed)),
        _ => (item.proposal.action, proposed),
    };
    // An earlier version did not record the destination of an amendment.
    let known = before.into.as_ref().or(proposed);
    let other = action == Action::Merge && known.is_some() && into != known;
    if before.decision != verdict.as_str() || before.action != action.as_str() || other {
        return Err(ReviewError::Decided(Box::new(before.clone())));
    }
    Ok(AppliedDecision {
        decision: before.clone(),
        says: format!("it was already {} at {}", before.decision, before.at),
        changes: Vec::new(),
        already: true,
        run: None,
    })
}

/// Reads a file's current content.
///
/// # Errors
/// Returns [`ReviewError::Cannot`] if the file does not exist, and [`ReviewError::Guard`] if it
/// cannot be read.
pub(super) fn source(scope: &Scope, path: &str) -> Result<Source, ReviewError> {
    match scope.inspect(path, LONGEST) {
        Ok(Some((bytes, looks))) => Ok(Source { path: path.to_owned(), bytes, looks }),
        Ok(None) => Err(ReviewError::Cannot(format!("{path} is gone"))),
        Err(error) => Err(ReviewError::Guard(whole(&error))),
    }
}
