//! Reserves budget for runs and settles the reservations.
//!
//! An admission must call [`fit`] and [`reserve`] in the same transaction. Otherwise, two runs
//! could reserve the same remaining amount. Outside such a transaction, [`fit`] returns only an
//! estimate.

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, Transaction, params};

use super::Fault;
use super::columns::{Query as _, millis, time, time_opt};
use super::usage::{
    Amounts, Budget, BudgetLevel, PARENT, RUN, SUMS, UNITS, WINDOW, amounts, in_use, reserved_by,
    stored, used_by,
};
use crate::admission::Shortfall;
use crate::ids::RunId;

/// The amount of each unit that a run reserves if the unit has no limit.
pub const DEFAULT: Amounts =
    Amounts { calls: 10, tokens: 1_000_000, micros: 1_000_000, seconds: 3_600, ideas: 1_000 };

/// Resolves the windows of budget levels. Each level that has a window gets the key of the pool's
/// open window or, if none is open, the key of a window that opens at `now`.
pub(super) fn resolve(
    db: &Connection,
    levels: &[BudgetLevel],
    now: Timestamp,
) -> Result<Vec<BudgetLevel>, Fault> {
    levels
        .iter()
        .map(|level| {
            let mut level = level.clone();
            if let Some(length) = level.window {
                let opened = open_window(db, &level.key, length, now)?;
                let opened = opened.map_or(now, |(opened, _)| opened);
                level.key = window_key(&level.key, opened);
            }
            Ok(level)
        })
        .collect()
}

pub(super) fn window_key(pool: &str, opened: Timestamp) -> String {
    format!("{pool} {}", millis(opened))
}

/// Returns the start and end of the pool's window if it is open at `now`. A window is also closed
/// if the clock has been set back to at least the window's length before its start.
pub(super) fn open_window(
    db: &Connection,
    pool: &str,
    length: SignedDuration,
    now: Timestamp,
) -> Result<Option<(Timestamp, Timestamp)>, Fault> {
    let sql = "SELECT opened, closes FROM windows WHERE pool = ?1";
    let found = db.first(sql, [pool], |row| Ok((time(row, 0)?, time(row, 1)?)))?;
    let Some((opened, closes)) = found else {
        return Ok(None);
    };
    let near = opened.saturating_sub(length).unwrap_or(opened) < now;
    Ok((near && now < closes).then_some((opened, closes)))
}

/// Computes the amounts to reserve for `want` at `levels`, whose windows must be resolved. A unit
/// without a limit in `want` gets the amount that the tightest level has left, up to [`DEFAULT`].
/// If a level has too little left of a unit, the inner error is the tightest level's shortfall for
/// the first such unit.
pub(super) fn fit(
    db: &Connection,
    want: Budget,
    levels: &[BudgetLevel],
    now: Timestamp,
) -> Result<Result<Amounts, Shortfall>, Fault> {
    let mut lefts: Vec<(&str, [Option<u64>; 5])> = Vec::with_capacity(levels.len());
    let parent = levels.iter().find(|level| level.level == PARENT);
    for level in levels {
        if level.level == PARENT {
            let parent: RunId = level.key.parse().map_err(Fault::nonsense)?;
            let left = remainder(db, &parent, now)?.array();
            lefts.push((&level.label, left.map(Some)));
            continue;
        }
        // The child's amounts are a part of its parent's reservation, which this level already
        // counts.
        if let Some(parent) = parent
            && has_reservation(db, &parent.key, level)?
        {
            continue;
        }
        let held = in_use(db, level.level, &level.key)?.array();
        let more = granted(db, level.level, &level.key, now)?.array();
        let cap = level.cap.array();
        let left = std::array::from_fn(|unit| {
            cap[unit].map(|cap| cap.saturating_add(more[unit]).saturating_sub(held[unit]))
        });
        lefts.push((&level.label, left));
    }
    let mut amounts = [0_u64; 5];
    for unit in 0..UNITS.len() {
        let tightest = lefts
            .iter()
            .filter_map(|(label, left)| left[unit].map(|left| (left, *label)))
            .min_by_key(|(left, _)| *left);
        let short = |wanted, left, label: &str| {
            Ok(Err(Shortfall { level: label.to_owned(), unit: UNITS[unit], wanted, left }))
        };
        amounts[unit] = match (want.array()[unit], tightest) {
            (Some(wanted), Some((left, label))) if wanted > left => {
                return short(wanted, left, label);
            }
            (Some(wanted), _) => wanted,
            (None, Some((0, label))) => return short(1, 0, label),
            (None, Some((left, _))) => left.min(DEFAULT.array()[unit]),
            (None, None) => DEFAULT.array()[unit],
        };
    }
    Ok(Ok(Amounts::from_array(amounts)))
}

