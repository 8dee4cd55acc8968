//! Accounts: reserve before, settle after, fail closed.
//!
//! A run reserves its maximum at every level at once (its job, its night, its day, the pool it
//! spends from) and holds it until it is settled; each model request draws on that reservation.
//! What a request used and never told is charged at its reserved maximum. A unit that neither the run
//! nor any level bounds is reserved at [`DEFAULT`]: nothing is ever unbounded.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use serde::{Deserialize, Serialize};

use super::{Fault, Ledger, LedgerError, Result, millis};
use crate::admission::Shortfall;
use crate::ids::RunId;

/// An amount of each unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Amounts {
    /// Model calls.
    pub calls: u64,
    /// Tokens, in and out.
    pub tokens: u64,
    /// Millionths of a dollar.
    pub micros: u64,
    /// Wall seconds.
    pub seconds: u64,
    /// Ideas, or whatever a job counts its work in.
    pub ideas: u64,
}

/// A cap for each unit; none means that this level does not bound it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Model calls.
    pub calls: Option<u64>,
    /// Tokens, in and out.
    pub tokens: Option<u64>,
    /// Millionths of a dollar.
    pub micros: Option<u64>,
    /// Wall seconds.
    pub seconds: Option<u64>,
    /// Ideas, or whatever a job counts its work in.
    pub ideas: Option<u64>,
}

/// One account that a run spends from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// `night` or `day`.
    pub level: &'static str,
    /// Which night or day.
    pub key: String,
    /// What people call it: `night 2026-11-21`.
    pub label: String,
    /// What it may hold in all.
    pub cap: Budget,
}

/// What a request turned out to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spent {
    /// The backend said.
    Known(Amounts),
    /// It did not: the reserved maximum is charged.
    Unknown,
}

/// One reserved model call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(i64);

const UNITS: [&str; 5] = ["calls", "tokens", "micros", "seconds", "ideas"];

impl Amounts {
    fn array(self) -> [u64; 5] {
        [
            self.calls,
            self.tokens,
            self.micros,
            self.seconds,
            self.ideas,
        ]
    }

    fn from_array([calls, tokens, micros, seconds, ideas]: [u64; 5]) -> Self {
        Self {
            calls,
            tokens,
            micros,
            seconds,
            ideas,
        }
    }

    /// Unit by unit.
    pub fn plus(self, other: Self) -> Self {
        let (a, b) = (self.array(), other.array());
        Self::from_array(std::array::from_fn(|unit| a[unit].saturating_add(b[unit])))
    }
}

impl Budget {
    fn array(self) -> [Option<u64>; 5] {
        [
            self.calls,
            self.tokens,
            self.micros,
            self.seconds,
            self.ideas,
        ]
    }
}

impl Ledger {
    /// What is spent or held of an account.
    pub fn account(&self, level: &str, key: &str) -> Result<Amounts> {
        self.view(|db| in_use(db, level, key))
    }

    /// What a run has spent so far.
    pub fn spent_by(&self, run: &RunId) -> Result<Amounts> {
        self.view(|db| used_by(db, run))
    }

