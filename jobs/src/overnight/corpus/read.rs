//! Reads a corpus from a folder, with limits on size and depth. Links are never followed.

use std::fs;
use std::io;
use std::path::Path;

use runner_text::front_matter;

use super::{Corpus, CorpusProblem, NEXT_WORK, Node, NodeKind, SUBPATHS, work::WorkFile};
use runner_engine::files::read_in;

/// Maximum length of a node in bytes. A longer file is left unread and reported.
pub const LONGEST: u64 = 1024 * 1024;
/// Maximum size of the work file in bytes.
const LONGEST_WORK: u64 = 64 * 1024 * 1024;
/// Maximum folder depth within a subpath.
const DEEPEST: usize = 8;

/// Why a folder could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}")]
pub struct ReadError {
    pub path: String,
    pub source: io::Error,
}

/// Reads the five paths in `folder`, which is `.agents` or a staged copy of it. A path that is
/// missing is treated as empty.
///
/// # Errors
/// Returns an error if one of the paths, a folder within them or the work file cannot be read.
pub fn read(folder: &Path) -> Result<Corpus, ReadError> {
    let mut corpus = Corpus::default();
    for file in files(folder, &mut corpus.troubles)? {
        let path = folder.join(&file.path);
        corpus.bytes += file.length;
        if file.path == NEXT_WORK {
            if file.length > LONGEST_WORK {
                corpus.trouble(&file.path, format!("{} bytes, too long to read", file.length));
                continue;
            }
            corpus.work =
                WorkFile::parse(&read_in(folder, &path, LONGEST_WORK).map_err(fail(&path))?);
            for (line, why) in corpus.work.kept.broken() {
                corpus.troubles.push(CorpusProblem {
                    path: NEXT_WORK.to_owned(),
                    what: format!("line {line} is left as it is: {why}"),
                });
            }
            continue;
        }
        let Some(kind) = NodeKind::of(&file.path) else {
            corpus.others += 1;
            continue;
        };
        if file.length > LONGEST {
            corpus.trouble(&file.path, format!("{} bytes, longer than a node may be", file.length));
            continue;
        }
        let bytes = match read_in(folder, &path, LONGEST) {
            Ok(bytes) => bytes,
            Err(error) => {
                corpus.trouble(&file.path, format!("cannot be read: {error}"));
                continue;
            }
        };
        let text = match String::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => text,
            _ => {
                corpus.trouble(&file.path, "is not text".to_owned());
                continue;
            }
        };
        let first = text.trim_start_matches('\u{feff}').lines().next();
        if first.map(str::trim_end) == Some("---") && front_matter::split(&text).front().is_none() {
            corpus.trouble(
                &file.path,
                "its front matter cannot be parsed, so the file is never changed".to_owned(),
            );
        }
        corpus.nodes.push(Node::parse(&file.path, kind, text));
    }
    corpus.nodes.sort_by(|a, b| a.path.cmp(&b.path));
    let mut by_id: std::collections::BTreeMap<&str, &str> = std::collections::BTreeMap::new();
    let mut twice = Vec::new();
    for node in &corpus.nodes {
        match by_id.get(node.id.as_str()) {
            Some(first) => twice.push(CorpusProblem {
                path: node.path.clone(),
                what: format!("has the same id {} as {first}", node.id),
            }),
            None => {
                by_id.insert(&node.id, &node.path);
            }
        }
    }
    corpus.troubles.extend(twice);
    corpus.troubles.sort();
    Ok(corpus)
}

impl Corpus {
    fn trouble(&mut self, path: &str, what: String) {
        self.troubles.push(CorpusProblem { path: path.to_owned(), what });
    }
}

/// A regular file within the five paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    /// The file's path, relative to the corpus folder.
    pub path: String,
    /// The size in bytes.
    pub length: u64,
}

/// Lists the regular files within the five paths, ordered by path. Links, special files, invalid
/// names and folders that are nested too deeply are reported in `troubles`. Hidden entries are
/// ignored.
///
/// # Errors
/// Returns an error if one of the five paths or a folder within them cannot be read.
pub fn files(folder: &Path, troubles: &mut Vec<CorpusProblem>) -> Result<Vec<Plain>, ReadError> {
    let mut found = Vec::new();
    for subpath in SUBPATHS {
        // A link in the path could lead out of the folder.
        let mut clean = true;
        let mut at = folder.to_owned();
        for part in subpath.split('/') {
            at.push(part);
            match fs::symlink_metadata(&at) {
                Ok(data) if data.is_symlink() => {
                    troubles.push(CorpusProblem {
                        path: subpath.to_owned(),
                        what: "is a symbolic link, or is reached through one, and is not followed"
                            .to_owned(),
                    });
                    clean = false;
                    break;
                }
                Ok(_) => {}
                // A parent of the path may be a file.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                    ) =>
                {
                    clean = false;
                    break;
                }
                Err(error) => return Err(fail(&at)(error)),
            }
        }
        if clean {
            walk(folder, subpath, 0, &mut found, troubles)?;
        }
    }
    found.sort_by(|a: &Plain, b| a.path.cmp(&b.path));
    Ok(found)
}

fn walk(
    folder: &Path,
    path: &str,
    depth: usize,
    found: &mut Vec<Plain>,
    troubles: &mut Vec<CorpusProblem>,
) -> Result<(), ReadError> {
    let full = folder.join(path);
    let odd = |what: &str| CorpusProblem { path: path.to_owned(), what: what.to_owned() };
    let data = fs::symlink_metadata(&full).map_err(fail(&full))?;
    if data.is_symlink() {
        troubles.push(odd("is a symbolic link and is not followed"));
    } else if data.is_file() {
        found.push(Plain { path: path.to_owned(), length: data.len() });
    } else if data.is_dir() {
        if depth >= DEEPEST {
            troubles.push(odd("is nested too deeply and is not searched"));
            return Ok(());
        }
        for entry in fs::read_dir(&full).map_err(fail(&full))? {
            let entry = entry.map_err(fail(&full))?;
            match entry.file_name().to_str() {
                // Editors and interrupted copies leave hidden files behind.
                Some(name) if name.starts_with('.') => {}
                Some(name) if !name.chars().any(char::is_control) => {
                    walk(folder, &format!("{path}/{name}"), depth + 1, found, troubles)?;
                }
                _ => troubles.push(odd("contains a file whose name is not valid text")),
            }
        }
    } else {
        troubles.push(odd("is not a regular file"));
    }
    Ok(())
}

fn fail(path: &Path) -> impl FnOnce(io::Error) -> ReadError + '_ {
    move |source| ReadError { path: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn missing_folders_are_empty() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(&folder.path().join("absent")).unwrap().nodes.len(), 0);
        let file = folder.path().join("file");
        fs::write(&file, "no folder").unwrap();
        assert_eq!(read(&file).unwrap().nodes.len(), 0);
    }

    #[test]
    fn unreadable_folders_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let endless = folder.path().join("endless");
        symlink("endless", &endless).unwrap();
        let error = read(&endless).unwrap_err();
        assert!(error.path.starts_with(endless.to_str().unwrap()), "{error}");
    }
}
