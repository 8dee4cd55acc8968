//! Detects a checkout that only its owner can enter, such as one in root's home folder.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Returns whether every user can execute a program.
pub fn is_open(program: &Path) -> bool {
    let open = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o001 != 0;
    program.ancestors().all(open)
}
