//! Selects nodes: translates a query to SQL and passes its values as parameters.

use jiff::{Timestamp, tz::TimeZone};
use rusqlite::params_from_iter;
use rusqlite::types::Value;

use super::{Compare, Expr, Has, Term, TimeField, TimeValue};
use crate::error::Result;
use crate::node::{Node, Scope};
use crate::store::{Reader, select_nodes};

/// A query with its scope and limits.
#[derive(Clone, Debug)]
pub struct Selection<'q> {
    pub query: &'q Expr,
    pub scope: &'q Scope,
    /// Whether replaced nodes are included even if the query does not contain `has:superseded`.
    pub superseded: Superseded,
    /// Maximum number of nodes, or `None` for all.
    pub limit: Option<usize>,
    pub now: Timestamp,
}

/// How to treat replaced nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Superseded {
    Omit,
    Include,
}

/// A condition in SQL with the values for its placeholders.
#[derive(Default)]
struct Condition {
    sql: String,
    values: Vec<Value>,
}

impl Selection<'_> {
    /// Returns the selected nodes, ordered by tier, type and id, and the total number of matching
    /// nodes.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn run(&self, memory: Reader<'_>) -> Result<(Vec<Node>, usize)> {
        let mut condition = Condition::default();
        condition.add(self.query, self.now);
        if self.superseded == Superseded::Omit && !self.query.asks_for_superseded() {
            condition.sql.push_str(" AND n.superseded_by IS NULL");
        }
        match self.scope {
            Scope::All => {}
            Scope::Global => condition.sql.push_str(" AND n.project IS NULL"),
            Scope::Project(id) => {
                condition.sql.push_str(" AND (n.project IS NULL OR n.project = ?)");
                condition.values.push(Value::Text(id.clone()));
            }
        }
        let from =
            format!("FROM nodes n JOIN node_index i ON i.node_id = n.id WHERE {}", condition.sql);
        let count: i64 = memory.read(|db| {
            let sql = format!("SELECT count(*) {from}");
            db.query_row(&sql, params_from_iter(&condition.values), |row| row.get(0))
        })?;
        let order = "ORDER BY coalesce(i.tier, 9), n.type, n.id";
        let limit = self.limit.map_or(-1, |limit| limit as i64);
        let rest = format!("{from} {order} LIMIT {limit}");
        let nodes =
            memory.read(|db| select_nodes(db, &rest, params_from_iter(&condition.values)))?;
        Ok((nodes, usize::try_from(count).unwrap_or(0)))
    }
}

impl Condition {
    fn bind(&mut self, sql: &str, value: impl Into<Value>) {
        self.sql.push_str(sql);
        self.values.push(value.into());
    }

    fn add(&mut self, expr: &Expr, now: Timestamp) {
        match expr {
            Expr::All => self.sql.push('1'),
            Expr::Term(term) => self.term(term, now),
            Expr::Not(inner) => {
                self.sql.push_str("NOT (");
                self.add(inner, now);
                self.sql.push(')');
            }
            Expr::And(parts) => self.join(parts, " AND ", now),
            Expr::Or(parts) => self.join(parts, " OR ", now),
        }
    }

    fn join(&mut self, parts: &[Expr], with: &str, now: Timestamp) {
        self.sql.push('(');
        for (at, part) in parts.iter().enumerate() {
            if at > 0 {
                self.sql.push_str(with);
            }
            self.add(part, now);
        }
        self.sql.push(')');
    }

