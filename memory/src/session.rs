//! The state of each session: its cursor, the nodes that it has received, and the values that are
//! stored for its next prompt.
//!
//! A session must never use another session's results or cursor.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{OptionalExtension as _, Row, params};

use crate::apply::key;
use crate::error::Result;
use crate::store::{Change, Memory, Reader};

/// Maximum number of a folder's most recent sessions to consider when a new session continues one.
const EARLIER: i64 = 50;
/// Maximum difference between the recorded time of a session's last answer and the time calculated
/// from the host's report, in which fractions of a second are ignored.
const NEAR: SignedDuration = SignedDuration::from_secs(5);
/// How long a session's list of received nodes is kept after the session was last used.
const KEPT: SignedDuration = SignedDuration::from_hours(24 * 90);

/// A session known to the hooks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    pub id: String,
    /// The folder in which the session runs.
    pub folder: String,
    pub project: Option<String>,
    /// The byte offset of the transcript's row that began the last turn, or of the first row that
    /// was not read within the time limit.
    pub cursor: u64,
    /// A time in RFC 3339 format. The transcript's rows from before this time were copied from
    /// another session.
    pub since: Option<String>,
    /// The generation of the store that the session's context reflects.
    pub generation: Option<i64>,
    /// Number of transcript rows that were skipped.
    pub skipped: i64,
    pub answered_at: Option<String>,
}

const COLUMNS: &str = "session, folder, project, cursor, since, generation, skipped, answered_at";

fn session_of(row: &Row<'_>) -> rusqlite::Result<Session> {
    Ok(Session {
        id: row.get(0)?,
        folder: row.get(1)?,
        project: row.get(2)?,
        cursor: u64::try_from(row.get::<_, i64>(3)?).unwrap_or(0),
        since: row.get(4)?,
        generation: row.get(5)?,
        skipped: row.get(6)?,
        answered_at: row.get(7)?,
    })
}

impl Memory {
    pub fn session(&self, id: &str) -> Result<Option<Session>> {
        let sql = format!("SELECT {COLUMNS} FROM sessions WHERE session = ?1");
        self.read(|db| db.prepare_cached(&sql)?.query_row([id], session_of).optional())
    }

    /// Returns the most recently used session of a folder.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn newest_session(&self, folder: &str) -> Result<Option<Session>> {
        Ok(self.earlier_sessions(folder, "")?.into_iter().next())
    }

    /// Returns the session that a new session in the same folder continues: the one whose last
    /// answer is nearest to `answered`, if it is at most a few seconds away. If `answered` is
    /// `None`, returns the most recently used other session.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn parent_session(
        &self,
        folder: &str,
        own: &str,
        answered: Option<Timestamp>,
    ) -> Result<Option<Session>> {
        let earlier = self.earlier_sessions(folder, own)?;
        let Some(answered) = answered else { return Ok(earlier.into_iter().next()) };
        let distance = |session: &Session| {
            let at: Timestamp = session.answered_at.as_deref()?.parse().ok()?;
            Some(at.duration_since(answered).abs()).filter(|it| *it <= NEAR)
        };
        let near = earlier.into_iter().filter_map(|it| Some((distance(&it)?, it)));
        Ok(near.min_by_key(|(distance, _)| *distance).map(|(_, session)| session))
    }

    fn earlier_sessions(&self, folder: &str, except: &str) -> Result<Vec<Session>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM sessions WHERE folder = ?1 AND session <> ?2 \
             ORDER BY updated_at DESC, rowid DESC LIMIT ?3"
        );
        self.read(|db| {
            let mut statement = db.prepare_cached(&sql)?;
            statement.query_map(params![folder, except, EARLIER], session_of)?.collect()
        })
    }

    /// Returns the ids of the nodes that a session has received, complete or cut, and whose content
    /// has not changed since. Incomplete previews do not count.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn delivered(&self, session: &str) -> Result<Vec<String>> {
        self.read(|db| {
            let sql = "SELECT node_id FROM delivered WHERE session = ?1";
            db.prepare_cached(sql)?.query_map([session], |row| row.get(0))?.collect()
        })
    }
}

impl Reader<'_> {
    /// Returns a value that is stored for a session's next prompt.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn pending(self, session: &str, key: &str) -> Result<Option<String>> {
        let sql = "SELECT value FROM pending WHERE session = ?1 AND key = ?2";
        self.read(|db| {
            db.prepare_cached(sql)?.query_row((session, key), |row| row.get(0)).optional()
        })
    }
}

