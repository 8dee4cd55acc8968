//! Searches a program's output for the messages with which the C library and common programs report
//! an access that the sandbox denied, and names the setting that allows the access.
//!
//! The kernel does not report what it denied, so the result is only a guess. Reports use the guess
//! to explain failures, and the audit of claims uses it to disregard commands that the audit's
//! sandbox probably stopped. No other decision may depend on it.

use std::path::Path;

use runner_engine::process::ChildSandbox;

use crate::reserved::{NEVER, reserved};

/// Messages of programs that cannot use the network. Some of them are followed by a colon and the
/// host.
const NETWORK: [&str; 8] = [
    "could not resolve host",
    "unable to resolve host",
    "could not resolve proxy",
    "temporary failure in name resolution",
    "name or service not known",
    "failed to lookup address",
    "network is unreachable",
    "getaddrinfo",
];

/// Messages of programs that are not allowed to write to a path.
const PATH: [&str; 3] = ["permission denied", "read-only file system", "operation not permitted"];

/// Maximum length of a path, in characters. A limit is needed because the text may come from a
/// model's tool.
const LONGEST: usize = 200;

/// Returns whether a failed program's output mentions an access that a sandbox without network and
/// write access would deny.
pub(crate) fn is_denial(output: &str) -> bool {
    let lower = output.to_ascii_lowercase();
    NETWORK.iter().chain(&PATH).any(|text| lower.contains(text))
}

/// An access that the sandbox probably denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeniedAccess {
    /// The network, with the host if the program's message names it after a colon.
    Network(Option<String>),
    /// A path outside the paths that the job may write to.
    Path(String),
}

impl DeniedAccess {
    /// Finds the first denied access in a program's output. Returns `None` if there is none, or if
    /// the program ran without a sandbox.
    pub(crate) fn find(output: &str, sandbox: &ChildSandbox) -> Option<Self> {
        let ChildSandbox::Launched(start) = sandbox else { return None };
        let network = start.sandbox.network;
        output.lines().find_map(|line| Self::in_line(line, network))
    }

    /// Finds the first denied path in the failure message of an agent's tool. Network errors are
    /// ignored, because an agent has network access.
    pub(crate) fn find_path(failure: &str) -> Option<Self> {
        failure.lines().find_map(|line| Self::in_line(line, true))
    }

    fn in_line(line: &str, network: bool) -> Option<Self> {
        let lower = line.to_ascii_lowercase();
        if !network && let Some(found) = NETWORK.iter().find(|text| lower.contains(**text)) {
            // Lowercasing ASCII letters preserves all offsets.
            let at = lower.rfind(&format!("{found}: ")).map(|at| at + found.len() + 2);
            let host = at.and_then(|at| line[at..].split(|c: char| !is_of_host(c)).next());
            return Some(Self::Network(host.map(str::to_owned)));
        }
        let at = PATH.iter().find_map(|text| lower.find(*text))?;
        // Most programs print the path directly before the message, after their own path.
        let named = paths(&line[..at]).next_back().or_else(|| paths(&line[at..]).next());
        named.map(|path| Self::Path(path.chars().take(LONGEST).collect()))
    }

    /// Explains the access, and which of the job's settings allows it, if any. `root` is the
    /// project's root.
    pub(crate) fn describe(&self, root: &Path, setting: PathSetting) -> String {
        let path = match self {
            Self::Network(host) => {
                let host = host.as_ref().map_or_else(String::new, |host| format!(" ({host})"));
                return format!(
                    "this job's sandbox blocks network access{host}; `network = true` in the job's \
                     settings allows it"
                );
            }
            Self::Path(path) => path,
        };
        let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(path));
        let fix = match (reserved(&below.to_string_lossy(), &NEVER), setting) {
            (Some(name), _) => format!("no setting lets a job write to {name}"),
            (None, PathSetting::Writes) => {
                "`writes` in the job's settings lists the paths that the job may write".to_owned()
            }
            (None, PathSetting::Missing) => {
                "an agent of this kind of job only answers, and never writes to the project"
                    .to_owned()
            }
        };
        format!("this job's sandbox probably denied access to {path}; {fix}")
    }
}

/// Returns the words in a string that contain a slash, without the surrounding quotes and
/// punctuation.
fn paths(text: &str) -> impl DoubleEndedIterator<Item = &str> {
    let words = text.split_whitespace();
    let words = words.map(|word| word.trim_matches(|c: char| "\"'`():,;".contains(c)));
    words.filter(|word| word.contains('/'))
}

/// Whether a job has the `writes` setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathSetting {
    Writes,
    /// The job's agent only answers.
    Missing,
}

fn is_of_host(c: char) -> bool {
    c.is_ascii_alphanumeric() || ".-_:".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denied_accesses_are_recognized() {
        let network = |host: Option<&str>| Some(DeniedAccess::Network(host.map(str::to_owned)));
        let path = |path: &str| Some(DeniedAccess::Path(path.to_owned()));
        for (line, closed, open) in [
            (
                "warning: spurious network error: [6] Could not resolve hostname (Could not resolve host: index.crates.io)",
                network(Some("index.crates.io")),
                None,
            ),
            ("curl: (6) Could not resolve host: example.org", network(Some("example.org")), None),
            ("ping: example.org: Temporary failure in name resolution", network(None), None),
            ("connect: Network is unreachable", network(None), None),
            ("touch: cannot touch '/etc/x': Permission denied", path("/etc/x"), path("/etc/x")),
            (
                "sh: 1: cannot create docs/a.md: Read-only file system",
                path("docs/a.md"),
                path("docs/a.md"),
            ),
            ("test failed: 3 of 9", None, None),
            ("permission denied", None, None),
        ] {
            assert_eq!(DeniedAccess::in_line(line, false), closed, "{line}");
            assert_eq!(DeniedAccess::in_line(line, true), open, "{line}");
        }
        let failure = "Exit code 1\n/bin/bash: line 1: /var/x: Permission denied";
        assert_eq!(DeniedAccess::find_path(failure), path("/var/x"));
        let failure = "EROFS: read-only file system, open '/repo/.git/config'";
        assert_eq!(DeniedAccess::find_path(failure), path("/repo/.git/config"));
        assert_eq!(DeniedAccess::find_path("Could not resolve host: example.org"), None);
        let described =
            |access: DeniedAccess, setting| access.describe(Path::new("/repo"), setting);
        let denied = |path: &str| DeniedAccess::Path(path.to_owned());
        let host = DeniedAccess::Network(Some("example.org".to_owned()));
        let text = described(host, PathSetting::Writes);
        assert!(text.contains("(example.org); `network = true`"), "{text}");
        for (path, setting, expected) in [
            ("docs/a.md", PathSetting::Writes, "`writes`"),
            ("/etc/x", PathSetting::Missing, "only answers"),
            ("rem/forged.org", PathSetting::Writes, "write to rem"),
            ("/repo/.git/config", PathSetting::Writes, "write to .git"),
        ] {
            let text = described(denied(path), setting);
            assert!(text.contains(path) && text.contains(expected), "{text}");
        }
    }
}
