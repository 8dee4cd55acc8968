//! Nodes, their types and tiers, and the edges between them.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::VariantNames as _;

use crate::MemoryError;

/// Maximum length in bytes of content that is stored without a warning.
pub const RECOMMENDED: usize = 50_000;
/// Length of a node's preview in characters.
const PREVIEW: usize = 100;

/// The type of a node.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    JsonSchema,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantNames,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum NodeType {
    Fact,
    Decision,
    Pattern,
    Observation,
    Hypothesis,
    Task,
    Summary,
    Source,
    OpenQuestion,
}

/// The type of an edge.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantNames,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE", ascii_case_insensitive)]
pub enum EdgeType {
    DerivedFrom,
    DependsOn,
    Supersedes,
    RelatesTo,
    ChildOf,
}

/// The tier of a node: a tag that begins with `tier:`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::EnumString, strum::IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Tier {
    Pinned,
    Reference,
    Working,
    OffContext,
}

macro_rules! names {
    ($($name:ident, $what:literal;)+) => {$(
        impl $name {
            pub fn as_str(self) -> &'static str {
                self.into()
            }

            /// Parses a name written by a user or a model.
            ///
            /// # Errors
            /// Returns an error that lists the valid names.
            pub fn parse(text: &str) -> Result<Self, MemoryError> {
                Self::from_str(text.trim()).map_err(|_| {
                    let names = Self::VARIANTS.join(", ");
                    MemoryError::Invalid(format!("{text:?} is not {}; valid values: {names}", $what))
                })
            }
        }
    )+};
}
names! { NodeType, "a node type"; EdgeType, "an edge type"; }

impl Tier {
    /// Returns the tag of the tier.
    pub fn tag(self) -> String {
        let name: &'static str = self.into();
        format!("tier:{name}")
    }

    /// Returns the tier named by a tag, or `None` for any other tag.
    pub fn of_tag(tag: &str) -> Option<Self> {
        tag.strip_prefix("tier:")?.parse().ok()
    }

    /// Returns the highest tier among these tags, if there is one.
    pub fn of(tags: &[String]) -> Option<Self> {
        tags.iter().filter_map(|tag| Self::of_tag(tag)).min()
    }
}

/// The nodes that a command or a hook may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The nodes of one project, and those without a project.
    Project(String),
    /// Only the nodes without a project.
    Global,
    /// The nodes of all projects.
    All,
}

impl Scope {
    /// Returns the project of a node that is created in this scope, or `None` if the node is common
    /// to all projects.
    pub fn project(&self) -> Option<&str> {
        match self {
            Self::Project(id) => Some(id),
            Self::Global | Self::All => None,
        }
    }

    /// Returns whether a node is in this scope.
    pub fn sees(&self, node: &Node) -> bool {
        match self {
            Self::All => true,
            Self::Global => node.project.is_none(),
            Self::Project(id) => node.project.as_ref().is_none_or(|project| project == id),
        }
    }
}

/// A stored node.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Node {
    /// The ULID.
    pub id: String,
    #[serde(rename = "type")]
    pub kind: NodeType,
    pub content: String,
    pub summary: Option<String>,
    /// The length of the content in bytes, divided by 4.
    pub token_estimate: i64,
    /// The id of the node that replaces this one.
    pub superseded_by: Option<String>,
    /// The id of the project, or `None` for a node common to all projects.
    pub project: Option<String>,
    /// The creation time in RFC 3339 format.
    pub created_at: String,
    pub updated_at: String,
    /// A JSON object.
    pub metadata: String,
    /// The tags, sorted.
    #[serde(default)]
    pub tags: Vec<String>,
}

/// A node to create.
#[derive(Clone, Debug, Default)]
pub struct NewNode {
    pub kind: Option<NodeType>,
    pub content: String,
    pub summary: Option<String>,
    pub tags: Vec<String>,
    /// The project, or `None` for a node common to all projects.
    pub project: Option<String>,
    /// The session that the node came from.
    pub session: Option<String>,
    /// Where the content came from, such as "import CLAUDE.md". A value that begins with `tool` or
    /// `web`, in any case, marks content that an untrusted party may have written.
    pub origin: Option<String>,
}

impl Node {
    /// Returns the first 100 characters on one line, with "..." in place of the rest.
    pub fn preview(&self) -> String {
        preview(&self.content)
    }

    /// Returns the mark for a node whose content comes from a tool or a web page, or an empty string.
    pub(crate) fn source_mark(&self) -> &'static str {
        if self.is_by_stranger() { " (from an untrusted source)" } else { "" }
    }

    /// Returns whether an untrusted party may have written the content, because it comes from a
    /// tool or a web page.
    pub fn is_by_stranger(&self) -> bool {
        let origin = self.meta("origin").unwrap_or_default().to_ascii_lowercase();
        origin.starts_with("tool") || origin.starts_with("web")
    }

    pub fn tier(&self) -> Option<Tier> {
        Tier::of(&self.tags)
    }

    /// Returns the metadata value of a key, if it is a string.
    pub fn meta(&self, key: &str) -> Option<String> {
        let fields: serde_json::Value = serde_json::from_str(&self.metadata).ok()?;
        fields.get(key)?.as_str().map(str::to_owned)
    }
}

/// Returns the first 100 characters of a string on one line, with "..." in place of the rest.
pub fn preview(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    cut(&line, PREVIEW)
}

/// Returns the first characters of a string, with "..." in place of the rest.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

/// Returns the estimated number of tokens in a string.
pub fn token_estimate(text: &str) -> i64 {
    (text.len() / 4) as i64
}
