//! `runner budget`: shows the remaining budgets and the usage, and makes one-time grants.

use std::path::Path;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use runner_engine::outcome::Exit;
use runner_engine::store::{
    Amounts, BudgetStanding, Event, Grant, GroupBy, NIGHT, ProviderLimit, Store, UsageSum, WINDOW,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::budget::{self, BudgetAccount, UNITS};
use crate::cli::Failure;
use crate::cli::args::{BudgetCommand, Listing};
use crate::cli::{Ui, show, when};
use crate::config::values;
use crate::env::{self, Env};
use crate::project::LoadedProject;

/// Carries out one of the `budget` commands. Without a command, it shows the budgets.
pub fn run(
    home: &Env,
    here: &Path,
    command: Option<&BudgetCommand>,
    ui: Ui,
    listing: Listing,
) -> Result<Exit, Failure> {
    let here = LoadedProject::load(home, here)?;
    match command {
        None => shown(home, &here, listing),
        Some(BudgetCommand::Show { listing }) => shown(home, &here, *listing),
        Some(BudgetCommand::History { by, limit, listing }) => {
            history(home, &here, by, *limit, *listing)
        }
        Some(BudgetCommand::Grant { account, amounts, until, reason, listing }) => {
            let wish = GrantRequest { account, amounts, until: until.as_deref(), reason };
            grant(home, &here, &wish, ui, *listing)
        }
    }
}

/// The JSON form of one budget, with each unit under its name.
#[derive(Debug, Serialize)]
struct AccountJson {
    level: &'static str,
    key: String,
    label: String,
    cap: Map<String, Value>,
    granted: Map<String, Value>,
    used: Map<String, Value>,
    reserved: Map<String, Value>,
    left: Map<String, Value>,
    renews: Option<Timestamp>,
    grants: Vec<GrantJson>,
}

#[derive(Debug, Serialize)]
struct GrantJson {
    made: Timestamp,
    until: Option<Timestamp>,
    amounts: Map<String, Value>,
    reason: String,
    who: String,
    over: bool,
}

/// Converts the values to a map of units. An absent unit has no limit. Money is in dollars, time in
/// seconds.
fn bounded(values: [Option<u64>; 5]) -> Map<String, Value> {
    UNITS
        .iter()
        .zip(values)
        .enumerate()
        .filter_map(|(unit, (name, value))| {
            let value = value?;
            #[allow(clippy::cast_precision_loss, reason = "dollars for people")]
            let value = match unit {
                2 => json!(value as f64 / 1e6),
                _ => json!(value),
            };
            Some(((*name).to_owned(), value))
        })
        .collect()
}

fn all(amounts: Amounts) -> Map<String, Value> {
    bounded(amounts.array().map(Some))
}

/// Lists the current budgets: the day's, each job's, the open night's and all pools'.
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

fn shown(home: &Env, here: &LoadedProject, listing: Listing) -> Result<Exit, Failure> {
    let now = home.wall()?;
    let store = home.store_to_read()?;
    let mut reported = Vec::new();
    for account in budgets(here, store.as_ref(), now)? {
        let standing = standing(store.as_ref(), &account, now)?;
        let grants = match &store {
            Some(store) => store.grants(standing.level.level, &standing.level.key)?,
            None => Vec::new(),
        };
        let closes = standing.window.map(|(_, closes)| closes);
        let renews = account.renews.or(closes);
        reported.push((standing, renews, grants));
    }
    let limits = match &store {
        Some(store) => store.limits(now)?,
        None => Vec::new(),
    };
    if listing.json {
        let budgets: Vec<AccountJson> = reported
            .iter()
            .map(|(standing, renews, grants)| AccountJson {
                level: standing.level.level,
                key: standing.level.key.clone(),
                label: standing.level.label.clone(),
                cap: bounded(standing.level.cap.array()),
                granted: all(standing.granted),
                used: all(standing.used),
                reserved: all(standing.reserved),
                left: bounded(standing.left()),
                renews: *renews,
                grants: grants.iter().map(|grant| grant_json(grant, now)).collect(),
            })
            .collect();
        let limits: Vec<Value> = limits
            .iter()
            .map(|limit| {
                json!({ "pool": name_of(here, limit), "until": limit.until, "streak": limit.streak, "why": limit.why })
            })
            .collect();
        show::json(&json!({ "budgets": budgets, "limits": limits }));
        return Ok(Exit::Done);
    }
    let zone = TimeZone::get(&here.config.night.zone).unwrap_or(TimeZone::UTC);
    let mut out = String::new();
    for (standing, renews, grants) in &reported {
        out.push_str(&format!("{}\n", standing.level.label));
        out.push_str(&show::table(&lines(standing)));
        let renewal = match renews {
            Some(at) => format!("begins anew {}", in_zone(*at, &zone)),
            None if standing.level.level == NIGHT => "ends with the night".to_owned(),
            None => "opens with the next run".to_owned(),
        };
        out.push_str(&format!("  {renewal}\n"));
        for grant in grants {
            out.push_str(&format!("  {}\n", grant_words(grant, now, &zone)));
        }
    }
    for limit in &limits {
        out.push_str(&format!(
            "{} is rate-limited until {}: {}\n",
            name_of(here, limit),
            in_zone(limit.until, &zone),
            limit.why
        ));
    }
    show::out(&out);
    Ok(Exit::Done)
}

/// Returns the label of the pool of a limit. A backend without a pool is labelled with its own
/// name.
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

fn in_zone(at: Timestamp, zone: &TimeZone) -> String {
    at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M %Z").to_string()
}

fn over(grant: &Grant, now: Timestamp) -> bool {
    grant.until.is_some_and(|until| until <= now)
}

fn grant_words(grant: &Grant, now: Timestamp, zone: &TimeZone) -> String {
    let end = match grant.until {
        Some(until) if over(grant, now) => format!(", over since {}", in_zone(until, zone)),
        Some(until) => format!(", until {}", in_zone(until, zone)),
        None => String::new(),
    };
    format!(
        "granted {} by {} on {}{end}: {}",
        budget::format_amounts(grant.amounts),
        grant.who,
        in_zone(grant.made, zone),
        grant.reason
    )
}

fn grant_json(grant: &Grant, now: Timestamp) -> GrantJson {
    GrantJson {
        made: grant.made,
        until: grant.until,
        amounts: all(grant.amounts),
        reason: grant.reason.clone(),
        who: grant.who.clone(),
        over: over(grant, now),
    }
}

fn history(
    home: &Env,
    here: &LoadedProject,
    by: &str,
    limit: u32,
    listing: Listing,
) -> Result<Exit, Failure> {
    let by = match by {
        "night" => GroupBy::Night,
        "job" => GroupBy::Job,
        "backend" => GroupBy::Backend,
        "pool" => GroupBy::Pool,
        _ => GroupBy::Day,
    };
    let reported: Vec<UsageSum> = match home.store_to_read()? {
        Some(store) => store.spending(&here.id, by, limit)?,
        None => Vec::new(),
    };
    if listing.json {
        let rows: Vec<Value> = reported
            .iter()
            .map(|row| {
                json!({ "name": row.name, "spent": all(row.spent), "unstated_calls": row.unstated_calls })
            })
            .collect();
        show::json(&rows);
        return Ok(Exit::Done);
    }
    if reported.is_empty() {
        show::out("nothing was spent yet\n");
        return Ok(Exit::Done);
    }
    let rows: Vec<Vec<String>> = reported
        .iter()
        .map(|row| {
            let mut text = budget::format_amounts(row.spent);
            if row.unstated_calls > 0 {
                text.push_str(&format!(
                    "; {} charged as reserved",
                    show::count(row.unstated_calls, "call")
                ));
            }
            vec![row.name.clone(), text]
        })
        .collect();
    show::out(&show::table(&rows));
    Ok(Exit::Done)
}

/// A requested grant, as written on the command line.
struct GrantRequest<'a> {
    account: &'a str,
    amounts: &'a [String],
    until: Option<&'a str>,
    reason: &'a str,
}

