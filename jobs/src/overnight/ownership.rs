//! Decides whether a night may use a folder as its output folder.
//!
//! A night moves the previous night's entire folder to `runs/` next to it, so the folder must
//! belong to runner:
//!
//! ```text
//! text ──parse──> a path outside git, the corpus and the nights' state
//!                   └──inspect──> Absent                     nothing is there
//!                                 Empty                      a folder without entries
//!                                 Earlier                    a night's artifacts and nothing else
//!                                 Refusal                    a link, a file, any other folder
//! ```
//!
//! Artifacts are recognized by their names and by evidence: a summary, a night's log or a run's
//! folder. There is no marker file, because a repository could contain one. Inside
//! `.agents/overnight/`, which belongs to nights, other entries are also accepted, because other
//! programs with the same output format write additional files there. This module must never change
//! anything and never follow a link.

use std::ffi::OsStr;
use std::path::Path;

use runner_engine::ids::RunId;
use runner_engine::publish::marker::MarkerFs as _;
use runner_engine::publish::{FsError, FsFailure, RealFs, RelPath};
use serde_json::Value;

use super::corpus::{FOLDER as CORPUS, SUBPATHS};
use super::lock::FOLDER;
use super::summary_import;

/// The file name of the log.
pub const LOG: &str = "overnight.log";
/// The file names of the summary, as JSON and as Markdown.
pub const SUMMARY: [&str; 2] = ["summary.json", "summary.md"];

/// The folder next to the output folder where earlier nights are kept.
pub const RUNS: &str = "runs";

/// The names of a night's artifacts in its output folder, besides the folders of runs.
const ARTIFACTS: [&str; 13] = [
    SUMMARY[0],
    SUMMARY[1],
    LOG,
    "close-loop.json",
    "defrag",
    "metrics-health.json",
    "retrieval-bench.json",
    "briefing.json",
    "briefing-fallback.json",
    "packet-corroboration.json",
    "council",
    "morning-packets",
    // The macOS Finder creates this file.
    ".DS_Store",
];

/// Entries of [`FOLDER`] that cannot be an output folder. A name ending with a dot is a prefix.
const STATE: [&str; 9] = [
    "run.lock",
    "commit.lock",
    "staging",
    ".staging",
    "oscillation.json",
    "warn-only-budget.json",
    "proposals.jsonl",
    "COMMIT-MARKER.",
    "prev.",
];

/// Maximum size of a summary to read, in bytes.
const LONGEST: u64 = 64 << 20;

/// A refusal to use a folder as a night's output folder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the output folder {path:?} is refused: {why}")]
pub struct Refusal {
    /// The value of the setting.
    pub path: String,
    pub why: String,
}

/// The state of an output folder's path.
#[derive(Debug)]
pub enum Standing {
    /// There is nothing at the path.
    Absent,
    /// An empty folder.
    Empty,
    /// The artifacts of an earlier night, with a handle to their folder.
    Earlier(RealFs),
}

/// Checks the value of the setting without accessing the disk.
///
/// # Errors
/// Returns a [`Refusal`] if the value is not a path inside the project, or if the path is named
/// `runs` or belongs to git, the corpus or the nights' state.
pub fn parse(text: &str) -> Result<RelPath, Refusal> {
    let refuse = |why: String| Refusal { path: text.to_owned(), why };
    let bare = text.strip_suffix('/').filter(|bare| !bare.is_empty());
    let path = RelPath::new(bare.unwrap_or(text)).map_err(|error| refuse(error.why.to_owned()))?;
    let mut names = path.as_str().split('/');
    if names.any(|name| name.eq_ignore_ascii_case(".git")) {
        return Err(refuse("it belongs to git".to_owned()));
    }
    if path.name() == RUNS {
        return Err(refuse(format!(
            "earlier nights are kept in a folder {RUNS:?} beside the output folder"
        )));
    }
    let corpus = SUBPATHS.map(|subpath| format!("{CORPUS}/{subpath}"));
    for part in &corpus {
        let part = RelPath::new(part).expect("a constant path");
        if path.is_within(&part) || part.is_within(&path) {
            let why = format!("{part} is part of the corpus, which only commits change");
            return Err(refuse(why));
        }
    }
    let overnight = RelPath::new(FOLDER).expect("a constant path");
    if overnight.is_within(&path) {
        return Err(refuse(format!("the nights' state is kept in {FOLDER}")));
    }
    let first = (path.as_str().strip_prefix(FOLDER))
        .and_then(|rest| rest.strip_prefix('/'))
        .and_then(|rest| rest.split('/').next());
    let is_state = |first: &str| {
        let mut state = STATE.iter();
        first == RUNS
            || state.any(|name| *name == first || name.ends_with('.') && first.starts_with(name))
    };
    if first.is_some_and(is_state) {
        let why = format!("it is part of the nights' state in {FOLDER}");
        return Err(refuse(why));
    }
    Ok(path)
}

