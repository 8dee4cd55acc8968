//! Claims occurrences: locks the candidates, applies the pure decision, and writes all changes at
//! once.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Value, json as value};
use tokio_postgres::Row;

use super::{Fault, Step, operations};
use crate::decide::{self, Candidate, Decided};
use crate::rows::{BudgetRow, HostState, amounts};
use crate::store::{FleetError, Result};
use crate::types::{Claim, ClaimRequest, Declined};

const SEEN: &str = "UPDATE runner_fleet.hosts SET seen = runner_fleet.clock()
     WHERE host = $1 AND worker = $2 RETURNING state";

/// Locked rows are skipped, because another host is deciding on them. The group is checked again
/// after its row is locked.
const CANDIDATES: &str = "WITH t AS MATERIALIZED (SELECT runner_fleet.clock() AS now)
     SELECT o.id, o.fence, o.state = 'claimed', o.\"group\", o.slots, o.levels, o.want, o.lease,
            o.lost, o.most_lost, o.cancel, o.project, o.job, o.key, o.home, o.due, o.source,
            (SELECT now FROM t)
     FROM runner_fleet.occurrences o
     WHERE o.wake <= (SELECT now FROM t) AND o.tags <@ $1 AND ($2::text IS NULL OR o.home = $2)
       AND NOT EXISTS (SELECT FROM runner_fleet.attempts a
         WHERE a.occurrence = o.id AND a.host = $3 AND a.not_before > (SELECT now FROM t))
       AND (o.\"group\" IS NULL OR o.state <> 'pending' OR o.slots > (SELECT count(*)
         FROM runner_fleet.occurrences b
         WHERE b.\"group\" = o.\"group\" AND b.state = 'claimed' AND b.wake > (SELECT now FROM t)))
     ORDER BY o.wake, o.id COLLATE \"C\" LIMIT $4 FOR UPDATE OF o SKIP LOCKED";

const GROUPS: &str = "SELECT name FROM runner_fleet.groups WHERE name = ANY($1)
     ORDER BY name COLLATE \"C\" FOR UPDATE";

const RUNNING: &str = "SELECT \"group\", count(*) FROM runner_fleet.occurrences
     WHERE \"group\" = ANY($1) AND state = 'claimed' AND wake > $2 GROUP BY 1";

/// `$5` repeats the occurrence ids, so the planner looks the rows up by key. Otherwise, the
/// planner would estimate 100 rows for the recordset, and the statement would read all occurrences
/// while the budgets are locked.
const WRITE: &str = "WITH input AS MATERIALIZED (
       SELECT * FROM jsonb_to_recordset($1) AS i(id text, dead bigint, charged bigint[], state text,
         wake bigint, fence bigint, owner text, why text, outcome jsonb)),
     ended AS (
       UPDATE runner_fleet.attempts a SET ended = $3, ending = 'lost', charged = i.charged
       FROM input i WHERE a.occurrence = i.id AND a.fence = i.dead AND a.occurrence = ANY($5)),
     changed AS (
       UPDATE runner_fleet.occurrences o SET state = i.state, wake = i.wake,
         fence = coalesce(i.fence, o.fence),
         owner = i.owner, why = i.why, outcome = i.outcome,
         lost = o.lost + (i.dead IS NOT NULL)::integer
       FROM input i WHERE o.id = i.id AND o.id = ANY($5)),
     added AS (
       INSERT INTO runner_fleet.attempts (occurrence, fence, worker, host, claimed, reserved)
       SELECT i.id, i.fence, i.owner, $4, $3, o.want
       FROM input i JOIN runner_fleet.occurrences o ON o.id = i.id
       WHERE i.state = 'claimed' AND o.id = ANY($5))
     UPDATE runner_fleet.budgets b SET used = n.used, held = n.held
     FROM jsonb_to_recordset($2) AS n(level text, used bigint[], held bigint[])
     WHERE b.level = n.level";

/// A change to an occurrence, in the form read by [`WRITE`].
#[derive(Serialize)]
struct Change {
    id: String,
    /// The fence of the dead claim being charged.
    dead: Option<i64>,
    charged: Option<[i64; 5]>,
    state: &'static str,
    wake: Option<i64>,
    /// `None` keeps the fence.
    fence: Option<i64>,
    owner: Option<String>,
    why: Option<String>,
    outcome: Option<Value>,
}

/// A candidate, and the row that contains the other columns of its claim.
struct Found {
    candidate: Candidate,
    row: Row,
}

pub(super) fn claim(
    step: &mut Step<'_>,
    request: &ClaimRequest,
) -> Result<(Vec<Claim>, Vec<Declined>), Fault> {
    let member = step.first(SEEN, &[&request.host, &request.worker])?;
    let member = member.ok_or_else(|| FleetError::NotJoined(request.host.clone()))?;
    if member.try_get::<_, String>(0)? != HostState::Active.as_str() {
        return Ok((Vec::new(), Vec::new()));
    }
    let most = i64::from(request.most);
    let rows = step.query(CANDIDATES, &[&request.tags, &request.home, &request.host, &most])?;
    let Some(first) = rows.first() else {
        return Ok((Vec::new(), Vec::new()));
    };
    let now: i64 = first.try_get(17)?;
    let found = rows.into_iter().map(found).collect::<Result<Vec<Found>, Fault>>()?;
    let candidates: Vec<Candidate> = found.iter().map(|one| one.candidate.clone()).collect();
    let mut running = running(step, &candidates, now)?;
    let levels: BTreeSet<&String> = candidates.iter().flat_map(|one| &one.levels).collect();
    let mut budgets = operations::lock_budgets(step, &levels.into_iter().collect::<Vec<_>>())?;
    let decided = decide::plan(&candidates, &mut budgets, &mut running, now);
    write(step, (&decided, &budgets), request, now)?;
    results(&found, decided)
}

