//! `[curator]`, and the jobs that run it.
//!
//! Paths are judged where they are used: a folder that this machine does not have, as another system
//! writes them, must not keep anything else from working.

use jiff::SignedDuration;
use runner_engine::publish::RelPath;
use runner_jobs::curator::CuratorSpec;
use runner_jobs::curator::job::CuratorJobKind;
use runner_jobs::reserved::{NEVER, reserved};
use runner_text::nearest::nearest;
use toml::Table;

use super::job::folder;
use super::section::Section;
use super::sources::{ConfigMistake, Sources};
use super::units;

/// The local curator.
#[derive(Clone, Debug)]
pub struct Curator {
    /// `ollama`, or the name of a backend.
    pub engine: String,
    /// The model it runs.
    pub model: String,
    /// Where the engine listens.
    pub endpoint: String,
    /// How long what is over is kept.
    pub keep: Option<SignedDuration>,
    /// The settings that its jobs share.
    pub spec: CuratorSpec,
}

/// Reads the table, whose every key the embedded default states.
pub(super) fn read(mut table: Table, sources: &Sources) -> Result<Curator, ConfigMistake> {
    let mut section = Section::of("curator", &mut table, sources);
    let usual = CuratorSpec::default();
    let engine = section.text("engine")?.unwrap_or_else(|| "ollama".to_owned());
    let model = section.text("model")?.unwrap_or_default();
    let endpoint = section.text("endpoint")?.unwrap_or_default();
    let worker_dir =
        section.text("worker_dir")?.map_or(usual.worker_dir, |text| folder(&text).to_owned());
    let vault_dir = section.text("vault_dir")?.unwrap_or(usual.vault_dir);
    let hourly_cap = section.count("hourly_cap")?.unwrap_or(usual.hourly_cap.into());
    let hourly_cap = u32::try_from(hourly_cap).ok().filter(|cap| *cap > 0);
    let hourly_cap = hourly_cap.ok_or_else(|| {
        section.wrong("curator.hourly_cap", "it must be a whole number of at least 1")
    })?;
    let kinds = match section.texts("kinds")? {
        None => usual.kinds,
        Some(words) => words
            .iter()
            .map(|word| kind(word).map_err(|why| section.wrong("curator.kinds", &why)))
            .collect::<Result<_, _>>()?,
    };
    let ideas = section.parsed("ideas", target)?.unwrap_or(usual.ideas);
    let learnings = section.parsed("learnings", target)?.unwrap_or(usual.learnings);
    let keep = section.parsed("keep", |text| match text {
        "none" => Ok(None),
        text => units::age(text, 1).map(Some),
    })?;
    section.finish()?;
    Ok(Curator {
        engine,
        model,
        endpoint,
        keep: keep.flatten(),
        spec: CuratorSpec {
            worker_dir,
            vault_dir,
            ideas,
            learnings,
            hourly_cap,
            kinds,
            batch: usual.batch,
            event: None,
        },
    })
}

/// Returns the curator job kind with this name.
///
/// # Errors
/// Returns an error that lists the kinds and names the nearest one if there is no such kind.
pub fn kind(word: &str) -> Result<CuratorJobKind, String> {
    let words = CuratorJobKind::ALL.map(CuratorJobKind::as_str);
    CuratorJobKind::of(word).ok_or_else(|| {
        let near = nearest(word, words)
            .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
        format!("there is no kind {word:?} ({}){near}", words.join(", "))
    })
}

fn target(text: &str) -> Result<String, String> {
    let text = folder(text);
    RelPath::new(text).map_err(|error| error.to_string())?;
    match reserved(text, &NEVER) {
        Some(never) => Err(format!("{text:?}: the curator places nothing in {never}")),
        None => Ok(text.to_owned()),
    }
}