/// Inspects the path given by the setting, after checking it with [`parse`].
///
/// # Errors
/// Returns the errors of [`parse`], and a [`Refusal`] if the path is a file, a link or a non-empty
/// folder that no night created, if the path contains a link, or if the folder for earlier nights
/// cannot be used.
pub fn inspect(root: &Path, text: &str) -> Result<Standing, Refusal> {
    let path = parse(text)?;
    let refuse = |why: String| Refusal { path: text.to_owned(), why };
    let fs = RealFs::open(root).map_err(|error| refuse(reason(&error)))?;
    let runs = runs_beside(&path);
    if let Err(error) = fs.hold(&runs) {
        let why =
            format!("{runs}, where earlier nights are kept, cannot be used: {}", reason(&error));
        return Err(refuse(why));
    }
    let Some(folder) = fs.hold(&path).map_err(|error| refuse(reason(&error)))? else {
        return Ok(Standing::Absent);
    };
    let names = (folder.names()).map_err(|error| refuse(format!("it cannot be read: {error}")))?;
    if names.is_empty() {
        return Ok(Standing::Empty);
    }
    let summary = summary_of(&folder);
    let is_run = |name: &OsStr| {
        let text = name.to_str();
        text.is_some_and(|text| text.parse::<RunId>().is_ok() || Some(text) == summary.as_deref())
    };
    let is_log = matches!(folder.regular(&name(LOG)), Ok(Some(_)));
    let evidence = summary.is_some() || is_log || names.iter().any(|name| is_run(name));
    let strange = (names.iter()).find(|name| !is_artifact(name) && !is_run(name));
    let foreign = match strange {
        _ if !evidence => names.first(),
        Some(_) if path.as_str().starts_with(&format!("{FOLDER}/")) => None,
        strange => strange,
    };
    match foreign {
        None => Ok(Standing::Earlier(folder)),
        Some(entry) => Err(refuse(format!(
            "runner did not make this folder: it contains {:?}, which is not known to belong to a \
             night, and a night would move it away",
            entry.to_string_lossy()
        ))),
    }
}

/// Returns the folder next to `path` where earlier nights are kept.
pub fn runs_beside(path: &RelPath) -> RelPath {
    let runs = match path.parent() {
        Some(parent) => format!("{parent}/{RUNS}"),
        None => RUNS.to_owned(),
    };
    RelPath::new(&runs).expect("a path whose last name is shorter than 256 bytes")
}

/// Returns the run id from the folder's summary, which runner or another program wrote, or `None`
/// if there is no valid summary.
fn summary_of(folder: &RealFs) -> Option<String> {
    let bytes = folder.read(&name(SUMMARY[0]), LONGEST).ok()??;
    let value: Value = serde_json::from_slice(&bytes).ok()?;
    let (summary, _) = summary_import::read(&value).ok()?;
    Some(summary.run_id).filter(|id| !id.is_empty() && !summary.started_at.is_empty())
}

/// Returns whether a night writes an entry with this name. The entry may be an artifact's temporary
/// file, left behind by a killed night.
fn is_artifact(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else {
        return false;
    };
    let temporary = name.strip_prefix('.').and_then(|it| it.strip_suffix(".tmp"));
    let of = temporary.and_then(|it| it.rsplit_once('.'));
    ARTIFACTS.contains(&name) || of.is_some_and(|(of, _)| ARTIFACTS.contains(&of))
}

fn name(name: &str) -> RelPath {
    RelPath::new(name).expect("a constant name")
}