    /// Reserves one model call out of the run's reservation.
    ///
    /// # Errors
    /// The inner error is the unit that the run's reservation has too little of.
    pub fn reserve_request(
        &mut self,
        run: &RunId,
        backend: &str,
        want: Amounts,
        now: Timestamp,
    ) -> Result<Result<RequestId, Shortfall>> {
        self.write(|tx| {
            let Some(reserved) = reserved_by(tx, run)? else {
                return Err(Fault::Known(LedgerError::NotFound {
                    what: "open reservation of run",
                    name: run.to_string(),
                }));
            };
            let used = used_by(tx, run)?.array();
            for (unit, name) in UNITS
                .iter()
                .enumerate()
                .filter(|(_, name)| **name != "seconds")
            {
                let left = reserved.array()[unit].saturating_sub(used[unit]);
                let wanted = want.array()[unit];
                if wanted > left {
                    let level = format!("run {run}");
                    return Ok(Err(Shortfall {
                        level,
                        unit: name,
                        wanted,
                        left,
                    }));
                }
            }
            tx.prepare_cached(
                "INSERT INTO requests (run, made, backend, calls, tokens, micros, ideas)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                run.as_str(),
                millis(now),
                backend,
                signed(want.calls),
                signed(want.tokens),
                signed(want.micros),
                signed(want.ideas)
            ])?;
            let request = RequestId(tx.last_insert_rowid());
            tx.prepare_cached("UPDATE runs SET model_calls = model_calls + 1 WHERE id = ?1")?
                .execute([run.as_str()])?;
            Ok(Ok(request))
        })
    }

    /// Records what a request used.
    pub fn settle_request(
        &mut self,
        request: RequestId,
        spent: Spent,
        note: &str,
        now: Timestamp,
    ) -> Result<()> {
        self.write(|tx| {
            match spent {
                Spent::Known(amounts) => tx
                    .prepare_cached(
                        "UPDATE requests SET calls = ?2, tokens = ?3, micros = ?4, ideas = ?5,
                     settled = ?6, note = ?7, stated = 1 WHERE id = ?1 AND settled IS NULL",
                    )?
                    .execute(params![
                        request.0,
                        signed(amounts.calls),
                        signed(amounts.tokens),
                        signed(amounts.micros),
                        signed(amounts.ideas),
                        millis(now),
                        note
                    ])?,
                Spent::Unknown => tx
                    .prepare_cached(
                        "UPDATE requests SET settled = ?2, note = ?3
                        WHERE id = ?1 AND settled IS NULL",
                    )?
                    .execute(params![request.0, millis(now), note])?,
            };
            Ok(())
        })
    }

    /// Model calls of a run whose usage nobody stated, so that they are charged as reserved.
    pub fn unstated_calls(&self, run: &RunId) -> Result<u64> {
        self.view(|db| {
            let count: i64 = db
                .prepare_cached("SELECT count(*) FROM requests WHERE run = ?1 AND NOT stated")?
                .query_row([run.as_str()], |row| row.get(0))?;
            Ok(count.max(0).cast_unsigned())
        })
    }

    /// What a run may still draw: its reservation less what its requests hold or used.
    pub fn left_of(&self, run: &RunId) -> Result<Amounts> {
        self.view(|db| {
            let reserved = reserved_by(db, run)?.unwrap_or_default().array();
            let used = used_by(db, run)?.array();
            Ok(Amounts::from_array(std::array::from_fn(|unit| {
                reserved[unit].saturating_sub(used[unit])
            })))
        })
    }
}

/// What `want` comes to at these levels, or the first level that has too little. A unit that the run
/// does not bound itself reserves all that the tightest level has left.
pub(super) fn fit(
    db: &Connection,
    want: Budget,
    levels: &[Level],
) -> Result<Result<Amounts, Shortfall>, Fault> {
    let mut lefts = Vec::with_capacity(levels.len());
    for level in levels {
        let held = in_use(db, level.level, &level.key)?.array();
        let cap = level.cap.array();
        lefts.push(std::array::from_fn::<Option<u64>, 5, _>(|unit| {
            cap[unit].map(|cap| cap.saturating_sub(held[unit]))
        }));
    }
    let mut amounts = [0_u64; 5];
    for unit in 0..UNITS.len() {
        let tightest = levels
            .iter()
            .zip(&lefts)
            .filter_map(|(level, left)| left[unit].map(|left| (left, level)))
            .min_by_key(|(left, _)| *left);
        let wanted = want.array()[unit];
        amounts[unit] = match (wanted, tightest) {
            (Some(wanted), Some((left, level))) if wanted > left => {
                let level = level.label.clone();
                return Ok(Err(Shortfall {
                    level,
                    unit: UNITS[unit],
                    wanted,
                    left,
                }));
            }
            (Some(wanted), _) => wanted,
            (None, Some((left, level))) if left == 0 => {
                let level = level.label.clone();
                return Ok(Err(Shortfall {
                    level,
                    unit: UNITS[unit],
                    wanted: 1,
                    left,
                }));
            }
            (None, Some((left, _))) => left.min(DEFAULT.array()[unit]),
            (None, None) => DEFAULT.array()[unit],
        };
    }
    Ok(Ok(Amounts::from_array(amounts)))
}

