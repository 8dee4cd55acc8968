//! `runner dream list`: lists the proposals.

use runner_engine::outcome::Exit;
use runner_jobs::dream::decisions::Decision;
use runner_jobs::dream::proposal::Proposal;
use runner_jobs::dream::review::{PastDecisions, ProposalItem, Stale};
use schemars::JsonSchema;
use serde::Serialize;

use super::DreamJobArg;
use super::context::ReviewContext;
use crate::commands::Cli;
use crate::tui::proposals::{ProposalFilter, contract_word, status_text};
use crate::ui::{Failure, Ui, View, safe, show};

/// List the undecided proposals of all passes, newest pass first
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner dream list --action archive --json | jq -r '.[].id'")]
pub(super) struct ListArgs {
    /// Also list decided proposals
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    filter: ProposalFilter,
    #[command(flatten)]
    which: DreamJobArg,
}

/// The proposals that match the filter.
#[derive(Debug, JsonSchema, Serialize)]
#[serde(transparent)]
pub(in crate::commands) struct ProposalList<'i> {
    proposals: Vec<ProposalView<'i>>,
    /// The number of undecided proposals, regardless of the filter.
    #[serde(skip)]
    undecided: usize,
}

/// A proposal, with its state and the user's decision on it.
#[derive(Debug, JsonSchema, Serialize)]
pub(super) struct ProposalView<'i> {
    #[serde(flatten)]
    proposal: &'i Proposal,
    pass: &'i str,
    stale: Option<Stale>,
    superseded: bool,
    decision: Option<&'i Decision>,
    /// The user's recent decisions on proposals like this one, if there are any.
    like: Option<String>,
    #[serde(skip)]
    pub(super) item: &'i ProposalItem,
}

impl<'i> ProposalView<'i> {
    pub(super) fn of(item: &'i ProposalItem, past: &PastDecisions) -> Self {
        Self {
            proposal: &item.proposal,
            pass: &item.pass,
            stale: item.stale,
            superseded: item.superseded,
            decision: item.decision.as_ref(),
            like: past.like(&item.proposal).describe(),
            item,
        }
    }

    pub(super) fn like(&self) -> Option<&str> {
        self.like.as_deref()
    }

    fn row(&self) -> Vec<String> {
        let proposal = self.proposal;
        show::row([
            &proposal.id,
            &contract_word(&proposal.confidence),
            proposal.status.as_str(),
            proposal.action.as_str(),
            &safe::line(&proposal.targets.join(" into ")),
            &[status_text(self.item), self.like.clone().unwrap_or_default()]
                .into_iter()
                .filter(|text| !text.is_empty())
                .collect::<Vec<_>>()
                .join("; "),
        ])
    }
}

impl View for ProposalList<'_> {
    fn print(&self, _ui: Ui) {
        if self.proposals.is_empty() {
            return show::out(&match self.undecided {
                0 => "no undecided proposals; to find more: runner dream run\n".to_owned(),
                1 => "the only undecided proposal does not match the filter\n".to_owned(),
                n => format!("none of the {n} undecided proposals matches the filter\n"),
            });
        }
        let rows: Vec<Vec<String>> = self.proposals.iter().map(ProposalView::row).collect();
        show::out(&show::table(&rows));
    }
}

impl ListArgs {
    pub(super) fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let context = ReviewContext::open(cli, &self.which)?;
        let proposals = context.proposals()?;
        let past = context.past(&proposals)?;
        let shown = proposals.items.iter().filter(|item| self.all || item.decision.is_none());
        let shown = shown.filter(|item| self.filter.accepts(item));
        cli.ui.show(&ProposalList {
            proposals: shown.map(|item| ProposalView::of(item, &past)).collect(),
            undecided: proposals.undecided().count(),
        });
        Ok(Exit::Done)
    }
}