fn reason(error: &FsError) -> String {
    match &error.trouble {
        FsFailure::Io(source) => format!("it cannot be opened: {source}"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::output::Output;
    use super::*;

    #[test]
    fn invalid_output_paths_are_refused() {
        for bad in [
            "",
            ".",
            "..",
            "/",
            "/tmp/x",
            "a/../..",
            "a/../b",
            "./a",
            "a//b",
            "a//",
            "a\nb",
            ".git",
            ".git/x",
            "sub/.GIT/x",
            ".agents",
            ".agents/overnight",
            ".agents/overnight/",
            ".agents/overnight/staging",
            ".agents/overnight/runs/x",
            ".agents/overnight/prev.3",
            ".agents/learnings/x",
            "runs",
            "out/runs",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        assert!(parse(&"x".repeat(256)).is_err());
        assert!(parse(&"x/".repeat(4000)).is_err());
        for good in ["out", "out/", ".agents/overnight/latest", "nächte/夜", "src/out"] {
            assert_eq!(parse(good).unwrap().as_str(), good.trim_end_matches('/'));
        }
    }

    #[test]
    fn only_overnight_output_folders_are_reused() {
        let project = tempfile::tempdir().unwrap();
        let root = project.path();
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let summary = r#"{"schema_version":2,"mode":"dream.local-bedtime","run_id":"n1","started_at":"2026-04-09T22:00:00Z"}"#;
        put("src/lib.rs", "");
        put("file", "");
        put("log/overnight.log", "");
        put("foreign/summary.json", summary);
        put("foreign/n1/iterations/iter-1.json", "{}");
        put("mixed/summary.json", summary);
        put("mixed/lib.rs", "");
        put("names/council/x.json", "{}");
        put("other/summary.json", "{}");
        put("killed/01M8257E1DKZ5D1VXR9JDJG9AS/run.json", "{}");
        put("killed/.summary.json.12-0.tmp", "{}");
        put(".agents/overnight/theirs/summary.json", summary);
        put(".agents/overnight/theirs/terrain.txt", "");
        put(".agents/overnight/notes/a.md", "");
        put("kept/runs", "a file");
        fs::create_dir_all(root.join("empty")).unwrap();
        symlink("src", root.join("link")).unwrap();
        symlink("/tmp", root.join("away")).unwrap();
        symlink("nowhere", root.join("broken")).unwrap();
        symlink("lib.rs", root.join("src/linked")).unwrap();
        let word = |text: &str| match inspect(root, text) {
            Ok(Standing::Absent) => "absent",
            Ok(Standing::Empty) => "empty",
            Ok(Standing::Earlier(_)) => "earlier",
            Err(_) => "refused",
        };
        for (text, expected) in [
            ("new", "absent"),
            ("src/new/deep", "absent"),
            ("empty", "empty"),
            ("empty/", "empty"),
            ("log", "earlier"),
            ("foreign", "earlier"),
            ("killed", "earlier"),
            (".agents/overnight/theirs", "earlier"),
            (".agents/overnight/notes", "refused"),
            ("src", "refused"),
            ("mixed", "refused"),
            ("names", "refused"),
            ("other", "refused"),
            ("file", "refused"),
            ("file/x", "refused"),
            ("link", "refused"),
            ("link/x", "refused"),
            ("away/x", "refused"),
            ("broken", "refused"),
            ("src/linked", "refused"),
            ("kept/new", "refused"),
            ("..", "refused"),
        ] {
            assert_eq!(word(text), expected, "{text}: {:?}", inspect(root, text));
        }
    }

    #[test]
    fn replaced_folder_is_put_back() {
        let project = tempfile::tempdir().unwrap();
        let root = project.path();
        fs::create_dir_all(root.join("out")).unwrap();
        fs::write(root.join("out/overnight.log"), "").unwrap();
        let out = Output::new(root, "out");
        let Ok(Standing::Earlier(held)) = out.inspect() else { panic!("a log identifies a night") };
        // The folder is replaced between the inspection and the move.
        fs::rename(root.join("out"), root.join("gone")).unwrap();
        fs::create_dir(root.join("out")).unwrap();
        fs::write(root.join("out/own.rs"), "own").unwrap();
        assert!(out.set_aside(&held, "before").is_err());
        assert_eq!(fs::read_to_string(root.join("out/own.rs")).unwrap(), "own");
        assert_eq!(fs::read_dir(root.join("runs")).unwrap().count(), 0);
        fs::remove_dir_all(root.join("out")).unwrap();
        fs::rename(root.join("gone"), root.join("out")).unwrap();
        fs::create_dir(root.join("runs/before")).unwrap();
        assert_eq!(out.set_aside(&held, "before").unwrap(), "runs/before-2");
        assert!(root.join("runs/before-2/overnight.log").is_file());
    }
}
