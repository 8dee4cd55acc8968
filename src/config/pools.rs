//! The settings that belong to a user rather than a project: token prices, and the pools that
//! backends spend from across all projects.
//!
//! A project's file must never set them, because a project must not increase a budget that other
//! projects share.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use runner_engine::store::Budget;
use runner_jobs::prices::{Price, Prices};
use toml::{Table, Value};

use super::finding::Reason;
use super::reader::Reader;
use super::settings::{PoolTable, PriceTable, WindowTable};
use runner_engine::zones;

const PRICES: &str = include_str!("../../config/prices.toml");

/// The limits of a subscription, a key or a machine that backends share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The IANA time zone for the pool's days and weeks.
    pub zone: String,
    /// Whether answers that incur charges beyond the subscription are accepted.
    pub overage: bool,
    /// The fraction of the subscription's window that runs leave for other uses, in thousandths.
    pub leave: u16,
    /// The budget of a civil day.
    pub day: Option<Budget>,
    /// The budget of an ISO week.
    pub week: Option<Budget>,
    /// The length of a window from its first use, and its budget.
    pub window: Option<(SignedDuration, Budget)>,
}

pub(super) fn pools(reader: &mut Reader<'_>) -> BTreeMap<String, Pool> {
    let mut pools = BTreeMap::new();
    for name in reader.entries("pools") {
        let path = format!("pools.{name}");
        let Some(table) = reader.read::<PoolTable>(&["pools", &name]) else { continue };
        let window = |table: WindowTable| {
            let length = table.length.as_ref().map_or(SignedDuration::from_hours(5), |it| it.0);
            (length, table.into())
        };
        let pool = Pool {
            zone: table.zone.map_or_else(zones::system_name, |zone| zone.0),
            overage: table.overage,
            leave: thousandths(table.leave),
            day: table.day.map(Into::into),
            week: table.week.map(Into::into),
            window: table.window.map(window),
        };
        let bounds = pool.day.is_some() || pool.week.is_some() || pool.window.is_some();
        if !bounds && !table.unlimited && reader.is_good(&path) {
            let why = "the pool has no limit: set a day, a week or a window, or unlimited = true";
            reader.wrong(&path, why);
        }
        pools.insert(name, pool);
    }
    pools
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the schema limits the fraction to values between 0 and 0.99"
)]
fn thousandths(part: f64) -> u16 {
    (part * 1000.0).round() as u16
}

/// Adds an error about `key` unless the user's file defines the pool `name`.
pub(super) fn check_known(reader: &mut Reader<'_>, key: &str, name: &str) {
    let names = reader.names("pools");
    if !names.contains(&name) {
        let why = Reason::from(format!(
            "there is no [pools.{name}] in your own config.toml \
             (runner config set --user pools.{name}.unlimited true creates one without limits)"
        ));
        reader.wrong(key, why.near(name, names));
    }
}

/// Returns the built-in price list and its date.
pub fn listed() -> (Prices, String) {
    let mut table: Table = toml::from_str(PRICES).expect("the embedded prices parse");
    let as_of = match table.remove("as_of") {
        Some(Value::String(date)) => date,
        _ => String::new(),
    };
    let mut prices = Prices::default();
    let stated = table.remove("prices").and_then(|it| it.try_into().ok());
    let stated: BTreeMap<String, PriceTable> = stated.expect("the embedded prices are valid");
    for (model, table) in stated {
        prices.0.extend(price(&table, None).map(|price| (model, price)));
    }
    (prices, as_of)
}

/// Returns the built-in price list with the prices from `[prices]` applied.
pub(super) fn prices(reader: &mut Reader<'_>) -> Prices {
    let mut prices = listed().0;
    for model in reader.entries("prices") {
        let Some(table) = reader.read::<PriceTable>(&["prices", &model]) else { continue };
        let key = format!("prices.{model}");
        match price(&table, prices.0.get(&model)) {
            Some(price) => {
                prices.0.insert(model, price);
            }
            None if reader.is_good(&key) => reader.wrong(
                &key,
                "input_cost_per_token and output_cost_per_token are required, in dollars per token",
            ),
            None => {}
        }
    }
    prices
}

/// Returns the price of a model, with missing rates taken from its known price. Returns `None` if
/// the input rate or the output rate is missing from both.
fn price(table: &PriceTable, known: Option<&Price>) -> Option<Price> {
    Some(Price {
        input: table.input_cost_per_token.map(rate).or(known.map(|price| price.input))?,
        output: table.output_cost_per_token.map(rate).or(known.map(|price| price.output))?,
        cached: table
            .cache_read_input_token_cost
            .map(rate)
            .or(known.and_then(|price| price.cached)),
    })
}

/// Converts dollars per token to trillionths of a dollar per token.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the schema limits the price to values between 0 and 1"
)]
pub(super) fn rate(dollars: f64) -> u64 {
    (dollars * 1e12).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_prices_are_dated_and_plausible() {
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
