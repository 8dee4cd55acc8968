//! The requirements of each host scheduler: files, a line of the crontab, and the commands that
//! load them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::SchedulerKind;
use super::plan::{self, SetupStep};
use super::render::{Template, TemplateData, render};
use crate::env::Env;
use crate::ui::Failure;

/// Name of the systemd timer.
pub const TIMER: &str = "runner-tick.timer";
/// Label of the launchd job.
pub const LABEL: &str = "runner.tick";

/// A file that must exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedFile {
    pub path: PathBuf,
    pub text: String,
    /// The file's permission bits.
    pub mode: u32,
}

/// The target state of a host scheduler.
#[derive(Clone, Debug, Default)]
pub struct HostScheduler {
    kind: Option<SchedulerKind>,
    pub files: Vec<WantedFile>,
    /// Symbolic links, each with its target.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// The lines of the crontab's block.
    pub crontab: Option<String>,
    /// Commands to run once the files exist.
    pub start: Vec<SetupStep>,
    /// Whether the user's services continue without a session; `None` where this is unknown.
    pub lingers: Option<bool>,
}

impl HostScheduler {
    /// Creates the target state for this kind, with ticks at these minutes of each hour.
    ///
    /// # Errors
    /// Returns an error if the format cannot hold a path, or if the user's own template cannot be
    /// used.
    pub fn of(kind: SchedulerKind, home: &Env, minutes: &BTreeSet<i8>) -> Result<Self, Failure> {
        let utf8 = |path: &Path| {
            path.to_str().map(str::to_owned).ok_or_else(|| {
                Failure::data(format!(
                    "{}: not UTF-8, but files of host schedulers must be",
                    path.display()
                ))
            })
        };
        let tasks = home.state.join("task-scheduler");
        let task_file = tasks.join(Template::Task.name());
        let reported = TemplateData {
            words: vec![
                utf8(&home.program()?)?,
                "tick".to_owned(),
                "--quiet".to_owned(),
                "--environment".to_owned(),
                utf8(&home.environment_file())?,
            ],
            minutes: minutes.clone(),
            log: utf8(&home.timer_log())?,
            task_file: utf8(&task_file)?,
        };
        let overrides = home.config_folder().join("scheduler-templates");
        let text = |template| render(template, &reported, &overrides);
        let file = |folder: &Path, template: Template| {
            Ok::<_, Failure>(WantedFile {
                path: folder.join(template.name()),
                text: text(template)?,
                mode: 0o644,
            })
        };
        let mut host = Self { kind: Some(kind), ..Self::default() };
        match kind {
            SchedulerKind::Systemd => {
                let units = units(home);
                host.files.push(file(&units, Template::Service)?);
                host.files.push(file(&units, Template::Timer)?);
                host.links.push((units.join("timers.target.wants").join(TIMER), units.join(TIMER)));
                for words in [&["daemon-reload"][..], &["restart", TIMER]] {
                    host.start.push(systemctl(words, true));
                }
                host.lingers = lingers();
            }
            SchedulerKind::Cron => host.crontab = Some(text(Template::Crontab)?),
            SchedulerKind::Launchd => {
                let agents = home.folder()?.join("Library/LaunchAgents");
                let plist = file(&agents, Template::Plist)?;
                let path = utf8(&plist.path)?;
                host.files.push(plist);
                host.start.push(launchctl(&["bootout", &service()], false));
                host.start.push(launchctl(&["bootstrap", &domain(), &path], true));
            }
            // The files are written for a person to read and run; nothing is registered without
            // being shown.
            SchedulerKind::TaskScheduler => {
                host.files.push(file(&tasks, Template::Task)?);
                host.files.push(file(&tasks, Template::Register)?);
            }
            SchedulerKind::Manual => {}
        }
        Ok(host)
    }

    /// Checks whether the host has loaded the files that are on disk.
    pub fn is_awake(&self) -> bool {
        match self.kind {
            Some(SchedulerKind::Systemd) => is_awake(),
            Some(SchedulerKind::Launchd) => {
                plan::run(&["launchctl", "print", &service()].map(str::to_owned)).is_ok()
            }
            _ => true,
        }
    }
}

/// Checks whether systemd's timer is active and was loaded from the current files.
pub fn is_awake() -> bool {
    let asked = |words: &[&str]| {
        let words = ["systemctl", "--user"].iter().chain(words);
        plan::run(&words.map(|word| (*word).to_owned()).collect::<Vec<_>>())
    };
    asked(&["is-active", TIMER]).is_ok()
        && asked(&["show", "--value", "--property=NeedDaemonReload", TIMER])
            .is_ok_and(|said| said != "yes")
}

/// Returns the folder of the user's own units.
pub fn units(home: &Env) -> PathBuf {
    home.config_home().join("systemd/user")
}

/// Returns the commands to run before the files are removed.
pub fn stop(kind: SchedulerKind, home: &Env) -> Vec<SetupStep> {
    match kind {
        // Only the timer is stopped; a running tick ends by itself.
        SchedulerKind::Systemd => vec![
            systemctl(&["stop", TIMER], false),
            // Removes the time stamp of the timer's last run.
            systemctl(&["clean", "--what=state", TIMER], false),
        ],
        SchedulerKind::Launchd => vec![launchctl(&["bootout", &service()], false)],
        SchedulerKind::TaskScheduler => vec![SetupStep::Run {
            words: [
                "powershell",
                "-NoProfile",
                "-ExecutionPolicy",
                "Bypass",
                "-File",
                &home
                    .state
                    .join("task-scheduler")
                    .join(Template::Register.name())
                    .to_string_lossy(),
                "-Remove",
            ]
            .map(str::to_owned)
            .into(),
            must: false,
        }],
        SchedulerKind::Cron | SchedulerKind::Manual => Vec::new(),
    }
}

/// Returns the commands to run once the files are removed.
pub fn stopped(kind: SchedulerKind) -> Vec<SetupStep> {
    match kind {
        SchedulerKind::Systemd => vec![systemctl(&["daemon-reload"], false)],
        _ => Vec::new(),
    }
}

fn systemctl(words: &[&str], must: bool) -> SetupStep {
    super::run(&[&["systemctl", "--user"][..], words].concat(), must)
}

fn launchctl(words: &[&str], must: bool) -> SetupStep {
    super::run(&[&["launchctl"][..], words].concat(), must)
}

fn domain() -> String {
    format!("gui/{}", rustix::process::getuid().as_raw())
}

fn service() -> String {
    format!("{}/{LABEL}", domain())
}

/// Checks whether the user's systemd manager stays without a session. Returns `None` where the host
/// has no such record.
pub fn lingers() -> Option<bool> {
    let folder = Path::new("/var/lib/systemd/linger");
    // The `linger` folder is made for the first user who lingers, so logind's own folder shows
    // whether logind is in use.
    if !folder.is_dir() && !Path::new("/run/systemd/seats").is_dir() {
        return None;
    }
    Some(folder.join(crate::env::person()).exists())
}
