//! `runner doctor`: finds the problems that keep nights from running.

use std::collections::BTreeMap;

use runner_engine::outcome::Exit;
use serde::Serialize;

use super::Cli;
use crate::doctor::{self, DoctorFinding};
use crate::env;
use crate::setup::record::SetupRecord;
use crate::setup::{SchedulerKind, environment, fitting};
use crate::ui::{Failure, Ui, View, show};

/// Find problems that prevent nights from running; each comes with the command that fixes it
///
/// Exit code 1 when something is wrong.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner doctor --json | jq -r '.findings[].hint'")]
pub struct DoctorArgs {
    /// Check in the environment of the host's scheduler, which has few variables besides the saved
    /// ones
    #[arg(long)]
    as_scheduler: bool,
    /// The command already runs in that environment
    #[arg(long, hide = true)]
    there: bool,
}

#[derive(Debug, Serialize)]
struct Diagnosis {
    as_scheduler: bool,
    wrong: bool,
    findings: Vec<DoctorFinding>,
}

impl View for Diagnosis {
    fn print(&self, _ui: Ui) {
        show::out(&doctor::text(&self.findings));
        if !self.wrong {
            show::out("no problems were found\n");
        }
    }
}

impl DoctorArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let Self { as_scheduler, there, .. } = *self;
        if as_scheduler && !there {
            return Err(go_there(cli)?);
        }
        let findings = doctor::findings(cli.env, cli.here);
        let wrong = findings.iter().any(DoctorFinding::is_wrong);
        cli.ui.show(&Diagnosis { as_scheduler, wrong, findings });
        Ok(if wrong { Exit::Failed } else { Exit::Done })
    }
}

/// Restarts this command in the environment of a host scheduler's tick: the scheduler's variables
/// and the saved ones. Returns only if the restart fails or cannot be attempted.
fn go_there(cli: &Cli<'_>) -> Result<Failure, Failure> {
    let record = SetupRecord::read(&cli.env.setup_note())?;
    let (kind, _) = fitting(&record);
    let mut variables = given_by(kind);
    if !record.hosts.is_empty() && kind != SchedulerKind::Manual {
        variables.extend(environment::credentials(&cli.env.credentials_file())?);
        variables.extend(environment::read(&cli.env.environment_file())?);
    }
    // Keep this process's state folder, configuration folder and test clock, unless the saved
    // environment sets them.
    for name in ["XDG_STATE_HOME", "XDG_CONFIG_HOME", "RUNNER_TEST_CLOCK"] {
        if let Some(value) = env::setting(name).and_then(|value| value.into_string().ok()) {
            variables.entry(name.to_owned()).or_insert(value);
        }
    }
    let here = cli.here.to_str();
    let here = here.ok_or_else(|| Failure::data(format!("{} is not UTF-8", cli.here.display())))?;
    let mut arguments = vec!["-C", here, "doctor", "--as-scheduler", "--there"];
    if cli.ui.json {
        arguments.push("--json");
    }
    Ok(env::become_in(&arguments, &variables))
}

/// Returns the environment variables that a host scheduler of this kind sets.
fn given_by(kind: SchedulerKind) -> BTreeMap<String, String> {
    let path = match kind {
        SchedulerKind::Cron => "/usr/bin:/bin",
        SchedulerKind::Launchd => "/usr/bin:/bin:/usr/sbin:/sbin",
        _ => "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    };
    let mut variables = env::named(["HOME", "LOGNAME"].into_iter());
    variables.insert("PATH".to_owned(), path.to_owned());
    variables.insert("SHELL".to_owned(), "/bin/sh".to_owned());
    if kind != SchedulerKind::Cron {
        variables.extend(env::named(["USER", "LANG", "XDG_RUNTIME_DIR"].into_iter()));
    }
    variables
}
