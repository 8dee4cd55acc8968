//! The budget usage of a night, by unit: the cap, the amount reserved by its runs, the amount spent
//! and the amount left.
//!
//! The cap comes from the configuration that was stored in the database when the project's files
//! were last read. The reserved amount is the sum of the amounts that the runs reserved at
//! admission.

use jiff::Timestamp;
use runner_engine::store::{Amounts, Budget, BudgetLevel, NIGHT, Night, Store, StoreError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The units in the order of [`Amounts::array`].
pub const UNITS: [&str; 5] = ["calls", "tokens", "money", "time", "ideas"];

/// The night's budget usage in one unit.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct UnitUsage {
    /// One of [`UNITS`].
    pub unit: String,
    /// Maximum amount that the night may spend; absent if the night does not limit the unit.
    pub cap: Option<u64>,
    /// The additional amount granted.
    pub granted: u64,
    /// The sum of the amounts reserved by the runs at admission: the most that they could have
    /// spent.
    pub planned: u64,
    /// The amount spent, in calls, tokens, millionths of a dollar, seconds or ideas.
    pub spent: u64,
    /// The amount left under the cap and the granted amount; absent if there is no cap.
    pub left: Option<u64>,
}

impl UnitUsage {
    /// Returns the most that the night may spend, including the granted amount.
    pub fn limit(&self) -> Option<u64> {
        self.cap.map(|cap| cap.saturating_add(self.granted))
    }
}

/// Returns the usage of each unit that the night limits, or that its runs reserved or spent.
pub(super) fn of_night(
    store: &Store,
    night: &Night,
    held: Amounts,
    spent: Amounts,
    at: Timestamp,
) -> Result<Vec<UnitUsage>, StoreError> {
    let kept = store.projections(Some(&night.project))?;
    let cap = kept.get(&night.project).map_or_else(Budget::default, |text| cap(text));
    let level = BudgetLevel::new(NIGHT, night.id.0.to_string(), String::new(), cap);
    let standing = store.standing(&level, at)?;
    let left = standing.left();
    let (cap, granted) = (cap.array(), standing.granted.array());
    let (held, spent) = (held.array(), spent.array());
    Ok((0..UNITS.len())
        .map(|unit| UnitUsage {
            unit: UNITS[unit].to_owned(),
            cap: cap[unit],
            granted: granted[unit],
            planned: held[unit],
            spent: spent[unit],
            left: left[unit],
        })
        .filter(|it| it.cap.is_some() || it.spent > 0 || it.planned > 0)
        .collect())
}

/// Reads the night's caps from the stored configuration. A configuration that cannot be parsed
/// yields no caps.
fn cap(projection: &str) -> Budget {
    let kept: Value = serde_json::from_str(projection).unwrap_or_default();
    serde_json::from_value(kept["night"].clone()).unwrap_or_default()
}

/// Formats an amount in a unit for display.
pub fn format_amount(unit: &str, amount: u64) -> String {
    match unit {
        "money" => money(amount),
        "time" => time(amount),
        _ => grouped(amount),
    }
}

/// Formats millionths of a dollar as dollars, rounded up to a cent.
fn money(micros: u64) -> String {
    let cents = micros.div_ceil(10_000);
    format!("${}.{:02}", grouped(cents / 100), cents % 100)
}

/// Formats seconds in the two largest units that apply.
pub fn time(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", grouped(seconds / 3600), seconds / 60 % 60),
    }
}

/// Formats a number with narrow spaces between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 2);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_formatted_for_people() {
        assert_eq!(format_amount("calls", 7), "7");
        assert_eq!(format_amount("tokens", 1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(format_amount("money", 1), "$0.01");
        assert_eq!(format_amount("money", 12_340_000), "$12.34");
        assert_eq!(format_amount("time", 59), "59 s");
        assert_eq!(format_amount("time", 125), "2 min 5 s");
        assert_eq!(format_amount("time", 8 * 3600 + 65), "8 h 1 min");
        assert_eq!(format_amount("time", u64::MAX).matches("h").count(), 1);
    }

    #[test]
    fn caps_come_from_the_stored_configuration() {
        let kept = r#"{"zone":"UTC","night":{"calls":9,"micros":5000000},"folders":[]}"#;
        assert_eq!(cap(kept).array(), [Some(9), None, Some(5_000_000), None, None]);
        assert_eq!(cap("{"), Budget::default());
        assert_eq!(cap(r#"{"night":7}"#), Budget::default());
    }
}
