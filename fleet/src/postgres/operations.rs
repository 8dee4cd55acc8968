//! The operations of a [`FleetStore`](crate::FleetStore), except claims and snapshots.

use std::collections::BTreeMap;

use runner_engine::outcome::Outcome;
use serde_json::{Value, json as value};
use tokio_postgres::Row;

use super::{Fault, Step, json};
use crate::decide::{charge_levels, late_surplus, lost_reason};
use crate::rows::{BudgetRow, Ending, HostState, State, Units, limits, plus, units};
use crate::simulation::{LEASE_ENDED, stale_reason};
use crate::store::{FleetError, Result};
use crate::types::{Deliverable, Delivery, HostInfo, Lease, Offer, Release, Stale, Verdict};

/// The notification channel for new work and new results.
pub(super) const CHANNEL: &str = "runner_fleet";

const NOTIFY: &str = "SELECT pg_notify('runner_fleet', $1)";

pub(super) fn join(step: &mut Step<'_>, host: &HostInfo) -> Result<(), Fault> {
    let HostInfo { host, worker, tags, version } = host;
    step.change(
        "INSERT INTO runner_fleet.hosts (host, worker, state, tags, version, joined, seen)
         SELECT $1, $2, 'active', $3, $4, t.now, t.now FROM (SELECT runner_fleet.clock() AS now) t
         ON CONFLICT (host) DO UPDATE SET worker = $2, state = 'active', tags = $3, version = $4,
           seen = excluded.seen",
        &[host, worker, tags, version],
    )?;
    Ok(())
}

pub(super) fn set_host_state(
    step: &mut Step<'_>,
    host: &str,
    state: HostState,
) -> Result<(), Fault> {
    let sql = "UPDATE runner_fleet.hosts SET state = $2 WHERE host = $1";
    match step.change(sql, &[&host, &state.as_str()])? {
        0 => Err(FleetError::NotJoined(host.to_owned()).into()),
        _ => Ok(()),
    }
}

pub(super) fn offer(step: &mut Step<'_>, offer: &Offer) -> Result<String, Fault> {
    let known =
        "SELECT id FROM runner_fleet.occurrences WHERE project = $1 AND job = $2 AND key = $3";
    let key: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
        [&offer.project, &offer.job, &offer.key];
    if let Some(row) = step.first(known, &key)? {
        return Ok(row.try_get(0)?);
    }
    let (group, slots) = offer.group.clone().unzip();
    let slots = slots.map(|slots| i32::try_from(slots).unwrap_or(i32::MAX));
    let levels: Vec<&String> = offer.levels.keys().collect();
    let most_lost = i32::try_from(offer.most_lost).unwrap_or(i32::MAX);
    let want = units(offer.want).to_vec();
    let added = step.change(
        "INSERT INTO runner_fleet.occurrences (id, project, job, key, home, due, state, wake, \"group\",
           slots, tags, levels, want, lease, most_lost, source)
         VALUES ($1, $2, $3, $4, $5, $6, 'pending', runner_fleet.clock(), $7, $8, $9, $10, $11, $12,
           $13, $14)
         ON CONFLICT (project, job, key) DO NOTHING",
        &[
            &offer.id, &offer.project, &offer.job, &offer.key, &offer.home, &offer.due, &group,
            &slots, &offer.tags, &levels, &want, &offer.lease, &most_lost, &offer.source,
        ],
    )?;
    if added == 0 {
        // Another process has offered the same occurrence since the first query.
        let row = step.first(known, &key)?;
        let gone = || {
            FleetError::Database(
                "an offer was not inserted, although no other offer has its key".to_owned(),
            )
        };
        return Ok(row.ok_or_else(gone)?.try_get(0)?);
    }
    if let Some(group) = &group {
        let sql = "INSERT INTO runner_fleet.groups (name) VALUES ($1) ON CONFLICT DO NOTHING";
        step.change(sql, &[group])?;
    }
    for (level, limit) in &offer.levels {
        // Budgets are always locked in the order of their levels.
        step.change(
            "INSERT INTO runner_fleet.budgets (level, limits) VALUES ($1, $2)
             ON CONFLICT (level) DO UPDATE SET limits = $2
               WHERE runner_fleet.budgets.limits IS DISTINCT FROM $2",
            &[level, &limits(*limit).to_vec()],
        )?;
    }
    step.query(NOTIFY, &[&offer.id])?;
    Ok(offer.id.clone())
}

/// The columns of an occurrence that operations check and use.
struct Standing {
    state: State,
    fence: i64,
    owner: Option<String>,
    home: String,
    levels: Vec<String>,
    lease: i64,
    cancel: Option<String>,
    want: Units,
    /// The time left on the lease, in milliseconds.
    left: i64,
}

