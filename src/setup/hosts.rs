//! What each host scheduler needs: files, a line, and the commands that make it look.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::Kind;
use super::plan::{self, Step};
use super::render::{Template, Told, render};
use crate::cli::Failure;
use crate::home::Home;

/// The name of systemd's timer.
pub const TIMER: &str = "runner-tick.timer";
/// The name of launchd's job.
pub const LABEL: &str = "runner.tick";

/// A file that is to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedFile {
    /// Where.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
    /// Its permission bits.
    pub mode: u32,
}

/// What a host scheduler is to have.
#[derive(Clone, Debug, Default)]
pub struct Host {
    kind: Option<Kind>,
    /// Files.
    pub files: Vec<WantedFile>,
    /// Links, and what they lead to.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Lines of the crontab.
    pub crontab: Option<String>,
    /// What is run once the files are there.
    pub start: Vec<Step>,
    /// Whether the user's services go on without a session, where that can be told.
    pub lingers: Option<bool>,
}

impl Host {
    /// Of this kind, ticking at these minutes of each hour.
    ///
    /// # Errors
    /// A path does not survive the format, or a template of the user's own cannot be used.
    pub fn of(kind: Kind, home: &Home, minutes: &BTreeSet<i8>) -> Result<Self, Failure> {
        let utf8 = |path: &Path| {
            path.to_str().map(str::to_owned).ok_or_else(|| {
                Failure::data(format!(
                    "{}: not UTF-8, and files of host schedulers are",
                    path.display()
                ))
            })
        };
        let tasks = home.state.join("task-scheduler");
        let task_file = tasks.join(Template::Task.name());
        let told = Told {
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
        let text = |template| render(template, &told, &overrides);
        let file = |folder: &Path, template: Template| {
            Ok::<_, Failure>(WantedFile {
                path: folder.join(template.name()),
                text: text(template)?,
                mode: 0o644,
            })
        };
        let mut host = Self {
            kind: Some(kind),
            ..Self::default()
        };
        match kind {
            Kind::Systemd => {
                let units = units(home);
                host.files.push(file(&units, Template::Service)?);
                host.files.push(file(&units, Template::Timer)?);
                host.links.push((
                    units.join("timers.target.wants").join(TIMER),
                    units.join(TIMER),
                ));
                for words in [&["daemon-reload"][..], &["restart", TIMER]] {
                    host.start.push(systemctl(words, true));
                }
                host.lingers = lingers();
            }
            Kind::Cron => host.crontab = Some(text(Template::Crontab)?),
            Kind::Launchd => {
                let agents = home.folder()?.join("Library/LaunchAgents");
                let plist = file(&agents, Template::Plist)?;
                let path = utf8(&plist.path)?;
                host.files.push(plist);
                host.start.push(launchctl(&["bootout", &service()], false));
                host.start
                    .push(launchctl(&["bootstrap", &domain(), &path], true));
            }
            // Written for a person to read and run: nothing registers itself in silence.
            Kind::TaskScheduler => {
                host.files.push(file(&tasks, Template::Task)?);
                host.files.push(file(&tasks, Template::Register)?);
            }
            Kind::Manual => {}
        }
        Ok(host)
    }

    /// Whether the host knows of it and has what is on disk.
    pub fn is_awake(&self) -> bool {
        match self.kind {
            Some(Kind::Systemd) => is_awake(),
            Some(Kind::Launchd) => {
                plan::run(&["launchctl", "print", &service()].map(str::to_owned)).is_ok()
            }
            _ => true,
        }
    }
}

/// Whether systemd's timer waits, made from the files as they are.
pub fn is_awake() -> bool {
    let asked = |words: &[&str]| {
        let words = ["systemctl", "--user"].iter().chain(words);
        plan::run(&words.map(|word| (*word).to_owned()).collect::<Vec<_>>())
    };
    asked(&["is-active", TIMER]).is_ok()
        && asked(&["show", "--value", "--property=NeedDaemonReload", TIMER])
            .is_ok_and(|said| said != "yes")
}

/// Where the user's own units lie.
pub fn units(home: &Home) -> PathBuf {
    home.config_home().join("systemd/user")
}

/// What is run before the files are taken away.
pub fn stop(kind: Kind, home: &Home) -> Vec<Step> {
    match kind {
        // Only the timer: a tick that is at work ends by itself.
        Kind::Systemd => vec![
            systemctl(&["stop", TIMER], false),
            // The stamp of its last moment.
            systemctl(&["clean", "--what=state", TIMER], false),
        ],
        Kind::Launchd => vec![launchctl(&["bootout", &service()], false)],
        Kind::TaskScheduler => vec![Step::Run {
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
        Kind::Cron | Kind::Manual => Vec::new(),
    }
}

/// What is run once they are gone.
pub fn stopped(kind: Kind) -> Vec<Step> {
    match kind {
        Kind::Systemd => vec![systemctl(&["daemon-reload"], false)],
        _ => Vec::new(),
    }
}

fn systemctl(words: &[&str], must: bool) -> Step {
    super::run(&[&["systemctl", "--user"][..], words].concat(), must)
}

fn launchctl(words: &[&str], must: bool) -> Step {
    super::run(&[&["launchctl"][..], words].concat(), must)
}

fn domain() -> String {
    format!("gui/{}", rustix::process::getuid().as_raw())
}

fn service() -> String {
    format!("{}/{LABEL}", domain())
}

/// Whether the user's manager stays without a session; `None` where nothing keeps that.
pub fn lingers() -> Option<bool> {
    let folder = Path::new("/var/lib/systemd/linger");
    // The folder is made with the first user who lingers; logind's own is there wherever it runs.
    if !folder.is_dir() && !Path::new("/run/systemd/seats").is_dir() {
        return None;
    }
    Some(folder.join(crate::home::person()).exists())
}
