//! `runner dream list` and `show`: print the proposals.

use runner_engine::outcome::Exit;
use runner_jobs::dream::decisions::Decision;
use runner_jobs::dream::proposal::Proposal;
use runner_jobs::dream::review::{DecisionInput, LineKind, ProposalItem, ReviewError, Stale};
use serde::Serialize;

use super::{ReviewContext, failure, wanted};
use crate::cli::args::Listing;
use crate::cli::dream::Filter;
use crate::cli::{Failure, Ui, safe, show};

/// The JSON form of a proposal.
#[derive(Serialize)]
struct ItemJson<'i> {
    #[serde(flatten)]
    proposal: &'i Proposal,
    pass: &'i str,
    stale: Option<Stale>,
    superseded: bool,
    decision: Option<&'i Decision>,
}

impl<'i> ItemJson<'i> {
    fn of(item: &'i ProposalItem) -> Self {
        Self {
            proposal: &item.proposal,
            pass: &item.pass,
            stale: item.stale,
            superseded: item.superseded,
            decision: item.decision.as_ref(),
        }
    }
}

/// Prints the proposals that pass the filter.
pub(super) fn list(
    room: &ReviewContext<'_>,
    all: bool,
    filter: &Filter,
    listing: Listing,
) -> Result<Exit, Failure> {
    let book = room.book(Ui::Normal)?;
    let items: Vec<&ProposalItem> = book
        .items
        .iter()
        .filter(|item| all || item.decision.is_none())
        .filter(|item| wanted(item, filter))
        .collect();
    if listing.json {
        show::json(&items.iter().map(|item| ItemJson::of(item)).collect::<Vec<_>>());
        return Ok(Exit::Done);
    }
    if items.is_empty() {
        let undecided = book.undecided().count();
        show::out(&match undecided {
            0 => "nothing is left to decide; `runner dream run` looks for more\n".to_owned(),
            1 => "the one undecided proposal does not match the filter\n".to_owned(),
            n => format!("none of {n} undecided proposals matches the filter\n"),
        });
        return Ok(Exit::Done);
    }
    let rows: Vec<Vec<String>> = items.iter().map(|item| row(item)).collect();
    show::out(&show::table(&rows));
    Ok(Exit::Done)
}

fn row(item: &ProposalItem) -> Vec<String> {
    let proposal = &item.proposal;
    vec![
        proposal.id.clone(),
        contract_word(&proposal.confidence),
        proposal.status.as_str().to_owned(),
        proposal.action.as_str().to_owned(),
        safe::line(&proposal.targets.join(" into ")),
        status_text(item),
    ]
}

/// Describes the state of a proposal, or returns an empty text if there is nothing to report.
pub(super) fn status_text(item: &ProposalItem) -> String {
    if let Some(decision) = &item.decision {
        return safe::line(&format!("{} at {}", decision.decision, decision.at));
    }
    match (item.stale, item.superseded) {
        (Some(stale), false) => stale.describe().to_owned(),
        (Some(stale), true) => {
            format!("{}; a newer pass has a different proposal", stale.describe())
        }
        (None, true) => "a newer pass has a different proposal".to_owned(),
        (None, false) => String::new(),
    }
}

/// Returns the contract's word for a value, or an empty string if the value is not a word.
pub(super) fn contract_word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

/// Shows one proposal with its evidence and the effect of accepting it.
pub(super) fn show(
    room: &mut ReviewContext<'_>,
    id: &str,
    listing: Listing,
) -> Result<Exit, Failure> {
    #[derive(Serialize)]
    struct ShowJson<'i> {
        #[serde(flatten)]
        item: ItemJson<'i>,
        would: Option<String>,
        would_not: Option<String>,
        changes: Vec<String>,
        text: Option<String>,
    }

    let book = room.book(Ui::Normal)?;
    let item = book.find(id).map_err(|found| {
        failure(match found.len() {
            0 => ReviewError::NotFound(id.to_owned()),
            _ => ReviewError::Several {
                id: id.to_owned(),
                found: found.into_iter().map(str::to_owned).collect(),
            },
        })
    })?;
    let mut tools = room.tools()?;
    let desk = room.desk(&mut tools);
    let text = desk.text(&item.proposal.targets[0]).ok();
    let plan = desk.preview(item, &DecisionInput::Accept);
    if listing.json {
        let (would, would_not, changes) = match &plan {
            Ok(plan) => {
                let changes = plan.changes.iter().map(|it| it.path().to_owned()).collect();
                (Some(plan.says.clone()), None, changes)
            }
            Err(error) => (None, Some(error.to_string()), Vec::new()),
        };
        show::json(&ShowJson {
            item: ItemJson::of(item),
            would,
            would_not,
            changes,
            text: text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        });
        return Ok(Exit::Done);
    }
    let proposal = &item.proposal;
    let mut rows = vec![
        vec!["proposal".to_owned(), proposal.id.clone()],
        vec!["idea".to_owned(), safe::line(&proposal.targets.join(" into "))],
        vec![
            "found".to_owned(),
            format!("{} ({})", proposal.status.as_str(), contract_word(&proposal.confidence)),
        ],
        vec!["action".to_owned(), proposal.action.as_str().to_owned()],
        vec!["evidence".to_owned(), safe::line(&proposal.evidence)],
        vec!["why".to_owned(), safe::line(&proposal.rationale)],
        vec!["pass".to_owned(), item.pass.clone()],
    ];
    let stands = status_text(item);
    if !stands.is_empty() {
        rows.push(vec!["stands".to_owned(), stands]);
    }
    let mut out = show::table(&rows);
    match &plan {
        Ok(plan) => {
            out.push_str(&format!("\naccept: {}\n", safe::line(&plan.says)));
            for line in &plan.preview {
                let sign = match line.kind {
                    LineKind::File => "  ",
                    LineKind::Added => "  + ",
                    LineKind::Kept => "    ",
                };
                out.push_str(&format!("{sign}{}\n", safe::line(&line.text)));
            }
        }
        Err(error) => {
            out.push_str(&format!("\naccept: refused: {}\n", safe::line(&error.to_string())))
        }
    }
    if let Some(bytes) = text {
        out.push_str(&format!("\n── {}\n", safe::line(&proposal.targets[0])));
        for line in safe::lines(&bytes) {
            out.push_str(&line);
            out.push('\n');
        }
    }
    show::out(&out);
    Ok(Exit::Done)
}
