//! The requirements of each host scheduler: files, a crontab line, and the commands that load them.

use std::path::{Path, PathBuf};

use super::SchedulerKind;
use super::plan::{self, OnFailure, SetupStep};
use super::record::{DAEMON, HostTicks, InstalledHost, TIMER};
use super::render::{Template, TemplateData, render};
use crate::env::Env;
use crate::ui::Failure;

/// Labels of the launchd jobs, for the timer and for the daemon.
const LABELS: [&str; 2] = ["runner.tick", "runner.daemon"];

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
    ticks: HostTicks,
    pub files: Vec<WantedFile>,
    /// Symbolic links, each with its target.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// The lines of the crontab's block.
    pub crontab: Option<String>,
    /// Commands to run once the files exist.
    pub start: Vec<SetupStep>,
    /// Whether the user's services keep running without a session; `None` where this is unknown.
    pub lingers: Option<bool>,
}

impl HostScheduler {
    /// Creates the target state for this kind, with these ticks.
    ///
    /// # Errors
    /// Returns an error if the format cannot represent a path, if the user's own template cannot be
    /// used, or if the host cannot keep a service running.
    pub fn of(kind: SchedulerKind, home: &Env, ticks: &HostTicks) -> Result<Self, Failure> {
        if ticks.service && !matches!(kind, SchedulerKind::Systemd | SchedulerKind::Launchd) {
            return Err(Failure::unavailable(format!(
                "--service: {} cannot keep the daemon running",
                kind.as_str()
            ))
            .hint("start `runner daemon` in another way"));
        }
        let utf8 = |path: &Path| {
            path.to_str().map(str::to_owned).ok_or_else(|| {
                Failure::data(format!(
                    "{}: the path is not UTF-8, which files of host schedulers require",
                    path.display()
                ))
            })
        };
        let tasks = home.state.join("task-scheduler");
        let task_file = tasks.join(Template::Task.name());
        let data = TemplateData {
            words: [&[utf8(&home.program()?)?][..], &ticks.command()]
                .concat()
                .into_iter()
                .chain(["--environment".to_owned(), utf8(&home.environment_file())?])
                .collect(),
            minutes: ticks.minutes.clone(),
            log: utf8(&home.timer_log())?,
            task_file: utf8(&task_file)?,
        };
        let overrides = home.config_folder().join("scheduler-templates");
        let text = |template| render(template, &data, &overrides);
        let file = |folder: &Path, template: Template| {
            Ok::<_, Failure>(WantedFile {
                path: folder.join(template.name()),
                text: text(template)?,
                mode: 0o644,
            })
        };
        let mut host = Self { kind: Some(kind), ticks: ticks.clone(), ..Self::default() };
        match kind {
            SchedulerKind::Systemd if ticks.service => {
                let units = units(home);
                host.files.push(file(&units, Template::Daemon)?);
                host.links
                    .push((units.join("default.target.wants").join(DAEMON), units.join(DAEMON)));
                for words in [&["daemon-reload"][..], &["restart", DAEMON]] {
                    host.start.push(systemctl(words, OnFailure::Stop));
                }
                host.lingers = lingers();
            }
            SchedulerKind::Systemd => {
                let units = units(home);
                host.files.push(file(&units, Template::Service)?);
                host.files.push(file(&units, Template::Timer)?);
                host.links.push((units.join("timers.target.wants").join(TIMER), units.join(TIMER)));
                for words in [&["daemon-reload"][..], &["restart", TIMER]] {
                    host.start.push(systemctl(words, OnFailure::Stop));
                }
                host.lingers = lingers();
            }
            SchedulerKind::Cron => host.crontab = Some(text(Template::Crontab)?),
            SchedulerKind::Launchd => {
                let agents = home.folder()?.join("Library/LaunchAgents");
                let template = if ticks.service { Template::DaemonPlist } else { Template::Plist };
                let plist = file(&agents, template)?;
                let path = utf8(&plist.path)?;
                host.files.push(plist);
                let label = LABELS[usize::from(ticks.service)];
                host.start.push(launchctl(&["bootout", &launchd_job(label)], OnFailure::Report));
                host.start.push(launchctl(&["bootstrap", &domain(), &path], OnFailure::Stop));
            }
            // The files are written for the user to read and run; nothing is registered without
            // being shown.
            SchedulerKind::TaskScheduler => {
                host.files.push(file(&tasks, Template::Task)?);
                host.files.push(file(&tasks, Template::Register)?);
            }
            SchedulerKind::Manual => {}
        }
        Ok(host)
    }

