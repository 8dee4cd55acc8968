//! `runner setup`: shows, applies, removes or verifies the steps that make this machine tick
//! automatically.

mod advice;
mod install;
mod remove;
mod status;
mod view;

use runner_engine::file_lock::{FileLock, LockMode};
use runner_engine::outcome::Exit;

use super::Cli;
use crate::env::Env;
use crate::project::trust::ProjectBeforeChange;
use crate::project::{self, LoadedProject};
use crate::setup::plan::{SetupStep, carry_out};
use crate::setup::record::SetupRecord;
use crate::ui::{Failure, show};
pub use view::SetupFile;
use view::{SetupAction, SetupView};

/// Set up this machine's own scheduler to call `runner tick`, so that nights run automatically
///
/// Shows the files and the steps and changes nothing; --apply makes the changes, and --remove
/// undoes them byte for byte. There is one timer per user, for all projects: a second project
/// only adds its times to the timer, and removing a project keeps the timer for the others.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "Example: runner setup --at 02:30 --apply && runner doctor --as-scheduler")]
pub struct SetupArgs {
    /// The host scheduler; auto: the one already set up, or otherwise the one that suits this
    /// machine. The files for any scheduler can be shown on any machine
    #[arg(long, value_name = "KIND", default_value = "auto", value_parser = ["auto", "launchd", "cron", "systemd", "task-scheduler", "manual"])]
    scheduler: String,
    /// Keep the daemon running as a host service instead of using a timer, for jobs that are due
    /// more often than every 5 minutes (systemd and launchd)
    #[arg(long, conflicts_with_all = ["remove", "status", "verify"])]
    service: bool,
    /// Switch back from the service to a timer
    #[arg(long, conflicts_with_all = ["service", "remove", "status", "verify"])]
    timer: bool,
    /// The time at which the project's night opens, night.at in its runner.toml [default:
    /// unchanged; initially 02:30]
    #[arg(long, value_name = "HH:MM")]
    at: Option<String>,
    /// The backend for the project's jobs, or only for the jobs that --job names
    #[arg(long, value_name = "NAME")]
    runner: Vec<String>,
    /// The job whose backend is set by --runner (may be repeated)
    #[arg(long, value_name = "JOB", requires = "runner")]
    job: Vec<String>,
    /// Also print the command that wakes a sleeping machine before the night; the command needs
    /// root and is never run
    #[arg(long, conflicts_with_all = ["remove", "status", "verify"])]
    wake: bool,
    /// Make the changes [default: show them]
    #[arg(long, group = "act")]
    pub(super) apply: bool,
    /// Undo the setup for the current project, and for the machine if no other project needs it
    #[arg(long, group = "act", conflicts_with_all = ["at", "runner"])]
    remove: bool,
    /// With --remove: undo the setup for all projects
    #[arg(long, requires = "remove")]
    all: bool,
    /// Show the current setup and its last tick
    #[arg(long, group = "act", conflicts_with_all = ["at", "runner"])]
    status: bool,
    /// Check that the setup is complete and works; exit code 1 if not
    #[arg(long, group = "act", conflicts_with_all = ["at", "runner"])]
    verify: bool,
}

impl SetupArgs {
    /// Creates the arguments that show the setup of a host scheduler.
    pub fn of(scheduler: String) -> Self {
        Self { scheduler, ..Self::default() }
    }

    /// Returns the files that the host scheduler's setup needs, and whether this system has that
    /// scheduler.
    pub fn files(&self, cli: &Cli<'_>) -> Result<(Vec<SetupFile>, bool), Failure> {
        let record = SetupRecord::read(&cli.env.setup_note())?;
        let view = install::plan(cli, self, &record)?;
        Ok((view.files, view.of_this_system))
    }

    /// Shows, applies, removes or verifies the setup, according to the flags.
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        if self.status || self.verify {
            return status::run(cli, self);
        }
        let home = cli.env;
        if home.is_demo() {
            return Err(Failure::usage("the demo has its own database, which no timer serves")
                .hint("cd ~/my-repository && runner init"));
        }
        let action = SetupAction::of(self);
        let changes = action != SetupAction::Plan;
        // Two concurrent setups would each plan from a state that the other is about to change.
        let _lock = changes.then(|| lock(home)).transpose()?;
        let record = SetupRecord::read(&home.setup_note())?;
        let mut view = match action {
            SetupAction::Remove => remove::plan(cli, self, &record)?,
            _ => install::plan(cli, self, &record)?,
        };
        if !changes {
            cli.ui.show(&view);
            return Ok(Exit::Done);
        }
        if !view.of_this_system {
            return Err(Failure::unavailable(format!(
                "{} is not available on this system: the files can be shown here, but they can be set up only on a system with this scheduler",
                view.scheduler.as_str()
            ))
            .hint("runner setup --apply"));
        }
        cli.ui.info(view.text().trim_end());
        view.troubles = carry_out_accepted(home, &view)?;
        // A changed schedule takes effect when it is registered, so it is registered now. If the
        // first tick registered it, a run due in that tick's minute would be missed.
        if let Ok(root) = project::find(cli.here) {
            let mut store = home.store()?;
            LoadedProject::at(home, Some(&store), &root)?.register(&mut store, home.wall()?)?;
        }
        for trouble in view.troubles.iter().chain(&view.left) {
            show::complain(trouble);
        }
        cli.ui.show(&view);
        Ok(if view.left.is_empty() { Exit::Done } else { Exit::Failed })
    }
}

/// Carries out the planned steps and accepts their changes to projects' files, even if a later step
/// fails. Returns messages about problems that did not stop the setup.
fn carry_out_accepted(home: &Env, view: &SetupView) -> Result<Vec<String>, Failure> {
    let edits = view.planned.iter().filter_map(SetupStep::project_edit);
    let before: Vec<(ProjectBeforeChange, &str)> =
        edits.map(|(root, text)| (ProjectBeforeChange::load(home, root), text)).collect();
    let done = carry_out(&view.planned, &home.setup_note(), &home.state.join("crontab.new"));
    let accepted = before.into_iter().try_for_each(|(project, text)| project.accept(home, text));
    let troubles = done?;
    accepted.map(|()| troubles)
}

fn lock(home: &Env) -> Result<FileLock, Failure> {
    home.make_state()?;
    let path = home.setup_lock();
    let file = FileLock::open(&path)
        .map_err(|error| Failure::cannot_write(format!("{}: {error}", path.display())))?;
    FileLock::take(file, LockMode::Exclusive).map_err(|_| {
        Failure::later(format!("{}: another `runner setup` is running", path.display()))
            .hint("run the command again")
    })
}
