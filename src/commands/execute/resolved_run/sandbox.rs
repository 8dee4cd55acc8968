//! Builds a run's sandbox from its job's kind and settings.
//!
//! Children of a *proposing* kind (dream, prompt, overnight) may write to their part of the run's
//! folder and to a temporary folder. In the project, they may write only to the kind's shared
//! folders. A backend may add paths for its program's state. Children of a *working* kind (command,
//! wake, audit, plan) may also write to the paths in `writes`. These children may never write to
//! runner's files, git's configuration or an agent's settings.
//!
//! By default, the network is open to backends, which need it for their requests, and closed to
//! commands, because a command could send everything that it can read.
//!
//! Every project path in the sandbox must be checked without following links. Otherwise, a link
//! that one child creates could change what the next child may write.

use std::fs;
use std::path::Path;

use runner_engine::git::Git;
use runner_engine::sandbox::placeholders::FOLDER;
use runner_engine::sandbox::private_git::PrivateGit;
use runner_engine::sandbox::{
    FolderQuota, ResourceLimits, Sandbox, SandboxLevel, SandboxMechanism, SandboxedStart, available,
};
use runner_jobs::context::{CHILD_FOLDER, OUT_FOLDER};

use super::{Purpose, ResolvedRun};
use crate::config::{Network, SandboxSettings};
use crate::env;
use crate::guard::private_paths::PrivateFolders;
use crate::guard::reach;
use crate::ui::Failure;

/// The name of the folder for temporary files in a run's folder.
pub(in crate::commands::execute) const TEMP_FOLDER: &str = "tmp";
/// The name of the private git directory in a run's folder.
const GIT_FOLDER: &str = "git";

impl ResolvedRun<'_> {
    /// Returns the sandbox of this run's children. For a real run, also creates the children's
    /// folders inside the run's folder.
    pub fn sandbox_start(&self, purpose: Purpose) -> Result<SandboxedStart, Failure> {
        let sandbox = match self.here.config.jobs.get(&self.row.job_name) {
            Some(job) => job.sandbox.clone(),
            None => SandboxSettings::default(),
        };
        let real = |path: &Path| match fs::canonicalize(path) {
            Err(_) if purpose == Purpose::DryRun => Ok(path.to_owned()),
            found => found.map_err(|error| Failure::not_made(path, error)),
        };
        let program = self.spec.kind.program();
        let own = program.map_or(CHILD_FOLDER, |_| OUT_FOLDER);
        for folder in [own, TEMP_FOLDER].into_iter().filter(|_| purpose == Purpose::Run) {
            let folder = self.run_dir.join(folder);
            fs::create_dir_all(&folder).map_err(|error| Failure::not_made(&folder, error))?;
        }
        let run_dir = real(&self.run_dir)?;
        let state = real(&self.home.state)?;
        let git_folder = run_dir.join(GIT_FOLDER);
        let reads = sandbox.reads;
        let (network, hosts) = match sandbox.network {
            None => (program.is_none(), Vec::new()),
            Some(Network::Open) => (true, Vec::new()),
            Some(Network::Closed) => (false, Vec::new()),
            Some(Network::Hosts(hosts)) => (false, hosts),
        };
        let mut sandbox = Sandbox {
            off: sandbox.off,
            write: vec![run_dir.join(own)],
            hide: vec![state.clone()],
            network,
            hosts,
            temp: Some(run_dir.join(TEMP_FOLDER)),
            blockers: Some(state.join(FOLDER)),
            caps: ResourceLimits {
                file_bytes: sandbox.max_file,
                memory: sandbox.max_memory,
                processes: sandbox.max_processes.into(),
                cpu_time: sandbox.max_cpu_time,
                ..ResourceLimits::default()
            },
            quota: Some(FolderQuota { folder: run_dir, bytes: sandbox.max_folder }),
            means: SandboxMechanism::chosen(env::setting),
            ..Sandbox::default()
        };
        if !sandbox.hosts.is_empty() && purpose == Purpose::Run {
            self.check_proxy(&sandbox)?;
        }
        PrivateFolders::new(self.home, &self.here.config, &self.environment)
            .hide(&mut sandbox, &reads);
        for folder in self.spec.kind.shared_folders() {
            let folder = self.here.root.join(folder);
            if fs::symlink_metadata(&folder).is_ok_and(|data| data.is_dir()) {
                sandbox.write.push(folder);
            }
        }
        let (root, config) = (&self.here.root, &self.here.config);
        if let Some(works) = self.spec.kind.works_now() {
            let (write, keep) = reach::of_works(root, works, config);
            sandbox.write.extend(write);
            sandbox.keep.extend(keep);
            sandbox.own = reach::own(root, config);
            let config = self.home.user_config.parent().and_then(|it| fs::canonicalize(it).ok());
            sandbox.keep.extend(config);
            if !sandbox.off && reach::commits(works) {
                sandbox.git = self.private_git(&git_folder)?.map(Box::new);
                sandbox.keep.extend(sandbox.git.iter().flat_map(|git| git.links.clone()));
            }
        }
        Ok(SandboxedStart { launcher: env::executable()?, sandbox })
    }

    /// Checks that the sandbox is on and can restrict the network to a list of hosts.
    fn check_proxy(&self, sandbox: &Sandbox) -> Result<(), Failure> {
        let bubblewrap = sandbox.means != SandboxMechanism::Landlock
            && available().level == Some(SandboxLevel::Full);
        if bubblewrap && !sandbox.off {
            return Ok(());
        }
        let name = &self.row.job_name;
        let (why, hint) = match sandbox.off {
            true => ("the sandbox is off", format!("runner config set jobs.{name}.sandbox on")),
            false => (
                "that needs bubblewrap, which this machine does not have or cannot use",
                "apt-get install bubblewrap".to_owned(),
            ),
        };
        let what = format!("job {name:?} lists the hosts of its `network`, but {why}");
        Err(Failure::configuration(what).hint(hint))
    }

    /// Finds the git directory that a private one at `folder` replaces for the children. Returns
    /// `None` if no child can commit.
    fn private_git(&self, folder: &Path) -> Result<Option<PrivateGit>, Failure> {
        let git = Git::new(&self.here.root, &self.environment, self.row.id.as_str());
        git.private(folder).map_err(|error| {
            Failure::configuration(format!(
                "this job cannot get a git directory of its own: {error}"
            ))
            .hint(format!("runner config set jobs.{}.sandbox off", self.row.job_name))
        })
    }
}
