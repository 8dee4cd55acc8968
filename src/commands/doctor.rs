//! `runner doctor`: finds what keeps the nights from running.

use std::collections::BTreeMap;
use std::path::Path;

use runner_engine::outcome::Exit;
use serde::Serialize;

use crate::doctor::{self, DoctorFinding};
use crate::env::{self, Env};
use crate::setup::record::SetupRecord;
use crate::setup::{SchedulerKind, environment, fitting};
use crate::ui::{Failure, Ui, show};

#[derive(Debug, Serialize)]
struct DoctorJson {
    as_scheduler: bool,
    wrong: bool,
    findings: Vec<DoctorFinding>,
}

/// Prints the findings.
pub fn run(
    home: &Env,
    here: &Path,
    as_scheduler: bool,
    there: bool,
    ui: Ui,
) -> Result<Exit, Failure> {
    if as_scheduler && !there {
        return Err(go_there(home, here, ui)?);
    }
    let findings = doctor::findings(home, here);
    let wrong = findings.iter().any(DoctorFinding::is_wrong);
    if ui.json {
        show::json(&DoctorJson { as_scheduler, wrong, findings });
    } else {
        show::out(&doctor::text(&findings));
        if !wrong {
            show::out("nothing is wrong\n");
        }
    }
    Ok(if wrong { Exit::Failed } else { Exit::Done })
}

/// Replaces this process with the same command in the environment of a host scheduler's tick: the
/// scheduler's own variables and the saved ones.
fn go_there(home: &Env, here: &Path, ui: Ui) -> Result<Failure, Failure> {
    let record = SetupRecord::read(&home.setup_note())?;
    let (kind, _) = fitting(&record);
    let mut variables = given_by(kind);
    if !record.hosts.is_empty() && kind != SchedulerKind::Manual {
        variables.extend(environment::credentials(&home.credentials_file())?);
        variables.extend(environment::read(&home.environment_file())?);
    }
    // Keeps the state and configuration folders and the test clock of this process.
    for name in ["XDG_STATE_HOME", "XDG_CONFIG_HOME", "RUNNER_TEST_CLOCK"] {
        if let Some(value) = env::setting(name).and_then(|value| value.into_string().ok()) {
            variables.entry(name.to_owned()).or_insert(value);
        }
    }
    let here =
        here.to_str().ok_or_else(|| Failure::data(format!("{}: not UTF-8", here.display())))?;
    let mut arguments = vec!["-C", here, "doctor", "--as-scheduler", "--there"];
    if ui.json {
        arguments.push("--json");
    }
    Ok(env::become_in(&arguments, &variables))
}

/// Returns the environment variables that a host scheduler sets by itself.
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
