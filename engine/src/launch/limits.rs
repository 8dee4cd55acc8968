//! Sets a program's resource limits, umask and OOM score. The launcher sets them on itself, and the
//! program inherits them.

use std::fs;
use std::io;

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};

use crate::sandbox::ResourceLimits;

/// The OOM score adjustment. If memory runs out, the kernel prefers to kill the program rather than
/// runner or the user's other programs.
const OOM_SCORE: &str = "500";

/// Sets the umask, the resource limits and the OOM score of this process.
pub(super) fn set(caps: &ResourceLimits) -> io::Result<()> {
    umask(Mode::RWXG | Mode::RWXO);
    at_most(Resource::Core, 0)?;
    at_most(Resource::Fsize, caps.file_bytes)?;
    at_most(Resource::Nofile, caps.open_files)?;
    // If this write is not permitted, the score does not change.
    let _ = fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    Ok(())
}

/// Lowers the soft and the hard limit to `most`. Limits that are already lower do not change.
fn at_most(resource: Resource, most: u64) -> io::Result<()> {
    let now = getrlimit(resource);
    let least = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
    setrlimit(resource, Rlimit { current: least(now.current), maximum: least(now.maximum) })?;
    Ok(())
}
