//! `runner curator diagnose`: finds problems with the curator, each with a command that fixes or
//! examines it.

use runner_backends::spec::Provider;
use runner_backends::{BackendKind, OllamaHealth, ollama_health};
use runner_engine::outcome::Exit;
use runner_jobs::curator::queue::is_windows;
use runner_text::{counted, shell_line, shell_word};
use serde::Serialize;

use super::model::{CuratorStanding, DEADLINE, gather};
use super::text::health;
use crate::commands::Cli;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, safe, show};

/// The endpoints to try if the configured engine does not answer: Ollama's default port and the
/// next port.
const USUAL: [&str; 2] = ["http://127.0.0.1:11434", "http://127.0.0.1:11435"];

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Diagnosis {
    /// `wrong` if the curator does not work, `note` if it works with limitations.
    level: &'static str,
    what: String,
    /// The command that fixes or examines the problem.
    hint: String,
}

#[derive(Serialize)]
#[serde(transparent)]
struct Diagnoses(Vec<Diagnosis>);

impl View for Diagnoses {
    fn print(&self, _ui: Ui) {
        if self.0.is_empty() {
            show::out("no problems with the curator were found\n");
        }
        for Diagnosis { level, what, hint } in &self.0 {
            show::out(&format!("{level:<6} {}\n  fix: {hint}\n", safe::line(what)));
        }
    }
}

pub fn run(cli: &Cli<'_>, project: &LoadedProject) -> Result<Exit, Failure> {
    let standing = gather(project, cli.env.wall()?);
    let elsewhere = |model: &str| {
        let other = USUAL.into_iter().filter(|it| *it != standing.configured.endpoint);
        other
            .map(|endpoint| (endpoint, ollama_health(endpoint, model, DEADLINE)))
            .find(|(_, health)| {
                matches!(health, OllamaHealth::Ready { .. } | OllamaHealth::ModelMissing { .. })
            })
            .map(|(endpoint, _)| endpoint)
    };
    let mut found = findings(&standing, &elsewhere);
    found.extend(apart(project, &standing));
    let wrong = found.iter().any(|one| one.level == "wrong");
    cli.ui.show(&Diagnoses(found));
    Ok(if wrong { Exit::Failed } else { Exit::Done })
}

/// Formats an `ollama` command for the engine at `endpoint`.
fn at(endpoint: &str, words: &[&str]) -> String {
    let command = shell_line(words);
    if endpoint.trim_end_matches('/') == USUAL[0] {
        return command;
    }
    let place = endpoint.trim_start_matches("http://").trim_end_matches('/');
    format!("OLLAMA_HOST={} {command}", shell_word(place))
}

/// Returns a note for each difference in address or model between the job's backend and the
/// configured engine. Only Ollama backends are compared.
fn apart(project: &LoadedProject, it: &CuratorStanding) -> Vec<Diagnosis> {
    let name = it.configured.backend.as_deref().unwrap_or_default();
    let Some(spec) = project.config.backends.get(name) else { return Vec::new() };
    let BackendKind::Api(Provider::Ollama(_), settings) = &spec.kind else { return Vec::new() };
    if it.configured.engine != "ollama" {
        return Vec::new();
    }
    let asked = [
        ("base_url", settings.base_url.as_deref(), &it.configured.endpoint),
        ("model", settings.model.as_deref(), &it.configured.model),
    ];
    let mut found = Vec::new();
    for (key, has, wanted) in asked {
        let has = has.unwrap_or(if key == "base_url" { USUAL[0] } else { "none" });
        if has.trim_end_matches('/') != wanted.trim_end_matches('/') {
            found.push(Diagnosis {
                level: "note",
                what: format!(
                    "the job uses the backend {name}, whose {key} is {has}, not {wanted}"
                ),
                hint: shell_line([
                    "runner",
                    "config",
                    "set",
                    &format!("backends.{name}.{key}"),
                    wanted,
                ]),
            });
        }
    }
    found
}

