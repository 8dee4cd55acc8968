//! The human-readable report of a pass: headline, lines, figures, and why it is incomplete.
//!
//! This module only formats text. It must never silently leave out a proposal that was refused or
//! dropped, or a file that could not be read.

use runner_engine::outcome::Class;
use runner_text::counted;
use serde_json::{Map, json};

use super::proposal::{self, IdeaStatus, Proposal, Refused};
use super::quarantine::PARKED_AFTER;
use super::walk::WalkProblem;
use crate::{Finished, JobError};

/// Number of refusals to report individually.
const REFUSALS: usize = 20;

/// The report of a pass, apart from its proposals.
#[derive(Default)]
pub(super) struct PassSummary {
    /// The files that could not be read as ideas.
    pub(super) troubles: Vec<WalkProblem>,
    /// Number of files that were left out because runner wrote them.
    pub(super) own: usize,
    /// Number of ideas that a limit leaves for the next pass.
    pub(super) waiting: usize,
    /// The number of other ideas that were searched for duplicates and the total number of other
    /// ideas; `None` if all were searched.
    pub(super) compared: Option<(usize, usize)>,
    /// Why the candidates were not compared with all notes, if a verdict depended on that.
    pub(super) uncompared: Option<String>,
    /// Ideas that are set aside, including those that this pass set aside.
    pub(super) parked: Vec<String>,
    pub(super) notes: Vec<String>,
    /// Why the session notes are not part of the evidence.
    pub(super) memory: Option<String>,
    /// Whether the ideas are private, and what that means for accepting a proposal.
    pub(super) privacy: String,
    pub(super) refused: Vec<Refused>,
    /// Number of proposals whose claim was struck because it did not hold.
    pub(super) downgraded: usize,
    /// Number of unchanged ideas that were selected because their evidence changed.
    pub(super) moved: usize,
    /// Why the remaining shown ideas were not asked about.
    pub(super) unasked: Option<String>,
    /// Number of shown ideas without a valid answer.
    pub(super) unanswered: usize,
    /// Number of proposals that the user had already decided on.
    pub(super) decided: usize,
    /// Number of proposals that were dropped because they are about ideas in `changed`.
    pub(super) dropped: usize,
    /// Ideas that changed during the pass, or since the request of a submission.
    pub(super) changed: Vec<String>,
    /// Whether the pass processes an answer to an earlier request.
    pub(super) since_request: bool,
}

impl PassSummary {
    /// Returns the lines that are known before a model is called.
    pub(super) fn before_asking(&self) -> Vec<String> {
        let mut lines = vec![self.privacy.clone()];
        lines.extend(self.memory.clone());
        if self.waiting > 0 {
            lines.push(format!(
                "left for the next pass: {}",
                counted(self.waiting, "more changed idea")
            ));
        }
        lines.extend(left_out(self.own));
        if !self.troubles.is_empty() {
            lines.push(format!(
                "{} could not be read: {}",
                self.troubles.len(),
                listed(&self.troubles)
            ));
        }
        lines
    }

    /// Builds the result of a pass that published these proposals in `folder`.
    pub(super) fn finish(
        self,
        proposals: &[Proposal],
        shown: usize,
        ideas: usize,
        folder: &str,
    ) -> Finished {
        let mut facts = Map::new();
        let mut fact = |name: &str, count: usize| facts.insert(name.to_owned(), json!(count));
        fact("ideas", ideas);
        fact("shown", shown);
        fact("waiting", self.waiting);
        fact("proposals", proposals.len());
        let mut each = Vec::new();
        for status in IdeaStatus::ALL {
            let sure = |it: &&Proposal| it.status == status && !it.is_perhaps();
            let count = proposals.iter().filter(sure).count();
            fact(status.as_str(), count);
            if count > 0 {
                each.push(format!("{count} {}", status.as_str()));
            }
        }
        fact("refused", self.refused.len());
        fact("troubles", self.troubles.len());
        fact("unanswered", self.unanswered);
        fact("changed", self.changed.len());
        fact("decided", self.decided);
        fact("downgraded", self.downgraded);
        fact("moved", self.moved);
        fact("perhaps", proposals.iter().filter(|proposal| proposal.is_perhaps()).count());
        fact("parked", self.parked.len());

        let mut headline =
            format!("{} on {}", counted(proposals.len(), "proposal"), counted(shown, "idea"));
        if !each.is_empty() {
            headline.push_str(&format!(": {}", each.join(", ")));
        }
        let perhaps = proposals.iter().filter(|proposal| proposal.is_perhaps()).count();
        if perhaps > 0 {
            headline.push_str(if each.is_empty() { ": " } else { ", " });
            headline.push_str(&format!("{perhaps} perhaps done or a duplicate"));
        }
        if self.waiting > 0 {
            headline
                .push_str(&format!("; {} left for next time", counted(self.waiting, "more idea")));
        }
        // An idea that may be done is listed separately from the proposals.
        let (perhaps, sure): (Vec<_>, Vec<_>) = proposals.iter().partition(|it| it.is_perhaps());
        let mut lines: Vec<String> = sure.into_iter().map(Proposal::line).collect();
        lines.extend(perhaps.into_iter().map(Proposal::perhaps_line));
        let refused = self.refused.iter().take(REFUSALS);
        let mut refused: Vec<String> =
            refused.map(|it| format!("proposal {}: {}", it.index, it.why)).collect();
        if self.refused.len() > REFUSALS {
            refused.push(counted(self.refused.len() - REFUSALS, "more proposal"));
        }
        lines.extend(refused.iter().map(|what| format!("refused: {what}")));
        lines.extend(self.changed.iter().map(|path| match self.since_request {
            true => format!("changed since the request, so not answered: {path}"),
            false => format!("changed during the pass, so examined again next time: {path}"),
        }));
        if self.decided > 0 {
            lines.push(format!(
                "already decided on, so not proposed again: {}",
                counted(self.decided, "proposal")
            ));
        }
        if self.downgraded > 0 {
            lines.push(format!(
                "struck because it does not hold, so the idea is kept: {}",
                counted(self.downgraded, "claim")
            ));
        }
        if self.moved > 0 {
            let ideas = counted(self.moved, "unchanged idea");
            lines.push(format!("examined again after new commits: {ideas}"));
        }
        lines.extend(self.unasked.iter().map(|why| format!("not asked about the rest: {why}")));
        lines.extend(left_out(self.own));
        lines.extend(set_aside(&self.parked));
        if let Some((compared, of)) = self.compared {
            lines.push(format!(
                "searched for duplicates among {compared} of {}",
                counted(of, "idea")
            ));
        }
        lines.extend(self.uncompared.as_deref().map(not_compared));
        lines.extend(
            self.troubles
                .iter()
                .map(|it| format!("not read: {} {}", proposal::clean(&it.path, 200), it.why)),
        );
        lines.extend(self.notes.iter().map(|note| proposal::clean(note, 300)));
        lines.push(self.privacy.clone());
        lines.push(format!("in {folder}"));
        Finished { degraded: self.degraded(), headline, lines, refused, facts, idle: None }
    }