/// Locks an occurrence. Returns `None` if no occurrence has this id.
fn lock(step: &mut Step<'_>, occurrence: &str) -> Result<Option<Standing>, Fault> {
    let row = step.first(
        "SELECT state, fence, owner, home, levels, lease, cancel, want,
           coalesce(wake - runner_fleet.clock(), 0)
         FROM runner_fleet.occurrences WHERE id = $1 FOR UPDATE",
        &[&occurrence],
    )?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(Standing {
        state: json(Value::String(row.try_get(0)?))?,
        fence: row.try_get(1)?,
        owner: row.try_get(2)?,
        home: row.try_get(3)?,
        levels: row.try_get(4)?,
        lease: row.try_get(5)?,
        cancel: row.try_get(6)?,
        want: units_of(&row, 7)?,
        left: row.try_get(8)?,
    }))
}

fn stale(found: Option<&Standing>, occurrence: &str, held: i64) -> Fault {
    let why = match found {
        None => "there is no such occurrence".to_owned(),
        Some(row) => stale_reason(row.state, row.fence),
    };
    Fault::Known(Stale { occurrence: occurrence.to_owned(), held, why }.into())
}

impl Standing {
    fn is_claimed_by(&self, worker: &str, fence: i64) -> bool {
        self.state == State::Claimed && self.fence == fence && self.owner.as_deref() == Some(worker)
    }
}

/// Locks the occurrence of a claim. Returns an error if the worker no longer has this claim.
fn claimed(
    step: &mut Step<'_>,
    (occurrence, fence, worker): (&str, i64, &str),
) -> Result<Standing, Fault> {
    let found = lock(step, occurrence)?;
    match found {
        Some(row) if row.is_claimed_by(worker, fence) => Ok(row),
        other => Err(stale(other.as_ref(), occurrence, fence)),
    }
}

pub(super) fn seen(step: &mut Step<'_>, worker: &str) -> Result<(), Fault> {
    let sql = "UPDATE runner_fleet.hosts SET seen = runner_fleet.clock() WHERE worker = $1";
    step.change(sql, &[&worker])?;
    Ok(())
}

pub(super) fn renew(
    step: &mut Step<'_>,
    occurrence: &str,
    fence: i64,
    worker: &str,
) -> Result<Lease, Fault> {
    seen(step, worker)?;
    let row = claimed(step, (occurrence, fence, worker))?;
    // After the lease has ended, another claim in the same group may have begun.
    let renewed = step.change(
        "UPDATE runner_fleet.occurrences SET wake = runner_fleet.clock() + lease
         WHERE id = $1 AND wake > runner_fleet.clock()",
        &[&occurrence],
    )?;
    if renewed == 0 {
        let why = LEASE_ENDED.to_owned();
        let stale = Stale { occurrence: occurrence.to_owned(), held: fence, why };
        return Err(Fault::Known(stale.into()));
    }
    Ok(Lease { lease: row.lease, cancel: row.cancel })
}

/// Locks budget levels in order.
pub(super) fn lock_budgets(
    step: &mut Step<'_>,
    levels: &[&String],
) -> Result<BTreeMap<String, BudgetRow>, Fault> {
    if levels.is_empty() {
        return Ok(BTreeMap::new());
    }
    let rows = step.query(
        "SELECT level, limits, used, held FROM runner_fleet.budgets WHERE level = ANY($1)
         ORDER BY level COLLATE \"C\" FOR UPDATE",
        &[&levels],
    )?;
    let mut budgets = BTreeMap::new();
    for row in rows {
        let level: String = row.try_get(0)?;
        let limits: Vec<Option<i64>> = row.try_get(1)?;
        let limits = limits.try_into().map_err(|_| malformed("the limits of a budget"))?;
        let (used, held) = (units_of(&row, 2)?, units_of(&row, 3)?);
        budgets.insert(level.clone(), BudgetRow { level, limits, used, held });
    }
    Ok(budgets)
}

fn malformed(what: &str) -> Fault {
    Fault::Known(FleetError::Database(format!("{what} cannot be read")))
}

/// Reads an array of amounts.
pub(super) fn units_of(row: &Row, column: usize) -> Result<Units, Fault> {
    let units: Vec<i64> = row.try_get(column)?;
    units.try_into().map_err(|_| malformed("an array of amounts"))
}

/// Converts the reservation at an occurrence's levels into usage.
fn charge(
    step: &mut Step<'_>,
    levels: &[String],
    reserved: Units,
    used: Units,
) -> Result<(), Fault> {
    let levels: Vec<&String> = levels.iter().collect();
    let mut budgets = lock_budgets(step, &levels)?;
    let names: Vec<String> = budgets.keys().cloned().collect();
    charge_levels(&mut budgets, &names, reserved, used);
    let rows: Vec<Value> = budgets
        .values()
        .map(|row| value!({"level": row.level, "used": row.used, "held": row.held}))
        .collect();
    step.change(
        "UPDATE runner_fleet.budgets b SET used = n.used, held = n.held
         FROM jsonb_to_recordset($1) AS n(level text, used bigint[], held bigint[])
         WHERE b.level = n.level",
        &[&value!(rows)],
    )?;
    Ok(())
}

