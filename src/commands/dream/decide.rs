//! `runner dream accept`, `reject`, `amend`, `skip` and `undo`: each makes or undoes one decision.

use runner_engine::outcome::Exit;
use runner_jobs::dream::decisions::Decision;
use runner_jobs::dream::proposal::Action;
use runner_jobs::dream::review::{
    AppliedDecision, Consent, DecisionInput, DecisionRequest, IfChanged, IfExposed, ReviewError,
};
use runner_text::shell_word;
use schemars::JsonSchema;
use serde::Serialize;

use super::DreamJobArg;
use super::context::{ReviewContext, failure};
use crate::commands::Cli;
use crate::ui::{Failure, Ui, View, contract_words, safe, show};

/// Carry out a proposal
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner dream accept 3f2a --note 'done in May'")]
pub(super) struct AcceptArgs {
    #[command(flatten)]
    one: ProposalArg,
    #[command(flatten)]
    note: DecisionNote,
    #[command(flatten)]
    overrule: Overrule,
}

/// The arguments of `reject` and `skip`, which leave the idea unchanged.
#[derive(Debug, clap::Args)]
pub(super) struct DecisionArgs {
    #[command(flatten)]
    one: ProposalArg,
    #[command(flatten)]
    note: DecisionNote,
}

/// Take a different action on the idea than the proposed one
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner dream amend 3f2a --action merge --into ideas/offline.md")]
pub(super) struct AmendArgs {
    #[command(flatten)]
    one: ProposalArg,
    /// The action to take
    #[arg(long, value_parser = contract_words::<Action>(Action::ALL.map(Action::as_str)))]
    action: Action,
    /// The idea to merge into [default: the proposed one]
    #[arg(long, value_name = "PATH")]
    into: Option<String>,
    #[command(flatten)]
    note: DecisionNote,
    #[command(flatten)]
    overrule: Overrule,
}

/// Undo a decision: restore every file, and make the proposal undecided again
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner dream undo 3f2a")]
pub(super) struct UndoArgs {
    #[command(flatten)]
    one: ProposalArg,
    #[command(flatten)]
    force: Force,
}

/// Selects a proposal.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ProposalArg {
    /// The proposal's id, or an unambiguous prefix of it
    pub(super) id: String,
    #[command(flatten)]
    pub(super) which: DreamJobArg,
}

#[derive(Clone, Debug, clap::Args)]
struct DecisionNote {
    /// The reason, which is kept with the decision
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

/// The flag that permits a decision even if a file has changed.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Force {
    /// Proceed even if a file has changed in the meantime; the backup keeps the changed content
    #[arg(long)]
    force: bool,
}

impl From<&Force> for IfChanged {
    fn from(flag: &Force) -> Self {
        if flag.force { Self::Proceed } else { Self::Refuse }
    }
}

/// The flags that overrule the objections to a decision.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Overrule {
    #[command(flatten)]
    force: Force,
    /// Proceed even if git does not ignore a path that receives text from a private idea
    #[arg(long)]
    publish: bool,
}

impl From<&Overrule> for Consent {
    fn from(flags: &Overrule) -> Self {
        let if_exposed = if flags.publish { IfExposed::Publish } else { IfExposed::Refuse };
        Self { if_changed: (&flags.force).into(), if_exposed }
    }
}

/// The result of a decision.
#[derive(Debug, JsonSchema, Serialize)]
#[serde(transparent)]
pub(in crate::commands) struct DecisionView(AppliedDecision);

impl View for DecisionView {
    fn print(&self, ui: Ui) {
        if !ui.quiet {
            let Decision { proposal_id, decision, .. } = &self.0.decision;
            let says = safe::line(&self.0.says);
            show::out(&format!("{proposal_id} {decision}: {says}\n"));
            for path in &self.0.changes {
                show::out(&format!("  changed {}\n", safe::line(path)));
            }
        }
    }
}

impl AcceptArgs {
    pub(super) fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        decide(cli, &self.one, DecisionInput::Accept, &self.note, (&self.overrule).into())
    }
}

impl DecisionArgs {
    /// Records the decision.
    pub(super) fn run(&self, cli: &Cli<'_>, verdict: DecisionInput) -> Result<Exit, Failure> {
        decide(cli, &self.one, verdict, &self.note, Consent::default())
    }
}

impl AmendArgs {
    pub(super) fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let verdict = DecisionInput::Amend { action: self.action, into: self.into.clone() };
        decide(cli, &self.one, verdict, &self.note, (&self.overrule).into())
    }
}

impl UndoArgs {
    pub(super) fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let context = ReviewContext::open(cli, &self.one.which)?;
        let mut tools = context.tools()?;
        let done = context.decider(&mut tools).undo(&self.one.id, (&self.force).into());
        cli.ui.show(&DecisionView(done.map_err(failure)?));
        Ok(Exit::Done)
    }
}

/// Carries out a decision on a proposal.
fn decide(
    cli: &Cli<'_>,
    one: &ProposalArg,
    verdict: DecisionInput,
    note: &DecisionNote,
    consent: Consent,
) -> Result<Exit, Failure> {
    let context = ReviewContext::open(cli, &one.which)?;
    let mut tools = context.tools()?;
    let request = DecisionRequest { id: &one.id, verdict, note: note.note.as_deref(), consent };
    let done = context.decider(&mut tools).decide(&request).map_err(|error| {
        let exposed = matches!(error, ReviewError::Exposed { .. });
        let failed = failure(error);
        if exposed { failed.hint(with_publish(&request)) } else { failed }
    })?;
    cli.ui.show(&DecisionView(done));
    Ok(Exit::Done)
}

/// Returns the command that carries out a decision even though the decision exposes a private
/// idea's text.
fn with_publish(request: &DecisionRequest<'_>) -> String {
    let id = request.id;
    match &request.verdict {
        DecisionInput::Amend { action, into } => {
            let into = into
                .as_ref()
                .map_or_else(String::new, |into| format!(" --into {}", shell_word(into)));
            format!("runner dream amend {id} --action {}{into} --publish", action.as_str())
        }
        _ => format!("runner dream accept {id} --publish"),
    }
}
