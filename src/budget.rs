//! Determines which budgets apply to a run and when each of them renews, and formats amounts.
//!
//! This module must never read the database, which records the usage; the caller passes the night.

use jiff::civil::Weekday;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _, Zoned};
use runner_engine::store::{
    Amounts, Budget, BudgetLevel, DAY, JOB, NIGHT, Night, POOL_DAY, POOL_WEEK, WINDOW,
};
use runner_engine::zones;
use runner_jobs::Spending;
use runner_text::counted;

use crate::config::{Pool, price_file};
use crate::env::Env;
use crate::project::LoadedProject;

#[derive(Clone, Debug)]
pub struct BudgetAccount {
    pub level: BudgetLevel,
    /// The start of the next period. `None` for a night, and for a window, whose end is in the
    /// database.
    pub renews: Option<Timestamp>,
}

/// Returns the budgets that limit a run of `job` with `backend`.
pub fn of_run(
    here: &LoadedProject,
    job: &str,
    backend: &str,
    night: Option<&Night>,
    now: Timestamp,
) -> Vec<BudgetAccount> {
    let mut budgets = vec![day(here, now)];
    budgets.extend(of_job(here, job, now));
    budgets.extend(night.map(|night| of_night(here, night)));
    let config = &here.config;
    if let Some(name) = config.pool_of.get(backend)
        && let Some(pool) = config.pools.get(name)
    {
        budgets.extend(of_pool(name, pool, now));
    }
    budgets
}

/// Returns the project's budget for the current civil day.
pub fn day(here: &LoadedProject, now: Timestamp) -> BudgetAccount {
    let today = today(now, &here.config.night.zone);
    let date = today.date();
    BudgetAccount {
        level: BudgetLevel::new(
            DAY,
            format!("{} {date}", here.id),
            format!("day {date} ([day.budget])"),
            here.config.day,
        ),
        renews: tomorrow(&today),
    }
}

/// Returns a job's budget for the current civil day, or `None` if the job is not configured or its
/// budget has no limits.
pub fn of_job(here: &LoadedProject, job: &str, now: Timestamp) -> Option<BudgetAccount> {
    let cap = here.config.jobs.get(job)?.day;
    if cap.array().iter().all(Option::is_none) {
        return None;
    }
    let today = today(now, &here.config.night.zone);
    let date = today.date();
    Some(BudgetAccount {
        level: BudgetLevel::new(
            JOB,
            format!("{} {job} {date}", here.id),
            format!("{job} on {date} ([jobs.{job}.day_budget])"),
            cap,
        ),
        renews: tomorrow(&today),
    })
}

pub fn of_night(here: &LoadedProject, night: &Night) -> BudgetAccount {
    BudgetAccount {
        level: BudgetLevel::new(
            NIGHT,
            night.id.0.to_string(),
            format!("night {} ([night.budget])", night.name),
            here.config.night.budget,
        ),
        renews: None,
    }
}

/// Returns the day, week and window budgets configured for a pool.
pub fn of_pool(name: &str, pool: &Pool, now: Timestamp) -> Vec<BudgetAccount> {
    let today = today(now, &pool.zone);
    let mut budgets = Vec::new();
    if let Some(cap) = pool.day {
        let date = today.date();
        budgets.push(BudgetAccount {
            level: BudgetLevel::new(
                POOL_DAY,
                format!("{name} {date}"),
                format!("pool {name} on {date} ([pools.{name}.day])"),
                cap,
            ),
            renews: tomorrow(&today),
        });
    }
    if let Some(cap) = pool.week {
        let week = today.date().iso_week_date();
        let week = format!("{:04}-W{:02}", week.year(), week.week());
        let monday = today.date().nth_weekday(1, Weekday::Monday);
        budgets.push(BudgetAccount {
            level: BudgetLevel::new(
                POOL_WEEK,
                format!("{name} {week}"),
                format!("pool {name} in {week} ([pools.{name}.week])"),
                cap,
            ),
            renews: monday
                .and_then(|monday| monday.to_zoned(today.time_zone().clone()))
                .map(|monday| monday.timestamp())
                .ok(),
        });
    }
    if let Some((length, cap)) = pool.window {
        let label = format!("pool {name} in this window ([pools.{name}.window])");
        budgets.push(BudgetAccount {
            level: BudgetLevel {
                window: Some(length),
                ..BudgetLevel::new(WINDOW, name.to_owned(), label, cap)
            },
            renews: None,
        });
    }
    budgets
}

