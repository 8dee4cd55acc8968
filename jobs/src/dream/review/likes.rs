//! The user's recent decisions on similar proposals, shown together with a proposal. They change
//! the order of proposals, but never cause a proposal to be left out.

use jiff::{SignedDuration, Timestamp};
use runner_text::counted;

use super::super::decisions::{Decision, UNDONE};
use super::super::proposal::{Action, IdeaStatus, Proposal};
use super::proposals::Proposals;

/// Maximum age of the decisions that are counted.
const COUNTED: SignedDuration = SignedDuration::from_hours(90 * 24);

/// The numbers of decisions on proposals with the same status and action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LikeDecisions {
    pub accepted: usize,
    /// Number of rejected and of amended proposals.
    pub rejected: usize,
    /// Number of decisions that the user undid.
    pub undone: usize,
}

impl LikeDecisions {
    /// Returns whether the user decided against at least half of these proposals.
    pub fn is_disfavoured(self) -> bool {
        let against = self.rejected + self.undone;
        against > 0 && against >= self.accepted
    }

    /// Describes the decisions, or returns `None` if there are none.
    pub fn describe(self) -> Option<String> {
        let all = self.accepted + self.rejected + self.undone;
        let counts =
            [("accepted", self.accepted), ("rejected", self.rejected), ("undid", self.undone)];
        let counts: Vec<String> = counts
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(what, count)| format!("{what} {count}"))
            .collect();
        (all > 0).then(|| {
            format!(
                "you {} of {} like this in the last 90 days",
                counts.join(" and "),
                counted(all, "proposal")
            )
        })
    }
}

/// The decisions of the last 90 days, by the status and action of their proposals.
#[derive(Clone, Debug, Default)]
pub struct PastDecisions(Vec<(IdeaStatus, Action, LikeDecisions)>);

impl PastDecisions {
    /// Counts the last decision on each proposal, if that decision was made in the last 90 days.
    pub fn of(book: &Proposals, now: Timestamp) -> Self {
        let mut past = Self::default();
        for item in &book.items {
            let of_it = |one: &&Decision| one.proposal_id == item.proposal.id;
            let Some(last) = book.history.iter().rfind(of_it) else { continue };
            let at: Option<Timestamp> = last.at.parse().ok();
            if at.is_none_or(|at| now.duration_since(at) > COUNTED) {
                continue;
            }
            let counts = past.counts(&item.proposal);
            match last.decision.as_str() {
                "accepted" => counts.accepted += 1,
                // An amendment chose a different action from the proposed one.
                "rejected" | "amended" => counts.rejected += 1,
                UNDONE => counts.undone += 1,
                _ => {}
            }
        }
        past
    }

    fn counts(&mut self, proposal: &Proposal) -> &mut LikeDecisions {
        let (status, action) = (proposal.status, proposal.action);
        let known = self.0.iter().position(|one| (one.0, one.1) == (status, action));
        let at = known.unwrap_or_else(|| {
            self.0.push((status, action, LikeDecisions::default()));
            self.0.len() - 1
        });
        &mut self.0[at].2
    }

    /// Returns the decisions on proposals with the same status and action as this one.
    pub fn like(&self, proposal: &Proposal) -> LikeDecisions {
        let same = |one: &&(IdeaStatus, Action, LikeDecisions)| {
            (one.0, one.1) == (proposal.status, proposal.action)
        };
        self.0.iter().find(same).map_or_else(LikeDecisions::default, |one| one.2)
    }
}

impl Proposals {
    /// Moves proposals of a [disfavoured](LikeDecisions::is_disfavoured) kind to the end of their
    /// pass.
    pub fn rank(&mut self, past: &PastDecisions) {
        let mut start = 0;
        while start < self.items.len() {
            let pass = &self.items[start].pass;
            let end = self.items[start..].iter().position(|item| item.pass != *pass);
            let end = end.map_or(self.items.len(), |length| start + length);
            self.items[start..end].sort_by_key(|item| past.like(&item.proposal).is_disfavoured());
            start = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_described() {
        let past = LikeDecisions { accepted: 1, rejected: 3, undone: 0 };
        let text = "you accepted 1 and rejected 3 of 4 proposals like this in the last 90 days";
        assert_eq!(past.describe().as_deref(), Some(text));
        assert!(past.is_disfavoured());
        assert_eq!(LikeDecisions::default().describe(), None);
        assert!(!LikeDecisions { accepted: 2, rejected: 1, undone: 0 }.is_disfavoured());
        assert!(LikeDecisions { accepted: 0, rejected: 0, undone: 1 }.is_disfavoured());
    }
}
