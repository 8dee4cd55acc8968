//! Checks that the programs used by jobs and backends can be found, that agents are logged in, that
//! APIs answer and have the model, and that keys are present.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use runner_backends::check::{self, CheckItem};
use runner_backends::credentials::in_keyring;
use runner_backends::spec::AgentKind;
use runner_backends::{BackendKind, BackendSpec, Surroundings};
use runner_engine::store::Store;
use runner_jobs::kind::Asks;
use runner_text::shell_word;

use super::DoctorFinding;
use crate::config::{self, Config};
use crate::env::{self, Env};
use crate::keyring;
use crate::project::LoadedProject;

/// The programs and keys that enabled jobs need, with the jobs that need them.
#[derive(Default)]
struct NeededPrograms {
    programs: BTreeMap<String, Vec<String>>,
    keys: BTreeMap<String, Vec<String>>,
}

/// Returns the findings about programs, logins and keys, across all projects.
pub fn findings(home: &Env, store: Option<&Store>, here: &Path) -> Vec<DoctorFinding> {
    let mut roots: BTreeSet<PathBuf> = crate::project::find(here).into_iter().collect();
    let known = store.and_then(|store| store.projects().ok());
    roots.extend(known.into_iter().flatten().map(|project| project.path));
    let mut needs = NeededPrograms::default();
    let mut checked = Checked::new();
    let mut found = Vec::new();
    for root in roots {
        // Mistakes in the project's files, and changes that have not been accepted, are reported
        // elsewhere. A program named by such settings must not be started, and no key may be sent
        // to their addresses.
        let project = LoadedProject::at(home, store, &root).and_then(LoadedProject::trusted);
        if let Ok(LoadedProject { config, .. }) = project {
            needs.add(&root, &config);
            found.extend(services(home, &root, &config, &mut checked));
        }
    }
    let path = env::setting("PATH").unwrap_or_default();
    for (program, who) in needs.programs {
        if env::find_program(&program, &path).is_none() {
            found.push(
                DoctorFinding::error(
                    program,
                    format!(
                        "is not in PATH here ({}), but is needed by {}; install it; or, if your own shell finds it, run the command below in that shell, which saves the shell's PATH",
                        path.to_string_lossy(),
                        who.join(", ")
                    ),
                )
                .hint("runner setup --apply"),
            );
        }
    }
    let file = home.credentials_file();
    let folder = file.parent().unwrap_or(&file);
    for (key, who) in needs.keys {
        if env::setting(&key).is_none() {
            found.push(
                DoctorFinding::error(
                    &key,
                    format!(
                        "is not set, but is needed by {}; the command below reads it from the terminal until you press Ctrl-D",
                        who.join(", ")
                    ),
                )
                .hint(format!(
                    "(umask 077 && mkdir -p {} && printf {key}= >> {1} && cat >> {1})",
                    shell_word(folder.display()),
                    shell_word(file.display())
                )),
            );
        }
    }
    found
}

/// The backends that were checked, with their problems. Projects often share a backend.
type Checked = Vec<(BackendSpec, Vec<CheckItem>)>;

/// Checks that the agents' programs start, that a run can use their login, and that APIs answer and
/// have the model.
fn services(home: &Env, root: &Path, config: &Config, checked: &mut Checked) -> Vec<DoctorFinding> {
    let mut found = Vec::new();
    let all: BTreeMap<&str, &BackendSpec> = asking(config)
        .flat_map(|(_, backends)| backends)
        .map(|backend| (backend.name.as_str(), backend))
        .collect();
    for backend in all.into_values() {
        let (install, login) = match &backend.kind {
            BackendKind::Agent(AgentKind::Claude(_), ..) => {
                (Some("npm install -g @anthropic-ai/claude-code"), Some("claude setup-token"))
            }
            BackendKind::Agent(AgentKind::Codex, ..) => {
                (Some("npm install -g @openai/codex"), Some("codex login"))
            }
            // A variable that is not set is reported with the other keys.
            BackendKind::Api(..) if missing_key(backend).is_none() => (None, None),
            _ => continue,
        };
        let place = format!("backend {} of {}", backend.name, root.display());
        for bad in problems(home, backend, checked) {
            let check = || {
                format!("runner -C {} backends check {}", shell_word(root.display()), backend.name)
            };
            let fix = match bad.what {
                "program" | "version" => install.map(str::to_owned),
                "login" => login.map(str::to_owned),
                _ => None,
            };
            let said = match bad.what {
                "login" => {
                    format!(
                        "{}; a run cannot use a login that is stored in a desktop keychain",
                        bad.said
                    )
                }
                _ => bad.said.clone(),
            };
            found.push(DoctorFinding::error(&place, said).hint(fix.unwrap_or_else(check)));
        }
    }
    found
}

