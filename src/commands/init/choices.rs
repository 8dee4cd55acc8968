//! Asks the user for the most important settings of a new project, and applies the answers.

use std::fs;

use jiff::civil::Time;
use runner_engine::outcome::Exit;

use super::detect::DetectedBackend;
use crate::commands::Cli;
use crate::commands::config::{ConfigFile, change};
use crate::commands::setup::SetupArgs;
use crate::config::SettingChange;
use crate::project::LoadedProject;
use crate::setup::record::SetupRecord;
use crate::ui::{Failure, Ui, show};

/// Maximum number of an API's models to show.
const SHOWN: usize = 10;

/// The text of the sample note.
const SAMPLE: &str = "# Try runner for a week\n\n\
    Maybe write each idea into its own file in ideas/ and read the proposals in the morning.\n\
    Open question: which of last year's notes are already implemented?\n";

/// Asks for the settings and applies them. An empty answer selects the value in brackets.
pub(super) fn ask(
    cli: &Cli<'_>,
    project: &mut LoadedProject,
    found: &[DetectedBackend],
) -> Result<(), Failure> {
    let ui = cli.ui;
    let mut changes = Vec::new();
    let mut set = |key: String, value: String| changes.push(SettingChange::Set(key, value));
    if let Some((backend, model)) = backend(ui, found) {
        for (key, value) in backend.settings(model.as_deref()) {
            set(key, value);
        }
        set(format!("backends.{}.fallback", backend.name), "[\"builtin\"]".to_owned());
    }
    let night = &project.config.night;
    let at = night.at.strftime("%H:%M").to_string();
    let opens = ask_until(ui, "When does the night open?", &at, |text| {
        text.len() == 5 && Time::strptime("%H:%M", text).is_ok()
    });
    if opens != at {
        set("night.at".to_owned(), opens);
    }
    if let Some(calls) = night.budget.calls {
        let calls = calls.to_string();
        let most = ask_until(ui, "How many model calls may a night make?", &calls, |text| {
            text.parse::<u32>().is_ok()
        });
        // A run reserves its whole budget, so a night with fewer calls would refuse it.
        let of_run = project.config.jobs.get("dream").and_then(|job| job.spec.budget.calls);
        if most.parse().is_ok_and(|most: u64| of_run.is_some_and(|calls| most < calls)) {
            set("jobs.dream.budget.calls".to_owned(), most.clone());
        }
        if most != calls {
            set("night.budget.calls".to_owned(), most);
        }
    }
    if !changes.is_empty() {
        let quiet = Cli { ui: Ui { quiet: true, ..ui }, ..*cli };
        change(&quiet, &changes, ConfigFile::Project)?;
    }
    sample(cli, project)?;
    timer(cli)?;
    *project = LoadedProject::load(cli.env, &project.root)?;
    Ok(())
}

/// Asks which backend to use. Returns the backend and, if it needs one, its model. Returns `None`
/// for the built-in backend, or if no model was named.
fn backend(ui: Ui, found: &[DetectedBackend]) -> Option<(&DetectedBackend, Option<String>)> {
    if found.is_empty() {
        return None;
    }
    show::notice("\nWhich backend should answer?");
    for (at, one) in found.iter().enumerate() {
        show::notice(&format!("  {}  {}: {}", at + 1, one.name, one.about));
    }
    let none = found.len() + 1;
    show::notice(&format!("  {none}  builtin: answers by rule, without a model"));
    let number = ask_until(ui, "Number:", "1", |text| {
        text.parse().is_ok_and(|number: usize| (1..=none).contains(&number))
    });
    let chosen = found.get(number.parse::<usize>().ok()?.checked_sub(1)?)?;
    if !chosen.needs_model() {
        return Some((chosen, None));
    }
    let models = &chosen.models;
    for listed in models.iter().take(SHOWN) {
        show::notice(&format!("  {}", listed.name));
    }
    if models.len() > SHOWN {
        show::notice(&format!("  and {} more", models.len() - SHOWN));
    }
    // If there are several models, some may only embed text, so none is suggested.
    let only = chosen.only_model().unwrap_or_default();
    let model = ask_until(ui, "Name of the model:", only, |text| {
        !text.is_empty() && (models.is_empty() || chosen.has_model(text))
    });
    // The name is empty if the input ended before a model was named.
    (!model.is_empty()).then_some((chosen, Some(model)))
}

/// Offers to write a sample note if `ideas/` is empty.
fn sample(cli: &Cli<'_>, project: &LoadedProject) -> Result<(), Failure> {
    let folder = project.root.join("ideas");
    let is_empty = fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_none());
    if !is_empty || !says_yes(cli.ui, "Write a sample note to ideas/?", "y") {
        return Ok(());
    }
    let path = folder.join("try-runner.md");
    fs::write(&path, SAMPLE).map_err(|error| Failure::not_written(&path, error))
}

/// Offers to set up a timer if there is none and this is not a demo.
fn timer(cli: &Cli<'_>) -> Result<(), Failure> {
    let record = SetupRecord::read(&cli.env.setup_note())?;
    let question = "Set up a timer that starts the nights automatically?";
    if cli.env.is_demo() || !record.hosts.is_empty() || !says_yes(cli.ui, question, "y") {
        return Ok(());
    }
    let mut setup = SetupArgs::of("auto".to_owned());
    setup.apply = true;
    match setup.run(cli) {
        Ok(Exit::Done) => {}
        Ok(_) => show::complain("the timer is not set up completely; to see why: runner doctor"),
        Err(failure) => show::complain(&failure.message()),
    }
    Ok(())
}

fn says_yes(ui: Ui, question: &str, default: &str) -> bool {
    let answer = ask_until(ui, &format!("{question} (y or n)"), default, |text| {
        matches!(text, "y" | "Y" | "yes" | "n" | "N" | "no")
    });
    matches!(answer.as_str(), "y" | "Y" | "yes")
}

/// Asks until the answer is valid. Uses the default at the end of the input.
fn ask_until(ui: Ui, question: &str, default: &str, valid: impl Fn(&str) -> bool) -> String {
    loop {
        let Some(answer) = ui.ask(question, default) else { return default.to_owned() };
        if valid(&answer) {
            return answer;
        }
        show::notice(&format!("  {answer:?} is not a valid answer"));
    }
}
