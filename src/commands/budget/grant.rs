//! `runner budget grant`: adds an amount to a budget once.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use runner_engine::outcome::Exit;
use runner_engine::store::{Amounts, BudgetStanding, Event, Grant, Store, WINDOW};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{all, bounded, in_zone, zone};
use crate::budget::{self, BudgetAccount, UNITS};
use crate::commands::Cli;
use crate::config::values;
use crate::env;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, show, when};

/// Add to one budget once; the addition ends with the budget's period
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: runner budget grant night money=2.50 calls=10 --reason 'the long audit'"
)]
pub struct GrantArgs {
    /// The budget: day, night, job:NAME, pool:NAME:day, pool:NAME:week or pool:NAME:window
    account: String,
    /// The amounts to add: calls=N, tokens=N, money=DOLLARS, time=DURATION, ideas=N
    #[arg(required = true, value_name = "UNIT=AMOUNT")]
    amounts: Vec<String>,
    /// End the addition at this time, in the format of `enqueue --at` [default: the end of the
    /// budget's period]
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// The reason for the grant
    #[arg(long)]
    reason: String,
}

#[derive(JsonSchema, Serialize)]
pub struct BudgetGrant {
    made: Timestamp,
    until: Option<Timestamp>,
    amounts: Map<String, Value>,
    reason: String,
    who: String,
    over: bool,
    #[serde(skip)]
    granted: Amounts,
}

impl BudgetGrant {
    /// Converts a grant for output. The grant is over if its end is not after `now`.
    pub fn new(grant: &Grant, now: Timestamp) -> Self {
        Self {
            made: grant.made,
            until: grant.until,
            amounts: all(grant.amounts),
            reason: grant.reason.clone(),
            who: grant.who.clone(),
            over: grant.until.is_some_and(|until| until <= now),
            granted: grant.amounts,
        }
    }

    pub fn describe(&self, zone: &TimeZone) -> String {
        let end = match self.until {
            Some(until) if self.over => format!(", ended {}", in_zone(until, zone)),
            Some(until) => format!(", until {}", in_zone(until, zone)),
            None => String::new(),
        };
        format!(
            "granted {} by {} on {}{end}: {}",
            budget::format_amounts(self.granted),
            self.who,
            in_zone(self.made, zone),
            self.reason
        )
    }
}

/// A new grant, and the remaining budget.
#[derive(Serialize)]
struct GrantedBudget {
    level: &'static str,
    key: String,
    grant: BudgetGrant,
    left: Map<String, Value>,
    #[serde(skip)]
    standing: BudgetStanding,
}

impl View for GrantedBudget {
    fn print(&self, ui: Ui) {
        let (left, granted) = (self.standing.left(), self.grant.granted);
        let left: Vec<String> = UNITS
            .iter()
            .enumerate()
            .filter(|(unit, _)| granted.array()[*unit] > 0)
            .filter_map(|(unit, name)| {
                Some(format!("{} {name}", budget::amount(unit, left[unit]?)))
            })
            .collect();
        ui.info(&format!(
            "{} may spend {} more; {} left",
            self.standing.level.label,
            budget::format_amounts(granted),
            left.join(", ")
        ));
    }
}

impl GrantArgs {
    /// Adds the grant to the budget and records an event.
    pub fn run(&self, cli: &Cli<'_>, here: &LoadedProject) -> Result<Exit, Failure> {
        let now = cli.env.wall()?;
        let reason = self.reason.trim();
        if reason.is_empty() {
            return Err(Failure::usage("--reason: state what the grant is for"));
        }
        let amounts = amounts(&self.amounts)?;
        let zone = zone(here);
        let until = self.until(&zone, now)?;
        let mut store = cli.env.store()?;
        here.register(&mut store, now)?;
        let account = named(here, &store, &self.account, now)?;
        let standing = store.standing(&account.level, now)?;
        if account.level.level == WINDOW && standing.window.is_none() {
            return Err(Failure::data(format!(
                "{} has no open window: the next run opens a window with the full budget",
                self.account
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
            key: standing.level.key,
            made: now,
            until,
            amounts,
            reason: reason.to_owned(),
            who: env::person(),
        };
        store.grant(&grant)?;
        let grant = BudgetGrant::new(&grant, now);
        store.event(&Event {
            at: now,
            project: Some(here.id.clone()),
            run: None,
            kind: "granted".to_owned(),
            detail: format!("{}: {}", account.level.label, grant.describe(&zone)),
        })?;
        let standing = store.standing(&account.level, now)?;
        cli.ui.show(&GrantedBudget {
            level: standing.level.level,
            key: standing.level.key.clone(),
            grant,
            left: bounded(standing.left()),
            standing,
        });
        Ok(Exit::Done)
    }

    /// Parses `--until`, if it is given. The time must be in the future.
    fn until(&self, zone: &TimeZone, now: Timestamp) -> Result<Option<Timestamp>, Failure> {
        let Some(until) = &self.until else { return Ok(None) };
        let until = when::parse_time(until, zone, now).map_err(Failure::usage)?;
        if until <= now {
            let until = show::format_time(until);
            return Err(Failure::usage(format!("--until: {until} is in the past")));
        }
        Ok(Some(until))
    }
}

/// Parses amounts such as `calls=3`, `money=2.50` and `time=1h`.
fn amounts(words: &[String]) -> Result<Amounts, Failure> {
    let mut sum = [0_u64; 5];
    for word in words {
        let wrong = |why: &str| {
            Failure::usage(format!("{word}: {why} (for example money=2.50, calls=3, time=1h)"))
        };
        let (name, value) = word.split_once('=').ok_or_else(|| wrong("expected UNIT=AMOUNT"))?;
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
                .filter(|micros| *micros > 0)
                .ok_or_else(|| {
                    wrong("expected an amount in dollars, from $0.000001 to a million")
                })?,
            3 => match values::duration(value).map_err(|why| wrong(&why))?.as_secs() {
                seconds @ 1.. => seconds.unsigned_abs(),
                _ => return Err(wrong("expected at least a second")),
            },
            _ => value
                .parse::<u64>()
                .ok()
                .filter(|count| *count > 0 && *count <= 1_000_000_000_000)
                .ok_or_else(|| wrong("expected a whole number from 1 to 1000000000000"))?,
        };
        if sum[unit] != 0 {
            return Err(wrong("this unit is given twice"));
        }
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
            "{name}: expected day, night, job:NAME, pool:NAME:day, pool:NAME:week or pool:NAME:window"
        ))),
    }
}