fn grant(
    home: &Env,
    here: &LoadedProject,
    wish: &GrantRequest<'_>,
    ui: Ui,
    listing: Listing,
) -> Result<Exit, Failure> {
    let now = home.wall()?;
    let reason = wish.reason.trim();
    if reason.is_empty() {
        return Err(Failure::usage("--reason: state what the grant is for"));
    }
    let amounts = amounts(wish.amounts)?;
    let zone = TimeZone::get(&here.config.night.zone).unwrap_or(TimeZone::UTC);
    let until = wish
        .until
        .map(|until| when::parse_time(until, &zone, now).map_err(Failure::usage))
        .transpose()?;
    if let Some(until) = until.filter(|until| *until <= now) {
        let until = show::format_time(until);
        return Err(Failure::usage(format!("--until: {until} is past")));
    }
    let mut store = home.store()?;
    here.register(&mut store, now)?;
    let account = named(here, &store, wish.account, now)?;
    let standing = store.standing(&account.level, now)?;
    if account.level.level == WINDOW && standing.window.is_none() {
        return Err(Failure::data(format!(
            "no window of {} is open: the next run opens one with its full budget",
            wish.account
        )));
    }
    for (unit, name) in UNITS.iter().enumerate() {
        if amounts.array()[unit] > 0 && account.level.cap.array()[unit].is_none() {
            return Err(Failure::usage(format!(
                "{} has no limit for {name}: there is nothing to add to",
                account.level.label
            ))
            .hint("runner budget show"));
        }
    }
    let grant = Grant {
        level: standing.level.level.to_owned(),
        key: standing.level.key.clone(),
        made: now,
        until,
        amounts,
        reason: reason.to_owned(),
        who: env::person(),
    };
    store.grant(&grant)?;
    store.event(&Event {
        at: now,
        project: Some(here.id.clone()),
        run: None,
        kind: "granted".to_owned(),
        detail: format!("{}: {}", account.level.label, grant_words(&grant, now, &zone)),
    })?;
    let standing = store.standing(&account.level, now)?;
    if listing.json {
        show::json(&json!({
            "level": standing.level.level,
            "key": standing.level.key,
            "grant": grant_json(&grant, now),
            "left": bounded(standing.left()),
        }));
    } else {
        let left = standing.left();
        let left: Vec<String> = UNITS
            .iter()
            .enumerate()
            .filter(|(unit, _)| amounts.array()[*unit] > 0)
            .filter_map(|(unit, name)| {
                Some(format!("{} {name}", budget::amount(unit, left[unit]?)))
            })
            .collect();
        ui.info(&format!(
            "{} may spend {} more; {} left",
            account.level.label,
            budget::format_amounts(amounts),
            left.join(", ")
        ));
    }
    Ok(Exit::Done)
}

