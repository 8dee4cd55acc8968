//! `runner db restore`: shows the plan, and carries out the same plan after a confirmation.

use std::fs;
use std::io::{self, BufRead as _, IsTerminal as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use runner_engine::files::read_proc;
use runner_engine::outcome::Exit;
use runner_engine::store::{RestoreLoss, Restored, Store, StoreError, inspect_copy, plan_restore};
use serde::Serialize;

use crate::cli::args::Listing;
use crate::cli::show;
use crate::cli::{Failure, Ui, aside};
use crate::env::Env;
use crate::maintenance;

#[derive(Debug, Serialize)]
struct RestoreJson {
    done: bool,
    from: String,
    format: i64,
    made: Option<Timestamp>,
    #[serde(rename = "database")]
    store: String,
    /// The path to which the current database is moved.
    kept: Option<String>,
    /// Whether the current database is intact.
    whole: bool,
    /// The records that the current database has and the copy lacks; `None` if this cannot be
    /// determined.
    since: Option<RestoreLoss>,
    #[serde(rename = "told")]
    reported: Option<Restored>,
}

pub fn run(
    home: &Env,
    file: Option<&Path>,
    yes: bool,
    ui: Ui,
    listing: Listing,
) -> Result<Exit, Failure> {
    let now = home.wall()?;
    let path = home.store_path();
    let from = match file {
        Some(file) => home.here.join(file),
        None => newest(home)?,
    };
    let plan = plan_restore(&path, &from, now).map_err(|error| Failure::from(error).of_a_copy())?;
    let mut json = RestoreJson {
        done: false,
        from: from.display().to_string(),
        format: plan.copy.format,
        made: plan.copy.made,
        store: path.display().to_string(),
        kept: plan.keep.as_ref().map(|keep| keep.display().to_string()),
        whole: Store::read(&path)
            .and_then(|store| store.examine())
            .is_ok_and(|health| health.whole),
        since: plan.since.clone(),
        reported: None,
    };
    if !listing.json {
        say_plan(&json, plan.unfinished);
    }
    let asks = io::stdin().is_terminal() && !listing.json;
    if !yes && (!asks || !confirmed()) {
        match listing.json {
            true => show::json(&json),
            false => ui.info("nothing was changed; run again with --yes to restore"),
        }
        return Ok(Exit::Done);
    }
    let reported = plan.carry_out(now, &mut Env::dying()).map_err(|error| match error {
        StoreError::InUse { .. } => in_use(home),
        other => Failure::from(other).of_a_copy(),
    })?;
    home.unmark_damage();
    json.done = true;
    json.reported = Some(reported.clone());
    json.kept = reported.kept.as_ref().map(|kept| kept.display().to_string());
    if listing.json {
        show::json(&json);
    } else {
        show::out(&format!(
            "restored; since then: {} missed, {} skipped, {} ended\n",
            show::count(reported.missed, "moment"),
            show::count(reported.skipped, "waiting run"),
            show::count(reported.ended, "live run")
        ));
        if let (Some(kept), true) = (&reported.kept, reported.kept != plan.keep) {
            show::out(&format!("the previous database was kept as {}\n", kept.display()));
        }
    }
    Ok(Exit::Done)
}

/// Asks for a confirmation on the terminal. No answer means no.
fn confirmed() -> bool {
    show::notice("Do it? [y/N]");
    let mut answer = String::new();
    let _no_answer_is_no = io::stdin().lock().read_line(&mut answer);
    matches!(answer.trim(), "y" | "Y" | "yes")
}

fn say_plan(json: &RestoreJson, unfinished: bool) {
    let made = json.made.map_or_else(|| "an unknown time".to_owned(), show::format_time);
    let mut text = format!("from    {}, as of {made}, format {}\n", json.from, json.format);
    text.push_str(&format!("to      {}\n", json.store));
    match &json.kept {
        Some(kept) => {
            text.push_str(&format!("keep    the current database, as {kept} (with its log)\n"))
        }
        None => text.push_str("keep    nothing: there is no database\n"),
    }
    if json.whole {
        text.insert_str(0, "note    the current database is intact: there is nothing to fix\n");
    }
    text.push_str(&match &json.since {
        Some(since) => format!(
            "lost    what is not in the copy: {}, {}, {}, {}; pauses stay as they are now ({})\n",
            show::count(since.runs, "run"),
            show::count(since.breaker_resets, "circuit breaker reset"),
            show::count(since.grants, "grant"),
            show::count(since.limits, "waiting limit"),
            since.pauses,
        ),
        None => "lost    what was paused, resumed, acknowledged, granted or put off since, which cannot be listed; \
                 `runner pause --all` before the next tick holds everything back\n"
            .to_owned(),
    });
    if unfinished {
        text.push_str("first   finish a restore that was interrupted\n");
    }
    text.push_str(
        "then    what came due since is recorded as missed, what was waiting as skipped; nothing silently runs twice\n",
    );
    show::out(&text);
}

/// Returns the newest backup that is intact.
fn newest(home: &Env) -> Result<PathBuf, Failure> {
    let mut why = String::new();
    for backup in maintenance::backups(home) {
        match inspect_copy(&backup) {
            Ok(_) => return Ok(backup),
            Err(error) => why.push_str(&format!("; {error}")),
        }
    }
    // A database that can be read must not be moved away.
    let hint = match home.store_to_read() {
        Ok(Some(_)) => "runner db check   (the present database can be read)".to_owned(),
        _ => aside(&home.store_path()),
    };
    Err(Failure::data(format!("there is no intact backup in {}{why}", home.backups().display()))
        .hint(hint))
}

/// Creates the failure that lists the processes that have the database open, as far as this user
/// can see them.
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
                let (Ok(fd), Ok(lock)) = (fs::metadata(fd.path()), &lock) else {
                    return false;
                };
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
        false => failure.hint(format!("kill -TERM {}   (then repeat this)", pids.join(" "))),
    }
}
