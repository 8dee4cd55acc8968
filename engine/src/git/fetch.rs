//! Fetches a branch of another repository into a new repository that runner created.
//!
//! Like a push, a fetch uses the network and runs programs named in the user's configuration, such
//! as ssh or a credential helper. This module must never fetch into one of the user's projects, and
//! never use a protocol that runs a command (`ext::`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use super::{Git, GitError, no_token, outside, start};
use crate::process::{Cancel, ChildSandbox, ChildSpec, Limits, Stdin};

/// The protocols that are allowed in an address.
const PROTOCOLS: &str = "https:ssh:file";

impl Git {
    /// Fetches a branch with its history into `refs/remotes/origin/`, and checks the objects. `env`
    /// is the environment for the user's programs, which do not get its `GIT_` variables.
    ///
    /// # Errors
    /// Returns a [`GitError`] if git fails or takes longer than `longest`.
    pub fn fetch(
        &self,
        address: &str,
        branch: &str,
        env: &BTreeMap<String, String>,
        longest: Duration,
    ) -> Result<(), GitError> {
        let mut all = self.env.clone();
        let own = env.iter().filter(|(name, _)| !name.starts_with("GIT_"));
        all.extend(own.map(|(name, value)| (name.clone(), value.clone())));
        let path = outside(all.get("PATH").map_or("", String::as_str), &self.project);
        for (name, value) in [
            ("PATH", path.as_str()),
            ("GIT_ALLOW_PROTOCOL", PROTOCOLS),
            ("GIT_TERMINAL_PROMPT", "0"),
        ] {
            all.insert(name.to_owned(), value.to_owned());
        }
        let refspec = format!("+refs/heads/{branch}:refs/remotes/origin/{branch}");
        let args = [
            "--no-pager",
            "-c",
            "core.hooksPath=/dev/null",
            "-c",
            "gc.auto=0",
            "-c",
            "maintenance.auto=false",
            "-c",
            "fetch.fsckObjects=true",
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--recurse-submodules=no",
            "--",
            address,
            &refspec,
        ];
        let spec = ChildSpec {
            program: self.program().map_err(GitError::Spawn)?,
            args: args.iter().map(OsString::from).collect(),
            cwd: self.root.clone(),
            env: all,
            stdin: Stdin::Null,
            limits: Limits { total: Some(longest), output_cap: 1024 * 1024, ..Limits::default() },
            marker: self.marker.clone(),
            sandbox: ChildSandbox::Off,
        };
        let answer = start(&spec, &Cancel::new().map_err(no_token)?)?;
        self.successful(&["fetch"], answer).map(drop)
    }
}
