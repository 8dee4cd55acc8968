//! The `runner setup` command: shows, applies, removes or verifies the steps that make this machine
//! tick on its own.

mod advice;
mod view;

use std::fs::File;

use jiff::civil::Time;
use runner_engine::files::open_with;
use runner_engine::outcome::Exit;
use serde::Serialize;

use crate::cli::args::SetupArgs;
use crate::cli::{Failure, Ui, show};
use crate::doctor::{self, DoctorFinding, timers};
use crate::env::Env;
use crate::project::{self, LoadedProject};
use crate::setup::hosts::{HostScheduler, lingers};
use crate::setup::plan::carry_out;
use crate::setup::project::{ProjectPart, SetupOptions, part, undo};
use crate::setup::record::SetupRecord;
use crate::setup::{Convergence, SchedulerKind, WantedSetup, converge, fitting, frozen, wake};
use advice::{advice, credentials};
use view::{FileJson, PlannedHost, SetupView};

/// Carries out the `setup` command.
pub fn run(home: &Env, here: &std::path::Path, args: &SetupArgs, ui: Ui) -> Result<Exit, Failure> {
    if args.status || args.verify {
        return show_status(home, args);
    }
    let act = args.apply || args.remove;
    // Two setups at once would each make a plan based on a state that the other is about to change.
    let _lock = act.then(|| lock(home)).transpose()?;
    let record = SetupRecord::read(&home.setup_note())?;
    let reported = match args.remove {
        true => removal(home, here, args, &record)?,
        false => installation(home, here, args, &record)?,
    };
    if act && !reported.kind.is_of_this_system() {
        return Err(Failure::unavailable(format!(
            "{} is not available on this system: its files can be shown here, but set up only on its own system",
            reported.kind.as_str()
        ))
        .hint("runner setup --apply"));
    }
    let shown = reported.shown(args);
    if !act {
        match args.listing.json {
            true => show::json(&shown),
            false => show::out(&shown.text()),
        }
        return Ok(Exit::Done);
    }
    if !args.listing.json {
        ui.info(shown.text().trim_end());
    }
    let troubles = carry_out(
        &reported.convergence.steps,
        &home.setup_note(),
        &home.state.join("crontab.new"),
        &mut Env::dying(),
    )?;
    // A changed schedule applies from the time at which it is read. Reading it at the first tick
    // would be too late for the minute of that tick.
    if let Ok(root) = project::find(here) {
        let mut store = home.store()?;
        LoadedProject::at(home, Some(&store), &root)?.register(&mut store, home.wall()?)?;
    }
    for trouble in troubles.iter().chain(&reported.convergence.left) {
        show::complain(trouble);
    }
    if args.listing.json {
        show::json(&PlannedHost { troubles, ..shown });
    } else {
        let done = match (reported.convergence.steps.is_empty(), args.remove) {
            (true, _) => "everything is as it should be; nothing was done",
            (false, true) => "undone",
            (false, false) => {
                "done; `runner setup --verify` checks it, `runner doctor` checks everything"
            }
        };
        ui.info(done);
    }
    Ok(match reported.convergence.left.is_empty() {
        true => Exit::Done,
        false => Exit::Failed,
    })
}

fn lock(home: &Env) -> Result<File, Failure> {
    home.make_state()?;
    let path = home.setup_lock();
    let cannot = |why: String| Failure::later(format!("{}: {why}", path.display()));
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    let file = open_with(&mut options, &path)
        .map_err(|error| Failure::cannot_write(format!("{}: {error}", path.display())))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(_) => Err(cannot("another `runner setup` is running".to_owned()).hint("say it again")),
    }
}