/// Returns the problems of a backend. Each backend is checked only once.
fn problems<'c>(
    home: &Env,
    backend: &BackendSpec,
    checked: &'c mut Checked,
) -> impl Iterator<Item = &'c CheckItem> {
    let at = checked.iter().position(|(known, _)| known == backend).unwrap_or_else(|| {
        let mut env = env::child_environment();
        env.extend(keyring::resolve_secrets(backend));
        let around =
            Surroundings { env: &env, sandbox_start: None, slots: None, clock: &home.clock };
        let items = env::marker().map(|marker| check::check(backend, &around, &marker));
        checked.push((backend.clone(), items.unwrap_or_default()));
        checked.len() - 1
    });
    checked[at].1.iter().filter(|item| item.problem.is_some())
}

/// Returns the variable that must contain a backend's API key, if it is not set. A key in an
/// `env_file` or in the keyring is checked with the backend.
fn missing_key(backend: &BackendSpec) -> Option<&str> {
    let key = backend.endpoint_key().filter(|_| backend.kind.env_file().is_none());
    key.filter(|key| in_keyring(key).is_none() && env::setting(key).is_none())
}

/// Returns the enabled jobs that use backends, each with its backends and their fallbacks.
fn asking(config: &Config) -> impl Iterator<Item = (&String, Vec<&BackendSpec>)> {
    let asks = |job: &config::Job| job.spec.kind.asks() != Asks::Never;
    let jobs = config.jobs.iter().filter(move |(_, job)| job.enabled && asks(job));
    jobs.map(|(name, job)| {
        let asked = std::iter::once(&job.spec.backend).chain(job.spec.kind.panel());
        let asked: Vec<_> = asked.filter_map(|name| config.backends.get(name)).collect();
        let others = asked.iter().flat_map(|it| &it.fallback);
        let others: Vec<_> = others.filter_map(|name| config.backends.get(name)).collect();
        (name, [asked, others].concat())
    })
}

impl NeededPrograms {
    /// Adds the programs and keys that a project's jobs and their backends need.
    fn add(&mut self, root: &Path, config: &Config) {
        let who = |name: &str| format!("job {name} of {}", root.display());
        for (name, job) in config.jobs.iter().filter(|(_, job)| job.enabled) {
            if let Some(program) = job.spec.kind.program() {
                let program = match program.contains('/') {
                    true => root.join(program).display().to_string(),
                    false => program.to_owned(),
                };
                self.programs.entry(program).or_default().push(who(name));
            }
        }
        for (name, backend) in asking(config)
            .flat_map(|(name, backends)| backends.into_iter().map(move |it| (name, it)))
        {
            // The agents' programs are checked elsewhere, by starting them.
            if let BackendKind::Command(own, _) = &backend.kind {
                self.programs.entry(own.program.clone()).or_default().push(who(name));
            }
            for key in backend.kind.env().unwrap_or_default() {
                self.keys.entry(key.clone()).or_default().push(who(name));
            }
            if let Some(key) = missing_key(backend) {
                self.keys.entry(key.to_owned()).or_default().push(who(name));
            }
        }
    }
}
