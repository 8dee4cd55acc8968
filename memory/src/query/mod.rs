//! The query language: selects nodes by type, tags, text, time, size and edges.
//!
//! ```text
//! type:fact AND (tag:auth OR text:"refresh token") NOT has:superseded
//! ```
//!
//! `NOT` binds most tightly, then `AND`, then `OR`. Adjacent terms are joined by `AND`. A word
//! without a field is searched for in the text. A query can never inject SQL, because its values
//! are passed as parameters.

mod parse;
mod select;

pub use parse::parse;
pub(crate) use select::phrase;
pub use select::{Selection, Superseded};

/// A parsed query.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// Every node.
    All,
    Term(Term),
    Not(Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
}

/// One condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Term {
    Type(crate::NodeType),
    /// The complete tag, or its part after the last colon.
    Tag(String),
    /// A word without a field and without quotation marks.
    Word(String),
    /// A phrase in the text.
    Text(String),
    /// A prefix of the id.
    Id(String),
    /// The creation or modification time, compared with another time.
    Time(TimeField, Compare, TimeValue),
    /// The token estimate, compared with a number.
    Tokens(Compare, i64),
    /// A prefix of the project's id, or `None` for nodes without a project.
    Project(Option<String>),
    Has(Has),
    /// The nodes to which a node whose id has this prefix has an edge.
    From(String),
    /// The nodes that have an edge to a node whose id has this prefix.
    To(String),
}

/// One of a node's timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeField {
    Created,
    Updated,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
}

/// A time in a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TimeValue {
    /// A day in UTC.
    Day(jiff::civil::Date),
    At(jiff::Timestamp),
    /// This long before now.
    Ago(jiff::SignedDuration),
}

/// An attribute that a node may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Has {
    Summary,
    Tags,
    Tier,
    Edges,
    Project,
    Superseded,
}

impl Expr {
    /// Returns the words of a query, in order, if it consists only of words without a field and
    /// without quotation marks.
    pub fn words(&self) -> Option<Vec<&str>> {
        match self {
            Self::Term(Term::Word(word)) => Some(vec![word]),
            Self::And(parts) => {
                let parts: Option<Vec<Vec<&str>>> = parts.iter().map(Self::words).collect();
                parts.map(|parts| parts.concat())
            }
            _ => None,
        }
    }

    /// Returns whether the query contains `has:superseded`.
    pub(crate) fn asks_for_superseded(&self) -> bool {
        match self {
            Self::Term(term) => *term == Term::Has(Has::Superseded),
            Self::Not(inner) => inner.asks_for_superseded(),
            Self::And(parts) | Self::Or(parts) => parts.iter().any(Self::asks_for_superseded),
            Self::All => false,
        }
    }
}
