//! The resource limits and the initial state of a program: they are set on the launcher itself, and
//! inherited.

use std::fs;
use std::io;

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};

use crate::sandbox::ResourceLimits;

/// The score for the OOM killer: when memory runs out, the program is more likely to be killed than
/// runner and the user's own programs.
const OOM_SCORE: &str = "500";

/// Sets the umask, the resource limits and the OOM score of this process.
pub(super) fn set(caps: &ResourceLimits) -> io::Result<()> {
    umask(Mode::RWXG | Mode::RWXO);
    at_most(Resource::Core, 0)?;
    at_most(Resource::Fsize, caps.file_bytes)?;
    at_most(Resource::Nofile, caps.open_files)?;
    if let Some(processes) = caps.processes {
        at_most(Resource::Nproc, processes)?;
    }
    // If the write is not allowed, the score stays unchanged.
    let _ = fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    Ok(())
}

/// Lowers both limits to `most`; a limit that is already lower stays.
fn at_most(resource: Resource, most: u64) -> io::Result<()> {
    let now = getrlimit(resource);
    let least = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
    setrlimit(resource, Rlimit { current: least(now.current), maximum: least(now.maximum) })?;
    Ok(())
}
