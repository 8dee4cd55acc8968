//! The known facts about some ideas: the labels that a pass is measured against.
//!
//! The file is a JSON array. Each element has `idea` (a path) and any of the keys `commits` (the
//! hashes of the commits that implemented it, or objects with a `hash`), `status` (one of the
//! five), `open: true` (the idea is known to be alive) and `duplicates` (the paths of ideas with
//! the same content). Other keys are ignored. This module must never guess a label: an idea with
//! none of these keys affects no rate.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::dream::proposal::IdeaStatus;

/// The known facts about one idea.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Label {
    /// The path of the idea, relative to the project.
    pub idea: String,
    #[serde(default)]
    status: Option<IdeaStatus>,
    /// Whether the idea is alive, in which case archiving it would be wrong.
    #[serde(default)]
    open: bool,
    /// The commits that implemented the idea.
    #[serde(default)]
    commits: Vec<Hash>,
    /// The paths of ideas with the same content.
    #[serde(default)]
    pub duplicates: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
enum Hash {
    Bare(String),
    Object { hash: String },
}

impl Label {
    /// Returns the idea's true status, if it is known.
    pub fn class(&self) -> Option<IdeaStatus> {
        self.status.or_else(|| (!self.commits.is_empty()).then_some(IdeaStatus::Implemented))
    }

    /// Returns whether it would be wrong to archive the idea.
    pub fn is_live(&self) -> bool {
        self.open
            || matches!(self.status, Some(IdeaStatus::Meritorious | IdeaStatus::BlogCandidate))
    }

    /// Returns the hashes of the commits that implemented the idea. A hash may be abbreviated.
    pub fn commits(&self) -> impl Iterator<Item = &str> {
        self.commits.iter().map(|hash| match hash {
            Hash::Bare(hash) | Hash::Object { hash } => hash.as_str(),
        })
    }

    fn wrong(&self) -> Option<&'static str> {
        let digits = |hash: &str| {
            (7..=64).contains(&hash.len()) && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let done = matches!(self.status, None | Some(IdeaStatus::Implemented));
        if !self.commits().all(digits) {
            Some("one of its commits is not a hash of 7 to 64 hex digits")
        } else if self.is_live() && !self.commits.is_empty() {
            Some("it is open, but commits implemented it")
        } else if !done && !self.commits.is_empty() {
            Some("commits implemented it, but its status is not implemented")
        } else if self.open && self.status == Some(IdeaStatus::Implemented) {
            Some("it is open and implemented")
        } else {
            None
        }
    }
}

/// Parses the labels.
///
/// # Errors
/// Returns a message that describes the mistake and its position.
pub fn parse(text: &str) -> Result<Vec<Label>, String> {
    let labels: Vec<Label> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut seen = BTreeSet::new();
    for (at, label) in labels.iter().enumerate() {
        let why = if seen.insert(label.idea.as_str()) {
            label.wrong()
        } else {
            Some("it is listed twice")
        };
        if let Some(why) = why {
            return Err(format!("element {at}, {:?}: {why}", label.idea));
        }
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_map_to_class_and_liveness() {
        let labels = parse(
            r#"[{"idea": "a", "commits": [{"hash": "0123456", "date": "x"}, "abcdef0"], "folder": "x"},
                {"idea": "b", "open": true}, {"idea": "c", "status": "meritorious"}, {"idea": "d"},
                {"idea": "e", "status": "implemented"}]"#,
        )
        .unwrap();
        let seen: Vec<_> = labels.iter().map(|one| (one.class(), one.is_live())).collect();
        assert_eq!(
            seen,
            [
                (Some(IdeaStatus::Implemented), false),
                (None, true),
                (Some(IdeaStatus::Meritorious), true),
                (None, false),
                (Some(IdeaStatus::Implemented), false),
            ]
        );
        assert_eq!(labels[0].commits().collect::<Vec<_>>(), ["0123456", "abcdef0"]);
    }

    #[test]
    fn invalid_labels_are_refused() {
        for (bad, why) in [
            (r#"{}"#, "expected a sequence"),
            (r#"[{"idea": "a"}, {"idea": "a"}]"#, "element 1, \"a\": it is listed twice"),
            (r#"[{"idea": "a", "commits": ["main"]}]"#, "is not a hash"),
            (r#"[{"idea": "a", "commits": ["0123456"], "open": true}]"#, "it is open"),
            (r#"[{"idea": "a", "commits": ["0123456"], "status": "sidenote"}]"#, "not implemented"),
            (r#"[{"idea": "a", "status": "implemented", "open": true}]"#, "open and"),
            (r#"[{"idea": "a", "status": "abandoned"}]"#, "abandoned"),
        ] {
            let found = parse(bad).unwrap_err();
            assert!(found.contains(why), "{bad}: {found}");
        }
    }
}
