//! A node: a Markdown file with the parsed values of its front matter.

use std::collections::BTreeSet;

use jiff::civil::Date;
use runner_engine::digest::Digest;
use runner_text::front_matter::{self, edit};
use runner_text::markdown;
use serde::Serialize;

/// The kind of a node, which its folder determines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// A lesson.
    Learning,
    /// A problem that was found.
    Finding,
    /// A generalization from several learnings or findings.
    Pattern,
    /// Other knowledge.
    Knowledge,
}

impl NodeKind {
    /// Returns the kind that the folder of `path` implies, or `None` if the file is not a node.
    pub fn of(path: &str) -> Option<Self> {
        let (folder, rest) = path.split_once('/')?;
        if !rest.ends_with(".md") {
            return None;
        }
        Some(match folder {
            "learnings" => Self::Learning,
            "findings" => Self::Finding,
            "patterns" => Self::Pattern,
            "knowledge" => Self::Knowledge,
            _ => return None,
        })
    }
}

/// The degree to which a node has proved useful.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Maturity {
    /// The node states no maturity, or an unrecognized one.
    Unknown,
    /// The node has not passed a gate.
    Provisional,
    /// The node passed the first gate.
    Candidate,
    /// The node passed the second gate.
    Established,
}

impl Maturity {
    /// Returns the weight of a node with this maturity in the `maturity` metric, from 0 to 1.
    pub fn weight(self) -> f64 {
        match self {
            Self::Unknown => 0.0,
            Self::Provisional => 0.6,
            Self::Candidate => 0.8,
            Self::Established => 1.0,
        }
    }

    /// Returns the name used in front matter.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Provisional => "provisional",
            Self::Candidate => "candidate",
            Self::Established => "established",
        }
    }
}

/// The front matter keys that name a node's source.
const EVIDENCE: [&str; 10] = [
    "evidence",
    "source",
    "source_artifact",
    "source_commit",
    "source_path",
    "source_session",
    "source_bead",
    "source_epic",
    "proof_ref",
    "compiled_from",
];

/// The value of `generated_by` in the front matter of nodes written by runner.
pub const GENERATOR: &str = "runner";

/// Returns whether `generated_by` names a part of runner, such as `runner` or `runner curator`.
pub fn is_own(generated_by: &str) -> bool {
    generated_by.split_whitespace().next() == Some(GENERATOR)
}

/// One file of the corpus, with its parsed front matter.
#[derive(Clone, Debug)]
pub struct Node {
    /// The file's path, relative to `.agents`.
    pub path: String,
    pub kind: NodeKind,
    /// The id in the node's front matter, or the stem of its file name.
    pub id: String,
    pub title: String,
    /// The complete content of the file.
    pub text: String,
    /// Digest of the complete file.
    pub digest: Digest,
    pub maturity: Maturity,
    /// The status in the node's front matter, in lower case; empty if there is none.
    pub status: String,
    /// The utility from the front matter. Callers clamp it to the range from 0 to 1.
    pub utility: Option<f64>,
    pub date: Option<Date>,
    pub last_cited: Option<Date>,
    /// Number of days after which the node is stale, if its front matter specifies one.
    pub ttl_days: Option<i64>,
    /// The subjects in lower case: tags, scope tags and category.
    pub subjects: BTreeSet<String>,
    /// Number of times the node helped.
    pub helpful: u64,
    /// Number of times the node misled its users.
    pub harmful: u64,
    /// The id of the better node that replaces this one.
    pub superseded_by: Option<String>,
    /// True if runner wrote the node.
    pub generated: bool,
    /// True if the front matter names a source.
    pub sourced: bool,
}