fn findings(
    it: &CuratorStanding,
    elsewhere: &dyn Fn(&str) -> Option<&'static str>,
) -> Vec<Diagnosis> {
    let mut found = Vec::new();
    let mut add = |level, what: String, hint: String| found.push(Diagnosis { level, what, hint });
    let configured = &it.configured;
    if configured.job.is_none() {
        let what = "no job of kind curator processes the queue".to_owned();
        add("wrong", what, "runner curator setup --apply".to_owned());
    } else if !configured.enabled {
        let job = configured.job.as_deref().unwrap_or_default();
        add(
            "wrong",
            format!("the job {job} is not enabled"),
            shell_line(["runner", "config", "set", &format!("jobs.{job}.enabled"), "true"]),
        );
    } else if configured.manual {
        let job = configured.job.as_deref().unwrap_or_default();
        let what = format!("the job {job} runs only manually, so no timer starts it");
        add("note", what, "runner curator setup --apply".to_owned());
    }
    let folder = |path: &str, key: &str, usual: &str| match is_windows(path) {
        true => format!("runner config set curator.{key} {usual}"),
        false => shell_line(["mkdir", "-p", path]),
    };
    if let Some(why) = &it.worker.why {
        let hint = folder(&it.worker.path, "worker_dir", ".runner/curator");
        add("wrong", format!("the worker's folder: {why}"), hint);
    }
    if let Some(why) = &it.vault.why {
        let hint = folder(&it.vault.path, "vault_dir", ".");
        add("wrong", format!("the notes: {why}"), hint);
    }
    if !configured.engine_known {
        let what = format!(
            "[curator] engine {:?} is neither a configured backend nor a kind that runner supports",
            configured.engine
        );
        add("wrong", what, "runner config set curator.engine builtin".to_owned());
    }
    let endpoint = &configured.endpoint;
    let said = format!("{} at {endpoint}: {}", configured.engine, health(&it.health));
    match &it.health {
        OllamaHealth::Ready { .. } => {}
        OllamaHealth::ModelMissing { .. } => {
            add("note", said, at(endpoint, &["ollama", "pull", &configured.model]));
        }
        OllamaHealth::NotAsked { .. } if configured.engine != "ollama" => {}
        OllamaHealth::NotAsked { .. } => {
            add("note", said, format!("runner config set curator.endpoint {}", USUAL[0]));
        }
        OllamaHealth::Dead { .. } | OllamaHealth::Silent { .. } | OllamaHealth::Stranger { .. } => {
            let hint = match (elsewhere(&configured.model), &it.health) {
                (Some(other), _) => format!("runner config set curator.endpoint {other}"),
                (None, OllamaHealth::Stranger { .. }) => {
                    let other = USUAL.into_iter().find(|it| it != endpoint).unwrap_or(USUAL[0]);
                    let place = other.trim_start_matches("http://");
                    format!(
                        "OLLAMA_HOST={place} ollama serve & runner config set curator.endpoint {other}"
                    )
                }
                (None, OllamaHealth::Silent { .. }) => {
                    shell_line(["curl", "-m", "5", &format!("{endpoint}/api/version")])
                }
                (None, _) => at(endpoint, &["ollama", "serve"]),
            };
            add("note", format!("{said}; rules work without a model"), hint);
        }
    }
    let state = it.status.as_ref().and_then(|status| status["state"].as_str());
    if state == Some("working") && !it.alive {
        let pid = it.status.as_ref().map(|status| status["pid"].clone()).unwrap_or_default();
        let what = format!(
            "the worker's process {pid} no longer exists, but the worker's status is still \"working\""
        );
        add("wrong", what, "runner curator work --once".to_owned());
    }
    if it.queue.failed > 0 {
        let what = format!(
            "{} failed; the reason is in the .reason.txt file next to each",
            counted(it.queue.failed, "job file")
        );
        let hint = format!("cat {}/failed/*.reason.txt", shell_word(&it.worker.path));
        add("note", what, hint);
    }
    if !it.bridge.supported {
        let what = format!(
            "no bridge to OpenClaw or Morai: {}; neither is supported here without a bridge",
            it.bridge.why
        );
        add("note", what, "command -v openclaw oc-ask".to_owned());
    }
    found
}
