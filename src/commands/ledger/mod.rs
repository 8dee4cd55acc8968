//! `runner ledger`: the care of the ledger by hand.

mod prune;
mod restore;

use std::fs;
use std::path::Path;

use runner_engine::ledger::{Health, beside};
use runner_engine::outcome::Exit;
use serde::Serialize;

use crate::care;
use crate::cli::Failure;
use crate::cli::args::{LedgerCommand, Listing};
use crate::cli::show;
use crate::home::Home;

/// Carries out one of them.
pub fn run(home: &Home, command: &LedgerCommand, quiet: bool) -> Result<Exit, Failure> {
    match command {
        LedgerCommand::Path => {
            show::out(&format!("{}\n", home.ledger_path().display()));
            Ok(Exit::Done)
        }
        LedgerCommand::Check { listing } => check(home, *listing),
        LedgerCommand::Backup { file, listing } => backup(home, file.as_deref(), quiet, *listing),
        LedgerCommand::Restore { file, yes, listing } => {
            restore::run(home, file.as_deref(), *yes, quiet, *listing)
        }
        LedgerCommand::Vacuum { listing } => vacuum(home, quiet, *listing),
        LedgerCommand::Prune { dry_run, listing } => prune::run(home, *dry_run, quiet, *listing),
    }
}

#[derive(Debug, Serialize)]
struct CheckJson<'a> {
    ledger: String,
    #[serde(flatten)]
    health: &'a Health,
    mend: Option<&'static str>,
}

const MEND: &str = "runner ledger restore";

fn check(home: &Home, listing: Listing) -> Result<Exit, Failure> {
    let path = home.ledger_path();
    if !path.exists() && home.ledger_to_read()?.is_none() {
        return Err(
            Failure::configuration(format!("there is no ledger at {}", path.display()))
                .mend("runner init"),
        );
    }
    let ledger = home.ledger_as_it_is()?;
    let health = care::examine(home, &ledger)?;
    let bad = !health.findings.is_empty();
    if listing.json {
        show::json(&CheckJson {
            ledger: path.display().to_string(),
            health: &health,
            mend: bad.then_some(MEND),
        });
    } else {
        let rows: Vec<String> = health
            .rows
            .iter()
            .map(|(table, count)| format!("{table} {count}"))
            .collect();
        show::out(&format!(
            "{}\n  format {}, SQLite {}, {} bytes and {} in its log\n  rows: {}\n",
            path.display(),
            health.format,
            health.sqlite,
            health.bytes,
            health.log_bytes,
            rows.join(", ")
        ));
        for finding in &health.findings {
            show::complain(&format!("{}: {}", finding.place, finding.what));
        }
        show::out(if bad { "" } else { "ok\n" });
    }
    if !bad {
        return Ok(Exit::Done);
    }
    let count = health.findings.len();
    Err(Failure::internal(format!(
        "the ledger {} is damaged: {count} findings",
        path.display()
    ))
    .mend(MEND))
}

#[derive(Debug, Serialize)]
struct BackupJson {
    file: String,
    format: i64,
    bytes: u64,
}

fn backup(
    home: &Home,
    file: Option<&Path>,
    quiet: bool,
    listing: Listing,
) -> Result<Exit, Failure> {
    let now = home.wall()?;
    let mut ledger = home.ledger()?;
    let target = match file {
        Some(file) => home.here.join(file),
        None => care::new_backup(home, now)?,
    };
    let copy = ledger.backup(&target, now, &mut Home::dying())?;
    if listing.json {
        show::json(&BackupJson {
            file: copy.path.display().to_string(),
            format: copy.format,
            bytes: copy.bytes,
        });
    } else {
        show::out(&format!("{}\n", copy.path.display()));
        let text = format!(
            "{} bytes, format {}, looked at and whole",
            copy.bytes, copy.format
        );
        show::say(quiet, &text);
    }
    Ok(Exit::Done)
}

#[derive(Debug, Serialize)]
struct VacuumJson {
    bytes_before: u64,
    bytes: u64,
}

fn vacuum(home: &Home, quiet: bool, listing: Listing) -> Result<Exit, Failure> {
    let mut ledger = home.ledger()?;
    let path = home.ledger_path();
    let length = |path: &Path| fs::metadata(path).map_or(0, |data| data.len());
    let size = || length(&path) + length(&beside(&path, "-wal"));
    let before = size();
    ledger.vacuum()?;
    let (bytes_before, bytes) = (before, size());
    if listing.json {
        show::json(&VacuumJson {
            bytes_before,
            bytes,
        });
    } else {
        show::say(quiet, &format!("{bytes_before} bytes before, {bytes} now"));
    }
    Ok(Exit::Done)
}
