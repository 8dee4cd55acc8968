//! `runner db restore`: shows the plan of a restore, and carries the plan out after a confirmation
//! or with `--yes`.

use std::fs;

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use jiff::Timestamp;
use runner_engine::files::read_proc;
use runner_engine::outcome::Exit;
use runner_engine::store::{RestoreLoss, Restored, Store, StoreError, inspect_copy, plan_restore};
use serde::Serialize;

use crate::commands::Cli;
use crate::env::Env;
use crate::maintenance;
use crate::ui::{Failure, Ui, View, aside, show};

/// Replace the database with a copy; the current database is kept beside it
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner db restore --yes")]
pub struct RestoreArgs {
    /// The copy [default: the newest intact one in the state folder's backups/]
    file: Option<PathBuf>,
    /// Restore the copy; without this flag, show the plan and ask on the terminal
    #[arg(short, long)]
    yes: bool,
}

const LOST_UNKNOWN: &str = "lost    pauses, resumptions, acknowledgements, grants and deferrals since the copy, which cannot be listed; \
     `runner pause --all` before the next tick prevents all starts\n";
const THEN: &str = "then    occurrences that became due since the copy are recorded as missed, and waiting runs as skipped; nothing silently runs twice\n";

#[derive(Debug, Serialize)]
struct Restore {
    done: bool,
    from: String,
    format: i64,
    made: Option<Timestamp>,
    database: String,
    /// The path to which the current database is moved; `None` if there is no database.
    kept: Option<String>,
    /// Whether the current database is intact.
    whole: bool,
    /// The records that the current database has and the copy lacks; `None` if they cannot be
    /// determined.
    since: Option<RestoreLoss>,
    #[serde(rename = "told")]
    reported: Option<Restored>,
    /// Whether an interrupted restore is finished first.
    #[serde(skip)]
    unfinished: bool,
    /// Whether the current database was moved to a path other than the planned one.
    #[serde(skip)]
    moved_elsewhere: bool,
}

impl View for Restore {
    fn print(&self, _ui: Ui) {
        let Some(reported) = &self.reported else { return show::out(&self.describe_plan()) };
        show::out(&format!(
            "restored; since the copy: {} missed, {} skipped, {} ended\n",
            show::count(reported.missed, "scheduled time"),
            show::count(reported.skipped, "waiting run"),
            show::count(reported.ended, "live run")
        ));
        if let (Some(kept), true) = (&self.kept, self.moved_elsewhere) {
            show::out(&format!("the previous database was kept as {kept}\n"));
        }
    }
}

impl Restore {
    fn describe_plan(&self) -> String {
        let made = self.made.map_or_else(|| "an unknown time".to_owned(), show::format_time);
        let mut text = format!("from    {}, as of {made}, format {}\n", self.from, self.format);
        text.push_str(&format!("to      {}\n", self.database));
        match &self.kept {
            Some(kept) => {
                text.push_str(&format!("keep    the current database, as {kept} (with its log)\n"))
            }
            None => text.push_str("keep    nothing: there is no database\n"),
        }
        if self.whole {
            text.insert_str(0, "note    the current database is intact: there is nothing to fix\n");
        }
        text.push_str(&match &self.since {
            Some(since) => format!(
                "lost    records that are not in the copy: {}, {}, {}, {}; current pauses are kept ({})\n",
                show::count(since.runs, "run"),
                show::count(since.breaker_resets, "circuit breaker reset"),
                show::count(since.grants, "grant"),
                show::count(since.limits, "rate limit"),
                since.pauses,
            ),
            None => LOST_UNKNOWN.to_owned(),
        });
        if self.unfinished {
            text.push_str("first   finish a restore that was interrupted\n");
        }
        text + THEN
    }
}

impl RestoreArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let now = cli.env.wall()?;
        let path = cli.env.store_path();
        let from = match &self.file {
            Some(file) => cli.env.here.join(file),
            None => newest(cli.env)?,
        };
        let plan =
            plan_restore(&path, &from, now).map_err(|error| Failure::from(error).of_a_copy())?;
        let mut restore = Restore {
            done: false,
            from: from.display().to_string(),
            format: plan.copy.format,
            made: plan.copy.made,
            database: path.display().to_string(),
            kept: plan.keep.as_ref().map(|keep| keep.display().to_string()),
            whole: Store::read(&path)
                .and_then(|store| store.examine())
                .is_ok_and(|health| health.whole),
            since: plan.since.clone(),
            reported: None,
            unfinished: plan.unfinished,
            moved_elsewhere: false,
        };
        let asks = !self.yes && cli.ui.may_ask();
        if self.yes || asks {
            cli.ui.show_part(&restore)
        } else {
            cli.ui.show(&restore)
        }
        if !(self.yes || asks && cli.ui.confirm("Restore?")) {
            cli.ui.info("nothing was changed; run again with --yes to restore");
            return Ok(Exit::Done);
        }
        let planned = plan.keep.clone();
        let reported = plan.carry_out(now).map_err(|error| match error {
            StoreError::InUse { .. } => in_use(cli.env),
            other => Failure::from(other).of_a_copy(),
        })?;
        cli.env.unmark_damage();
        restore.done = true;
        restore.kept = reported.kept.as_ref().map(|kept| kept.display().to_string());
        restore.moved_elsewhere = reported.kept != planned;
        restore.reported = Some(reported);
        cli.ui.show(&restore);
        Ok(Exit::Done)
    }
}

/// Returns the newest intact backup.
fn newest(home: &Env) -> Result<PathBuf, Failure> {
    let mut why = String::new();
    for backup in maintenance::backups(home) {
        match inspect_copy(&backup) {
            Ok(_) => return Ok(backup),
            Err(error) => why.push_str(&format!("; {error}")),
        }
    }
    // The hint must not move a readable database aside.
    let hint = match home.store_to_read() {
        Ok(Some(_)) => "runner db check   (the current database can be read)".to_owned(),
        _ => aside(&home.store_path()),
    };
    Err(Failure::data(format!("there is no intact backup in {}{why}", home.backups().display()))
        .hint(hint))
}

/// Creates the failure for a database that is in use. The message lists the other processes that
/// have the lock file open, if this user can see them.
fn in_use(home: &Env) -> Failure {
    let lock = fs::metadata(home.state.join("database.lock"));
    let me = std::process::id();
    let mut holders = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|pid| pid.parse::<u32>().ok()) else {
            continue;
        };
        let holds =
            fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten().any(|fd| {
                let (Ok(fd), Ok(lock)) = (fs::metadata(fd.path()), &lock) else { return false };
                (fd.dev(), fd.ino()) == (lock.dev(), lock.ino())
            });
        if holds && pid != me {
            let words = read_proc(entry.path().join("cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            holders.push((pid, words.trim().to_owned()));
        }
    }
    let who: Vec<String> =
        holders.iter().map(|(pid, words)| format!("PID {pid} ({words})")).collect();
    let pids: Vec<String> = holders.iter().map(|(pid, _)| pid.to_string()).collect();
    let failure = Failure::later(format!(
        "the database is in use{}{}: nothing was changed",
        if who.is_empty() { "" } else { " by " },
        who.join(", ")
    ));
    match pids.is_empty() {
        true => failure.hint("runner db restore --yes   (again, in a few seconds)"),
        false => {
            failure.hint(format!("kill -TERM {}   (then run this command again)", pids.join(" ")))
        }
    }
}
