//! `runner db check`: checks every page and row of the database.

use std::fs;

use runner_engine::outcome::Exit;
use runner_engine::store::{Store, StoreHealth};
use serde::Serialize;

use crate::commands::Cli;
use crate::maintenance;
use crate::ui::{Failure, Ui, View, show};

const RESTORE: &str = "runner db restore";
/// The hint for an intact database with inconsistent rows. A restore would lose more data than it
/// repairs.
const ROWS: &str = "runner tick   (recovers what it can; `runner db backup` keeps a copy to examine; a restore would lose more)";

#[derive(Debug, Serialize)]
struct DatabaseCheck {
    database: String,
    #[serde(flatten)]
    health: StoreHealth,
    hint: Option<&'static str>,
}

impl View for DatabaseCheck {
    fn print(&self, _ui: Ui) {
        let StoreHealth { format, sqlite, bytes, log_bytes, rows, findings, .. } = &self.health;
        // An unreadable file has no format; the command's error describes the problem.
        if *format == 0 {
            return;
        }
        let rows: Vec<String> =
            rows.iter().map(|(table, count)| format!("{table} {count}")).collect();
        show::out(&format!(
            "{}\n  format {format}, SQLite {sqlite}, {bytes} bytes and {log_bytes} in its log\n  rows: {}\n",
            self.database,
            rows.join(", ")
        ));
        for finding in findings {
            show::complain(&format!("{}: {}", finding.place, finding.what));
        }
        if findings.is_empty() {
            show::out("ok\n");
        }
    }
}

/// Checks every page and row of the database.
pub fn check(cli: &Cli<'_>) -> Result<Exit, Failure> {
    let path = cli.env.store_path();
    if !path.exists() && cli.env.store_to_read()?.is_none() {
        return Err(Failure::configuration(format!("there is no database at {}", path.display()))
            .hint("runner init"));
    }
    // A check must not migrate the database, so it opens the database for reading.
    let checked = Store::read(&path).map_err(Failure::from);
    let checked = checked.and_then(|store| maintenance::examine(cli.env, &store));
    let database = path.display().to_string();
    let health = match checked {
        Ok(health) => health,
        Err(failure) => {
            if failure.is_damage() {
                let bytes = fs::metadata(&path).map_or(0, |data| data.len());
                let health = StoreHealth::unreadable(bytes, failure.parts().0);
                cli.ui.show(&DatabaseCheck { database, health, hint: Some(RESTORE) });
            }
            return Err(failure);
        }
    };
    let (count, whole) = (health.findings.len() as u64, health.whole);
    let hint = if whole { ROWS } else { RESTORE };
    cli.ui.show(&DatabaseCheck { database, health, hint: (count > 0).then_some(hint) });
    if count == 0 {
        return Ok(Exit::Done);
    }
    let (path, count) = (path.display(), show::count(count, "finding"));
    let what = match whole {
        true => format!(
            "the database {path} is intact, but some of its rows contradict each other: {count}"
        ),
        false => format!("the database {path} is damaged: {count}"),
    };
    Err(Failure::internal(what).hint(hint))
}
