//! Converts column values and runs queries.
//!
//! Each type has the same form in all tables: ids are text or numbers, times are milliseconds,
//! states are names, and structures are JSON. An error about an invalid value names the column and,
//! where possible, the row.

use jiff::Timestamp;
use runner_text::redact::Redacted;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, Error, Params, Row};
use serde::de::DeserializeOwned;

use super::{Fault, JobId, MessageState, NightId, Origin};
use crate::alerts::AlertKind;
use crate::ids::{AlertId, Fence, MessageId, OccurrenceId, ProjectId, RunId};

/// Runs statements on a connection, which caches the prepared statements.
pub(super) trait Query {
    /// Returns the connection on which the statements run.
    fn connection(&self) -> &Connection;

    /// Runs a statement that changes rows, and returns the number of changed rows.
    fn change(&self, sql: &str, params: impl Params) -> Result<usize, Fault> {
        Ok(self.connection().prepare_cached(sql)?.execute(params)?)
    }

    /// Returns all rows of a query.
    fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        mut map: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Fault> {
        let mut statement = self.connection().prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(map(row).map_err(|error| of_row(row, error))?);
        }
        Ok(found)
    }

    /// Returns the first row of a query, if there is one.
    fn first<T>(
        &self,
        sql: &str,
        params: impl Params,
        map: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, Fault> {
        let mut statement = self.connection().prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        let Some(row) = rows.next()? else { return Ok(None) };
        map(row).map(Some).map_err(|error| of_row(row, error))
    }

    /// Returns the first column of the first row, which must exist.
    fn value<T: FromSql>(&self, sql: &str, params: impl Params) -> Result<T, Fault> {
        let found = self.first(sql, params, |row| row.get(0))?;
        found.ok_or(Fault::Sql(Error::QueryReturnedNoRows))
    }

    /// Returns the first column of all rows.
    fn values<T: FromSql>(&self, sql: &str, params: impl Params) -> Result<Vec<T>, Fault> {
        self.all(sql, params, |row| row.get(0))
    }

    /// Returns whether the query returns at least one row.
    fn exists(&self, sql: &str, params: impl Params) -> Result<bool, Fault> {
        Ok(self.first(sql, params, |_| Ok(()))?.is_some())
    }
}

impl Query for Connection {
    fn connection(&self) -> &Connection {
        self
    }
}

/// Adds the column and the row to an error about a value.
fn of_row(row: &Row<'_>, error: Error) -> Fault {
    let (at, why) = match error {
        Error::FromSqlConversionFailure(at, _, why) => (at, why.to_string()),
        Error::InvalidColumnType(at, _, found) => (at, format!("it is of type {found}")),
        Error::IntegralValueOutOfRange(at, value) => (at, format!("{value} is out of range")),
        other => return Fault::Sql(other),
    };
    let columns = row.as_ref().columns_with_metadata();
    let name = |at: usize| match columns.get(at).map(|it| (it.table_name(), it.origin_name())) {
        Some((Some(table), Some(column))) => format!("{table}.{column}"),
        _ => row.as_ref().column_name(at).unwrap_or("a value").to_owned(),
    };
    let key = match row.get_ref(0) {
        Ok(ValueRef::Text(key)) if at > 0 => String::from_utf8_lossy(key).into_owned(),
        Ok(ValueRef::Integer(key)) if at > 0 => key.to_string(),
        _ => return Fault::Nonsense(format!("{}: {why}", name(at))),
    };
    Fault::Nonsense(format!("{} in the row whose {} is {key}: {why}", name(at), name(0)))
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> FromSqlError {
    FromSqlError::Other(why.into())
}

/// Converts a time to milliseconds since the Unix epoch, the form in which the tables store times.
pub(super) fn millis(at: Timestamp) -> i64 {
    at.as_millisecond()
}

/// A column containing milliseconds since the Unix epoch.
pub(super) struct Millis(pub Timestamp);

impl FromSql for Millis {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Timestamp::from_millisecond(value.as_i64()?).map(Self).map_err(invalid)
    }
}

