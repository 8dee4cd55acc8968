//! `runner demo`: a sample project with a real history, and a night in it.

use std::fs;
use std::path::{Path, PathBuf};

use runner_engine::outcome::Exit;
use runner_engine::process::{self, Cancel, ChildSpec, Limits, Status, Stdin, Verdict};
use runner_jobs::report;

use super::{init, night};
use crate::cli::Failure;
use crate::cli::args::{AwakeFlags, Listing};
use crate::cli::show;
use crate::drive::Manner;
use crate::home::{self, Home};

/// How many lines of the report are shown.
const SHOWN: usize = 40;

const HISTORY: &str = include_str!("../../config/demo/history.txt");
const IDEAS: &[(&str, &str)] = &[
    (
        "csv-export.md",
        include_str!("../../config/demo/ideas/csv-export.md"),
    ),
    (
        "storm-surge-alerts.md",
        include_str!("../../config/demo/ideas/storm-surge-alerts.md"),
    ),
    (
        "surge-warning-mails.md",
        include_str!("../../config/demo/ideas/surge-warning-mails.md"),
    ),
    (
        "moon-phase.md",
        include_str!("../../config/demo/ideas/moon-phase.md"),
    ),
    (
        "how-a-clock-change-cost-us-a-weekend.md",
        include_str!("../../config/demo/ideas/how-a-clock-change-cost-us-a-weekend.md"),
    ),
    (
        "urgent-from-the-admin.md",
        include_str!("../../config/demo/ideas/urgent-from-the-admin.md"),
    ),
];

/// Makes the project at `dir`, which must not exist, and runs a night there.
pub fn run(home: &Home, dir: &Path, manner: Manner) -> Result<Exit, Failure> {
    if dir.symlink_metadata().is_ok() {
        return Err(
            Failure::data(format!("{} is there already", dir.display())).mend(format!(
                "runner demo {}-2   (or remove the folder)",
                dir.display()
            )),
        );
    }
    let cannot = |path: &Path, error: std::io::Error| {
        Failure::cannot_write(format!("cannot write {}: {error}", path.display()))
    };
    fs::create_dir_all(dir).map_err(|error| cannot(dir, error))?;
    let dir: PathBuf = fs::canonicalize(dir).map_err(|error| cannot(dir, error))?;
    show::say(
        manner.quiet,
        &format!("a sample project in {}", dir.display()),
    );
    git(
        &dir,
        &["init", "--quiet", "--initial-branch=main"],
        Stdin::Null,
    )?;
    git(
        &dir,
        &["fast-import", "--quiet"],
        Stdin::Bytes(fast_import(HISTORY).into_bytes()),
    )?;
    git(&dir, &["reset", "--quiet", "--hard"], Stdin::Null)?;
    let ideas = dir.join("ideas");
    fs::create_dir(&ideas).map_err(|error| cannot(&ideas, error))?;
    for (name, text) in IDEAS {
        let path = ideas.join(name);
        fs::write(&path, text).map_err(|error| cannot(&path, error))?;
    }
    let (root, _) = init::make(home, &dir, false)?;
    // Its own account would stand in the report once more.
    let hushed = Manner {
        quiet: true,
        ..manner
    };
    let exit = night::run(
        home,
        &root,
        hushed,
        AwakeFlags::default(),
        Listing::default(),
    )?;
    let reports = root.join(report::FOLDER);
    let newest = fs::read_dir(&reports).ok().and_then(|entries| {
        entries
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .max()
    });
    let Some(path) = newest.map(|folder| folder.join("report.md")) else {
        return Err(Failure::internal(format!(
            "the night left no report in {}",
            reports.display()
        )));
    };
    let text = fs::read_to_string(&path)
        .map_err(|error| Failure::internal(format!("the report {}: {error}", path.display())))?;
    let lines: Vec<&str> = text.lines().collect();
    show::out(&format!("\n{}\n\n", path.display()));
    for line in lines.iter().take(SHOWN) {
        show::out(&format!("{line}\n"));
    }
    if lines.len() > SHOWN {
        show::out(&format!("… and {} more lines\n", lines.len() - SHOWN));
    }
    Ok(exit)
}

