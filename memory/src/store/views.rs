//! Views: named queries with a budget.

use runner_text::redact::Redacted;
use rusqlite::Row;
use serde::{Deserialize, Serialize};

use super::{Change, Memory};
use crate::error::{MemoryError, Result};

/// The query of the default view.
pub const DEFAULT_VIEW: &str = "tag:tier:pinned OR tag:tier:reference OR tag:tier:working";
/// The default token budget of a composition.
pub const DEFAULT_BUDGET: i64 = 50_000;

/// A named query with a budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    pub name: String,
    pub query: String,
    /// Maximum sum of the nodes' token estimates.
    pub budget: i64,
    pub created_at: String,
    pub updated_at: String,
}

fn view_of(row: &Row<'_>) -> rusqlite::Result<View> {
    Ok(View {
        name: row.get(0)?,
        query: row.get(1)?,
        budget: row.get(2)?,
        created_at: row.get(3)?,
        updated_at: row.get(4)?,
    })
}

impl Memory {
    /// Returns all views, ordered by name.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn views(&self) -> Result<Vec<View>> {
        self.read(|db| {
            let mut statement = db.prepare("SELECT * FROM views ORDER BY name")?;
            statement.query_map([], view_of)?.collect()
        })
    }

    /// Returns the view with this name.
    ///
    /// # Errors
    /// Returns an error if there is no such view.
    pub fn view(&self, name: &str) -> Result<View> {
        let found = self.views()?.into_iter().find(|view| view.name == name);
        found.ok_or_else(|| MemoryError::NotFound { what: "view", name: name.to_owned() })
    }
}

/// Checks the name of a view.
///
/// # Errors
/// Returns an error if the name is empty or contains white space or a control character.
pub(crate) fn valid_view_name(name: &str) -> Result<()> {
    match name.is_empty() || name.chars().any(|c| c.is_control() || c.is_whitespace()) {
        true => Err(MemoryError::Invalid(format!("{name:?} is not a valid view name"))),
        false => Ok(()),
    }
}

impl Change<'_> {
    /// Creates a view.
    ///
    /// # Errors
    /// Returns an error if the name is taken or invalid, or if the query has a syntax error.
    pub fn create_view(&mut self, name: &str, query: &str, budget: i64) -> Result<()> {
        crate::query::parse(query)?;
        let name = name.trim();
        valid_view_name(name)?;
        let (name, query) = (&*Redacted::of(name), &*Redacted::of(query));
        self.begin()?;
        let sql = "INSERT OR IGNORE INTO views VALUES (?1, ?2, ?3, ?4, ?4)";
        match self.sql(|tx| tx.execute(sql, (name, query, budget.max(0), &self.at)))? {
            0 => Err(MemoryError::Invalid(format!("there is already a view {name:?}"))),
            _ => Ok(()),
        }
    }

    /// Changes the query or the budget of a view.
    ///
    /// # Errors
    /// Returns an error if there is no such view, or if the query has a syntax error.
    pub fn update_view(
        &mut self,
        name: &str,
        query: Option<&str>,
        budget: Option<i64>,
    ) -> Result<()> {
        query.map(crate::query::parse).transpose()?;
        self.begin()?;
        let budget = budget.map(|budget| budget.max(0));
        let query = query.map(|query| Redacted::of(query).into_string());
        let sql = "UPDATE views SET query = coalesce(?2, query), budget = coalesce(?3, budget), \
            updated_at = ?4 WHERE name = ?1";
        match self.sql(|tx| tx.execute(sql, (name, query, budget, &self.at)))? {
            0 => Err(MemoryError::NotFound { what: "view", name: name.to_owned() }),
            _ => Ok(()),
        }
    }

    /// Deletes a view.
    ///
    /// # Errors
    /// Returns an error if there is no such view, or if it is the default view.
    pub fn delete_view(&mut self, name: &str) -> Result<()> {
        if name == "default" {
            return Err(MemoryError::Invalid("the default view cannot be deleted".to_owned()));
        }
        self.begin()?;
        match self.sql(|tx| tx.execute("DELETE FROM views WHERE name = ?1", [name]))? {
            0 => Err(MemoryError::NotFound { what: "view", name: name.to_owned() }),
            _ => Ok(()),
        }
    }
}
