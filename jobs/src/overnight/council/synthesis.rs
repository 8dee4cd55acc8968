//! Combines the councillors' reports into positions, agreement and tension.
//!
//! ```text
//! reports, in any order ──sort──> positions by kind ──most voices first──> agreement
//!                                     └── several, or low and high confidence ──> tension
//! wildcards ──> at the end, marked, never counted
//! ```
//!
//! The result does not depend on the order of the reports. An outvoted position is never dropped
//! and keeps its councillors' wording. A wildcard has no weight.

use std::collections::{BTreeMap, BTreeSet};

use runner_engine::outcome::Class;
use serde::{Deserialize, Serialize};

use super::packet::CONFIDENCES;
use super::report::{Report, Wildcard};
use crate::dream::proposal::clean;

/// Maximum length of the tension in characters.
const TENSION: usize = 400;
/// Maximum length of a quotation in the tension, in characters.
const QUOTE: usize = 110;

/// The combined result of all reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Synthesis {
    pub schema_version: u32,
    pub run_id: String,
    /// Names of the councillors who answered.
    pub voices: Vec<String>,
    /// Councillors who did not answer, each with the reason.
    pub unheard: Vec<NoReply>,
    /// The kind of work that the leading position recommends.
    pub recommended_kind: String,
    /// The recommended first action, in the words of one councillor.
    pub recommended_first_action: String,
    /// The councillor quoted in the recommended first action.
    pub said_by: String,
    /// The lowest confidence among the councillors who take the leading position.
    pub confidence: String,
    /// The number of councillors who take the leading position, out of all who answered.
    pub agreement: Agreement,
    /// The points on which the councillors disagree, or `None` if they agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tension: Option<String>,
    /// All positions. Those with the most councillors come first.
    pub positions: Vec<Position>,
    /// The candidates that at least one councillor supports.
    pub backed: Vec<BackedCandidate>,
    /// Risks, each with the councillors who named it.
    pub risks: Vec<Statement>,
    /// Opportunities, each with the councillors who named it.
    pub opportunities: Vec<Statement>,
    /// Unsolicited ideas, which come last and are not counted.
    pub wildcards: Vec<WildcardIdea>,
}

/// A councillor who did not answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoReply {
    /// The display name, with the suffix `(creative lane)` if the pass belonged to that lane.
    pub runner: String,
    pub why: String,
    /// The name of the councillor's backend.
    #[serde(default)]
    pub backend: String,
    /// The class of the failure, or of the reason why the councillor was not asked.
    #[serde(default)]
    pub class: Option<Class>,
    #[serde(default)]
    pub was_asked: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreement {
    /// Number of councillors who take the leading position.
    pub voices: u64,
    /// Total number of councillors who answered.
    pub of: u64,
}

/// A position: an action on a target, and the councillors who recommend it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    pub recommended_kind: String,
    /// The id of the candidate to begin with, or the text of the first action if the councillors
    /// support no candidate.
    #[serde(default)]
    pub target: String,
    /// The councillors who take the position, in their own words.
    pub voices: Vec<PositionVote>,
}

/// One councillor's support for a position.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PositionVote {
    pub runner: String,
    pub confidence: String,
    pub headline: String,
    pub recommended_first_action: String,
    /// The candidates that the councillor supports.
    pub backs: Vec<String>,
}

/// A candidate that at least one councillor supports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackedCandidate {
    pub id: String,
    pub voices: Vec<String>,
}

/// A statement, with the councillors who made it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    pub text: String,
    pub voices: Vec<String>,
}

/// An unsolicited idea.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WildcardIdea {
    pub text: String,
    pub runner: String,
    /// `council`, or `wildcard` for the creative lane.
    pub lane: String,
    /// Always true.
    pub wildcard: bool,
}

/// Combines the reports. Returns `None` if no councillor answered.
pub fn synthesize(
    run_id: &str,
    reports: &[Report],
    lane: Option<&Wildcard>,
    unheard: &[NoReply],
) -> Option<Synthesis> {
    let mut reports: Vec<&Report> = reports.iter().collect();
    reports.sort();
    reports.dedup_by(|a, b| a.runner == b.runner);
    if reports.is_empty() {
        return None;
    }
    let mut unheard = unheard.to_vec();
    unheard.sort_by(|a, b| (&a.runner, &a.why).cmp(&(&b.runner, &b.why)));
    let positions = positions(&reports);
    let leading = &positions[0];
    let surest = leading.voices.iter().max_by(|a, b| {
        sure(&a.confidence).cmp(&sure(&b.confidence)).then(b.runner.cmp(&a.runner))
    })?;
    let lowest = leading.voices.iter().map(|it| sure(&it.confidence)).min()?;
    let mut backed: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for report in &reports {
        for id in &report.backs {
            backed.entry(id).or_default().push(report.runner.clone());
        }
    }
    let mut backed: Vec<BackedCandidate> = backed
        .into_iter()
        .map(|(id, voices)| BackedCandidate { id: id.to_owned(), voices })
        .collect();
    backed.sort_by(|a, b| b.voices.len().cmp(&a.voices.len()).then_with(|| a.id.cmp(&b.id)));
    Some(Synthesis {
        schema_version: 1,
        run_id: run_id.to_owned(),
        voices: reports.iter().map(|it| it.runner.clone()).collect(),
        unheard,
        recommended_kind: leading.recommended_kind.clone(),
        recommended_first_action: surest.recommended_first_action.clone(),
        said_by: surest.runner.clone(),
        confidence: CONFIDENCES[lowest].to_owned(),
        agreement: Agreement { voices: leading.voices.len() as u64, of: reports.len() as u64 },
        tension: tension(&positions).map(|it| clean(&it, TENSION)),
        backed,
        risks: merge_statements(&reports, |it| &it.risks),
        opportunities: merge_statements(&reports, |it| &it.opportunities),
        wildcards: wildcards(&reports, lane),
        positions,
    })
}

