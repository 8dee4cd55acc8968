//! `runner backends prices`: shows token prices and their sources. The command must never contact a
//! server.

use runner_engine::outcome::Exit;
use runner_jobs::prices::Price;
use runner_text::counted;
use serde::Serialize;

use crate::commands::Cli;
use crate::config::{pools, price_file};
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, show};

/// A model's rates in dollars per million tokens, and their source.
#[derive(Clone, Debug, Serialize)]
struct Rates {
    input: f64,
    output: f64,
    cached_input: Option<f64>,
    source: String,
}

/// A backend's model and the model's price.
#[derive(Debug, Serialize)]
struct Paid<'a> {
    backend: &'a str,
    model: &'a str,
    /// `None` if the price is unknown, in which case each request is charged the amount reserved
    /// for it.
    price: Option<Rates>,
}

/// A model with a price.
#[derive(Debug, Serialize)]
struct Priced<'a> {
    model: &'a str,
    #[serde(flatten)]
    price: Rates,
}

/// The prices of the backends' models and of all models with a price.
#[derive(Debug, Serialize)]
struct Prices<'a> {
    /// The publication date of the built-in list.
    as_of: String,
    /// The user's price file, if there is one.
    file: Option<String>,
    /// The number of entries in the file that have no valid token price.
    passed_over: usize,
    backends: Vec<Paid<'a>>,
    models: Vec<Priced<'a>>,
}

pub fn run(cli: &Cli<'_>, here: &LoadedProject) -> Result<Exit, Failure> {
    let config = &here.config;
    let listed = price_file::over(&cli.env.config_folder(), config)?;
    let (_, as_of) = pools::listed();
    let source = |model: &str| {
        if config.priced.contains(model) {
            "[prices]".to_owned()
        } else if listed.from_file.contains(model) {
            price_file::FILE.to_owned()
        } else {
            format!("runner's list of {as_of}")
        }
    };
    let rates = |model: &str, price: Price| Rates {
        input: per_million(price.input),
        output: per_million(price.output),
        cached_input: price.cached.map(per_million),
        source: source(model),
    };
    let backends = config.backends.values().filter_map(|spec| {
        let model = spec.kind.model()?;
        let name = listed.prices.name_of(model);
        let price = name.and_then(|name| Some(rates(name, listed.prices.of(name)?)));
        Some(Paid { backend: &spec.name, model, price })
    });
    cli.ui.show(&Prices {
        as_of: as_of.clone(),
        file: listed.file.as_ref().map(|path| path.display().to_string()),
        passed_over: listed.passed_over,
        backends: backends.collect(),
        models: (listed.prices.0.iter())
            .map(|(model, price)| Priced { model, price: rates(model, *price) })
            .collect(),
    });
    Ok(Exit::Done)
}

impl View for Prices<'_> {
    fn print(&self, _ui: Ui) {
        let mut rows = vec![show::row(["", "model", "in", "out", "cached", "source"])];
        for one in &self.backends {
            rows.push(match &one.price {
                Some(price) => line(one.backend, one.model, price),
                None => {
                    let why = "no price; charged the reserved amount";
                    show::row([one.backend, one.model, "-", "-", "-", why])
                }
            });
        }
        // A published file has thousands of entries, so its models are only counted.
        let own = |one: &&Priced<'_>| one.price.source != price_file::FILE;
        let own: Vec<_> = self.models.iter().filter(own).collect();
        rows.extend(own.iter().map(|one| line("", one.model, &one.price)));
        show::out(&show::table(&rows));
        let mut last = format!(
            "Prices are in dollars per million tokens; the built-in list is dated {}.",
            self.as_of
        );
        if let Some(file) = &self.file {
            last.push_str(&format!(
                "\n{file} has {}, and {} without a token price.",
                counted(self.models.len() - own.len(), "more model"),
                counted(self.passed_over, "entry")
            ));
        }
        show::out(&last);
    }
}

fn line(backend: &str, model: &str, price: &Rates) -> Vec<String> {
    let cached = price.cached_input.map_or("-".to_owned(), dollars);
    let (input, output) = (dollars(price.input), dollars(price.output));
    show::row([backend, model, &input, &output, &cached, &price.source])
}

/// Converts a rate from picodollars (10⁻¹² dollars) per token to dollars per million tokens.
fn per_million(rate: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "prices are far below 2^52")]
    let rate = rate as f64;
    rate / 1e6
}

fn dollars(amount: f64) -> String {
    let text = format!("{amount:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("${text}")
}
