//! `dreams/ledger.md`: what people decided about proposals. Read only; whoever accepts or rejects
//! writes it. A line that is not `- {json}` is somebody's note, and no decision.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// All decisions, by proposal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// The `targets_hash` of each decision on an id; `None` counts for any content.
    by_id: BTreeMap<String, BTreeSet<Option<String>>>,
}

#[derive(Deserialize)]
struct Line {
    proposal_id: String,
    /// Any word: a decision that a later version knows is one too.
    #[serde(rename = "decision")]
    _decision: String,
    #[serde(default)]
    targets_hash: Option<String>,
}

impl Decisions {
    /// Reads the file's content.
    pub fn read(bytes: &[u8]) -> Self {
        let mut decisions = Self::default();
        for line in String::from_utf8_lossy(bytes).lines() {
            let Some(json) = line.trim().strip_prefix("- ") else {
                continue;
            };
            let Ok(line) = serde_json::from_str::<Line>(json) else {
                continue;
            };
            decisions
                .by_id
                .entry(line.proposal_id)
                .or_default()
                .insert(line.targets_hash);
        }
        decisions
    }

    /// Whether this proposal, about targets with this content, was decided (contracts/dream.md,
    /// rule 8).
    pub fn decided(&self, id: &str, targets_hash: &str) -> bool {
        self.by_id.get(id).is_some_and(|hashes| {
            hashes
                .iter()
                .any(|hash| hash.as_deref().is_none_or(|hash| hash == targets_hash))
        })
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
        assert!(!decisions.decided("b2", "h2"), "the content changed since");
        assert!(!decisions.decided("c3", "h1"));
        assert_eq!(Decisions::read(b""), Decisions::default());
    }
}