    fn degraded(&self) -> Option<String> {
        let mut reasons = Vec::new();
        let mut reason = |count: usize, one: &str, what: [&str; 2]| {
            if count > 0 {
                let what = if count == 1 { what[0] } else { what[1] };
                reasons.push(format!("{} {what}", counted(count, one)));
            }
        };
        reason(self.refused.len(), "proposal", ["was refused", "were refused"]);
        reason(self.unanswered, "idea", ["got no answer"; 2]);
        let dropped = "dropped because an idea changed in the meantime";
        reason(self.dropped, "proposal", [&format!("was {dropped}"), &format!("were {dropped}")]);
        reason(self.troubles.len(), "file", ["could not be read"; 2]);
        (!reasons.is_empty()).then(|| reasons.join(", "))
    }
}

/// Formats the number of runner's own files that were left out. Returns `None` if there are none.
pub(super) fn left_out(own: usize) -> Option<String> {
    (own > 0)
        .then(|| format!("written by runner, so not treated as ideas: {}", counted(own, "file")))
}

/// Lists the ideas that are set aside, and explains how to select them again. Returns `None` if
/// there are none.
pub(super) fn set_aside(parked: &[String]) -> Option<String> {
    if parked.is_empty() {
        return None;
    }
    let names: Vec<String> = parked.iter().map(|it| proposal::clean(it, 200)).collect();
    Some(format!(
        "set aside until {} or `runner dream run --retry-parked`, because {PARKED_AFTER} answers could not be used: {}",
        if parked.len() == 1 { "it changes" } else { "they change" },
        names.join(", ")
    ))
}

/// Lists the first few problems in one line.
pub(super) fn listed(troubles: &[WalkProblem]) -> String {
    const FEW: usize = 3;
    let named = troubles
        .iter()
        .take(FEW)
        .map(|it| format!("{} {}", proposal::clean(&it.path, 200), it.why));
    let mut text = named.collect::<Vec<_>>().join("; ");
    if troubles.len() > FEW {
        text.push_str(&format!("; and {} more", troubles.len() - FEW));
    }
    text
}

/// Returns the error of a pass that could read none of the selected ideas.
pub(super) fn unreadable(selected: usize, troubles: &[WalkProblem]) -> JobError {
    let selected = counted(selected, "changed idea");
    let why = format!("none of {selected} could be read: {}", listed(troubles));
    JobError::failed(Class::Environment, why)
}

pub(super) fn nothing(
    unchanged: usize,
    own: usize,
    parked: &[String],
    troubles: &[WalkProblem],
    uncompared: Option<String>,
) -> String {
    let mut why = format!("no delta ({} unchanged)", counted(unchanged, "idea"));
    if let Some(aside) = set_aside(parked) {
        why.push_str("; ");
        why.push_str(&aside);
    }
    if unchanged == 0 && troubles.is_empty() && parked.is_empty() {
        why.push_str("; there are no notes to examine");
    }
    if let Some(left_out) = left_out(own) {
        why.push_str("; ");
        why.push_str(&left_out);
    }
    if !troubles.is_empty() {
        why.push_str(&format!("; {} could not be read: {}", troubles.len(), listed(troubles)));
    }
    if let Some(problem) = uncompared {
        why.push_str("; ");
        why.push_str(&not_compared(&problem));
    }
    why
}

/// Formats why the commits were not compared with all notes.
fn not_compared(problem: &str) -> String {
    format!("commits not compared with all notes: {}", proposal::clean(problem, 300))
}