fn sure(confidence: &str) -> usize {
    CONFIDENCES.iter().position(|it| *it == confidence).unwrap_or(0)
}

fn positions(reports: &[&Report]) -> Vec<Position> {
    let mut acts: BTreeMap<(&str, &str), Vec<PositionVote>> = BTreeMap::new();
    for report in reports {
        // Councillors agree only if they recommend the same action on the same target.
        let target = report.backs.first().unwrap_or(&report.recommended_first_action);
        acts.entry((&report.recommended_kind, target)).or_default().push(PositionVote {
            runner: report.runner.clone(),
            confidence: report.confidence.clone(),
            headline: report.headline.clone(),
            recommended_first_action: report.recommended_first_action.clone(),
            backs: report.backs.clone(),
        });
    }
    let mut positions: Vec<Position> = acts
        .into_iter()
        .map(|((kind, target), voices)| Position {
            recommended_kind: kind.to_owned(),
            target: target.to_owned(),
            voices,
        })
        .collect();
    let weight = |it: &Position| it.voices.iter().map(|it| sure(&it.confidence) + 1).sum::<usize>();
    positions.sort_by(|a, b| {
        let by_weight = || weight(b).cmp(&weight(a));
        let name = |it: &Position| (it.recommended_kind.clone(), it.target.clone());
        let by_name = || name(a).cmp(&name(b));
        b.voices.len().cmp(&a.voices.len()).then_with(by_weight).then_with(by_name)
    });
    positions
}

/// Describes the disagreement about the action or its target, with a quotation from each
/// councillor, or the disagreement about the confidence. Returns `None` if there is no
/// disagreement.
fn tension(positions: &[Position]) -> Option<String> {
    let quote = |kind: &str, it: &PositionVote| {
        let words = clean(&it.recommended_first_action, QUOTE);
        format!("{} would {kind} (“{words}”)", it.runner)
    };
    if positions.len() > 1 {
        let each = positions.iter().map(|position| {
            let voices = position.voices.iter();
            let voices: Vec<String> =
                voices.map(|it| quote(&position.recommended_kind, it)).collect();
            voices.join(" and ")
        });
        return Some(each.collect::<Vec<_>>().join("; "));
    }
    let Position { recommended_kind: kind, voices, .. } = &positions[0];
    let (mut low, mut high): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for voice in voices {
        match sure(&voice.confidence) {
            0 => low.push(&voice.runner),
            2 => high.push(&voice.runner),
            _ => {}
        }
    }
    (!low.is_empty() && !high.is_empty()).then(|| {
        format!(
            "all would {kind}, with high confidence: {}; with low confidence: {}",
            names(high.into_iter()),
            names(low.into_iter())
        )
    })
}

fn names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = all.collect();
    match all.split_last() {
        None => String::new(),
        Some((last, [])) => (*last).to_owned(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

/// Merges equal statements and puts the most frequent first.
fn merge_statements(reports: &[&Report], of: impl Fn(&Report) -> &Vec<String>) -> Vec<Statement> {
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for report in reports {
        for text in of(report) {
            all.entry(text).or_default().insert(&report.runner);
        }
    }
    let mut all: Vec<Statement> = all
        .into_iter()
        .map(|(text, voices)| Statement {
            text: text.to_owned(),
            voices: voices.into_iter().map(str::to_owned).collect(),
        })
        .collect();
    all.sort_by(|a, b| b.voices.len().cmp(&a.voices.len()).then_with(|| a.text.cmp(&b.text)));
    all
}

fn wildcards(reports: &[&Report], lane: Option<&Wildcard>) -> Vec<WildcardIdea> {
    let idea = |text: &str, runner: &str, lane: &str| WildcardIdea {
        text: text.to_owned(),
        runner: runner.to_owned(),
        lane: lane.to_owned(),
        wildcard: true,
    };
    let own = reports.iter().filter(|it| !it.wildcard_idea.is_empty());
    let own = own.map(|it| idea(&it.wildcard_idea, &it.runner, "council"));
    let lane = lane.map(|it| idea(&it.wildcard_idea, &it.runner, super::WILDCARD));
    let mut all: Vec<WildcardIdea> = own.chain(lane).collect();
    all.sort();
    all
}