impl Node {
    /// Parses a node from the content of its file. `path` is relative to `.agents`.
    pub fn parse(path: &str, kind: NodeKind, text: String) -> Self {
        let doc = front_matter::split(&text);
        let stem = stem_of(path);
        let word = |key: &str| doc.get(key).map(|value| value.trim().to_lowercase());
        let count = |key: &str| doc.get(key).and_then(|value| value.parse().ok()).unwrap_or(0);
        let maturity = match word("maturity").as_deref() {
            Some("provisional" | "pending" | "draft") => Maturity::Provisional,
            Some("candidate" | "promoted") => Maturity::Candidate,
            Some("established" | "validated" | "canonical") => Maturity::Established,
            _ => Maturity::Unknown,
        };
        let mut subjects: BTreeSet<String> =
            ["tags", "scope_tags"].iter().flat_map(|key| edit::list(&doc, key)).collect();
        subjects.extend(doc.get("category").map(str::to_owned));
        let subjects = subjects
            .into_iter()
            .map(|it| it.trim().to_lowercase())
            .filter(|it| !it.is_empty())
            .collect();
        let keys = edit::keys(&doc);
        Self {
            id: doc.get("id").map_or_else(|| stem.to_owned(), str::to_owned),
            title: title_of(&text, stem),
            maturity,
            status: word("status").unwrap_or_default(),
            utility: doc.get("utility").and_then(|value| value.parse().ok()),
            date: ["date", "created_at", "created", "timestamp"]
                .iter()
                .find_map(|key| day(doc.get(key)?)),
            last_cited: doc.get("last_cited").and_then(day),
            ttl_days: doc.get("ttl_days").and_then(|value| value.parse().ok()),
            subjects,
            helpful: count("helpful_count") + count("reward_count") + count("hit_count"),
            harmful: count("harmful_count"),
            superseded_by: doc.get("superseded_by").map(str::to_owned),
            generated: word("generated_by").is_some_and(|by| is_own(&by)),
            sourced: keys.iter().any(|key| EVIDENCE.contains(key)),
            digest: Digest::of(text.as_bytes()),
            path: path.to_owned(),
            kind,
            text,
        }
    }

    /// Returns whether the node is neither superseded nor set aside.
    pub fn is_active(&self) -> bool {
        self.superseded_by.is_none()
            && !matches!(
                self.status.as_str(),
                "superseded" | "stale" | "archived" | "deprecated" | "retired" | "rejected"
            )
    }

    /// Returns the text after the front matter.
    pub fn body(&self) -> &str {
        front_matter::split(&self.text).body()
    }

    /// Returns the value of `key` in the front matter, or `None` if the key is missing.
    pub fn value(&self, key: &str) -> Option<&str> {
        front_matter::split(&self.text).get(key)
    }

    /// Returns the last day before the node becomes stale, or `None` if it never does, for example
    /// because its maturity is unknown. A citation, or a use on the day `used`, postpones that day.
    pub fn stale_after(&self, used: Option<Date>) -> Option<Date> {
        let days = match (self.maturity, self.ttl_days) {
            (Maturity::Unknown, _) | (Maturity::Established, None) => None,
            (_, Some(days)) => Some(days),
            (Maturity::Candidate, None) => Some(365),
            (Maturity::Provisional, None) => Some(180),
        }?;
        let from = self.date.max(self.last_cited).max(used)?;
        let span = jiff::Span::new().try_days(days).ok()?;
        from.checked_add(span).ok()
    }

    /// Returns the share of the expected metadata that the node has, from 0 to 1.
    pub fn completeness(&self) -> f64 {
        let has = [
            !self.title.is_empty(),
            self.date.is_some(),
            self.maturity != Maturity::Unknown,
            self.utility.is_some() || self.value("confidence").is_some(),
            !self.subjects.is_empty() || self.value("type").is_some(),
            self.sourced,
        ];
        has.iter().filter(|it| **it).count() as f64 / has.len() as f64
    }

    /// Returns the key used to sort equivalent nodes, the first of which is kept. Nodes with a
    /// higher maturity come first, then those with a higher utility, those that runner did not
    /// write, older nodes, and those whose path sorts first.
    pub fn standing(&self) -> impl Ord + use<> {
        let useful = (self.utility.unwrap_or(0.0).clamp(0.0, 1.0) * 1000.0) as i64;
        (
            std::cmp::Reverse(self.maturity),
            std::cmp::Reverse(useful),
            self.generated,
            self.date.unwrap_or(Date::MAX),
            self.path.clone(),
        )
    }
}

/// Returns the file name of a path without its `.md` extension.
pub fn stem_of(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.strip_suffix(".md").unwrap_or(name)
}

/// Returns the title without a prefix such as `Learning:`.
fn title_of(text: &str, stem: &str) -> String {
    let title = markdown::title(text, stem);
    for kind in ["Learning:", "Finding:", "Pattern:"] {
        if let Some(rest) = title.strip_prefix(kind) {
            return rest.trim().to_owned();
        }
    }
    title
}

/// Parses the civil date at the beginning of a string, or returns `None` if there is none.
pub fn day(text: &str) -> Option<Date> {
    text.get(..10)?.parse().ok()
}
