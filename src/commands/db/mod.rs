//! `runner db`: the manual maintenance of the database.

mod prune;
mod restore;

use std::fs;
use std::path::Path;

use runner_engine::outcome::Exit;
use runner_engine::store::{Store, StoreHealth};
use serde::Serialize;

use crate::cli::args::{DbCommand, Listing};
use crate::cli::show;
use crate::cli::{Failure, Ui};
use crate::env::Env;
use crate::maintenance;

/// Carries out one of the `db` commands.
pub fn run(home: &Env, command: &DbCommand, ui: Ui) -> Result<Exit, Failure> {
    match command {
        DbCommand::Path => {
            show::out(&format!("{}\n", home.store_path().display()));
            Ok(Exit::Done)
        }
        DbCommand::Check { listing } => check(home, *listing),
        DbCommand::Backup { file, listing } => backup(home, file.as_deref(), ui, *listing),
        DbCommand::Restore { file, yes, listing } => {
            restore::run(home, file.as_deref(), *yes, ui, *listing)
        }
        DbCommand::Vacuum { listing } => vacuum(home, ui, *listing),
        DbCommand::Prune { dry_run, listing } => prune::run(home, *dry_run, ui, *listing),
    }
}

#[derive(Debug, Serialize)]
struct CheckJson<'a> {
    #[serde(rename = "database")]
    store: String,
    #[serde(flatten)]
    health: &'a StoreHealth,
    hint: Option<&'static str>,
}

const RESTORE: &str = "runner db restore";
/// The hint if the database is intact but some rows are inconsistent. Restoring an older backup
/// would lose more data.
const ROWS: &str = "runner tick   (recovers what it can; `runner db backup` keeps a copy to examine; a restore would lose more)";

fn check(home: &Env, listing: Listing) -> Result<Exit, Failure> {
    let path = home.store_path();
    if !path.exists() && home.store_to_read()?.is_none() {
        return Err(Failure::configuration(format!("there is no database at {}", path.display()))
            .hint("runner init"));
    }
    // The check opens the database read-only and does not even migrate its format.
    let looked = Store::read(&path).map_err(Failure::from);
    let looked = looked.and_then(|store| maintenance::examine(home, &store));
    let health = match looked {
        Ok(health) => health,
        Err(failure) if failure.is_damage() && listing.json => {
            let bytes = fs::metadata(&path).map_or(0, |data| data.len());
            show::json(&CheckJson {
                store: path.display().to_string(),
                health: &StoreHealth::unreadable(bytes, failure.parts().0),
                hint: Some(RESTORE),
            });
            return Err(failure);
        }
        Err(failure) => return Err(failure),
    };
    let bad = !health.findings.is_empty();
    let hint = match health.whole {
        true => ROWS,
        false => RESTORE,
    };
    if listing.json {
        show::json(&CheckJson {
            store: path.display().to_string(),
            health: &health,
            hint: bad.then_some(hint),
        });
    } else {
        let rows: Vec<String> =
            health.rows.iter().map(|(table, count)| format!("{table} {count}")).collect();
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
            "the database {} is intact, but some of its rows contradict each other: {count}",
            path.display()
        ),
        false => format!("the database {} is damaged: {count}", path.display()),
    };
    Err(Failure::internal(what).hint(hint))
}

#[derive(Debug, Serialize)]
struct BackupJson {
    file: String,
    format: i64,
    bytes: u64,
}

fn backup(home: &Env, file: Option<&Path>, ui: Ui, listing: Listing) -> Result<Exit, Failure> {
    let now = home.wall()?;
    let mut store = home.store()?;
    let target = match file {
        Some(file) => home.here.join(file),
        None => maintenance::new_backup(home, now)?,
    };
    if target.symlink_metadata().is_ok() {
        return Err(Failure::cannot_write(format!(
            "{} already exists, and a backup never replaces a file",
            target.display()
        ))
        .hint("runner db backup ANOTHER-NAME"));
    }
    let copy = store.backup(&target, now, &mut Env::dying())?;
    if listing.json {
        show::json(&BackupJson {
            file: copy.path.display().to_string(),
            format: copy.format,
            bytes: copy.bytes,
        });
    } else {
        show::out(&format!("{}\n", copy.path.display()));
        let text = format!("{} bytes, format {}, checked and intact", copy.bytes, copy.format);
        ui.info(&text);
    }
    Ok(Exit::Done)
}

#[derive(Debug, Serialize)]
struct VacuumJson {
    bytes_before: u64,
    bytes: u64,
}

fn vacuum(home: &Env, ui: Ui, listing: Listing) -> Result<Exit, Failure> {
    let mut store = home.store()?;
    let path = home.store_path();
    // The log is merged into the file before each measurement, so that the sizes are those of the
    // rows.
    let size = || fs::metadata(&path).map_or(0, |data| data.len());
    store.cut_log(0)?;
    let bytes_before = size();
    store.vacuum()?;
    store.cut_log(0)?;
    let bytes = size();
    if listing.json {
        show::json(&VacuumJson { bytes_before, bytes });
    } else {
        ui.info(&format!("{bytes_before} bytes before, {bytes} now"));
    }
    Ok(Exit::Done)
}