fn installation(
    home: &Env,
    here: &std::path::Path,
    args: &SetupArgs,
    old: &SetupRecord,
) -> Result<SetupView, Failure> {
    let (kind, why) = match SchedulerKind::WORDS.iter().find(|(word, _)| *word == args.scheduler) {
        Some((_, kind)) => (*kind, "requested with --scheduler".to_owned()),
        None => fitting(old),
    };
    let wish = wish(args)?;
    let mut record = old.clone();
    let mut edits = Vec::new();
    let mut notes = Vec::new();
    let at_work = match project::find(here) {
        Ok(root) => Some(LoadedProject::load(home, &root)?),
        Err(failure) if args.at.is_some() || args.wake || !args.runner.is_empty() => {
            return Err(failure);
        }
        Err(_) => None,
    };
    match &at_work {
        Some(here) => {
            let root = here.root.display().to_string();
            let ProjectPart { served, edit, night } =
                part(home, here, &wish, old.projects.get(&root))?;
            notes.push(format!("the night of {root} opens at {night}"));
            if args.wake {
                let settings = &here.config.night;
                let opens = wish.at.unwrap_or(settings.at);
                notes.extend(wake::advice(kind, opens, &settings.zone));
            }
            record.projects.insert(root, served);
            edits.extend(edit);
        }
        None => {
            record.everywhere = true;
            notes.push(
                "this folder is in no project: the timer serves all projects that `runner init` has made or will make"
                    .to_owned(),
            );
        }
    }
    let others = record.projects.len() - usize::from(at_work.is_some());
    if others > 0 {
        notes.push(format!(
            "there is one timer per user, and a tick serves all projects: {} already set up, and this adds only its minutes",
            show::count(others as u64, "other project")
        ));
    }
    let minutes = record.minutes();
    let host = HostScheduler::of(kind, home, &minutes)?;
    let mut files: Vec<FileJson> = host
        .files
        .iter()
        .map(|file| FileJson { path: file.path.display().to_string(), text: file.text.clone() })
        .collect();
    files.extend(
        host.crontab.iter().map(|text| FileJson { path: "crontab".to_owned(), text: text.clone() }),
    );
    notes.extend(advice(kind, host.lingers));
    let frozen = frozen();
    if !frozen.contains_key("PATH") {
        return Err(Failure::environment("PATH is not set, so no program would be found at night"));
    }
    let environment = (kind != SchedulerKind::Manual).then_some(&frozen);
    let convergence = match kind.is_of_this_system() {
        true => converge(home, old, WantedSetup { kind: Some(kind), record, edits, environment })?,
        // The scheduler belongs to another operating system, so its files are only shown.
        false => Convergence { steps: Vec::new(), left: Vec::new() },
    };
    Ok(SetupView {
        kind,
        why,
        minutes: minutes.into_iter().collect(),
        files,
        notes,
        credentials: credentials(home, at_work.as_ref(), kind, &frozen),
        convergence,
    })
}

fn removal(
    home: &Env,
    here: &std::path::Path,
    args: &SetupArgs,
    old: &SetupRecord,
) -> Result<SetupView, Failure> {
    let kind = old.hosts.keys().next_back().copied();
    let mut record = old.clone();
    let mut left = Vec::new();
    let mut edits = Vec::new();
    let mut notes = Vec::new();
    let root = project::find(here).ok().map(|root| root.display().to_string());
    let gone: Vec<String> = match (args.all, root) {
        (true, _) => old.projects.keys().cloned().collect(),
        (false, Some(root)) if old.projects.contains_key(&root) => vec![root],
        (false, Some(root)) => {
            notes.push(format!("{root} was not set up"));
            Vec::new()
        }
        (false, None) => {
            record.everywhere = false;
            Vec::new()
        }
    };
    if args.all {
        record.everywhere = false;
    }
    for root in gone {
        if let Some(served) = record.projects.remove(&root) {
            match undo(&root, &served)? {
                Ok(edit) => edits.extend(edit),
                Err(why) => left.push(why),
            }
        }
    }
    let wanted = record.is_wanted();
    if wanted {
        let who: Vec<&str> = record.projects.keys().map(String::as_str).collect();
        notes.push(format!(
            "the timer stays for {}: a tick serves all projects, so nights continue here; to stop everything: runner pause --all; to stop one job: set enabled = false in it; to remove the timer: runner setup --remove --all",
            if who.is_empty() { "all projects".to_owned() } else { who.join(", ") }
        ));
    } else {
        // A timer also serves projects for which `setup` was never run.
        let store = home.store_to_read().ok().flatten();
        let served = store.and_then(|store| store.projects().ok()).unwrap_or_default();
        if !served.is_empty() && kind.is_some_and(|kind| kind != SchedulerKind::Manual) {
            notes.push(format!(
                "no timer ticks any more for {}",
                show::count(served.len() as u64, "project")
            ));
        }
    }
    let target = if wanted { kind } else { None };
    let minutes = record.minutes();
    let mut convergence =
        converge(home, old, WantedSetup { kind: target, record, edits, environment: None })?;
    convergence.left.splice(0..0, left);
    Ok(SetupView {
        kind: kind.unwrap_or(SchedulerKind::Manual),
        why: "it is already set up".to_owned(),
        minutes: minutes.into_iter().collect(),
        files: Vec::new(),
        notes,
        credentials: Vec::new(),
        convergence,
    })
}