    /// Returns whether the host has loaded the files on disk. Always true for schedulers other than
    /// systemd and launchd.
    pub fn is_awake(&self) -> bool {
        match self.kind {
            Some(SchedulerKind::Systemd) => is_awake(self.ticks.unit()),
            Some(SchedulerKind::Launchd) => {
                let job = launchd_job(LABELS[usize::from(self.ticks.service)]);
                plan::run(&["launchctl", "print", &job].map(str::to_owned)).is_ok()
            }
            _ => true,
        }
    }
}

/// Asks the user's systemd manager for its variables. The error is the reason why it does not answer.
pub fn ask_systemd() -> Result<String, String> {
    plan::run(&["systemctl", "--user", "show-environment"].map(str::to_owned))
}

/// Returns whether this systemd unit is active and was loaded from the current files.
pub fn is_awake(unit: &str) -> bool {
    let asked = |words: &[&str]| {
        let words = ["systemctl", "--user"].iter().chain(words);
        plan::run(&words.map(|word| (*word).to_owned()).collect::<Vec<_>>())
    };
    asked(&["is-active", unit]).is_ok()
        && asked(&["show", "--value", "--property=NeedDaemonReload", unit])
            .is_ok_and(|said| said != "yes")
}

/// Returns the folder of the user's own units.
pub fn units(home: &Env) -> PathBuf {
    home.config_home().join("systemd/user")
}

/// Returns the commands to run before the files are removed.
pub fn stop(kind: SchedulerKind, home: &Env, published: &InstalledHost) -> Vec<SetupStep> {
    let has = |name: &str| published.files.keys().any(|path| path.ends_with(name));
    match kind {
        SchedulerKind::Systemd if has(DAEMON) => {
            vec![systemctl(&["stop", DAEMON], OnFailure::Report)]
        }
        // Only the timer is stopped; a running tick finishes by itself.
        SchedulerKind::Systemd => vec![
            systemctl(&["stop", TIMER], OnFailure::Report),
            // Removes the timestamp of the timer's last run.
            systemctl(&["clean", "--what=state", TIMER], OnFailure::Report),
        ],
        SchedulerKind::Launchd => {
            let label = LABELS[usize::from(has(Template::DaemonPlist.name()))];
            vec![launchctl(&["bootout", &launchd_job(label)], OnFailure::Report)]
        }
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
            on_failure: OnFailure::Report,
        }],
        SchedulerKind::Cron | SchedulerKind::Manual => Vec::new(),
    }
}

/// Returns the commands to run once the files have been removed.
pub fn stopped(kind: SchedulerKind) -> Vec<SetupStep> {
    match kind {
        SchedulerKind::Systemd => vec![systemctl(&["daemon-reload"], OnFailure::Report)],
        _ => Vec::new(),
    }
}

fn systemctl(words: &[&str], on_failure: OnFailure) -> SetupStep {
    super::run(&[&["systemctl", "--user"][..], words].concat(), on_failure)
}

fn launchctl(words: &[&str], on_failure: OnFailure) -> SetupStep {
    super::run(&[&["launchctl"][..], words].concat(), on_failure)
}

fn domain() -> String {
    format!("gui/{}", rustix::process::getuid().as_raw())
}

fn launchd_job(label: &str) -> String {
    format!("{}/{label}", domain())
}

/// Returns whether the user's systemd manager keeps running without a session. Returns `None` if
/// the host has no logind that records this.
pub fn lingers() -> Option<bool> {
    let folder = Path::new("/var/lib/systemd/linger");
    // logind creates the `linger` folder for the first user who lingers, so logind's own folder
    // shows whether logind is in use.
    if !folder.is_dir() && !Path::new("/run/systemd/seats").is_dir() {
        return None;
    }
    Some(folder.join(crate::env::person()).exists())
}
