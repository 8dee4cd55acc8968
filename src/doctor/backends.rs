//! Whether the programs that jobs and backends name are found, and their keys are there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use runner_engine::ledger::Ledger;
use runner_jobs::KindSpec;

use super::Finding;
use crate::config::{self, Config};
use crate::home::{self, Home};
use crate::project::FILE;

/// What of them is missing, over all projects.
pub fn findings(home: &Home, ledger: Option<&Ledger>, here: &Path) -> Vec<Finding> {
    let mut roots: BTreeSet<PathBuf> = crate::project::find(here).into_iter().collect();
    let known = ledger.and_then(|ledger| ledger.projects().ok());
    roots.extend(known.into_iter().flatten().map(|project| project.path));
    let mut programs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for root in roots {
        // What is wrong with its files is told elsewhere.
        if let Ok(config) = config::load(&home.stack(Some(&root.join(FILE)))) {
            needs(&root, &config, &mut programs, &mut keys);
        }
    }
    let path = home::setting("PATH").unwrap_or_default();
    let mut found = Vec::new();
    for (program, who) in programs {
        if home::find_program(&program, &path).is_none() {
            found.push(
                Finding::error(
                    program.clone(),
                    format!(
                        "is not in the PATH here ({}), and is needed by {}",
                        path.to_string_lossy(),
                        who.join(", ")
                    ),
                )
                .mend(format!(
                    "install {program}, or where `command -v {program}` finds it: runner setup --apply"
                )),
            );
        }
    }
    for (key, who) in keys {
        if home::setting(&key).is_none() {
            found.push(
                Finding::error(
                    &key,
                    format!("is not set, and is needed by {}", who.join(", ")),
                )
                .mend(format!(
                    "write {key}=… into {} and chmod 600 it",
                    home.credentials_file().display()
                )),
            );
        }
    }
    found
}

/// What enabled jobs of a project, and the backends that they ask, name.
fn needs(
    root: &Path,
    config: &Config,
    programs: &mut BTreeMap<String, Vec<String>>,
    keys: &mut BTreeMap<String, Vec<String>>,
) {
    for (name, job) in config.jobs.iter().filter(|(_, job)| job.enabled) {
        let who = format!("job {name} of {}", root.display());
        if let KindSpec::Command(command) = &job.spec.kind {
            let program = match command.program.contains('/') {
                true => root.join(&command.program).display().to_string(),
                false => command.program.clone(),
            };
            programs.entry(program).or_default().push(who);
            continue;
        }
        let Some(backend) = config.backends.get(&job.spec.backend) else {
            continue;
        };
        if let Some(program) = &backend.program {
            programs
                .entry(program.clone())
                .or_default()
                .push(who.clone());
        }
        for key in &backend.env {
            keys.entry(key.clone()).or_default().push(who.clone());
        }
        // An API's key may also lie in its file.
        if let (Some(key), None) = (backend.endpoint_key(), &backend.env_file) {
            keys.entry(key.to_owned()).or_default().push(who.clone());
        }
    }
}