fn wish(args: &SetupArgs) -> Result<SetupOptions, Failure> {
    let at = match &args.at {
        None => None,
        Some(text) => Some(
            Some(text)
                .filter(|text| text.len() == 5)
                .and_then(|text| Time::strptime("%H:%M", text).ok())
                .ok_or_else(|| {
                    Failure::usage(format!("--at {text}: not a time like 02:30 or 23:45"))
                })?,
        ),
    };
    if args.runner.len() > 1 && args.runner.iter().any(|name| *name != args.runner[0]) {
        return Err(Failure::usage(format!(
            "--runner {}: a job uses one backend; set up one job for each",
            args.runner.join(" --runner ")
        ))
        .hint(format!(
            "runner setup --runner {} --job JOB --apply, once for each",
            args.runner[1]
        )));
    }
    Ok(SetupOptions { at, backend: args.runner.first().cloned(), jobs: args.job.clone() })
}

#[derive(Debug, Serialize)]
struct StatusJson {
    scheduler: Option<&'static str>,
    also: Vec<&'static str>,
    unfinished: bool,
    minutes: Vec<i8>,
    projects: Vec<String>,
    last_tick: Option<jiff::Timestamp>,
    lingers: Option<bool>,
    findings: Vec<DoctorFinding>,
}

fn show_status(home: &Env, args: &SetupArgs) -> Result<Exit, Failure> {
    let record = SetupRecord::read(&home.setup_note())?;
    let mut kinds: Vec<&'static str> = record.hosts.keys().map(|kind| kind.as_str()).collect();
    let findings = match args.verify || !kinds.is_empty() {
        true => timers::findings(home, &record),
        false => Vec::new(),
    };
    let bad = findings.iter().any(DoctorFinding::is_wrong);
    let status = StatusJson {
        scheduler: kinds.pop(),
        also: kinds,
        unfinished: record.pending,
        minutes: record.minutes().into_iter().collect(),
        projects: record.projects.keys().cloned().collect(),
        last_tick: home.last_tick(),
        lingers: lingers(),
        findings,
    };
    if args.listing.json {
        show::json(&status);
    } else {
        let mut text = match status.scheduler {
            Some(word) => format!("{word} is set up\n"),
            None => "nothing is set up; `runner setup` shows what would be\n".to_owned(),
        };
        let last = status.last_tick.map_or_else(|| "never".to_owned(), show::format_time);
        text.push_str(&format!("  last tick, from any source: {last}\n"));
        for root in &status.projects {
            text.push_str(&format!("  for {root}\n"));
        }
        text.push_str(&doctor::text(&status.findings));
        show::out(&text);
    }
    Ok(match args.verify && (bad || status.scheduler.is_none()) {
        true => Exit::Failed,
        false => Exit::Done,
    })
}
