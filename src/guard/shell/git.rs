//! Finds the paths that git writes, by its subcommand. This module must never call git itself: an
//! alias that git would resolve is an unknown subcommand, and counts as one that writes.

use super::programs::{plain, values};
use super::tokens::ShellWord;
use super::{ShellAction, ShellScan};

/// Git subcommands that write nothing, or only git's own caches.
const GIT_READS: [&str; 26] = [
    "status",
    "log",
    "diff",
    "show",
    "rev-parse",
    "rev-list",
    "ls-files",
    "ls-tree",
    "ls-remote",
    "blame",
    "annotate",
    "grep",
    "cat-file",
    "check-ignore",
    "check-attr",
    "describe",
    "shortlog",
    "merge-base",
    "name-rev",
    "for-each-ref",
    "show-ref",
    "whatchanged",
    "diff-tree",
    "var",
    "version",
    "help",
];
/// Git subcommands that write to the repository but not to the work tree.
const GIT_COMMITS: [&str; 10] =
    ["add", "commit", "tag", "branch", "fetch", "push", "notes", "stage", "update-ref", "reflog"];

impl ShellScan {
    /// Records the paths that a git command writes; `rest` holds all words after the program's
    /// name.
    pub(super) fn git(&mut self, rest: &[ShellWord]) -> Result<(), String> {
        let mut words = rest.iter();
        let mut folder = ShellWord { text: ".".to_owned(), open: false };
        let subcommand = loop {
            let Some(word) = words.next() else {
                return Ok(());
            };
            match word.text.as_str() {
                "-C" => folder = words.next().cloned().unwrap_or_default(),
                "-c" | "--config-env" | "--exec-path" | "--namespace" => {
                    words.next();
                }
                text if ["--git-dir", "--work-tree"].iter().any(|it| text.starts_with(it)) => {
                    return Err(
                        "another repository (--git-dir, --work-tree) cannot be judged".to_owned()
                    );
                }
                text if text.starts_with('-') => {}
                text => break text,
            }
        };
        let rest: Vec<ShellWord> = words.cloned().collect();
        for option in ["--output", "-o", "--output-directory"] {
            self.places(ShellAction::Write, &values(&rest, option));
        }
        let lists = rest.iter().all(|word| {
            ["-a", "-v", "-vv", "-r", "-l", "--list", "--show-current", "get-url", "show", "list"]
                .contains(&word.text.as_str())
        });
        let reads = match subcommand {
            "branch" | "tag" | "remote" | "stash" | "worktree" | "reflog" | "notes" => {
                lists && !(rest.is_empty() && subcommand == "stash")
            }
            "config" => rest.iter().any(|word| {
                word.text.starts_with("--get")
                    || ["--list", "-l", "get", "list"].contains(&word.text.as_str())
            }),
            name => GIT_READS.contains(&name),
        };
        if reads {
            return Ok(());
        }
        if ["clone", "init", "worktree", "submodule"].contains(&subcommand) {
            self.places(ShellAction::Write, plain(&rest).last().copied());
        }
        if subcommand == "config" {
            let global = rest
                .iter()
                .any(|word| ["--global", "--system", "-f", "--file"].contains(&word.text.as_str()));
            if global {
                return Err("settings of git beyond this repository are not the job's".to_owned());
            }
            let text = format!("{}/.git/config", folder.text);
            self.place(ShellAction::Write, &ShellWord { text, open: folder.open });
        } else if !GIT_COMMITS.contains(&subcommand) {
            self.place(ShellAction::Write, &folder);
        }
        self.place(ShellAction::Commit, &folder);
        Ok(())
    }
}