impl Change<'_> {
    /// Stores the state of a session.
    ///
    /// # Errors
    /// Returns an error if the store cannot be written.
    pub fn put_session(&mut self, it: &Session) -> Result<()> {
        let sql = "INSERT INTO sessions VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?9, ?8, ?9) \
            ON CONFLICT (session) DO UPDATE SET folder = ?2, project = ?3, cursor = ?4, since = ?5, \
            generation = ?6, skipped = ?7, answered_at = ?8, updated_at = ?9";
        let cursor = i64::try_from(it.cursor).unwrap_or(i64::MAX);
        self.sql(|tx| {
            tx.prepare_cached(sql)?.execute(params![
                it.id,
                it.folder,
                it.project,
                cursor,
                it.since,
                it.generation,
                it.skipped,
                it.answered_at,
                self.at
            ])
        })?;
        Ok(())
    }

    /// Returns a value that is stored for a session's next prompt.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn pending(&self, session: &str, key: &str) -> Result<Option<String>> {
        self.reader().pending(session, key)
    }

    /// Stores a value for a session's next prompt.
    ///
    /// # Errors
    /// Returns an error if the store cannot be written.
    pub fn set_pending(&mut self, session: &str, key: &str, value: &str) -> Result<()> {
        let sql = "INSERT OR REPLACE INTO pending VALUES (?1, ?2, ?3, ?4)";
        self.sql(|tx| tx.prepare_cached(sql)?.execute((session, key, value, &self.at))).map(drop)
    }

    /// Removes values that were stored for a session's next prompt.
    ///
    /// # Errors
    /// Returns an error if the store cannot be written.
    pub fn clear_pending(&mut self, session: &str, keys: &[&str]) -> Result<()> {
        let sql = "DELETE FROM pending WHERE session = ?1 AND key = ?2";
        self.sql(|tx| keys.iter().try_for_each(|key| tx.execute(sql, (session, key)).map(drop)))
    }

    /// Lets a session without a task continue another session's task.
    ///
    /// # Errors
    /// Returns an error if the store cannot be written.
    pub fn inherit_task(&mut self, from: &str, to: &str) -> Result<()> {
        match self.pending(from, key::TASK)? {
            Some(task) if self.pending(to, key::TASK)?.is_none() => {
                self.set_pending(to, key::TASK, &task)
            }
            _ => Ok(()),
        }
    }

    /// Records that a session has received nodes, complete or cut.
    ///
    /// # Errors
    /// Returns an error if the store cannot be written.
    pub fn deliver(&mut self, session: &str, ids: &[String]) -> Result<()> {
        let sql = "INSERT OR IGNORE INTO delivered VALUES (?1, ?2)";
        self.sql(|tx| {
            let mut statement = tx.prepare_cached(sql)?;
            ids.iter().try_for_each(|id| statement.execute((session, id)).map(drop))
        })
    }

    /// Replaces the list of nodes that a session has received with that of `from`, or clears it if
    /// `from` is `None`.
    ///
    /// # Errors
    /// Returns an error if the store cannot be written.
    pub fn reset_delivered(&mut self, session: &str, from: Option<&str>) -> Result<()> {
        self.sql(|tx| {
            tx.execute("DELETE FROM delivered WHERE session = ?1", [session])?;
            let sql = "INSERT INTO delivered SELECT ?1, node_id FROM delivered WHERE session = ?2";
            tx.execute(sql, params![session, from])
        })
        .map(drop)
    }

    /// Removes the lists of received nodes of all sessions that have not been used for [`KEPT`].
    /// Keeps the records of executed commands, because a resumed session must not repeat its
    /// commands.
    ///
    /// # Errors
    /// Returns an error if the store cannot be written.
    pub(crate) fn prune_sessions(&mut self) -> Result<()> {
        let before = self.now.checked_sub(KEPT).unwrap_or(Timestamp::MIN);
        let before = format!("{before:.6}");
        let sql = "DELETE FROM delivered WHERE session IN (
                   SELECT session FROM sessions WHERE updated_at < ?1)";
        self.sql(|tx| tx.execute(sql, [&before])).map(drop)
    }

    /// Records an effect of a turn. Returns whether the effect is new. If so, the caller must
    /// execute it.
    ///
    /// # Errors
    /// Returns an error if the store cannot be written.
    pub fn claim(&mut self, turn: &TurnName<'_>, digest: &str, ordinal: u32) -> Result<bool> {
        let sql = "INSERT OR IGNORE INTO effects VALUES (?1, ?2, ?3, ?4)";
        let added =
            self.sql(|tx| tx.prepare_cached(sql)?.execute((turn.id, digest, ordinal, &self.at)))?;
        let sql = "SELECT 1 FROM effects WHERE turn = ?1 AND digest = ?2 AND ordinal = ?3";
        for alias in turn.aliases.iter().filter(|alias| alias.name != turn.id) {
            let ordinal = ordinal + alias.earlier.get(digest).copied().unwrap_or(0);
            if self.one::<i64>(sql, (&alias.name, digest, ordinal))?.is_some() {
                return Ok(false);
            }
        }
        Ok(added > 0)
    }
}

/// The names of a turn.
#[derive(Clone, Copy, Debug)]
pub struct TurnName<'t> {
    /// The id of the row that began the turn.
    pub id: &'t str,
    /// Other names of the turn, under which an effect may have been recorded.
    pub aliases: &'t [TurnAlias],
}

/// Another name of a turn.
#[derive(Clone, Debug, Default)]
pub struct TurnAlias {
    pub name: String,
    /// The number of another turn's elements that are recorded under this name, by digest.
    pub earlier: HashMap<String, u32>,
}
