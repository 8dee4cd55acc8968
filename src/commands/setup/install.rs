//! `runner setup` and `runner setup --apply`: plans the host scheduler's files and the changes to
//! the project's settings.

use jiff::civil::Time;

use super::SetupArgs;
use super::advice::{advice, credentials};
use super::view::{SetupAction, SetupFile, SetupView};
use crate::commands::Cli;
use crate::project::{self, LoadedProject};
use crate::setup::hosts::{HostScheduler, ask_systemd};
use crate::setup::project::{ProjectPart, SetupOptions, part};
use crate::setup::record::SetupRecord;
use crate::setup::ticks::too_frequent;
use crate::setup::{Convergence, SchedulerKind, WantedSetup, converge, fitting, frozen, wake};
use crate::ui::{Failure, show};

/// Plans the setup of the current project, or of the machine alone outside a project.
pub(super) fn plan(
    cli: &Cli<'_>,
    args: &SetupArgs,
    old: &SetupRecord,
) -> Result<SetupView, Failure> {
    let (kind, why) = match SchedulerKind::WORDS.iter().find(|(word, _)| *word == args.scheduler) {
        Some((_, kind)) => (*kind, "requested with --scheduler".to_owned()),
        None => fitting(old),
    };
    let home = cli.env;
    let wish = options(args)?;
    let mut record =
        SetupRecord { service: args.service || (old.service && !args.timer), ..old.clone() };
    let mut edits = Vec::new();
    let mut notes = Vec::from_iter(check_systemd(kind, SetupAction::of(args))?);
    let at_work = match project::find(cli.here) {
        Ok(root) => Some(LoadedProject::load(home, &root)?.trusted()?),
        Err(failure) if args.at.is_some() || args.wake || !args.runner.is_empty() => {
            return Err(failure);
        }
        Err(_) => None,
    };
    match &at_work {
        Some(here) => {
            let root = here.root.display().to_string();
            let ProjectPart { served, frequent, edit, night } =
                part(home, here, &wish, old.projects.get(&root))?;
            notes.push(format!("the night of {root} opens at {night}"));
            if !record.service {
                notes.extend(frequent.iter().map(|(job, schedule)| {
                    format!(
                        "{}: `runner setup --service --apply` keeps the daemon running instead",
                        too_frequent(job, schedule)
                    )
                }));
            }
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
                "this folder is not in a project: the timer serves all projects, including future ones"
                    .to_owned(),
            );
        }
    }
    let others = record.projects.len() - usize::from(at_work.is_some());
    if others > 0 {
        notes.push(format!(
            "there is one timer per user, and a tick serves all projects: {} already set up, and this setup adds only its minutes",
            show::count(others as u64, "other project")
        ));
    }
    let ticks = record.ticks();
    let host = HostScheduler::of(kind, home, &ticks)?;
    let mut files: Vec<SetupFile> = host
        .files
        .iter()
        .map(|file| SetupFile { path: file.path.display().to_string(), text: file.text.clone() })
        .collect();
    files.extend(
        host.crontab
            .iter()
            .map(|text| SetupFile { path: "crontab".to_owned(), text: text.clone() }),
    );
    notes.extend(advice(kind, &ticks, host.lingers));
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
    let of_this_system = kind.is_of_this_system();
    Ok(SetupView {
        scheduler: kind,
        why,
        of_this_system,
        minutes: ticks.minutes.into_iter().collect(),
        files,
        notes,
        credentials: credentials(home, at_work.as_ref(), kind, &frozen),
        ..SetupView::of(SetupAction::of(args), convergence)
    })
}

/// Checks that the user's systemd manager answers if it is needed. Returns a note if it does not.
///
/// # Errors Returns an error instead of a note if the command would make changes, because it could
/// not complete them.
fn check_systemd(kind: SchedulerKind, action: SetupAction) -> Result<Option<String>, Failure> {
    if kind != SchedulerKind::Systemd || !kind.is_of_this_system() {
        return Ok(None);
    }
    let Err(why) = ask_systemd() else { return Ok(None) };
    let what = format!("`systemctl --user` does not answer here ({why})");
    match action {
        SetupAction::Plan => Ok(Some(format!("{what}, so --apply would change nothing"))),
        _ => Err(Failure::environment(format!("{what}, so nothing was changed")).hint(
            "export XDG_RUNTIME_DIR=/run/user/$(id -u), then run the command again, or: runner setup --scheduler cron --apply",
        )),
    }
}

/// Checks the flags that change the project's settings, and returns their values.
fn options(args: &SetupArgs) -> Result<SetupOptions, Failure> {
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
