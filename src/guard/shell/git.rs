//! Finds the paths that git writes, by its subcommand. This module must never call git itself: an
//! alias that git would resolve is an unknown subcommand, and is treated as one that writes.

use super::programs::ShellCall;
use super::tokens::ShellWord;
use super::{ShellAction, ShellScan};

/// Subcommands that write nothing, or only git's own caches.
const READS: &str = "status log diff show rev-parse rev-list ls-files ls-tree ls-remote blame \
                     annotate grep cat-file check-ignore check-attr describe shortlog merge-base \
                     name-rev for-each-ref show-ref whatchanged diff-tree var version help";
/// Subcommands that write to the repository but not to the work tree.
const COMMITS: &str = "add commit tag branch fetch push notes stage update-ref reflog config";
/// Subcommands that write nothing if all their arguments are among [`LISTS`], or among [`ACTS`] for
/// those that have subcommands of their own.
const LISTERS: &str = "branch tag remote stash worktree reflog notes";
const LISTS: &str = "-a -v -vv -r -l --list --show-current";
/// The first words of `config`, after its location and format, with which it writes nothing.
const CONFIG_READS: &str = "get list --get --get-all --get-regexp --get-urlmatch --list -l";
/// Options of `config` that choose a location or a format.
const CONFIG_OPTIONS: &str = "--global --system --local --worktree --show-origin --show-scope \
                              --null -z --name-only --includes --no-includes --bool --int --path";
/// Options of `config` whose value is the next word.
const CONFIG_VALUES: &str = "-f --file --blob --type --default";
/// Subcommands of [`LISTERS`] that write nothing. After `branch` and `tag`, each of these words
/// would name a new reference.
const ACTS: &str = "get-url show list";
/// Subcommands that write to the folder named by their last argument.
const MAKERS: &str = "clone init worktree submodule";

fn among(names: &str, name: &str) -> bool {
    names.split(' ').any(|it| it == name)
}

/// Returns whether `git config` with these arguments only reads.
fn reads_config(words: &[ShellWord]) -> bool {
    let mut words = words.iter().map(|word| word.text.as_str());
    loop {
        match words.next() {
            Some(word) if among(CONFIG_OPTIONS, word) => {}
            Some(word) if among(CONFIG_VALUES, word) => _ = words.next(),
            first => return first.is_some_and(|word| among(CONFIG_READS, word)),
        }
    }
}

impl ShellScan {
    /// Records the paths that a git command writes.
    pub(super) fn git(&mut self, call: &ShellCall<'_>) -> Result<(), String> {
        let mut words = call.rest.iter();
        let mut folder = ShellWord::literal(".");
        let subcommand = loop {
            match words.next().map(|word| word.text.as_str()) {
                None => return Ok(()),
                Some("-C") => folder = words.next().cloned().unwrap_or_default(),
                Some("-c" | "--config-env" | "--exec-path" | "--namespace") => _ = words.next(),
                Some(text) if !text.starts_with('-') => break text,
                Some(text) if text.starts_with("--git-dir") || text.starts_with("--work-tree") => {
                    return Err(
                        "another repository (--git-dir, --work-tree) cannot be checked".to_owned()
                    );
                }
                Some(_) => {}
            }
        };
        let call = ShellCall { rest: words.as_slice(), ..*call };
        self.places(ShellAction::Write, &call.values("-o --output --output-directory"));
        let reads = match subcommand {
            "stash" if call.rest.is_empty() => false,
            "config" => reads_config(call.rest),
            name if among(LISTERS, name) => {
                let has_acts = !among("branch tag", name);
                let lists = |text: &str| among(LISTS, text) || has_acts && among(ACTS, text);
                call.rest.iter().all(|word| lists(&word.text))
            }
            name => among(READS, name),
        };
        if reads {
            return Ok(());
        }
        if among(MAKERS, subcommand) {
            self.places(ShellAction::Write, call.plain().last().copied());
        }
        if subcommand == "config" {
            if call.has("--global --system -f --file") {
                return Err("a job must not change git settings outside this repository".to_owned());
            }
            let text = format!("{}/.git/config", folder.text);
            self.place(ShellAction::Write, &ShellWord { text, open: folder.open });
        }
        if !among(COMMITS, subcommand) {
            self.place(ShellAction::Write, &folder);
        }
        self.place(ShellAction::Commit, &folder);
        Ok(())
    }
}
