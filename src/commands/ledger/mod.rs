//! `runner ledger`: the care of the ledger by hand.

mod prune;
mod restore;

use std::fs;
use std::path::Path;

use runner_engine::ledger::{Health, Ledger};
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

const RESTORE: &str = "runner ledger restore";
/// A backup of before would lose more than such rows do.
const ROWS: &str = "runner tick   (recovers what it can; `runner ledger backup` keeps a copy to look into, and a restore would lose more than this)";

fn check(home: &Home, listing: Listing) -> Result<Exit, Failure> {
    let path = home.ledger_path();
    if !path.exists() && home.ledger_to_read()?.is_none() {
        return Err(
            Failure::configuration(format!("there is no ledger at {}", path.display()))
                .mend("runner init"),
        );
    }
    // Not even its format is changed by a look.
    let looked = Ledger::read(&path).map_err(Failure::from);
    let looked = looked.and_then(|ledger| care::examine(home, &ledger));
    let health = match looked {
        Ok(health) => health,
        Err(failure) if failure.is_damage() && listing.json => {
            let bytes = fs::metadata(&path).map_or(0, |data| data.len());
            show::json(&CheckJson {
                ledger: path.display().to_string(),
                health: &Health::unreadable(bytes, failure.parts().0),
                mend: Some(RESTORE),
            });
            return Err(failure);
        }
        Err(failure) => return Err(failure),
    };
    let bad = !health.findings.is_empty();
    let mend = match health.whole {
        true => ROWS,
        false => RESTORE,
    };
    if listing.json {
        show::json(&CheckJson {
            ledger: path.display().to_string(),
            health: &health,
            mend: bad.then_some(mend),
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
    let count = show::count(health.findings.len() as u64, "finding");
    let what = match health.whole {
        true => format!(
            "the ledger {} is whole, and some of its rows contradict each other: {count}",
            path.display()
        ),
        false => format!("the ledger {} is damaged: {count}", path.display()),
    };
    Err(Failure::internal(what).mend(mend))
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
    if target.symlink_metadata().is_ok() {
        return Err(Failure::cannot_write(format!(
            "{} is there already, and a backup never takes the place of a file",
            target.display()
        ))
        .mend("runner ledger backup ANOTHER-NAME"));
    }
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
    // What is in the log is brought into the file first: the sizes are those of the rows.
    let size = || fs::metadata(&path).map_or(0, |data| data.len());
    ledger.cut_log(0)?;
    let bytes_before = size();
    ledger.vacuum()?;
    ledger.cut_log(0)?;
    let bytes = size();
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
