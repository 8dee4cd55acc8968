//! The work file `rpi/next-work.jsonl`: each row contains a list of items or, in old files, is
//! itself an item.
//!
//! A claimed or finished item belongs to its claimant, and this module never changes it. Rows are
//! edited through [`KeptLines`], which leaves every other row unchanged byte for byte.

use runner_text::jsonl::keep::{KeptLines, Object};
use serde_json::Value;

use runner_engine::digest::Digest;

/// The value of `source_epic` in rows written by runner.
pub const OWN_EPIC: &str = "overnight";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Nobody has claimed the item.
    Available,
    /// Somebody is working on the item.
    InProgress,
    /// The item is done.
    Consumed,
}

/// One work item, with its position in the work file.
#[derive(Clone, Debug)]
pub struct WorkItem {
    /// The line number of the row, starting at 1.
    pub line: usize,
    /// The index of the item in its row, or `None` if the row itself is the item.
    pub at: Option<usize>,
    pub title: String,
    pub kind: String,
    pub severity: String,
    /// The place or step that the item came from.
    pub source: String,
    pub description: String,
    pub evidence: String,
    /// The finder's evidence, in an item that runner wrote. The item's `evidence` names only files,
    /// commits and nodes.
    pub finder_evidence: Option<String>,
    /// The date on which the work was found, if the item states it.
    pub found_at: Option<String>,
    /// The repository that the work concerns.
    pub target_repo: Option<String>,
    /// How confident the author was in the item.
    pub confidence: Option<String>,
    pub source_epic: Option<String>,
    /// The time at which the row was written.
    pub timestamp: String,
    pub claim: Claim,
    /// `ready` or `proposed`.
    pub status: Option<String>,
    /// The items that must be done first.
    pub requires: Vec<String>,
    /// The time at which the item was finished.
    pub consumed_at: Option<String>,
    /// The time at which work on the item last failed.
    pub failed_at: Option<String>,
    /// Number of times that work on the item failed.
    pub failures: u64,
    /// The note left when the item was completed.
    pub note: Option<String>,
    pub id: Option<String>,
    pub bead_id: Option<String>,
    /// The key shared by equal items.
    pub dedup_key: String,
}

impl WorkItem {
    /// Returns whether runner proposed the item and nobody has claimed or adopted it.
    pub fn is_own_proposal(&self) -> bool {
        self.is_free()
            && self.source_epic.as_deref() == Some(OWN_EPIC)
            && self.status.as_deref() == Some("proposed")
    }

    /// Returns whether nobody has claimed or finished the item.
    pub fn is_free(&self) -> bool {
        self.claim == Claim::Available
    }
}

#[derive(Clone, Debug, Default)]
pub struct WorkFile {
    /// The file's lines, through which the file is edited.
    pub kept: KeptLines,
    /// The items, in the order of the file.
    pub items: Vec<WorkItem>,
}

impl WorkFile {
    pub fn parse(bytes: &[u8]) -> Self {
        let kept = KeptLines::parse(bytes);
        let mut items = Vec::new();
        for (line, row) in kept.rows() {
            match row.objects("items") {
                Some(all) => {
                    let each = all.iter().enumerate();
                    items.extend(each.filter_map(|(at, own)| item(line, Some(at), own, row)));
                }
                None => items.extend(item(line, None, row, row)),
            }
        }
        Self { kept, items }
    }

    /// Changes one item in place and returns true if anything changed. A claimed or finished item
    /// is never changed.
    pub fn edit(&mut self, item: &WorkItem, fields: &[(&str, Value)]) -> bool {
        if !item.is_free() {
            return false;
        }
        let Some((_, row)) = self.kept.rows().find(|(line, _)| *line == item.line) else {
            return false;
        };
        let mut row = row.clone();
        let mut changed = false;
        match item.at {
            None => {
                for (key, value) in fields {
                    changed |= row.set(key, value);
                }
            }
            Some(at) => {
                let Some(mut all) = row.objects("items") else {
                    return false;
                };
                let Some(own) = all.get_mut(at) else {
                    return false;
                };
                for (key, value) in fields {
                    changed |= own.set(key, value);
                }
                if changed {
                    row.set_objects("items", &all);
                }
            }
        }
        if changed {
            self.kept.replace(item.line, row);
        }
        changed
    }
}

