//! The commit of an entry, and its push, where the project's configuration says so.
//!
//! Only after the entry is placed: what fails here costs the commit and never the entry; it is told,
//! and the next dream commits what was left behind. The commit names its paths, so nothing else that is
//! staged or changed goes with it. No hook runs: a working agent could have written one. Must never
//! change a file, and never push unless told.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runner_engine::process::{self, Cancel, ChildSpec, Limits, Status, Stdin, Verdict};

use super::manifest;

/// The longest first line of a message after its tag, in characters.
const LINE: usize = 60;
/// How long a commit may take.
const COMMIT: Duration = Duration::from_secs(60);
/// How long a push may take.
const PUSH: Duration = Duration::from_secs(120);

/// What is to be committed once it is placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// Below the project.
    pub paths: Vec<String>,
    /// The commit's message.
    pub message: String,
    /// Whether it is pushed to where its branch goes.
    pub push: bool,
}

/// `<tag>: <line>`, the line cut to what a list of commits shows.
pub fn message(tag: &str, line: &str) -> String {
    let line: Vec<&str> = line.split_whitespace().collect();
    let line = line.join(" ");
    let mut cut: String = line.chars().take(LINE).collect();
    if cut.len() < line.len() {
        cut = line.chars().take(LINE - 1).chain(['…']).collect();
    }
    format!("{tag}: {cut}")
}

/// Where and as whom it is committed.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    /// The project's root.
    pub root: &'a Path,
    /// What git may see.
    pub env: &'a BTreeMap<String, String>,
    /// The run, so that its processes are found.
    pub marker: &'a str,
    /// Pulled when the run must end.
    pub cancel: &'a Cancel,
}

/// Commits, and pushes where it is told to.
///
/// # Errors
/// Why it is not committed, or not pushed.
pub fn publish(place: &Place<'_>, publish: &Publish) -> Result<(), String> {
    let mut paths = left_behind(place, &publish.paths);
    paths.extend(publish.paths.iter().cloned());
    paths.sort();
    paths.dedup();
    let with = |args: &[&str]| -> Vec<String> {
        let paths = paths.iter().map(|path| format!(":(top,literal){path}"));
        args.iter()
            .map(|it| (*it).to_owned())
            .chain(paths)
            .collect()
    };
    let not = |what: &str, why: String| format!("the entry is not {what}: {why}");
    git(place, &with(&["add", "--"]), COMMIT).map_err(|why| not("committed", why))?;
    let commit = [
        "commit",
        "--quiet",
        "--no-verify",
        "--no-gpg-sign",
        "-m",
        &publish.message,
        "--",
    ];
    git(place, &with(&commit), COMMIT).map_err(|why| not("committed", why))?;
    if publish.push {
        let push = ["push", "--quiet", "--no-verify"].map(str::to_owned);
        git(place, &push, PUSH).map_err(|why| not("pushed", why))?;
    }
    Ok(())
}

/// Entries beside this one that an earlier dream could not commit.
fn left_behind(place: &Place<'_>, paths: &[String]) -> Vec<String> {
    let folder = paths.first().and_then(|path| path.rsplit_once('/'));
    let Some((folder, _)) = folder else {
        return Vec::new();
    };
    // Never added, or added by a dream whose commit failed.
    let listings: [&[&str]; 2] = [
        &["ls-files", "--others", "--exclude-standard", "-z", "--"],
        &[
            "diff",
            "--cached",
            "--name-only",
            "--diff-filter=A",
            "-z",
            "--",
        ],
    ];
    let mut out = String::new();
    for args in listings {
        let mut args: Vec<String> = args.iter().map(|it| (*it).to_owned()).collect();
        args.push(format!(":(top,literal){folder}/"));
        out.push_str(&git(place, &args, COMMIT).unwrap_or_default());
    }
    let entry = |path: &&str| {
        let name = path
            .strip_prefix(folder)
            .and_then(|it| it.strip_prefix('/'));
        name.is_some_and(|name| manifest::id_of(name).is_some())
    };
    out.split('\0').filter(entry).map(str::to_owned).collect()
}