/// Returns the sum of a budget level's current grants.
pub(super) fn granted(
    db: &Connection,
    level: &str,
    key: &str,
    now: Timestamp,
) -> Result<Amounts, Fault> {
    let sql = format!(
        "SELECT {SUMS} FROM grants WHERE level = ?1 AND key = ?2 AND (until IS NULL OR until > ?3)"
    );
    Ok(db.first(&sql, params![level, key, millis(now)], amounts)?.unwrap_or_default())
}

/// Returns the unused part of a run's reservation, or zero if the run is not running.
fn remainder(db: &Connection, run: &RunId, now: Timestamp) -> Result<Amounts, Fault> {
    let sql = "SELECT started FROM runs WHERE id = ?1 AND state = 'running'";
    let started = db.first(sql, [run], |row| time_opt(row, 0))?.flatten();
    let (Some(reserved), Some(started)) = (reserved_by(db, run)?, started) else {
        return Ok(Amounts::default());
    };
    let passed = (millis(now) - millis(started)).max(0).cast_unsigned();
    let used = Amounts { seconds: passed.div_ceil(1000), ..used_by(db, run)? };
    Ok(reserved.less(used))
}

fn has_reservation(db: &Connection, run: &str, level: &BudgetLevel) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM reservations WHERE run = ?1 AND level = ?2 AND key = ?3 AND open";
    db.exists(sql, params![run, level.level, level.key])
}

/// Reserves `amounts` for a run at `levels`, whose windows must be resolved. At levels where the
/// run's parent has a reservation, the amounts are taken from that reservation.
pub(super) fn reserve(
    tx: &Transaction<'_>,
    run: &RunId,
    levels: &[BudgetLevel],
    amounts: Amounts,
    now: Timestamp,
) -> Result<(), Fault> {
    let parent = levels.iter().find(|level| level.level == PARENT);
    if let Some(parent) = parent {
        tx.change(
            "INSERT INTO escalations (run, parent) VALUES (?1, ?2)",
            params![run, parent.key],
        )?;
        let [calls, tokens, micros, seconds, ideas] = stored(amounts);
        tx.change(
            "INSERT INTO reservations (run, level, key, calls, tokens, micros, seconds, ideas)
             SELECT ?1, level, key, ?3, ?4, ?5, ?6, ?7 FROM reservations
             WHERE run = ?2 AND open AND level <> 'run'",
            params![run, parent.key, calls, tokens, micros, seconds, ideas],
        )?;
        shift(tx, &parent.key, amounts, Transfer::Out)?;
    }
    for level in levels.iter().filter(|level| level.level != PARENT) {
        if let Some(length) = level.window
            && let Some((pool, opened)) = level.key.rsplit_once(' ')
        {
            // The key refers to the open window or to a new window.
            let opened = opened.parse().ok().and_then(|at| Timestamp::from_millisecond(at).ok());
            let opened = opened.unwrap_or(now);
            let closes = opened.saturating_add(length).unwrap_or(opened);
            tx.change(
                "INSERT INTO windows (pool, opened, closes) VALUES (?1, ?2, ?3)
                 ON CONFLICT (pool) DO UPDATE SET opened = ?2, closes = ?3
                   WHERE opened <> ?2 OR closes <> ?3",
                params![pool, millis(opened), millis(closes)],
            )?;
        }
        debug_assert!(level.level != WINDOW || level.window.is_some());
        reserve_level(tx, run, level.level, &level.key, amounts)?;
    }
    // The run itself is also a level, so its requests always have a limit.
    reserve_level(tx, run, RUN, run.as_str(), amounts)
}

