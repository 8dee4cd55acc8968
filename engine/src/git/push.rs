//! Pushes the checked-out branch to its configured remote.
//!
//! Only this git call and a fetch use the network and run other programs, such as ssh, a credential
//! helper or a transport. Only the user's configuration can name these programs. Git runs in an
//! empty repository that shares nothing but objects with the project, so the project's
//! configuration, hooks and attributes do not apply. This module must never push to an address
//! inside a project, and never use a protocol that runs a command (`ext::`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::commit::Writes;
use super::{Git, GitError, Read, is_in_a_project, outside, start};
use crate::files::{DOCUMENT, read_no_link};
use crate::process::{Cancel, ChildSandbox, ChildSpec, Limits, Stdin};

/// The protocols that are allowed in an address.
const PROTOCOLS: &str = "https:http:ssh:git:file";
/// Time limit for a push.
const LONGEST: Duration = Duration::from_secs(120);

/// The reason why a branch was not pushed.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// `HEAD` is not on a branch.
    #[error("no branch is checked out")]
    Detached,
    /// The branch has no remote, or the remote has no address.
    #[error("the branch {branch} has no remote to push to; fix: git push -u REMOTE {branch}")]
    Nowhere {
        /// The branch's short name.
        branch: String,
    },
    /// The remote's address is a path that does not exist or that git may interpret differently, or
    /// a path inside a project, where an agent may have created the repository.
    #[error(
        "cannot push to {remote}: {address} does not exist, is inside a project or is not a plain path"
    )]
    Inside { remote: String, address: String },
    /// The remote has several addresses, and git would push to each of them.
    #[error("cannot push to {remote}: it has several addresses, and runner pushes to one")]
    Several { remote: String },
    /// The temporary repository could not be created, written or removed.
    #[error("{path}: {source}")]
    Folder { path: PathBuf, source: std::io::Error },
    /// Git failed, or the remote refused the push.
    #[error(transparent)]
    Git(#[from] GitError),
}

/// The push target of a branch.
struct Target {
    /// The name of the branch on the remote.
    branch: String,
    /// The remote-tracking branch to update after the push, or an empty string if there is none.
    tracking: String,
    address: String,
}

impl Git {
    /// Pushes the checked-out commit to the remote of its branch. Git runs in a temporary
    /// repository at `folder`, which must be outside the project. The folder's previous contents
    /// are deleted. `env` is the environment for the user's programs, which do not get its `GIT_`
    /// variables.
    ///
    /// # Errors
    /// Returns a [`PushError`] if the branch was not pushed. Also returns a [`PushError`] if, after
    /// the push, the temporary repository cannot be removed or the remote-tracking branch cannot be
    /// updated.
    pub fn push(
        &self,
        folder: &Path,
        env: &BTreeMap<String, String>,
        cancel: &Cancel,
    ) -> Result<(), PushError> {
        let target = self.target()?;
        let commit = self.one_line(Read::RevParse, &["HEAD"])?;
        let objects = self.path(&["--git-path", "objects"])?;
        let at = |source| PushError::Folder { path: folder.to_owned(), source };
        empty_repository(folder, commit.len(), &[&objects]).map_err(at)?;
        // In a shallow clone, the `shallow` file lists the commits whose parents are missing.
        let shallow = self.path(&["--git-path", "shallow"])?;
        if let Ok(text) = read_no_link(shallow, DOCUMENT) {
            fs::write(folder.join("shallow"), text).map_err(at)?;
        }
        let mut all = self.env.clone();
        let own = env.iter().filter(|(name, _)| !name.starts_with("GIT_"));
        all.extend(own.map(|(name, value)| (name.clone(), value.clone())));
        let pushed = self.push_from(folder, all, (&commit, &target), cancel);
        let removed = fs::remove_dir_all(folder).map_err(at);
        pushed?;
        removed?;
        if !target.tracking.is_empty() {
            let update = ["update-ref", "-m", "push: runner", &target.tracking, &commit];
            self.change(Writes::Everything, &update, Vec::new())?;
        }
        Ok(())
    }

    fn push_from(
        &self,
        folder: &Path,
        mut env: BTreeMap<String, String>,
        (commit, target): (&str, &Target),
        cancel: &Cancel,
    ) -> Result<(), GitError> {
        let path = env.get("PATH").map_or("", String::as_str);
        let path = outside(path, &self.project);
        let folder_text = folder.display().to_string();
        for (name, value) in [
            ("PATH", path.as_str()),
            ("GIT_DIR", folder_text.as_str()),
            ("GIT_ALLOW_PROTOCOL", PROTOCOLS),
        ] {
            env.insert(name.to_owned(), value.to_owned());
        }
        let refspec = format!("{commit}:refs/heads/{}", target.branch);
        let args = [
            "--no-pager",
            "-c",
            "core.hooksPath=/dev/null",
            "-c",
            "gc.auto=0",
            "push",
            "--quiet",
            "--no-verify",
            "--no-signed",
            "--recurse-submodules=no",
            "--",
            &target.address,
            &refspec,
        ];
        let spec = ChildSpec {
            program: self.program().map_err(GitError::Spawn)?,
            args: args.iter().map(OsString::from).collect(),
            cwd: folder.to_owned(),
            env,
            stdin: Stdin::Null,
            limits: Limits { total: Some(LONGEST), output_cap: 1024 * 1024, ..Limits::default() },
            marker: self.marker.clone(),
            sandbox: ChildSandbox::Off,
        };
        let answer = start(&spec, cancel)?;
        self.successful(&["push"], answer).map(drop)
    }

