//! Formats the curator's state as text.

use runner_backends::OllamaHealth;

use super::model::CuratorStanding;
use crate::ui::{Ui, View, safe, show};

impl View for CuratorStanding {
    fn print(&self, _ui: Ui) {
        show::out(&text(self));
    }
}

fn text(standing: &CuratorStanding) -> String {
    let CuratorStanding { configured, queue, worker, vault, .. } = standing;
    let mut page = String::new();
    let mut row = |name: &str, value: String| {
        page.push_str(&format!("{name:<10} {}\n", safe::line(&value)));
    };
    let job = match (&configured.job, &configured.backend) {
        (Some(job), Some(backend)) => {
            let off = if configured.enabled { "" } else { ", not enabled" };
            format!("{job}, uses {backend}{off}")
        }
        _ => "none; to process the queue: runner curator setup".to_owned(),
    };
    row("job", job);
    row(
        "engine",
        format!("{} at {}: {}", configured.engine, configured.endpoint, health(&standing.health)),
    );
    row("model", configured.model.clone());
    row("worker", describe_folder(&worker.path, worker.why.as_deref()));
    row("notes", describe_folder(&vault.path, vault.why.as_deref()));
    row(
        "queue",
        format!(
            "{} waiting, {} in progress, {} done, {} failed",
            queue.queue, queue.processing, queue.done, queue.failed
        ),
    );
    if let Some(left) = standing.left_this_hour {
        row("hour", format!("{left} of {} jobs may still start", configured.hourly_cap));
    }
    if let Some(status) = &standing.status {
        let state = status["state"].as_str().unwrap_or_default();
        let gone = if !standing.alive && state == "working" {
            ", but the process no longer exists"
        } else {
            ""
        };
        let at = status["updated_at"].as_str().unwrap_or_default();
        row("last", format!("{state} at {at}{gone}"));
        if let Some(error) = status["last_error"].as_str() {
            row("error", error.to_owned());
        }
    }
    row("bridge", standing.bridge.why.clone());
    page
}

fn describe_folder(path: &str, why: Option<&str>) -> String {
    why.map_or_else(|| path.to_owned(), |why| format!("{path}: {why}"))
}

pub fn health(health: &OllamaHealth) -> String {
    match health {
        OllamaHealth::Ready { version } => format!("ready (version {version})"),
        OllamaHealth::ModelMissing { version, models } => format!(
            "version {version}, but the model is missing; installed models: {}",
            match models.as_slice() {
                [] => "none".to_owned(),
                models => models.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", "),
            }
        ),
        OllamaHealth::Dead { why } => format!("nothing is listening there ({why})"),
        OllamaHealth::Silent { why } => format!("no answer ({why})"),
        OllamaHealth::Stranger { why } => format!("something else is listening there ({why})"),
        OllamaHealth::NotAsked { why } => format!("not asked: {why}"),
    }
}