fn reserve_level(
    tx: &Transaction<'_>,
    run: &RunId,
    level: &str,
    key: &str,
    amounts: Amounts,
) -> Result<(), Fault> {
    let [calls, tokens, micros, seconds, ideas] = stored(amounts);
    // If the amounts were taken from the parent's reservation, the run already has a row for this
    // level.
    tx.change(
        "INSERT INTO reservations (run, level, key, calls, tokens, micros, seconds, ideas)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (run, level, key) DO NOTHING",
        params![run, level, key, calls, tokens, micros, seconds, ideas],
    )?;
    Ok(())
}

/// The direction in which amounts move between a parent and its child, as seen from the parent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transfer {
    Out,
    Back,
}

/// Takes a child's amounts from the open reservations of its parent, `run`, or returns the unused
/// part to those reservations. The deadline of a running parent is adjusted by the same amount of
/// time.
fn shift(tx: &Transaction<'_>, run: &str, amounts: Amounts, way: Transfer) -> Result<(), Fault> {
    let [calls, tokens, micros, seconds, ideas] = stored(amounts).map(|amount| match way {
        Transfer::Out => -amount,
        Transfer::Back => amount,
    });
    let moved = tx.change(
        "UPDATE reservations SET calls = max(0, calls + ?2), tokens = max(0, tokens + ?3),
           micros = max(0, micros + ?4), seconds = max(0, seconds + ?5),
           ideas = max(0, ideas + ?6) WHERE run = ?1 AND open",
        params![run, calls, tokens, micros, seconds, ideas],
    )?;
    if moved > 0 {
        tx.change(
            "UPDATE runs SET deadline = max(0, deadline + ?2 * 1000)
             WHERE id = ?1 AND state = 'running'",
            params![run, seconds],
        )?;
    }
    Ok(())
}

/// Upper limit for each of the two terms when usage is added to a row. The sum of two such terms
/// cannot overflow.
const MOST: i64 = i64::MAX / 4;

/// Moves the amounts used by a run from its reservation to the usage of its budget levels. A
/// request that was never settled is charged its reserved maximum. A child's unused amounts return
/// to its parent if the parent has not been settled.
pub(super) fn settle(tx: &Transaction<'_>, run: &RunId, elapsed: u64) -> Result<(), Fault> {
    // The elapsed time is too long if the wall clock has jumped or a dead run was found late. A run
    // is never charged for more time than it reserved.
    let Some(reserved) = reserved_by(tx, run)? else {
        return Ok(());
    };
    let used = Amounts { seconds: elapsed.min(reserved.seconds), ..used_by(tx, run)? };
    let summed = |amount: u64| i64::try_from(amount).unwrap_or(MOST).min(MOST);
    let [calls, tokens, micros, seconds, ideas] = used.array().map(summed);
    tx.change(
        "INSERT INTO budget_usage (level, key, calls, tokens, micros, seconds, ideas)
         SELECT level, key, ?2, ?3, ?4, ?5, ?6 FROM reservations
           WHERE run = ?1 AND open AND level <> 'run'
         ON CONFLICT (level, key) DO UPDATE SET
           calls = min(calls, ?7) + ?2, tokens = min(tokens, ?7) + ?3,
           micros = min(micros, ?7) + ?4, seconds = min(seconds, ?7) + ?5,
           ideas = min(ideas, ?7) + ?6",
        params![run, calls, tokens, micros, seconds, ideas, MOST],
    )?;
    tx.change("UPDATE reservations SET open = 0 WHERE run = ?1", [run])?;
    let parent: Option<String> =
        tx.first("SELECT parent FROM escalations WHERE run = ?1", [run], |row| row.get(0))?;
    if let Some(parent) = parent {
        shift(tx, &parent, reserved.less(used), Transfer::Back)?;
    }
    Ok(())
}
