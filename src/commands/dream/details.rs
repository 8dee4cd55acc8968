//! `runner dream show`: shows one proposal with its evidence and the effect of accepting it.

use runner_engine::outcome::Exit;
use runner_jobs::dream::review::{DecisionInput, LineKind, PreviewLine, ReviewError};
use schemars::JsonSchema;
use serde::Serialize;

use super::context::{ReviewContext, failure};
use super::decide::ProposalArg;
use super::list::ProposalView;
use crate::commands::Cli;
use crate::tui::proposals::{contract_word, status_text};
use crate::ui::{Failure, Ui, View, safe, show};

/// Show one proposal: its evidence, the idea's text, and the effect of accepting it
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner dream show 3f2a")]
pub(super) struct ShowArgs {
    #[command(flatten)]
    one: ProposalArg,
}

/// A proposal, with the effect of accepting it.
#[derive(Debug, JsonSchema, Serialize)]
pub(in crate::commands) struct ProposalDetails<'i> {
    #[serde(flatten)]
    proposal: ProposalView<'i>,
    would: Option<String>,
    would_not: Option<String>,
    changes: Vec<String>,
    text: Option<String>,
    /// The changes to files, line by line.
    preview: Vec<PreviewLine>,
}

impl ShowArgs {
    pub(super) fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let (context, id) = (ReviewContext::open(cli, &self.one.which)?, &self.one.id);
        let proposals = context.proposals()?;
        let item = proposals.find(id).map_err(|found| {
            failure(match found.len() {
                0 => ReviewError::NotFound(id.clone()),
                _ => ReviewError::Several {
                    id: id.clone(),
                    found: found.into_iter().map(str::to_owned).collect(),
                },
            })
        })?;
        let mut tools = context.tools_to_preview()?;
        let decider = context.decider(&mut tools);
        let text = decider.text(&item.proposal.targets[0]).ok();
        let mut details = ProposalDetails {
            proposal: ProposalView::of(item, &context.past(&proposals)?),
            would: None,
            would_not: None,
            changes: Vec::new(),
            text: text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            preview: Vec::new(),
        };
        match decider.preview(item, &DecisionInput::Accept) {
            Ok(plan) => {
                details.changes = plan.changes.iter().map(|it| it.path().to_owned()).collect();
                details.would = Some(plan.says);
                details.preview = plan.preview;
            }
            Err(error) => details.would_not = Some(error.to_string()),
        }
        cli.ui.show(&details);
        Ok(Exit::Done)
    }
}

impl View for ProposalDetails<'_> {
    fn print(&self, _ui: Ui) {
        let item = self.proposal.item;
        let proposal = &item.proposal;
        let confidence = contract_word(&proposal.confidence);
        let mut rows = vec![
            show::row(["proposal", &proposal.id]),
            show::row(["idea", &safe::line(&proposal.targets.join(" into "))]),
            show::row(["found", &format!("{} ({confidence})", proposal.status.as_str())]),
            show::row(["action", proposal.action.as_str()]),
            show::row(["evidence", &safe::line(&proposal.evidence)]),
            show::row(["why", &safe::line(&proposal.rationale)]),
            show::row(["pass", &item.pass]),
        ];
        let state = status_text(item);
        if !state.is_empty() {
            rows.push(show::row(["state", &state]));
        }
        if let Some(like) = self.proposal.like() {
            rows.push(show::row(["before", like]));
        }
        let mut out = show::table(&rows);
        if let Some(would) = &self.would {
            out.push_str(&format!("\naccept: {}\n", safe::line(would)));
        }
        if let Some(why) = &self.would_not {
            out.push_str(&format!("\naccept: refused: {}\n", safe::line(why)));
        }
        for line in &self.preview {
            let sign = match line.kind {
                LineKind::File => "  ",
                LineKind::Added => "  + ",
                LineKind::Kept => "    ",
            };
            out.push_str(&format!("{sign}{}\n", safe::line(&line.text)));
        }
        if let Some(text) = &self.text {
            out.push_str(&format!("\n── {}\n", safe::line(&proposal.targets[0])));
            for line in safe::lines(text.as_bytes()) {
                out.push_str(&line);
                out.push('\n');
            }
        }
        show::out(&out);
    }
}