/// Returns the key for a backend's rate limits: its pool, or a key for this project and backend if
/// the backend has no pool.
pub fn pool(here: &LoadedProject, backend: &str) -> String {
    match here.config.pool_of.get(backend) {
        Some(pool) => pool.clone(),
        None => format!("{} {backend}", here.id),
    }
}

/// Returns the payment settings for requests to a backend.
pub fn spending(home: &Env, here: &LoadedProject, backend: &str) -> Spending {
    let config = &here.config;
    let pool_of_it = config.pool_of.get(backend).and_then(|pool| config.pools.get(pool));
    Spending {
        pool: pool(here, backend),
        overage: pool_of_it.is_some_and(|pool| pool.overage),
        leave: pool_of_it.map_or(0, |pool| pool.leave),
        prices: match price_file::over(&home.config_folder(), config) {
            Ok(listed) => listed.prices,
            Err(error) => {
                // The configured prices still apply. A request to a model listed only in the file
                // is charged its reserved amount.
                tracing::warn!(%error, "continuing without the price file");
                config.prices.clone()
            }
        },
    }
}

fn today(now: Timestamp, zone: &str) -> Zoned {
    now.to_zoned(zones::get(zone).unwrap_or(TimeZone::UTC))
}

fn tomorrow(today: &Zoned) -> Option<Timestamp> {
    let tomorrow = today.checked_add(1.day()).ok()?.start_of_day().ok()?;
    Some(tomorrow.timestamp())
}

/// Formats an amount of the unit with this index in [`UNITS`].
pub fn amount(unit: usize, amount: u64) -> String {
    match unit {
        2 => {
            let cents = amount.div_ceil(10_000);
            format!("${}.{:02}", cents / 100, cents % 100)
        }
        3 => {
            let seconds = i64::try_from(amount).unwrap_or(i64::MAX);
            format!("{:#}", jiff::SignedDuration::from_secs(seconds))
        }
        _ => amount.to_string(),
    }
}

/// The names of the units in the configuration, in the order of [`Amounts::array`].
pub const UNITS: [&str; 5] = ["calls", "tokens", "money", "time", "ideas"];

/// Formats a budget's limits, separated by commas.
pub fn format_budget(budget: Budget) -> String {
    let limits = budget.array().into_iter().enumerate();
    let parts: Vec<String> =
        limits.filter_map(|(unit, limit)| Some(format_unit(unit, limit?))).collect();
    if parts.is_empty() { "no limit".to_owned() } else { parts.join(", ") }
}

fn format_unit(unit: usize, value: u64) -> String {
    match unit {
        2 | 3 => amount(unit, value),
        _ => counted(value, UNITS[unit].trim_end_matches('s')),
    }
}

/// Formats the non-zero amounts, separated by commas.
pub fn format_amounts(amounts: Amounts) -> String {
    let parts: Vec<String> = amounts
        .array()
        .into_iter()
        .enumerate()
        .filter(|(_, value)| *value > 0)
        .map(|(unit, value)| format_unit(unit, value))
        .collect();
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_a_limit() {
        let budget = |calls, micros| Budget { calls, micros, ..Budget::default() };
        assert_eq!(format_budget(budget(None, None)), "no limit");
        assert_eq!(format_budget(budget(Some(0), None)), "0 calls");
        assert_eq!(format_budget(budget(Some(1), Some(0))), "1 call, $0.00");
    }
}