fn item(line: usize, at: Option<usize>, own: &Object, row: &Object) -> Option<WorkItem> {
    let text = |key: &str| own.text_of(key).filter(|it| !it.trim().is_empty());
    let title = text("title")?;
    let claim = |object: &Object| {
        if object.get("consumed") == Some(Value::Bool(true)) {
            return Some(Claim::Consumed);
        }
        match object.text_of("claim_status").as_deref() {
            Some("consumed" | "done" | "closed") => Some(Claim::Consumed),
            Some("in_progress" | "claimed") => Some(Claim::InProgress),
            Some(_) => Some(Claim::Available),
            None => None,
        }
    };
    let of_row = claim(row).unwrap_or(Claim::Available);
    let claim = match of_row {
        Claim::Consumed => Claim::Consumed,
        _ => claim(own).unwrap_or(of_row),
    };
    let evidence = match own.get("evidence") {
        Some(Value::String(text)) => text,
        Some(Value::Array(all)) => {
            let all = all.iter().filter_map(Value::as_str);
            all.collect::<Vec<_>>().join("; ")
        }
        _ => String::new(),
    };
    let kind = text("type").unwrap_or_else(|| "task".to_owned());
    let failed_at = text("failed_at").or_else(|| row.text_of("failed_at"));
    Some(WorkItem {
        line,
        at,
        dedup_key: text("dedup_key").unwrap_or_else(|| dedup_key(&kind, &title)),
        severity: text("severity").unwrap_or_else(|| "medium".to_owned()),
        source: text("source").unwrap_or_default(),
        description: text("description").unwrap_or_default(),
        evidence,
        finder_evidence: text("finder_evidence"),
        found_at: text("found_at"),
        target_repo: text("target_repo"),
        confidence: text("confidence"),
        source_epic: row.text_of("source_epic"),
        timestamp: row.text_of("timestamp").unwrap_or_default(),
        claim,
        status: text("status"),
        requires: match own.get("requires") {
            Some(Value::Array(all)) => {
                let all = all.iter().filter_map(Value::as_str);
                all.map(str::to_owned).collect()
            }
            _ => Vec::new(),
        },
        consumed_at: text("consumed_at").or_else(|| row.text_of("consumed_at")),
        failures: match (own.get("failures").and_then(|it| it.as_u64()), &failed_at) {
            (Some(count), _) => count,
            (None, Some(_)) => 1,
            (None, None) => 0,
        },
        failed_at,
        note: text("consumed_note").or_else(|| text("disposition")),
        id: text("id"),
        bead_id: text("bead_id"),
        kind,
        title,
    })
}

/// Returns the key shared by equal items: their kind and the words in their titles.
pub fn dedup_key(kind: &str, title: &str) -> String {
    let words: Vec<String> = title
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    format!("{}|{}", kind.trim().to_lowercase(), words.join("-"))
}

/// Returns the first sixteen hexadecimal digits of a string's digest.
pub fn short_hash(text: &str) -> String {
    let digest = Digest::of(text.as_bytes()).to_string();
    let hex = digest.rsplit(':').next().unwrap_or(&digest);
    hex.chars().take(16).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_row_forms_parse_and_claims_are_kept() {
        let file = concat!(
            "{\"source_epic\":\"e1\",\"items\":[{\"title\":\"One\",\"type\":\"bug\",\"n\":0.80},{\"title\":\"Two\",\"claim_status\":\"in_progress\"}],\"claim_status\":\"available\"}\n",
            "{broken\n",
            "{\"title\":\"Flat\",\"severity\":\"high\",\"consumed\":false}\n",
            "{\"items\":[{\"title\":\"Old\",\"claim_status\":\"available\"}],\"consumed\":true}\n",
        );
        let mut work = WorkFile::parse(file.as_bytes());
        let seen: Vec<_> = work.items.iter().map(|it| (it.title.as_str(), it.claim)).collect();
        assert_eq!(
            seen,
            [
                ("One", Claim::Available),
                ("Two", Claim::InProgress),
                ("Flat", Claim::Available),
                ("Old", Claim::Consumed)
            ]
        );
        for item in work.items.clone() {
            let edited = work.edit(&item, &[("id", json!("dream-1"))]);
            assert_eq!(edited, item.is_free(), "{}", item.title);
        }
        let text = String::from_utf8(work.kept.to_bytes()).unwrap();
        assert!(
            text.contains("\"n\":0.80,\"id\":\"dream-1\"}") && text.contains("\n{broken\n"),
            "{text}"
        );
        assert_eq!(text.matches("dream-1").count(), 2);
        assert_eq!(dedup_key("Bug", "Fix  the X!"), "bug|fix-the-x");
    }
}
