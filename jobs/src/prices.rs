//! Token prices, for backends that report tokens but no cost.
//!
//! The cost of each request is rounded up, so that a sum of small charges is never too low. A
//! request to a model without a listed price is charged the reserved amount.

use std::collections::BTreeMap;

use runner_backends::Usage;

/// The prices per token for one model, in millionths of a millionth of a dollar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// The price of an input token.
    pub input: u64,
    /// The price of an output token, including reasoning tokens.
    pub output: u64,
    /// The price of a cached input token. `None` means that `input` applies.
    pub cached: Option<u64>,
}

/// The prices, keyed by model name.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Prices(pub BTreeMap<String, Price>);

/// Number of price units in a millionth of a dollar.
const PARTS: u128 = 1_000_000;

impl Price {
    /// Returns the cost of the given usage in millionths of a dollar, rounded up. Cached tokens are
    /// part of the input tokens, so their number is capped at the number of input tokens.
    pub fn cost(self, usage: &Usage) -> u64 {
        let cached = usage.cached_input_tokens.min(usage.input_tokens);
        let fresh = usage.input_tokens - cached;
        let parts = [
            (fresh, self.input),
            (cached, self.cached.unwrap_or(self.input)),
            (usage.output_tokens, self.output),
        ]
        .into_iter()
        .map(|(tokens, price)| u128::from(tokens) * u128::from(price))
        .fold(0_u128, u128::saturating_add);
        u64::try_from(parts.div_ceil(PARTS)).unwrap_or(u64::MAX)
    }
}

impl Prices {
    /// Returns the name under which a model's price is listed, or `None` if no price is listed.
    pub fn name_of<'m>(&self, model: &'m str) -> Option<&'m str> {
        [Some(model), undated(model)].into_iter().flatten().find(|name| self.0.contains_key(*name))
    }

    /// Returns the price listed for a model's full name, or else for its name without a trailing
    /// date.
    pub fn of(&self, model: &str) -> Option<Price> {
        self.0.get(self.name_of(model)?).copied()
    }
}

/// Removes a trailing date: `name-20250929` and `name-2025-09-29` become `name`.
fn undated(model: &str) -> Option<&str> {
    let digits =
        |text: &str, count| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    let (rest, last) = model.rsplit_once('-')?;
    if digits(last, 8) {
        return Some(rest);
    }
    let (rest, month) = rest.rsplit_once('-')?;
    let (rest, year) = rest.rsplit_once('-')?;
    (digits(last, 2) && digits(month, 2) && digits(year, 4)).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SONNET: Price = Price { input: 3_000_000, output: 15_000_000, cached: Some(300_000) };

    fn usage(input_tokens: u64, cached_input_tokens: u64, output_tokens: u64) -> Usage {
        Usage { input_tokens, output_tokens, cached_input_tokens, cost_micros: None }
    }

    #[test]
    fn token_rates_apply_and_fractions_round_up() {
        assert_eq!(SONNET.cost(&usage(1_000_000, 0, 0)), 3_000_000);
        assert_eq!(SONNET.cost(&usage(1_000_000, 1_000_000, 0)), 300_000);
        assert_eq!(SONNET.cost(&usage(0, 0, 1_000_000)), 15_000_000);
        assert_eq!(SONNET.cost(&usage(1, 1, 0)), 1, "0.3 micros");
        assert_eq!(SONNET.cost(&usage(4, 4, 0)), 2, "1.2 micros");
        assert_eq!(SONNET.cost(&usage(0, 0, 0)), 0);
        let plain = Price { cached: None, ..SONNET };
        assert_eq!(plain.cost(&usage(10, 10, 0)), 30);
        assert_eq!(SONNET.cost(&usage(5, 9, 0)), 2, "cached tokens are capped at the input tokens");
        let all = usage(u64::MAX, 0, u64::MAX);
        assert_eq!(SONNET.cost(&all), u64::MAX);
    }

    #[test]
    fn dated_name_uses_the_undated_price() {
        let prices = Prices(BTreeMap::from([
            ("gpt-5".to_owned(), SONNET),
            ("claude-x-20250101".to_owned(), SONNET),
        ]));
        for known in ["gpt-5", "gpt-5-20250929", "gpt-5-2025-09-29", "claude-x-20250101"] {
            assert!(prices.of(known).is_some(), "{known}");
        }
        for unknown in ["gpt-5-mini", "gpt-5-2025", "gpt-5-1-2025", "claude-x", "", "-", "gpt"] {
            assert!(prices.of(unknown).is_none(), "{unknown}");
        }
    }

    proptest! {
        #[test]
        fn combined_usage_costs_no_more_than_parts(a: [u32; 3], b: [u32; 3]) {
            let [one, two] = [a, b].map(|[input, cached, output]| {
                usage(u64::from(input), u64::from(cached % input.max(1)), u64::from(output))
            });
            let both = usage(
                one.input_tokens + two.input_tokens,
                one.cached_input_tokens + two.cached_input_tokens,
                one.output_tokens + two.output_tokens,
            );
            let (parts, whole) = (SONNET.cost(&one) + SONNET.cost(&two), SONNET.cost(&both));
            prop_assert!(whole <= parts && parts <= whole + 1);
        }
    }
}