/// Parses amounts such as `calls=3`, `money=2.50` and `time=1h`.
fn amounts(words: &[String]) -> Result<Amounts, Failure> {
    let mut sum = [0_u64; 5];
    for word in words {
        let wrong = |why: &str| {
            Failure::usage(format!("{word}: {why} (like money=2.50, calls=3, time=1h)"))
        };
        let (name, value) = word.split_once('=').ok_or_else(|| wrong("it must be UNIT=AMOUNT"))?;
        let Some(unit) = UNITS.iter().position(|unit| *unit == name) else {
            return Err(wrong("the units are calls, tokens, money, time and ideas"));
        };
        let amount = match unit {
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "checked to be finite, positive and below 2^53"
            )]
            2 => value
                .trim_start_matches('$')
                .parse::<f64>()
                .ok()
                .filter(|dollars| dollars.is_finite() && *dollars > 0.0 && *dollars <= 1e6)
                .map(|dollars| (dollars * 1e6).round() as u64)
                .ok_or_else(|| {
                    wrong("it must be an amount in dollars, more than zero and at most a million")
                })?,
            3 => values::duration(value).map_err(|why| wrong(&why))?.as_secs().unsigned_abs(),
            _ => value
                .parse::<u64>()
                .ok()
                .filter(|count| *count > 0 && *count <= 1_000_000_000_000)
                .ok_or_else(|| wrong("it must be a whole number, more than zero"))?,
        };
        sum[unit] = amount;
    }
    Ok(Amounts::from_array(sum))
}

/// Resolves a budget name: `day`, `night`, `job:NAME`, `pool:NAME:day`, `pool:NAME:week` or
/// `pool:NAME:window`.
fn named(
    here: &LoadedProject,
    store: &Store,
    name: &str,
    now: Timestamp,
) -> Result<BudgetAccount, Failure> {
    let parts: Vec<&str> = name.split(':').collect();
    let nothing = |why: String| Failure::data(why).hint("runner budget show");
    match parts.as_slice() {
        ["day"] => Ok(budget::day(here, now)),
        ["night"] => {
            let night = store.nights(&here.id, 1)?.into_iter().next();
            let night = night.filter(|night| night.closed.is_none() && night.closes > now);
            night
                .map(|night| budget::of_night(here, &night))
                .ok_or_else(|| nothing("no night is open".to_owned()))
        }
        ["job", job] => {
            here.config.job(job)?;
            budget::of_job(here, job, now)
                .ok_or_else(|| nothing(format!("[jobs.{job}] has no day_budget to add to")))
        }
        ["pool", pool, period @ ("day" | "week" | "window")] => {
            let Some(known) = here.config.pools.get(*pool) else {
                return Err(nothing(format!("there is no [pools.{pool}]")));
            };
            let level = format!("pool-{period}");
            budget::of_pool(pool, known, now)
                .into_iter()
                .find(|account| account.level.level == level)
                .ok_or_else(|| nothing(format!("[pools.{pool}] has no {period}")))
        }
        _ => Err(Failure::usage(format!(
            "{name}: it must be day, night, job:NAME, pool:NAME:day, pool:NAME:week or pool:NAME:window"
        ))),
    }
}