/// What a run reserves of a unit that its own budget leaves out.
pub const DEFAULT: Amounts = Amounts {
    calls: 10,
    tokens: 1_000_000,
    micros: 1_000_000,
    seconds: 3_600,
    ideas: 1_000,
};

pub(super) fn reserve(
    tx: &Transaction<'_>,
    run: &RunId,
    levels: &[Level],
    amounts: Amounts,
) -> Result<(), Fault> {
    // The run itself is a level, so that requests find their bound even where nothing else caps.
    let own = Level {
        level: "run",
        key: run.to_string(),
        label: format!("run {run}"),
        cap: Budget::default(),
    };
    for level in levels.iter().chain([&own]) {
        tx.prepare_cached(
            "INSERT INTO reservations (run, level, key, calls, tokens, micros, seconds, ideas)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            run.as_str(),
            level.level,
            level.key,
            signed(amounts.calls),
            signed(amounts.tokens),
            signed(amounts.micros),
            signed(amounts.seconds),
            signed(amounts.ideas)
        ])?;
    }
    Ok(())
}

/// Moves what a run used from its reservation to its accounts; a request that was never settled is
/// charged at its maximum.
pub(super) fn settle(tx: &Transaction<'_>, run: &RunId, elapsed: u64) -> Result<(), Fault> {
    // The wall clock may have jumped, and a dead run may be found late: no run is charged more time
    // than it was allowed.
    let allowed = reserved_by(tx, run)?.map_or(0, |reserved| reserved.seconds);
    let seconds = elapsed.min(allowed);
    let used = Amounts {
        seconds,
        ..used_by(tx, run)?
    };
    tx.prepare_cached("INSERT INTO accounts (level, key, calls, tokens, micros, seconds, ideas)
         SELECT level, key, ?2, ?3, ?4, ?5, ?6 FROM reservations WHERE run = ?1 AND open AND level <> 'run'
         ON CONFLICT (level, key) DO UPDATE SET calls = calls + ?2, tokens = tokens + ?3,
           micros = micros + ?4, seconds = seconds + ?5, ideas = ideas + ?6")?.execute(
        params![
            run.as_str(),
            signed(used.calls),
            signed(used.tokens),
            signed(used.micros),
            signed(used.seconds),
            signed(used.ideas)
        ])?;
    tx.prepare_cached("UPDATE reservations SET open = 0 WHERE run = ?1")?
        .execute([run.as_str()])?;
    Ok(())
}

fn in_use(db: &Connection, level: &str, key: &str) -> Result<Amounts, Fault> {
    let spent = db
        .prepare_cached(
            "SELECT calls, tokens, micros, seconds, ideas FROM accounts
            WHERE level = ?1 AND key = ?2",
        )?
        .query_row([level, key], row)
        .optional()?
        .unwrap_or_default();
    let held = db
        .prepare_cached(
            "SELECT coalesce(sum(calls), 0), coalesce(sum(tokens), 0),
                coalesce(sum(micros), 0), coalesce(sum(seconds), 0),
                coalesce(sum(ideas), 0)
         FROM reservations WHERE level = ?1 AND key = ?2 AND open",
        )?
        .query_row([level, key], row)?;
    Ok(spent.plus(held))
}

fn reserved_by(db: &Connection, run: &RunId) -> Result<Option<Amounts>, Fault> {
    Ok(db
        .prepare_cached(
            "SELECT calls, tokens, micros, seconds, ideas FROM reservations
             WHERE run = ?1 AND level = 'run' AND open",
        )?
        .query_row([run.as_str()], row)
        .optional()?)
}

fn used_by(db: &Connection, run: &RunId) -> Result<Amounts, Fault> {
    Ok(db
        .prepare_cached(
            "SELECT coalesce(sum(calls), 0), coalesce(sum(tokens), 0), coalesce(sum(micros), 0), 0,
                coalesce(sum(ideas), 0) FROM requests WHERE run = ?1",
        )?
        .query_row([run.as_str()], row)?)
}

fn row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Amounts> {
    let mut amounts = [0_u64; 5];
    for (unit, amount) in amounts.iter_mut().enumerate() {
        *amount = u64::try_from(row.get::<_, i64>(unit)?).unwrap_or(0);
    }
    Ok(Amounts::from_array(amounts))
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}