fn found(row: Row) -> Result<Found, Fault> {
    let want = operations::units_of(&row, 6)?;
    let dead: bool = row.try_get(2)?;
    let candidate = Candidate {
        id: row.try_get(0)?,
        fence: row.try_get(1)?,
        dead: dead.then_some(want),
        group: row.try_get(3)?,
        slots: row.try_get::<_, Option<i32>>(4)?.map(|slots| u32::try_from(slots).unwrap_or(1)),
        levels: row.try_get(5)?,
        want,
        lease: row.try_get(7)?,
        lost: u32::try_from(row.try_get::<_, i32>(8)?).unwrap_or(0),
        most_lost: u32::try_from(row.try_get::<_, i32>(9)?).unwrap_or(1),
        cancel: row.try_get(10)?,
    };
    Ok(Found { candidate, row })
}

/// Locks the groups of the candidates, and counts their live claims.
fn running(
    step: &mut Step<'_>,
    candidates: &[Candidate],
    now: i64,
) -> Result<BTreeMap<String, u32>, Fault> {
    let groups: BTreeSet<&String> =
        candidates.iter().filter_map(|one| one.group.as_ref()).collect();
    let groups: Vec<&String> = groups.into_iter().collect();
    if groups.is_empty() {
        return Ok(BTreeMap::new());
    }
    step.query(GROUPS, &[&groups])?;
    // A separate statement sees the claims of the transaction that previously held the lock.
    let rows = step.query(RUNNING, &[&groups, &now])?;
    rows.iter()
        .map(|row| {
            let count: i64 = row.try_get(1)?;
            Ok((row.try_get(0)?, u32::try_from(count).unwrap_or(u32::MAX)))
        })
        .collect()
}

fn write(
    step: &mut Step<'_>,
    (decided, budgets): (&[Decided], &BTreeMap<String, BudgetRow>),
    request: &ClaimRequest,
    now: i64,
) -> Result<(), Fault> {
    let changes: Vec<Change> = decided.iter().filter_map(|one| change(one, request)).collect();
    if changes.is_empty() {
        return Ok(());
    }
    let budgets: Vec<Value> = budgets
        .values()
        .map(|row| value!({"level": row.level, "used": row.used, "held": row.held}))
        .collect();
    let ids: Vec<&String> = changes.iter().map(|one| &one.id).collect();
    let rows = [value!(changes), value!(budgets)];
    step.change(WRITE, &[&rows[0], &rows[1], &now, &request.host, &ids])?;
    Ok(())
}

fn change(one: &Decided, request: &ClaimRequest) -> Option<Change> {
    let mut change = Change {
        id: one.id.clone(),
        dead: one.charge.map(|(fence, _)| fence),
        charged: one.charge.map(|(_, amounts)| amounts),
        state: "pending",
        wake: None,
        fence: None,
        owner: None,
        why: None,
        outcome: None,
    };
    match &one.step {
        decide::Step::Leave { .. } => return None,
        decide::Step::Wait { wake, why } => {
            (change.wake, change.why) = (Some(*wake), Some(why.clone()));
        }
        decide::Step::End { fence, outcome } => {
            (change.state, change.fence) = ("delivered", Some(*fence));
            change.outcome = serde_json::to_value(outcome).ok();
        }
        decide::Step::Claim { fence, expires } => {
            (change.state, change.fence) = ("claimed", Some(*fence));
            (change.wake, change.owner) = (Some(*expires), Some(request.worker.clone()));
        }
    }
    Some(change)
}

fn results(found: &[Found], decided: Vec<Decided>) -> Result<(Vec<Claim>, Vec<Declined>), Fault> {
    let (mut claims, mut declined) = (Vec::new(), Vec::new());
    for (Found { candidate, row }, one) in found.iter().zip(decided) {
        let why = match one.step {
            decide::Step::Leave { why } | decide::Step::Wait { why, .. } => why,
            decide::Step::End { outcome, .. } => outcome.why().unwrap_or_default().to_owned(),
            decide::Step::Claim { fence, .. } => {
                claims.push(Claim {
                    occurrence: one.id,
                    fence,
                    project: row.try_get(11)?,
                    job: row.try_get(12)?,
                    key: row.try_get(13)?,
                    home: row.try_get(14)?,
                    due: row.try_get(15)?,
                    lease: candidate.lease,
                    reserved: amounts(candidate.want),
                    source: row.try_get(16)?,
                });
                continue;
            }
        };
        declined.push(Declined { occurrence: one.id, why });
    }
    Ok((claims, declined))
}