/// The history as `git fast-import` reads it: same commits, same hashes, on every machine.
fn fast_import(history: &str) -> String {
    let mut out = String::new();
    let mut commits = 0;
    let mut message = String::new();
    let mut head = String::new();
    let mut files: Vec<(String, String)> = Vec::new();
    let data = |text: &str| format!("data {}\n{text}\n", text.len());
    let mut flush = |head: &mut String, message: &mut String, files: &mut Vec<(String, String)>| {
        if head.is_empty() {
            return;
        }
        out.push_str("commit refs/heads/main\n");
        out.push_str(head);
        out.push_str(&data(message));
        for (path, text) in files.drain(..) {
            out.push_str(&format!("M 100644 inline {path}\n{}", data(&text)));
        }
        head.clear();
        message.clear();
    };
    for line in history.lines().filter(|line| !line.starts_with('#')) {
        if let Some(rest) = line.strip_prefix("commit ") {
            flush(&mut head, &mut message, &mut files);
            let (date, subject) = rest
                .split_once(' ')
                .expect("the embedded history is well formed");
            let at: jiff::Timestamp = date.parse().expect("the embedded history has good dates");
            commits += 1;
            head = format!(
                "mark :{commits}\ncommitter Mara Tide <mara@example.org> {} +0000\n",
                at.as_second()
            );
            message = format!("{subject}\n");
        } else if let Some(body) = line.strip_prefix("body ") {
            message.push_str(
                if message.ends_with("\n\n") || message.matches('\n').count() > 1 {
                    ""
                } else {
                    "\n"
                },
            );
            message.push_str(body);
            message.push('\n');
        } else if let Some(path) = line.strip_prefix("file ") {
            files.push((path.to_owned(), String::new()));
        } else if let (Some(text), Some((_, content))) = (line.strip_prefix("  "), files.last_mut())
        {
            content.push_str(text);
            content.push('\n');
        }
    }
    flush(&mut head, &mut message, &mut files);
    out
}

/// Git, writing: only here, and only into the folder that was made a moment ago.
fn git(dir: &Path, args: &[&str], stdin: Stdin) -> Result<(), Failure> {
    let mut env = home::child_environment();
    for (name, value) in [
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_TERMINAL_PROMPT", "0"),
    ] {
        env.insert(name.to_owned(), value.to_owned());
    }
    let spec = ChildSpec {
        program: PathBuf::from("git"),
        args: args.iter().map(Into::into).collect(),
        cwd: dir.to_owned(),
        env,
        stdin,
        limits: Limits {
            total: Some(std::time::Duration::from_secs(60)),
            ..Limits::default()
        },
        marker: home::marker()?,
        confine: None,
    };
    let fail = |why: String| Failure::environment(format!("git {}: {why}", args.join(" ")));
    let cancel = Cancel::new().map_err(|error| fail(error.to_string()))?;
    let ended = process::run(&spec, &cancel, &mut |_, _| Verdict::Continue).map_err(|error| {
        fail(format!("{error}")).mend("apt-get install git   (or your system's way)")
    })?;
    match ended.status {
        Status::Exit(0) => Ok(()),
        status => Err(fail(format!(
            "{status}: {}",
            String::from_utf8_lossy(&ended.stderr).trim()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_becomes_a_stream_of_whole_commits() {
        let stream = fast_import(HISTORY);
        assert_eq!(stream.matches("commit refs/heads/main\n").count(), 10);
        assert!(
            stream.contains("committer Mara Tide <mara@example.org> 1772442720 +0000\n"),
            "{stream}"
        );
        assert!(
            stream.contains("CSV with a download button\n\nAdds `GET"),
            "{stream}"
        );
    }
}
