//! The errors of the memory store.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Maximum number of characters of a query to show before a syntax error, and after it.
const AROUND: usize = 40;

/// The result of a store operation.
pub type Result<T> = std::result::Result<T, MemoryError>;

/// An error from a store operation.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The file is damaged or is not a database.
    #[error("the memory store {path} is damaged: {why}")]
    Damaged { path: PathBuf, why: String },
    /// Another process has held the lock for longer than the time limit.
    #[error("the memory store {path} is in use by another process")]
    Busy { path: PathBuf },
    /// A newer version of runner wrote the file.
    #[error("the memory store {path} has schema version {found}, and this runner supports {known}")]
    Newer { path: PathBuf, found: i64, known: i64 },
    /// Another program's store is at this path.
    #[error("{path} belongs to another program and is never changed")]
    Foreign { path: PathBuf },
    /// The file or its folder cannot be created, read or written.
    #[error("cannot use the memory store {path}: {why}")]
    Unusable { path: PathBuf, why: String },
    /// No node or view has this name.
    #[error("there is no {what} {name:?}")]
    NotFound { what: &'static str, name: String },
    /// Several nodes have ids that begin with this prefix.
    #[error("{prefix:?} is ambiguous: {}", .candidates.join(", "))]
    Ambiguous { prefix: String, candidates: Vec<String> },
    /// A query has a syntax error. `column` is a position in characters, from 1.
    #[error("column {column}: {why}\n{}", marked(.query, *.column))]
    Syntax { query: String, column: usize, why: String },
    /// An argument is invalid.
    #[error("{0}")]
    Invalid(String),
    /// A statement failed for another reason, which indicates a bug in runner.
    #[error("the memory store {path}: {source}")]
    Sql { path: PathBuf, source: rusqlite::Error },
}

impl MemoryError {
    /// Returns whether the error is in the request rather than in the store.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::NotFound { .. } | Self::Ambiguous { .. } | Self::Syntax { .. } | Self::Invalid(_)
        )
    }

    /// Classifies an SQLite error.
    pub(crate) fn of(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        let why = source.to_string();
        match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Damaged { path, why }
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy { path },
            Some(
                ErrorCode::CannotOpen
                | ErrorCode::ReadOnly
                | ErrorCode::DiskFull
                | ErrorCode::PermissionDenied
                | ErrorCode::SystemIoFailure,
            ) => Self::Unusable { path, why },
            _ => Self::Sql { path, source },
        }
    }
}

/// Returns the part of a query around a column, and a line that marks the column. "..." replaces
/// the rest of the query.
fn marked(query: &str, column: usize) -> String {
    let first = (column - 1).saturating_sub(AROUND);
    let before = if first > 0 { "..." } else { "" };
    let part: String = query.chars().skip(first).take(2 * AROUND).collect();
    let after = if query.chars().nth(first + 2 * AROUND).is_some() { "..." } else { "" };
    let mark = " ".repeat(before.len() + column - 1 - first);
    format!("  {before}{part}{after}\n  {mark}^")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_queries_are_cut() {
        let shown = |query: &str, column| {
            let why = "why".to_owned();
            MemoryError::Syntax { query: query.to_owned(), column, why }.to_string()
        };
        assert_eq!(shown("a )", 3), "column 3: why\n  a )\n    ^");
        let (a, b) = ("ä".repeat(5000), "b".repeat(5000));
        let middle = shown(&format!("{a}){b}"), 5001);
        let (left, right) = ("ä".repeat(40), "b".repeat(39));
        let mark = " ".repeat(43);
        assert_eq!(middle, format!("column 5001: why\n  ...{left}){right}...\n  {mark}^"));
        assert_eq!(shown(&a, 5001), format!("column 5001: why\n  ...{left}\n  {mark}^"));
    }
}
