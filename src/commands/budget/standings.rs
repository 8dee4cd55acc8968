//! `runner budget show`: shows each budget and the rate limits of providers.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use runner_engine::outcome::Exit;
use runner_engine::store::{Amounts, BudgetStanding, NIGHT, ProviderLimit, Store};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::grant::BudgetGrant;
use super::{all, bounded, in_zone, zone};
use crate::budget::{self, BudgetAccount, UNITS};
use crate::commands::Cli;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, show};

/// The budgets, and the rate limits that providers reported.
#[derive(JsonSchema, Serialize)]
pub(in crate::commands) struct Budgets {
    budgets: Vec<ShownBudget>,
    limits: Vec<ShownLimit>,
    #[serde(skip)]
    zone: TimeZone,
}

/// A budget, with its amounts by unit.
#[derive(JsonSchema, Serialize)]
struct ShownBudget {
    level: &'static str,
    key: String,
    label: String,
    cap: Map<String, Value>,
    granted: Map<String, Value>,
    used: Map<String, Value>,
    reserved: Map<String, Value>,
    left: Map<String, Value>,
    renews: Option<Timestamp>,
    grants: Vec<BudgetGrant>,
    #[serde(skip)]
    standing: BudgetStanding,
}

#[derive(JsonSchema, Serialize)]
struct ShownLimit {
    pool: String,
    until: Timestamp,
    streak: u32,
    why: String,
}

impl View for Budgets {
    fn print(&self, _ui: Ui) {
        let mut out = String::new();
        for budget in &self.budgets {
            out.push_str(&format!("{}\n", budget.label));
            out.push_str(&show::table(&lines(&budget.standing)));
            let renewal = match budget.renews {
                Some(at) => format!("renews {}", in_zone(at, &self.zone)),
                None if budget.level == NIGHT => "ends with the night".to_owned(),
                None => "opens with the next run".to_owned(),
            };
            out.push_str(&format!("  {renewal}\n"));
            for grant in &budget.grants {
                out.push_str(&format!("  {}\n", grant.describe(&self.zone)));
            }
        }
        for limit in &self.limits {
            out.push_str(&format!(
                "{} is rate-limited until {}: {}\n",
                limit.pool,
                in_zone(limit.until, &self.zone),
                limit.why
            ));
        }
        show::out(&out);
    }
}

pub fn run(cli: &Cli<'_>, here: &LoadedProject) -> Result<Exit, Failure> {
    let now = cli.env.wall()?;
    let store = cli.env.store_to_read()?;
    let mut shown = Vec::new();
    for account in budgets(here, store.as_ref(), now)? {
        let standing = standing(store.as_ref(), &account, now)?;
        let grants = store
            .as_ref()
            .map(|store| store.grants(standing.level.level, &standing.level.key))
            .transpose()?
            .unwrap_or_default();
        let closes = standing.window.map(|(_, closes)| closes);
        shown.push(ShownBudget {
            level: standing.level.level,
            key: standing.level.key.clone(),
            label: standing.level.label.clone(),
            cap: bounded(standing.level.cap.array()),
            granted: all(standing.granted),
            used: all(standing.used),
            reserved: all(standing.reserved),
            left: bounded(standing.left()),
            renews: account.renews.or(closes),
            grants: grants.iter().map(|grant| BudgetGrant::new(grant, now)).collect(),
            standing,
        });
    }
    let limits = store.as_ref().map(|store| store.limits(now)).transpose()?.unwrap_or_default();
    // The limits of other projects do not hold this project back.
    let own = format!("{} ", here.id);
    let concerns = |limit: &ProviderLimit| {
        limit.pool.starts_with(&own) || here.config.pools.contains_key(&limit.pool)
    };
    let limits = limits.into_iter().filter(concerns).map(|limit| ShownLimit {
        pool: name_of(here, &limit),
        until: limit.until,
        streak: limit.streak,
        why: limit.why,
    });
    cli.ui.show(&Budgets { budgets: shown, limits: limits.collect(), zone: zone(here) });
    Ok(Exit::Done)
}

/// Lists the budgets of the day, the open night, the jobs and the pools.
fn budgets(
    here: &LoadedProject,
    store: Option<&Store>,
    now: Timestamp,
) -> Result<Vec<BudgetAccount>, Failure> {
    let mut budgets = vec![budget::day(here, now)];
    if let Some(store) = store {
        let night = store.nights(&here.id, 1)?.into_iter().next();
        if let Some(night) = night.filter(|night| night.closed.is_none()) {
            budgets.push(budget::of_night(here, &night));
        }
    }
    for name in here.config.jobs.keys() {
        budgets.extend(budget::of_job(here, name, now));
    }
    for (name, pool) in &here.config.pools {
        budgets.extend(budget::of_pool(name, pool, now));
    }
    Ok(budgets)
}

fn standing(
    store: Option<&Store>,
    account: &BudgetAccount,
    now: Timestamp,
) -> Result<BudgetStanding, Failure> {
    Ok(match store {
        Some(store) => store.standing(&account.level, now)?,
        None => BudgetStanding {
            level: account.level.clone(),
            window: None,
            granted: Amounts::default(),
            used: Amounts::default(),
            reserved: Amounts::default(),
        },
    })
}

/// Returns the label of the pool or backend that a limit applies to.
fn name_of(here: &LoadedProject, limit: &ProviderLimit) -> String {
    match limit.pool.strip_prefix(&format!("{} ", here.id)) {
        Some(backend) => format!("backend {backend}"),
        None => format!("pool {}", limit.pool),
    }
}

fn lines(standing: &BudgetStanding) -> Vec<Vec<String>> {
    let (cap, more) = (standing.level.cap.array(), standing.granted.array());
    let (used, held) = (standing.used.array(), standing.reserved.array());
    let left = standing.left();
    let mut rows = Vec::new();
    for unit in 0..UNITS.len() {
        if cap[unit].is_none() && used[unit] == 0 && held[unit] == 0 {
            continue;
        }
        let mut text = format!("{} used", budget::amount(unit, used[unit]));
        if held[unit] > 0 {
            text.push_str(&format!(", {} reserved", budget::amount(unit, held[unit])));
        }
        match (cap[unit], left[unit]) {
            (Some(cap), Some(left)) => {
                text.push_str(&format!(" of {}", budget::amount(unit, cap)));
                if more[unit] > 0 {
                    text.push_str(&format!(" + {} granted", budget::amount(unit, more[unit])));
                }
                text.push_str(&format!(", {} left", budget::amount(unit, left)));
            }
            _ => text.push_str(", unlimited"),
        }
        rows.push(vec![format!("  {}", UNITS[unit]), text]);
    }
    rows
}
