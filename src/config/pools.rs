//! The settings that belong to a user and not to a project: the pools that backends spend from,
//! across all projects, and the prices of tokens.
//!
//! A project's file must never set them, because no project may spend a budget that another relies
//! on.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use runner_engine::store::Budget;
use runner_jobs::prices::{Price, Prices};
use runner_text::nearest::nearest;
use toml::{Table, Value};

use super::section::Section;
use super::sources::{ConfigMistake, Sources, wrong};
use super::{good_name, job, units};

const PRICES: &str = include_str!("../../config/prices.toml");

/// One subscription, key or machine that answers are paid from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The IANA zone of its days and weeks.
    pub zone: String,
    /// Whether what is billed beyond it is wanted.
    pub overage: bool,
    /// The most of a civil day.
    pub day: Option<Budget>,
    /// The most of an ISO week.
    pub week: Option<Budget>,
    /// The most of a window, and how long one lasts from its first use.
    pub window: Option<(SignedDuration, Budget)>,
}

/// Reads `[pools]`.
pub(super) fn pools(
    table: Table,
    sources: &Sources,
) -> Result<BTreeMap<String, Pool>, ConfigMistake> {
    let mut pools = BTreeMap::new();
    for (name, value) in table {
        let path = format!("pools.{name}");
        let Value::Table(mut table) = value else {
            return Err(wrong(sources, &path, "it must be a table"));
        };
        if !good_name(&name) {
            let why = "a pool's name has letters, digits, - and _";
            return Err(wrong(sources, &path, why));
        }
        let mut section = Section::of(&path, &mut table, sources);
        let zone = section.parsed("zone", units::zone)?;
        let zone = match zone {
            Some(zone) => zone,
            None => units::zone("system").unwrap_or_else(|_| "UTC".to_owned()),
        };
        let overage = section.flag("overage")?.unwrap_or(false);
        let unlimited = section.flag("unlimited")?.unwrap_or(false);
        let day = section.table("day")?;
        let day = day.map(|table| caps(&format!("{path}.day"), table, sources));
        let week = section.table("week")?;
        let week = week.map(|table| caps(&format!("{path}.week"), table, sources));
        let window = section.table("window")?;
        let window = window.map(|table| window_of(&format!("{path}.window"), table, sources));
        section.finish()?;
        let (day, week, window) = (day.transpose()?, week.transpose()?, window.transpose()?);
        if day.is_none() && week.is_none() && window.is_none() && !unlimited {
            let why =
                "it bounds nothing: give it a day, a week or a window, or write unlimited = true";
            return Err(wrong(sources, &path, why));
        }
        pools.insert(name, Pool { zone, overage, day, week, window });
    }
    Ok(pools)
}

/// Checks that a pool with this name exists.
pub(super) fn known(name: &str, pools: &BTreeMap<String, Pool>) -> Result<String, String> {
    if pools.contains_key(name) {
        return Ok(name.to_owned());
    }
    let near = nearest(name, pools.keys().map(String::as_str))
        .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
    Err(format!(
        "there is no [pools.{name}] in your own config.toml{near} \
         (runner config set --user pools.{name}.unlimited true makes one that bounds nothing)"
    ))
}

fn caps(path: &str, mut table: Table, sources: &Sources) -> Result<Budget, ConfigMistake> {
    let mut section = Section::of(path, &mut table, sources);
    let caps = job::caps_of(&mut section)?;
    section.finish()?;
    Ok(caps)
}

fn window_of(
    path: &str,
    mut table: Table,
    sources: &Sources,
) -> Result<(SignedDuration, Budget), ConfigMistake> {
    let mut section = Section::of(path, &mut table, sources);
    let length = section.parsed("length", units::duration)?;
    let caps = job::caps_of(&mut section)?;
    section.finish()?;
    let length = length.unwrap_or(SignedDuration::from_hours(5));
    Ok((length, caps))
}

/// Returns the built-in price list, and the date by which the providers had published it.
pub fn listed() -> (Prices, String) {
    let mut table: Table = toml::from_str(PRICES).expect("the embedded prices parse");
    let as_of = match table.remove("as_of") {
        Some(Value::String(date)) => date,
        _ => String::new(),
    };
    let prices = match table.remove("prices") {
        Some(Value::Table(prices)) => prices,
        _ => Table::new(),
    };
    let prices = read(prices, Prices::default(), &Sources::default());
    (prices.expect("the embedded prices are good"), as_of)
}

/// Returns the built-in price list with the prices of `[prices]` applied.
pub(super) fn prices(table: Table, sources: &Sources) -> Result<Prices, ConfigMistake> {
    read(table, listed().0, sources)
}

fn read(table: Table, mut prices: Prices, sources: &Sources) -> Result<Prices, ConfigMistake> {
    for (model, value) in table {
        let path = format!("prices.{model}");
        let Value::Table(mut table) = value else {
            return Err(wrong(sources, &path, "it must be a table"));
        };
        let known = prices.0.get(&model).copied();
        let mut section = Section::of(&path, &mut table, sources);
        let input = rate(&mut section, "input_cost_per_token")?;
        let output = rate(&mut section, "output_cost_per_token")?;
        let cached = rate(&mut section, "cache_read_input_token_cost")?;
        section.finish()?;
        let input = input.or(known.map(|price| price.input));
        let output = output.or(known.map(|price| price.output));
        let (Some(input), Some(output)) = (input, output) else {
            let why = "it needs input_cost_per_token and output_cost_per_token, in dollars a token";
            return Err(wrong(sources, &path, why));
        };
        let cached = cached.or(known.and_then(|price| price.cached));
        let price = Price { input, output, cached };
        prices.0.insert(model, price);
    }
    Ok(prices)
}

/// Dollars a token, as millionths of a millionth.
fn rate(section: &mut Section<'_>, key: &'static str) -> Result<Option<u64>, ConfigMistake> {
    let Some(dollars) = section.number(key)? else {
        return Ok(None);
    };
    if dollars > 1.0 {
        let why = "it must be 1 at most: dollars for one token, like 3e-6 for 3 dollars a million";
        return Err(section.wrong(&section.full(key), why));
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be between 0 and 1"
    )]
    Ok(Some((dollars * 1e12).round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_prices_are_dated_and_cached_tokens_are_cheaper() {
        let (prices, as_of) = listed();
        assert!(as_of.parse::<jiff::civil::Date>().is_ok(), "{as_of}");
        assert!(prices.0.len() > 10);
        for (model, price) in &prices.0 {
            assert!(price.input > 0 && price.output > price.input, "{model}");
            assert!(price.cached.is_some_and(|cached| cached < price.input), "{model}");
        }
        let sonnet = prices.of("claude-sonnet-4-5-20250929").unwrap();
        assert_eq!((sonnet.input, sonnet.output), (3_000_000, 15_000_000));
        assert_eq!(sonnet.cached, Some(300_000));
    }
}