fn git(place: &Place<'_>, args: &[String], total: Duration) -> Result<String, String> {
    let pinned = [
        "--no-pager",
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "core.fsmonitor=false",
        "-c",
        "color.ui=false",
        "-c",
        "core.quotePath=false",
        "-c",
        "gc.auto=0",
        "-c",
        "maintenance.auto=false",
    ];
    let mut env: BTreeMap<String, String> = place
        .env
        .iter()
        .filter(|(name, _)| !name.starts_with("GIT_"))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    env.insert("LC_ALL".to_owned(), "C".to_owned());
    env.insert("GIT_TERMINAL_PROMPT".to_owned(), "0".to_owned());
    let spec = ChildSpec {
        program: PathBuf::from("git"),
        args: (pinned.iter().map(OsString::from))
            .chain(args.iter().map(OsString::from))
            .collect(),
        cwd: place.root.to_owned(),
        env,
        stdin: Stdin::Null,
        limits: Limits {
            total: Some(total),
            output_cap: 1024 * 1024,
            ..Limits::default()
        },
        marker: place.marker.to_owned(),
        confine: None,
    };
    let ended = process::run(&spec, place.cancel, &mut |_, _| Verdict::Continue)
        .map_err(|error| format!("git cannot be run: {error}"))?;
    if ended.status == Status::Exit(0) {
        return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let said: Vec<&str> = said
        .lines()
        .filter(|line| !line.trim().is_empty())
        .take(2)
        .collect();
    Err(format!(
        "git {} ended with {}: {}",
        args[0],
        ended.status,
        said.join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

    fn run(root: &Path, args: &[&str]) -> String {
        let done = Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@b"])
            .args(args)
            .current_dir(root)
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", root)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .unwrap();
        assert!(
            done.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
        String::from_utf8(done.stdout).unwrap()
    }

    #[test]
    fn only_the_named_paths_are_committed_no_hook_runs_and_a_failure_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        run(root, &["init", "-q", "-b", "main"]);
        fs::create_dir_all(root.join(".git/hooks")).unwrap();
        let hook = root.join(".git/hooks/pre-commit");
        fs::write(&hook, "#!/bin/sh\ntouch hooked\nexit 1\n").unwrap();
        fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        fs::write(root.join("mine.txt"), "a").unwrap();
        run(root, &["add", "mine.txt"]);
        fs::create_dir(root.join("rem")).unwrap();
        for name in [
            "2026-06-10-1430.org",
            "2026-06-10-1330.org",
            "manifest.json",
            "notes.txt",
        ] {
            fs::write(root.join("rem").join(name), "x").unwrap();
        }
        let cancel = Cancel::new().unwrap();
        let env: BTreeMap<String, String> = [
            ("PATH".to_owned(), PATH.to_owned()),
            ("HOME".to_owned(), root.display().to_string()),
        ]
        .into();
        let place = Place {
            root,
            env: &env,
            marker: "r",
            cancel: &cancel,
        };
        let wanted = Publish {
            paths: vec!["rem/2026-06-10-1430.org".into(), "rem/manifest.json".into()],
            message: message("rem", &format!("Two runs landed.  {}", "x".repeat(99))),
            push: false,
        };
        fs::write(root.join(".gitconfig"), "[user]\nuseConfigOnly = true\n").unwrap();
        let why = publish(&place, &wanted).unwrap_err();
        assert!(
            why.starts_with("the entry is not committed: git commit ended with"),
            "{why}"
        );
        fs::write(root.join(".gitconfig"), "[user]\nname=a\nemail=a@b\n").unwrap();
        publish(&place, &wanted).unwrap();
        let subject = run(root, &["log", "-1", "--format=%s"]);
        assert!(
            subject.starts_with("rem: Two runs landed. xxx"),
            "{subject}"
        );
        assert_eq!(subject.trim().chars().count(), "rem: ".len() + LINE);
        let files = run(root, &["show", "--name-only", "--format="]);
        // What was left behind goes with it; what somebody staged, and strangers, do not.
        assert_eq!(
            files.lines().collect::<Vec<_>>(),
            [
                "rem/2026-06-10-1330.org",
                "rem/2026-06-10-1430.org",
                "rem/manifest.json"
            ]
        );
        assert_eq!(
            run(root, &["diff", "--cached", "--name-only"]).trim(),
            "mine.txt"
        );
        assert!(!root.join("hooked").exists());
        fs::write(root.join("rem/manifest.json"), "y").unwrap();
        let why = publish(
            &place,
            &Publish {
                push: true,
                ..wanted
            },
        )
        .unwrap_err();
        assert!(
            why.starts_with("the entry is not pushed: git push"),
            "{why}"
        );
    }
}