/// Reads a time column.
pub(super) fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    row.get(column).map(|Millis(at)| at)
}

/// Reads a nullable time column.
pub(super) fn time_opt(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<Millis>>(column)?.map(|Millis(at)| at))
}

/// A JSON column.
pub(super) struct Json<T>(pub T);

impl<T: DeserializeOwned> FromSql for Json<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let text = value.as_str()?;
        let parsed = serde_json::from_str(text);
        parsed.map(Self).map_err(|error| invalid(format!("{error} in {text:?}")))
    }
}

/// Reads a JSON column.
pub(super) fn json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    row.get(column).map(|Json(value)| value)
}

/// Reads a nullable JSON column.
pub(super) fn json_opt<T: DeserializeOwned>(
    row: &Row<'_>,
    column: usize,
) -> rusqlite::Result<Option<T>> {
    Ok(row.get::<_, Option<Json<T>>>(column)?.map(|Json(value)| value))
}

/// Converts a value to JSON for a column.
pub(super) fn to_json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("the database's types use only strings as map keys")
}

/// Redacted free text for a column.
pub(super) struct FreeText(Redacted);

/// Redacts free text for a column.
pub(super) fn free(text: &str) -> FreeText {
    FreeText(Redacted::of(text))
}

/// Converts a value that contains free text to redacted JSON for a column.
pub(super) fn free_json<T: serde::Serialize>(value: &T) -> FreeText {
    FreeText(Redacted::json(value).expect("the database's types use only strings as map keys"))
}

impl ToSql for FreeText {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok((*self.0).into())
    }
}

/// A column containing a count or an amount. A negative value is an error, because reading it as 0
/// would release budget that has been used.
pub(super) struct Count(pub u64);

impl FromSql for Count {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let value = value.as_i64()?;
        u64::try_from(value).map(Self).map_err(|_| FromSqlError::OutOfRange(value))
    }
}

/// Implements the conversions for ids that are stored as text.
macro_rules! text_ids {
    ($($name:ident)*) => {$(
        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                value.as_str()?.parse().map_err(invalid)
            }
        }

        impl ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                Ok(self.as_str().into())
            }
        }
    )*};
}
text_ids!(ProjectId OccurrenceId RunId AlertId MessageId);

/// Implements the conversions for ids that are stored as numbers.
macro_rules! number_ids {
    ($($name:ident)*) => {$(
        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                value.as_i64().map(Self)
            }
        }

        impl ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                Ok(self.0.into())
            }
        }
    )*};
}
number_ids!(JobId NightId Fence);

/// Implements the conversions for enums that are stored as names.
macro_rules! names {
    ($($name:ident)*) => {$(
        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                let name = value.as_str()?;
                name.parse().map_err(|_| invalid(format!("the name {name:?} is unknown")))
            }
        }

        impl ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                Ok(self.into_str().into())
            }
        }
    )*};
}
names!(AlertKind MessageState Origin);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_counts_are_refused() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE uses (id INTEGER, calls INTEGER)").unwrap();
        let calls = |amount: i64| {
            db.execute("INSERT INTO uses VALUES (7, ?1)", [amount]).unwrap();
            let sql = "SELECT id, calls FROM uses ORDER BY rowid DESC LIMIT 1";
            db.first(sql, [], |row| row.get(1).map(|Count(calls)| calls))
        };
        assert_eq!(calls(0).ok(), Some(Some(0)));
        assert_eq!(calls(i64::MAX).ok(), Some(Some(i64::MAX.cast_unsigned())));
        let Err(Fault::Nonsense(why)) = calls(-1) else { panic!("a negative count was accepted") };
        assert_eq!(why, "uses.calls in the row whose uses.id is 7: -1 is out of range");
    }
}