    fn term(&mut self, term: &Term, now: Timestamp) {
        match term {
            Term::Type(kind) => self.bind("n.type = ?", kind.as_str().to_owned()),
            Term::Tag(tag) => {
                self.bind("n.id IN (SELECT node_id FROM tags WHERE tag = ?", tag.clone());
                if !tag.contains(':') {
                    let sql = " UNION ALL SELECT node_id FROM tags WHERE tag LIKE ? ESCAPE '\\'";
                    self.bind(sql, format!("%:{}", escaped(tag)));
                }
                self.sql.push(')');
            }
            Term::Word(text) | Term::Text(text) => {
                let sql = "i.seq IN (SELECT rowid FROM search WHERE search MATCH ?)";
                self.bind(sql, phrase(text));
            }
            Term::Id(prefix) => {
                self.bind("n.id LIKE ? ESCAPE '\\'", format!("{}%", escaped(prefix)));
            }
            Term::Time(field, how, value) => self.time(*field, *how, *value, now),
            Term::Tokens(how, number) => {
                self.bind(&format!("n.token_estimate {} ?", sign(*how)), *number);
            }
            Term::Project(None) => self.sql.push_str("n.project IS NULL"),
            Term::Project(Some(id)) => {
                let sql = "coalesce(n.project LIKE ? ESCAPE '\\', 0)";
                self.bind(sql, format!("{}%", escaped(id)));
            }
            Term::Has(has) => self.sql.push_str(match has {
                Has::Summary => "n.summary IS NOT NULL",
                Has::Tags => "EXISTS (SELECT 1 FROM tags WHERE node_id = n.id)",
                Has::Tier => {
                    "EXISTS (SELECT 1 FROM tags WHERE node_id = n.id AND tag LIKE 'tier:%')"
                }
                Has::Edges => "EXISTS (SELECT 1 FROM edges WHERE from_id = n.id OR to_id = n.id)",
                Has::Project => "n.project IS NOT NULL",
                Has::Superseded => "n.superseded_by IS NOT NULL",
            }),
            Term::From(id) => {
                let sql = "n.id IN (SELECT to_id FROM edges WHERE from_id LIKE ? ESCAPE '\\')";
                self.bind(sql, format!("{}%", escaped(id)));
            }
            Term::To(id) => {
                let sql = "n.id IN (SELECT from_id FROM edges WHERE to_id LIKE ? ESCAPE '\\')";
                self.bind(sql, format!("{}%", escaped(id)));
            }
        }
    }

    /// Adds a condition on a timestamp. A day means the complete day in UTC.
    fn time(&mut self, field: TimeField, how: Compare, value: TimeValue, now: Timestamp) {
        let column = match field {
            TimeField::Created => "julianday(n.created_at)",
            TimeField::Updated => "julianday(n.updated_at)",
        };
        let (first, after) = match value {
            TimeValue::At(at) => (at, at),
            TimeValue::Ago(span) => {
                let at = now.checked_sub(span).unwrap_or(Timestamp::MIN);
                (at, at)
            }
            TimeValue::Day(day) => {
                let start = |day: jiff::civil::Date| {
                    day.to_zoned(TimeZone::UTC).map_or(Timestamp::MAX, |at| at.timestamp())
                };
                (start(day), day.tomorrow().map_or(Timestamp::MAX, start))
            }
        };
        let is_day = matches!(value, TimeValue::Day(_));
        let (sign, at) = match how {
            Compare::Less => ("<", first),
            Compare::GreaterOrEqual => (">=", first),
            Compare::LessOrEqual => (if is_day { "<" } else { "<=" }, after),
            Compare::Greater => (if is_day { ">=" } else { ">" }, after),
            Compare::Equal if is_day => {
                self.bind(&format!("({column} >= julianday(?)"), first.to_string());
                self.bind(&format!(" AND {column} < julianday(?))"), after.to_string());
                return;
            }
            Compare::Equal => ("=", first),
        };
        self.bind(&format!("{column} {sign} julianday(?)"), at.to_string());
    }
}

fn sign(how: Compare) -> &'static str {
    match how {
        Compare::Less => "<",
        Compare::LessOrEqual => "<=",
        Compare::Equal => "=",
        Compare::GreaterOrEqual => ">=",
        Compare::Greater => ">",
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_")
}

/// Returns text as an FTS5 phrase, in which nothing is an operator.
pub(crate) fn phrase(text: &str) -> String {
    format!("\"{}\"", text.replace(['"', '\0'], " "))
}
