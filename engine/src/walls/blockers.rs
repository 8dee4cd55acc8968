//! What stands, while a child runs, where a protected path is not there.
//!
//! A mount can only be laid over something. So an empty folder is put there, which git does not see
//! and nobody can fill, for it is mounted read-only for the child; it is removed when the child is
//! gone. It is written down before it is made, so that recovery can remove it after a death of both
//! runner and its launcher.
//!
//! `.git/commondir` alone gets a file, and one that says what is true without it (`.`): git reads
//! that name whenever it runs, also for the person at the keyboard, and fails on a folder.
//!
//! Must never remove what is not empty, or not as it was made.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The note's name in the folder of a run.
pub const NOTE: &str = "walls.json";

/// What a file that git reads says in place of nothing.
const COMMON: &[u8] = b".\n";

/// Makes them, and pushes each onto `made`.
pub fn make(missing: &[PathBuf], note: Option<&Path>, made: &mut Vec<PathBuf>) -> io::Result<()> {
    if let Some(note) = note {
        crate::files::write_atomic(note, &serde_json::to_vec(missing)?, 0o600)
            .map_err(io::Error::other)?;
    }
    for path in missing {
        let done = if is_common(path) {
            whole_file(path)
        } else {
            fs::create_dir(path)
        };
        match done {
            Ok(()) => made.push(path.clone()),
            // Made by somebody else meanwhile: then it is there, and covered like the others.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Makes the file with all that is in it at once: git may look at any moment.
fn whole_file(path: &Path) -> io::Result<()> {
    let half = path.with_extension(format!("runner-{}", std::process::id()));
    let mut file = fs::File::create_new(&half)?;
    let done = file
        .write_all(COMMON)
        .and_then(|()| fs::hard_link(&half, path));
    fs::remove_file(&half)?;
    done
}

/// Removes them, and the note.
pub fn clear(made: &[PathBuf], note: Option<&Path>) {
    for path in made {
        if is_common(path) {
            if fs::read(path).is_ok_and(|text| text == COMMON) {
                let _ = fs::remove_file(path);
            }
        } else {
            // Only an empty one goes.
            let _ = fs::remove_dir(path);
        }
    }
    if let Some(note) = note {
        let _ = fs::remove_file(note);
    }
}

/// Removes what a note tells of, if there is one: for recovery.
pub fn clear_noted(note: &Path) {
    let Ok(text) = fs::read(note) else {
        return;
    };
    let made: Vec<PathBuf> = serde_json::from_slice(&text).unwrap_or_default();
    clear(&made, Some(note));
}

fn is_common(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "commondir")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_goes_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b, c) = (
            folder.path().join(".claude"),
            folder.path().join("rem"),
            folder.path().join("commondir"),
        );
        let note = folder.path().join("note");
        let mut made = Vec::new();
        make(&[a.clone(), b.clone(), c.clone()], Some(&note), &mut made).unwrap();
        assert!(a.is_dir() && c.is_file() && note.is_file());
        fs::write(b.join("x"), "kept").unwrap();
        clear_noted(&note);
        assert!(!a.exists() && b.exists() && !c.exists() && !note.exists());
    }
}
