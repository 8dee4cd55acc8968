//! A price file beside the user's `config.toml`, in the format published by LiteLLM.
//!
//! ```text
//! built-in dated list  <  prices.json  <  [prices] of config.toml
//! ```
//!
//! The file may be large, so it is read only when a price is needed. An entry without a valid input
//! rate and output rate is skipped. This module must never read a project's file, and must never
//! invent a price.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use runner_jobs::prices::{Price, Prices};
use serde_json::{Map, Value};

use super::Config;
use super::pools::rate;
use crate::ui::Failure;
use runner_engine::files::open_host;

pub const FILE: &str = "prices.json";
/// Maximum size of the file in bytes.
const LARGEST: u64 = 64 * 1024 * 1024;

/// All prices and their sources.
#[derive(Debug)]
pub struct Listed {
    /// The prices by model.
    pub prices: Prices,
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// The models whose price comes from the file.
    pub from_file: BTreeSet<String>,
    /// The number of entries that were skipped because they have no valid input and output rates.
    pub passed_over: usize,
}

/// Returns the prices of `config` together with those of the file in `folder`.
///
/// # Errors
/// Returns an error that names the file if the file cannot be read, is too large, or is not a JSON
/// object.
pub fn over(folder: &Path, config: &Config) -> Result<Listed, Failure> {
    let mut listed = Listed {
        prices: config.prices.clone(),
        file: None,
        from_file: BTreeSet::new(),
        passed_over: 0,
    };
    let path = folder.join(FILE);
    let bad = |why: String| {
        let what = format!("{}: {why}", path.display());
        Failure::configuration(what)
            .hint("correct or remove the file, then run: runner backends prices")
    };
    let file = match open_host(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(listed),
        Err(error) => return Err(bad(error.to_string())),
    };
    let mut text = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut text).map_err(|error| bad(error.to_string()))?;
    if text.len() as u64 > LARGEST {
        return Err(bad(format!("the file is larger than {LARGEST} bytes")));
    }
    let models: Map<String, Value> =
        serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
    for (model, entry) in models {
        match price(&entry) {
            Some(_) if config.priced.contains(&model) => {}
            Some(price) => {
                listed.prices.0.insert(model.clone(), price);
                listed.from_file.insert(model);
            }
            None => listed.passed_over += 1,
        }
    }
    listed.file = Some(path);
    Ok(listed)
}

fn price(entry: &Value) -> Option<Price> {
    let rate = |key: &str| {
        let dollars = entry[key].as_f64().filter(|it| (0.0..=1.0).contains(it))?;
        Some(rate(dollars))
    };
    Some(Price {
        input: rate("input_cost_per_token")?,
        output: rate("output_cost_per_token")?,
        cached: rate("cache_read_input_token_cost"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn prices_need_two_valid_rates() {
        let good = json!({"input_cost_per_token": 1.25e-06, "output_cost_per_token": 1e-05,
            "cache_read_input_token_cost": 1.25e-07, "litellm_provider": "openai", "mode": "chat"});
        let wanted = Price { input: 1_250_000, output: 10_000_000, cached: Some(125_000) };
        assert_eq!(price(&good), Some(wanted));
        for bad in [
            json!({"input_cost_per_token": 1e-6}),
            json!({"input_cost_per_token": "1e-6", "output_cost_per_token": 1e-6}),
            json!({"input_cost_per_token": -1e-6, "output_cost_per_token": 1e-6}),
            json!({"input_cost_per_token": 3, "output_cost_per_token": 1e-6}),
            json!({"input_cost_per_image": 1e-6, "output_cost_per_token": 1e-6}),
            json!("no entry"),
            json!(null),
        ] {
            assert_eq!(price(&bad), None, "{bad}");
        }
    }
}
