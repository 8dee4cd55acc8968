//! Reads the `[curator]` table and the names of the curator's job kinds.
//!
//! Whether a path exists is checked only where the path is used, because a path that exists only on
//! another system must not prevent anything else from working.

use jiff::SignedDuration;
use runner_jobs::curator::CuratorSpec;
use runner_jobs::curator::job::CuratorJobKind;

use super::finding::Reason;
use super::reader::Reader;
use super::settings::CuratorTable;

#[derive(Clone, Debug)]
pub struct Curator {
    /// `ollama`, or the name of a backend.
    pub engine: String,
    pub model: String,
    /// The address where the engine listens.
    pub endpoint: String,
    /// How long completed job files, findings and log entries are kept, or `None` to keep them
    /// forever.
    pub keep: Option<SignedDuration>,
    /// The settings shared by the curator's jobs.
    pub spec: CuratorSpec,
}

/// Reads the `[curator]` table. The embedded defaults set every key in it.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Curator> {
    let table = reader.read::<CuratorTable>(&["curator"])?;
    Some(Curator {
        engine: table.engine,
        model: table.model,
        endpoint: table.endpoint,
        keep: table.keep.0,
        spec: CuratorSpec {
            worker_dir: table.worker_dir,
            vault_dir: table.vault_dir,
            ideas: table.ideas.0,
            learnings: table.learnings.0,
            hourly_cap: table.hourly_cap,
            kinds: table.kinds,
            ..CuratorSpec::default()
        },
    })
}

/// Returns the curator job kind with this name.
///
/// # Errors
/// If there is no such kind, returns an error that lists the kinds and suggests the nearest one.
pub fn kind(word: &str) -> Result<CuratorJobKind, String> {
    let words = CuratorJobKind::ALL.map(CuratorJobKind::as_str);
    CuratorJobKind::of(word).ok_or_else(|| {
        let why = Reason::from(format!("there is no kind {word:?} ({})", words.join(", ")));
        why.near(word, words).to_string()
    })
}
