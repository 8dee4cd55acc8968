//! `runner init`: make a repository a project. Says what it writes; a second time writes nothing.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use runner_engine::causes::whole;
use runner_engine::files::write_atomic;
use runner_engine::git::{Git, GitError};
use runner_engine::ids::ProjectId;
use runner_engine::outcome::Exit;

use crate::cli::Failure;
use crate::cli::show;
use crate::config;
use crate::home::{self, Home};
use crate::project::{self, Here};

/// Folders that a project has, and whether git is told to ignore them: what runner writes is kept
/// out of the repository's own business.
const FOLDERS: &[(&str, bool)] = &[("ideas", false), ("dreams", true), (".runner", true)];

/// Makes the repository around `dir` a project.
pub fn run(home: &Home, dir: &Path, quiet: bool) -> Result<Exit, Failure> {
    let (root, written) = make(home, dir)?;
    for line in &written {
        show::say(quiet, &format!("  {line}"));
    }
    if written.is_empty() {
        show::say(
            quiet,
            &format!(
                "{} is a project already; nothing was written",
                root.display()
            ),
        );
    } else {
        show::say(
            quiet,
            &format!(
                "{} is a project now; put notes into ideas/ and try `runner night`",
                root.display()
            ),
        );
    }
    Ok(Exit::Done)
}

/// Does it, and says what was written.
pub fn make(home: &Home, dir: &Path) -> Result<(PathBuf, Vec<String>), Failure> {
    let git = Git::new(dir, &home::child_environment(), &home::marker()?);
    let root = match git.top() {
        Ok(root) => root,
        Err(error @ GitError::NotARepository { .. }) => {
            return Err(
                Failure::data(error.to_string()).mend(format!("git init {}", dir.display()))
            );
        }
        Err(error) => return Err(Failure::environment(whole(&error))),
    };
    let root = fs::canonicalize(&root)
        .map_err(|error| Failure::environment(format!("{}: {error}", root.display())))?;
    // A mistake that is there already is told before anything is written.
    config::load(&home.stack(Some(&root.join(project::FILE))))?;
    let mut written = Vec::new();
    config_file(home, &root, &mut written)?;
    let mut ignored = Vec::new();
    for (folder, ignore) in FOLDERS {
        let path = root.join(folder);
        if !path.is_dir() {
            fs::create_dir(&path).map_err(|error| {
                Failure::cannot_write(format!("cannot make {}: {error}", path.display()))
            })?;
            written.push(format!("made    {folder}/"));
        }
        if *ignore {
            ignored.push(format!("/{folder}/"));
        }
    }
    exclude(&git, &ignored, &mut written)?;
    let here = Here::at(home, &root)?;
    here.register(&mut home.ledger()?, home.wall()?)?;
    Ok((root, written))
}

fn config_file(home: &Home, root: &Path, written: &mut Vec<String>) -> Result<(), Failure> {
    let path = root.join(project::FILE);
    let id = ProjectId::new(home.wall()?);
    let table = format!("[project]\nid = \"{id}\"\n");
    let text = match config::file(&path)? {
        Some((text, parsed)) => {
            match parsed
                .get("project")
                .map(|project| project.get("id").is_some())
            {
                Some(true) => return Ok(()),
                Some(false) => {
                    written.push("added   [project] id to runner.toml".to_owned());
                    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                    let header = lines
                        .iter()
                        .position(|line| line.trim_start().starts_with("[project]"));
                    let Some(header) = header else {
                        return Err(Failure::configuration(format!(
                            "{} has a project without an id",
                            path.display()
                        ))
                        .mend(format!("write `[project]` and below it `id = \"{id}\"`")));
                    };
                    lines.insert(header + 1, format!("id = \"{id}\""));
                    lines.join("\n") + "\n"
                }
                None => {
                    written.push("added   [project] id to runner.toml".to_owned());
                    format!("{}\n\n{table}", text.trim_end())
                }
            }
        }
        None => {
            written.push("wrote   runner.toml (yours to edit and to commit)".to_owned());
            format!(
                "# What runner does here at night. `runner config show --origin` has every setting with its\n\
                 # source; what stands here overrides the default.\n\n{table}\n\
                 # [jobs.dream]\n# max_ideas = 50\n"
            )
        }
    };
    write_atomic(&path, text.as_bytes(), 0o644).map_err(|error| {
        Failure::cannot_write(format!(
            "cannot write {}: {}",
            path.display(),
            whole(&error)
        ))
    })
}

/// Adds lines to the repository's own exclude file, which is never committed.
fn exclude(git: &Git, lines: &[String], written: &mut Vec<String>) -> Result<(), Failure> {
    let answer = git
        .ask(&[
            "rev-parse",
            "--path-format=absolute",
            "--git-path",
            "info/exclude",
        ])
        .map_err(|error| Failure::environment(error.to_string()))?;
    let path = PathBuf::from(OsStr::from_bytes(answer.trim_ascii_end()));
    let cannot =
        |why: String| Failure::cannot_write(format!("cannot write {}: {why}", path.display()));
    let mut text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(cannot(error.to_string())),
    };
    let known = |line: &str| {
        text.split(|byte| *byte == b'\n')
            .any(|known| known == line.as_bytes())
    };
    let missing: Vec<&String> = lines.iter().filter(|line| !known(line)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if text.last().is_some_and(|last| *last != b'\n') {
        text.push(b'\n');
    }
    for line in missing {
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
        written.push(format!("ignored {line} in .git/info/exclude"));
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| cannot(error.to_string()))?;
    }
    write_atomic(&path, &text, 0o644).map_err(|error| cannot(whole(&error)))
}
