//! `runner report`: a night's report, made from the ledger.

use std::path::Path;

use runner_engine::outcome::Exit;
use runner_jobs::report;

use crate::cli::Failure;
use crate::cli::args::Listing;
use crate::cli::show;
use crate::home::Home;
use crate::project::Here;

/// Prints a report.
pub fn run(
    home: &Home,
    here: &Path,
    night: Option<&str>,
    listing: Listing,
) -> Result<Exit, Failure> {
    let project = Here::load(home, here)?;
    let none = || Failure::data("there was no night here yet").mend("runner night");
    let ledger = home.ledger_to_read()?.ok_or_else(none)?;
    let nights = ledger.nights(&project.id, 400)?;
    let found = match night {
        None => nights.first().ok_or_else(none)?,
        Some(name) => nights
            .iter()
            .find(|night| night.name == name)
            .ok_or_else(|| {
                let known = nights
                    .iter()
                    .take(5)
                    .map(|night| night.name.as_str())
                    .collect::<Vec<_>>()
                    .join(", ");
                Failure::data(format!("no night {name:?} here; the last ones: {known}"))
            })?,
    };
    let told = report::gather(&ledger, found.id, &project.root, home.wall()?)?;
    if listing.json {
        show::json(&told);
    } else {
        show::out(&report::markdown(&told));
    }
    Ok(Exit::Done)
}