/// Ends an open attempt and charges it.
fn close(
    step: &mut Step<'_>,
    levels: &[String],
    (occurrence, fence): (&str, i64),
    (ending, used): (&str, Units),
) -> Result<(), Fault> {
    let row = step.first(
        "UPDATE runner_fleet.attempts SET ended = runner_fleet.clock(), ending = $3, charged = $4
         WHERE occurrence = $1 AND fence = $2 AND ended IS NULL RETURNING reserved",
        &[&occurrence, &fence, &ending, &used.to_vec()],
    )?;
    let row = row.ok_or_else(|| malformed("the claim of a claimed occurrence"))?;
    charge(step, levels, units_of(&row, 0)?, used)
}

/// Stores a result with its claim.
fn record(step: &mut Step<'_>, delivery: &Delivery) -> Result<(), Fault> {
    step.change(
        "UPDATE runner_fleet.attempts SET outcome = $3, summary = $4, manifest = $5
         WHERE occurrence = $1 AND fence = $2",
        &[
            &delivery.occurrence,
            &delivery.fence,
            &value!(delivery.outcome),
            &delivery.summary,
            &delivery.manifest,
        ],
    )?;
    Ok(())
}

/// Ends a claim that is lost although its worker delivers: charges it in full, stores the result
/// with it, and makes the occurrence claimable again.
fn lose(step: &mut Step<'_>, row: &Standing, delivery: &Delivery, why: &str) -> Result<(), Fault> {
    let Delivery { occurrence, fence, used, .. } = delivery;
    let charged = plus(row.want, late_surplus(row.want, units(*used)));
    close(step, &row.levels, (occurrence, *fence), ("late", charged))?;
    record(step, delivery)?;
    step.change(
        "UPDATE runner_fleet.occurrences SET state = 'pending', wake = runner_fleet.clock(),
           owner = NULL, lost = lost + 1, why = $2 WHERE id = $1",
        &[occurrence, &why],
    )?;
    step.query(NOTIFY, &[occurrence])?;
    Ok(())
}

pub(super) fn deliver(step: &mut Step<'_>, delivery: &Delivery) -> Result<Verdict, Fault> {
    let Delivery { occurrence, fence, worker, .. } = delivery;
    let used = units(delivery.used);
    seen(step, worker)?;
    let found = lock(step, occurrence)?;
    let Some(row) = found else { return Err(stale(None, occurrence, *fence)) };
    if row.is_claimed_by(worker, *fence) {
        if let Some(why) = lost_reason(&delivery.outcome, row.cancel.as_deref(), row.left) {
            lose(step, &row, delivery, &why)?;
            return Ok(Verdict::Late);
        }
        close(step, &row.levels, (occurrence, *fence), ("delivered", used))?;
        record(step, delivery)?;
        step.change(
            "UPDATE runner_fleet.occurrences
             SET state = 'delivered', wake = NULL, owner = NULL, why = NULL, outcome = $2
             WHERE id = $1",
            &[occurrence, &value!(delivery.outcome)],
        )?;
        step.query(NOTIFY, &[occurrence])?;
        return Ok(Verdict::Accepted);
    }
    let attempt = step.first(
        "SELECT ending, charged FROM runner_fleet.attempts
         WHERE occurrence = $1 AND fence = $2 AND worker = $3",
        &[occurrence, fence, worker],
    )?;
    let Some(attempt) = attempt else { return Err(stale(Some(&row), occurrence, *fence)) };
    let ending: Option<String> = attempt.try_get(0)?;
    match ending.map(|ending| json(Value::String(ending))).transpose()? {
        Some(Ending::Delivered) => Ok(Verdict::Repeated),
        Some(Ending::Lost) => {
            let charged = units_of(&attempt, 1)?;
            let more = late_surplus(charged, used);
            charge(step, &row.levels, [0; 5], more)?;
            step.change(
                "UPDATE runner_fleet.attempts SET ending = 'late', charged = $3
                 WHERE occurrence = $1 AND fence = $2",
                &[occurrence, fence, &plus(charged, more).to_vec()],
            )?;
            record(step, delivery)?;
            Ok(Verdict::Late)
        }
        _ => Ok(Verdict::Late),
    }
}