    /// Returns the push target of the checked-out branch.
    fn target(&self) -> Result<Target, PushError> {
        let args = ["--verify", "--quiet", "--symbolic-full-name", "HEAD"];
        let name = self.one_line(Read::RevParse, &args)?;
        let Some(branch) = name.strip_prefix("refs/heads/") else {
            return Err(PushError::Detached);
        };
        let format = "--format=%(push:remotename)%00%(push:remoteref)%00%(push)";
        let facts = self.one_line(Read::ForEachRef, &[format, &name])?;
        let mut facts = facts.split('\0');
        let remote = facts.next().unwrap_or_default().to_owned();
        let there = facts.next().unwrap_or_default();
        let tracking = facts.next().unwrap_or_default().to_owned();
        let there = there.strip_prefix("refs/heads/").unwrap_or(branch);
        if remote.is_empty() {
            return Err(PushError::Nowhere { branch: branch.to_owned() });
        }
        let mut addresses = Vec::new();
        for key in ["pushurl", "url"] {
            let key = format!("remote.{remote}.{key}");
            let found = self.ask_if_any(Read::ConfigValues, &[&key], Stdin::Null)?;
            let found = String::from_utf8_lossy(&found.unwrap_or_default()).into_owned();
            if addresses.is_empty() {
                addresses.extend(found.lines().map(str::to_owned));
            }
        }
        let address = match addresses.as_slice() {
            [] => return Err(PushError::Nowhere { branch: branch.to_owned() }),
            [address] => address.clone(),
            _ => return Err(PushError::Several { remote }),
        };
        let address = match local(&address) {
            None => address,
            Some(path) => match path.map(|path| fs::canonicalize(self.root.join(path))) {
                // Git runs in another folder, so a relative path is made absolute.
                Some(Ok(real)) if !leads_inside(&real, &self.root) => real.display().to_string(),
                _ => return Err(PushError::Inside { remote, address }),
            },
        };
        Ok(Target { branch: there.to_owned(), tracking, address })
    }
}

/// Returns `Some(Some(path))` if git interprets an address as a path on this host. Returns
/// `Some(None)` for a `file:` address that must be refused because it does not have the form
/// `file:///PATH` or contains a percent sign. Returns `None` for all other addresses.
fn local(address: &str) -> Option<Option<&str>> {
    if let Some(path) = address.strip_prefix("file:") {
        let path = path.strip_prefix("//").filter(|path| path.starts_with('/'));
        return Some(path.filter(|path| !path.contains('%')));
    }
    if address.contains("://") || address.contains("::") {
        return None;
    }
    // The form `host:path` has no slash before the colon.
    let host = address.split_once(':').is_some_and(|(host, _)| !host.contains('/'));
    (!host).then_some(Some(address))
}

/// Returns whether a path is inside this or another project, where an agent may have created it.
fn leads_inside(real: &Path, project: &Path) -> bool {
    is_in_a_project(real)
        || fs::canonicalize(project).is_ok_and(|project| real.starts_with(project))
}

/// Creates a bare repository without references that reads its objects from these folders. Deletes
/// the previous contents of `folder`. `hash` is the number of hexadecimal digits in an object name.
pub(super) fn empty_repository(
    folder: &Path,
    hash: usize,
    objects: &[&Path],
) -> std::io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir_all(folder.join("objects/info"))?;
    fs::create_dir_all(folder.join("refs/heads"))?;
    fs::write(folder.join("HEAD"), "ref: refs/heads/none\n")?;
    let config = match hash {
        64 => {
            "[core]\nrepositoryformatversion = 1\nbare = true\n[extensions]\nobjectFormat = sha256\n"
        }
        _ => "[core]\nrepositoryformatversion = 0\nbare = true\n",
    };
    fs::write(folder.join("config"), config)?;
    let mut lines = Vec::new();
    for path in objects.iter().map(|path| path.as_os_str().as_bytes()) {
        if path.contains(&b'\n') {
            return Err(std::io::ErrorKind::InvalidFilename.into());
        }
        lines.extend(path.iter().copied().chain(*b"\n"));
    }
    fs::write(folder.join("objects/info/alternates"), lines)
}
