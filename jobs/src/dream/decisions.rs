//! `dreams/ledger.md`: the user's decisions on proposals.
//!
//! A line that is not `- {json}` is a user's note, which is kept but is not a decision. Runner only
//! appends lines. To take a decision back, it appends a line with the decision `undone`, which
//! reopens the proposal.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::proposal::Action;

/// The value of [`Decision::decision`] that takes a decision back.
pub const UNDONE: &str = "undone";

/// One decision, as written in the file.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Decision {
    pub proposal_id: String,
    /// `accepted`, `rejected`, `amended`, `skipped` or `undone`. A value introduced by a later
    /// version is also a decision.
    pub decision: String,
    /// The action that was carried out or, if the proposal was rejected or skipped, the proposed
    /// action.
    #[serde(default)]
    pub action: String,
    /// The time of the decision, in RFC 3339.
    #[serde(default)]
    pub at: String,
    /// The user's note on the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The hash of the content that was triaged. Without a hash, the decision applies to any
    /// content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets_hash: Option<String>,
    /// The idea that an amendment named as the destination of a merge. Earlier versions did not
    /// record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
}

/// The decisions in effect, by proposal, each list in file order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    by_id: BTreeMap<String, Vec<Decision>>,
    /// All decisions in file order, including those that were taken back.
    pub history: Vec<Decision>,
}

impl Decision {
    /// Creates a decision that was made at `at`, without a note or a hash.
    pub fn new(id: &str, decision: &str, action: Action, at: Timestamp) -> Self {
        Self {
            proposal_id: id.to_owned(),
            decision: decision.to_owned(),
            action: action.as_str().to_owned(),
            at: at.to_string(),
            note: None,
            targets_hash: None,
            into: None,
        }
    }

    /// Returns whether the decision covers this content. It does if either hash is missing.
    fn covers(&self, targets_hash: Option<&str>) -> bool {
        match (&self.targets_hash, targets_hash) {
            (Some(own), Some(asked)) => own == asked,
            _ => true,
        }
    }

    /// Returns the content of the file with this decision added as its last line.
    pub fn appended(&self, file: &[u8]) -> Vec<u8> {
        let json = serde_json::to_string(self).expect("a decision has string keys only");
        let mut text = file.to_vec();
        if text.last().is_some_and(|last| *last != b'\n') {
            text.push(b'\n');
        }
        text.extend_from_slice(format!("- {json}\n").as_bytes());
        text
    }
}

impl Decisions {
    /// Parses the content of the file.
    pub fn read(bytes: &[u8]) -> Self {
        let mut decisions = Self::default();
        for line in String::from_utf8_lossy(bytes).lines() {
            let Some(json) = line.trim().strip_prefix("- ") else {
                continue;
            };
            // A decision remains valid even if an informational field has an unexpected type.
            let Ok(serde_json::Value::Object(found)) = serde_json::from_str(json) else {
                continue;
            };
            let text = |key: &str| found.get(key).and_then(|value| value.as_str());
            let hash = match found.get("targets_hash") {
                None | Some(serde_json::Value::Null) => None,
                Some(serde_json::Value::String(hash)) => Some(hash.clone()),
                Some(_) => continue,
            };
            let (Some(id), Some(decision)) = (text("proposal_id"), text("decision")) else {
                continue;
            };
            let line = Decision {
                proposal_id: id.to_owned(),
                decision: decision.to_owned(),
                action: text("action").unwrap_or_default().to_owned(),
                at: text("at").unwrap_or_default().to_owned(),
                note: text("note").map(str::to_owned),
                targets_hash: hash,
                into: text("into").map(str::to_owned),
            };
            decisions.history.push(line.clone());
            let all = decisions.by_id.entry(line.proposal_id.clone()).or_default();
            if line.decision == UNDONE {
                all.retain(|earlier| !earlier.covers(line.targets_hash.as_deref()));
            } else {
                all.push(line);
            }
        }
        decisions
    }

    /// Returns whether the user has already decided on this proposal for targets with this content.
    pub fn decided(&self, id: &str, targets_hash: &str) -> bool {
        self.of(id, Some(targets_hash)).is_some()
    }

    /// Returns the latest decision in effect on a proposal with this content or, without a hash,
    /// with any content. Returns `None` if the proposal is undecided.
    pub fn of(&self, id: &str, targets_hash: Option<&str>) -> Option<&Decision> {
        let all = self.by_id.get(id)?;
        all.iter().rev().find(|one| one.covers(targets_hash))
    }

    /// Returns the ids that begin with `prefix` and have a decision in effect.
    pub fn ids<'s>(&'s self, prefix: &'s str) -> impl Iterator<Item = &'s str> {
        let from = self.by_id.range(prefix.to_owned()..);
        from.take_while(move |(id, _)| id.starts_with(prefix))
            .filter(|(_, all)| !all.is_empty())
            .map(|(id, _)| id.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_found_among_other_lines() {
        let file = b"# Decisions\n\nSome notes\xff.\n- not json\n- {\"proposal_id\": 3}\n\
            - {\"proposal_id\":\"a1\",\"decision\":\"rejected\",\"action\":\"archive\",\"at\":\"2026-01-01T00:00:00Z\"}\n\
            \x20 - {\"proposal_id\":\"b2\",\"decision\":\"accepted\",\"action\":\"keep\",\"at\":\"x\",\"targets_hash\":\"h1\",\"note\":\"n\"}\r\n\
            * {\"proposal_id\":\"c3\",\"decision\":\"rejected\"}\n";
        let decisions = Decisions::read(file);
        assert!(decisions.decided("a1", "anything"));
        assert!(decisions.decided("b2", "h1"));
        assert!(!decisions.decided("b2", "h2"), "the content has changed since");
        assert!(!decisions.decided("c3", "h1"));
        assert_eq!(decisions.ids("").collect::<Vec<_>>(), ["a1", "b2"]);
        assert_eq!(decisions.of("b2", None).unwrap().note.as_deref(), Some("n"));
        assert_eq!(Decisions::read(b""), Decisions::default());
    }

    #[test]
    fn undone_decision_reopens_proposal_and_keeps_lines() {
        let at = Timestamp::UNIX_EPOCH;
        let mut accepted = Decision::new("a1", "accepted", Action::Archive, at);
        accepted.targets_hash = Some("h".into());
        accepted.note = Some("two\nlines".into());
        let file = accepted.appended(b"a note without an end");
        let read = Decisions::read(&file);
        assert_eq!(read.of("a1", Some("h")), Some(&accepted));
        let mut undone = Decision::new("a1", UNDONE, Action::Archive, at);
        undone.targets_hash = Some("h".into());
        let file = undone.appended(&file);
        assert!(!Decisions::read(&file).decided("a1", "h"));
        assert_eq!(Decisions::read(&file).ids("a").count(), 0);
        let file = accepted.appended(&file);
        assert!(Decisions::read(&file).decided("a1", "h"));
        assert!(file.starts_with(b"a note without an end\n- {\"proposal_id\":\"a1\",\"decision\":\"accepted\",\"action\":\"archive\",\"at\":\"1970-01-01T00:00:00Z\",\"note\":\"two\\nlines\",\"targets_hash\":\"h\"}\n"));
        assert_eq!(file.split(|byte| *byte == b'\n').count(), 5);
    }
}
