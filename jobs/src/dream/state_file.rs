//! Reads a pass's state file when it is first needed, and records in a mark that the state file
//! covers all ideas.
//!
//! A pass over unchanged ideas does not need the state file, which is several times as large as the
//! stat cache. A mark left by an earlier pass records that the file's entries covered every idea in
//! the stat cache. The mark is valid as long as both files are unchanged. A missing or damaged mark
//! only costs time.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use runner_engine::digest::Digest;
use runner_engine::files::{DOCUMENT, read_host, write_atomic};
use runner_engine::outcome::Class;
use runner_engine::scope::Expect;
use runner_text::shell_word;
use serde::{Deserialize, Serialize};

use super::spec::DreamSpec;
use super::state::DreamState;
use super::walk::Stat;
use super::{read_own, state};
use crate::{Context, JobError};

/// The state file of a project.
#[derive(Default)]
pub(super) struct StateFile {
    content: OnceCell<StateContent>,
}

/// The content of the state file at the time of the first read.
struct StateContent {
    bytes: Vec<u8>,
    expect: Expect,
    /// The file's stat data before the read.
    stat: Option<Stat>,
}

impl StateFile {
    fn content(&self, ctx: &Context<'_>, spec: &DreamSpec) -> Result<&StateContent, JobError> {
        if let Some(content) = self.content.get() {
            return Ok(content);
        }
        let stat = stat_of(ctx, spec);
        let (bytes, expect) = read(ctx, spec)?;
        Ok(self.content.get_or_init(|| StateContent { bytes, expect, stat }))
    }

    /// Returns the content of the file, which is empty if there is no file.
    pub(super) fn bytes(&self, ctx: &Context<'_>, spec: &DreamSpec) -> Result<&[u8], JobError> {
        Ok(&self.content(ctx, spec)?.bytes)
    }

    /// Returns the condition under which a publication may replace the file: its content must still
    /// be the content that was read.
    pub(super) fn expect(&self, ctx: &Context<'_>, spec: &DreamSpec) -> Result<&Expect, JobError> {
        Ok(&self.content(ctx, spec)?.expect)
    }

    /// Records that the state file covers all ideas in a stat cache. Does nothing if this pass has
    /// not read a state file, keeps no caches or replays a recording.
    pub(super) fn mark(&self, ctx: &Context<'_>, cache: Digest) {
        let stat = self.content.get().and_then(|content| content.stat);
        if let Some(state) = stat.filter(|_| ctx.files.keeps_caches() && !ctx.recording.replays()) {
            TriagedMark { cache, state }.save(ctx.files.cache());
        }
    }
}

/// Reads and parses the state file.
///
/// # Errors
/// Returns a failure of class `environment` if the content is not a dream state, and any error from
/// reading the file.
pub(super) fn parse<'a>(
    (ctx, spec): (&Context<'_>, &DreamSpec),
    file: &'a StateFile,
) -> Result<DreamState<'a>, JobError> {
    DreamState::parse(file.bytes(ctx, spec)?).map_err(|bad| bad_state(spec, &bad))
}

/// Reads the current state file. Returns its content, which is empty if there is no file, and the
/// condition under which a publication may replace the file.
pub(super) fn read(ctx: &Context<'_>, spec: &DreamSpec) -> Result<(Vec<u8>, Expect), JobError> {
    Ok(match read_own(ctx, &spec.state_path())? {
        Some(bytes) => {
            let expect = Expect::Digest(Digest::of(&bytes));
            (bytes, expect)
        }
        None => (Vec::new(), Expect::Absent),
    })
}

pub(super) fn bad_state(spec: &DreamSpec, bad: &state::BadState) -> JobError {
    let path = spec.state_path();
    JobError::failed(
        Class::Environment,
        format!(
            "{path} is not a dream state: {bad}; nothing was overwritten. Fix it, or move it away \
                 (`mv {0} {0}.bad`), and the next pass examines every idea again",
            shell_word(&path)
        ),
    )
}

fn stat_of(ctx: &Context<'_>, spec: &DreamSpec) -> Option<Stat> {
    let metadata = ctx.files.root().join(spec.state_path()).symlink_metadata().ok()?;
    metadata.is_file().then(|| Stat::of(&metadata))
}

/// The record that a state file has an entry with the current digest for every idea in a stat
/// cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct TriagedMark {
    /// The digest at the end of the stat cache.
    cache: Digest,
    /// The stat data of the state file.
    state: Stat,
}

impl TriagedMark {
    fn path(folder: &Path) -> PathBuf {
        folder.join("dream-triaged.json")
    }

    /// Reads the mark. Returns `None` if there is no valid mark, or if the state file could have
    /// changed unnoticed since the mark was written.
    fn load(folder: &Path) -> Option<Self> {
        let path = Self::path(folder);
        let mark: Self = serde_json::from_slice(&read_host(&path, DOCUMENT).ok()?).ok()?;
        let written = Stat::of(&path.symlink_metadata().ok()?).mtime;
        (mark.state.mtime.max(mark.state.ctime) < written).then_some(mark)
    }

    fn save(&self, folder: &Path) {
        let bytes = serde_json::to_vec(self).expect("a mark serializes to JSON");
        if let Err(error) = write_atomic(&Self::path(folder), &bytes, 0o600) {
            tracing::warn!(%error, "the mark of the state file could not be saved");
        }
    }
}

/// Returns the digest of the stat cache whose ideas are all covered by the state file, or `None` if
/// there is no valid mark.
pub(super) fn covered(ctx: &Context<'_>, spec: &DreamSpec) -> Option<Digest> {
    let mark = TriagedMark::load(ctx.files.cache()).filter(|_| !ctx.recording.replays())?;
    (stat_of(ctx, spec)? == mark.state).then_some(mark.cache)
}

#[cfg(test)]
mod tests {
    use std::fs::{File, FileTimes};
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn mark_that_is_not_newer_than_the_state_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let state = Stat { size: 1, mtime: 20_000_000_000, ctime: 30_000_000_000, inode: 1 };
        let mark = TriagedMark { cache: Digest::of(b"cache"), state };
        mark.save(folder.path());
        let written = |seconds| {
            let file = File::options().write(true).open(TriagedMark::path(folder.path())).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            file.set_times(FileTimes::new().set_modified(time)).unwrap();
            TriagedMark::load(folder.path())
        };
        assert_eq!(written(31), Some(mark));
        assert_eq!(written(30), None);
        assert_eq!(TriagedMark::load(&folder.path().join("none")), None);
    }
}