pub(super) fn release(step: &mut Step<'_>, release: &Release) -> Result<(), Fault> {
    let Release { occurrence, fence, worker, .. } = release;
    seen(step, worker)?;
    let row = claimed(step, (occurrence, *fence, worker))?;
    close(step, &row.levels, (occurrence, *fence), ("released", units(release.used)))?;
    step.change(
        "UPDATE runner_fleet.attempts SET not_before = runner_fleet.clock() + $3
         WHERE occurrence = $1 AND fence = $2",
        &[occurrence, fence, &release.host_waits],
    )?;
    step.change(
        "UPDATE runner_fleet.occurrences
         SET state = 'pending', wake = runner_fleet.clock(), owner = NULL, why = $2 WHERE id = $1",
        &[occurrence, &release.why],
    )?;
    step.query(NOTIFY, &[occurrence])?;
    Ok(())
}

pub(super) fn deliveries(step: &mut Step<'_>, home: &str) -> Result<Vec<Deliverable>, Fault> {
    let rows = step.query(
        "SELECT o.id, o.fence, o.project, o.job, o.key, o.outcome, a.host, a.summary, a.manifest,
           o.state = 'publishing'
         FROM runner_fleet.occurrences o
         LEFT JOIN runner_fleet.attempts a ON a.occurrence = o.id AND a.fence = o.fence
         WHERE o.home = $1 AND o.state IN ('delivered', 'publishing') ORDER BY o.id COLLATE \"C\"",
        &[&home],
    )?;
    rows.into_iter()
        .map(|row| {
            Ok(Deliverable {
                occurrence: row.try_get(0)?,
                fence: row.try_get(1)?,
                project: row.try_get(2)?,
                job: row.try_get(3)?,
                key: row.try_get(4)?,
                outcome: json(row.try_get(5)?)?,
                host: row.try_get(6)?,
                summary: row.try_get::<_, Option<Value>>(7)?.unwrap_or_default(),
                manifest: row.try_get::<_, Option<Value>>(8)?.unwrap_or_default(),
                publishing: row.try_get(9)?,
            })
        })
        .collect()
}

/// Locks an occurrence and returns its state. Returns an error unless `states` contains the state
/// and the fence and the home host match.
fn published(
    step: &mut Step<'_>,
    (occurrence, fence, home): (&str, i64, &str),
    states: &[State],
) -> Result<State, Fault> {
    let found = lock(step, occurrence)?;
    match found {
        Some(row) if states.contains(&row.state) && row.fence == fence && row.home == home => {
            Ok(row.state)
        }
        other => Err(stale(other.as_ref(), occurrence, fence)),
    }
}

pub(super) fn begin_publish(step: &mut Step<'_>, result: (&str, i64, &str)) -> Result<(), Fault> {
    if published(step, result, &[State::Delivered, State::Publishing])? == State::Delivered {
        let sql = "UPDATE runner_fleet.occurrences SET state = 'publishing' WHERE id = $1";
        step.change(sql, &[&result.0])?;
    }
    Ok(())
}

pub(super) fn settle(
    step: &mut Step<'_>,
    result: (&str, i64, &str),
    outcome: &Outcome,
) -> Result<(), Fault> {
    let states = [State::Delivered, State::Publishing, State::Settled];
    if published(step, result, &states)? != State::Settled {
        step.change(
            "UPDATE runner_fleet.occurrences
             SET state = 'settled', settled = runner_fleet.clock(), outcome = $2 WHERE id = $1",
            &[&result.0, &value!(outcome)],
        )?;
    }
    Ok(())
}

pub(super) fn reopen(
    step: &mut Step<'_>,
    result: (&str, i64, &str),
    why: &str,
) -> Result<(), Fault> {
    published(step, result, &[State::Publishing])?;
    step.change(
        "UPDATE runner_fleet.occurrences
         SET state = 'pending', wake = runner_fleet.clock(), outcome = NULL, why = $2 WHERE id = $1",
        &[&result.0, &why],
    )?;
    step.query(NOTIFY, &[&result.0])?;
    Ok(())
}

pub(super) fn cancel(
    step: &mut Step<'_>,
    occurrence: &str,
    home: &str,
    why: &str,
) -> Result<(), Fault> {
    let Some(row) = lock(step, occurrence)?.filter(|row| row.home == home) else {
        return Ok(());
    };
    match row.state {
        State::Pending => {
            let outcome = Outcome::Cancelled { why: why.to_owned() };
            step.change(
                "UPDATE runner_fleet.occurrences SET state = 'settled', wake = NULL, why = NULL,
                   fence = fence + 1, settled = runner_fleet.clock(), outcome = $2 WHERE id = $1",
                &[&occurrence, &value!(outcome)],
            )?;
        }
        State::Claimed => {
            let sql =
                "UPDATE runner_fleet.occurrences SET cancel = coalesce(cancel, $2) WHERE id = $1";
            step.change(sql, &[&occurrence, &why])?;
        }
        _ => {}
    }
    Ok(())
}
