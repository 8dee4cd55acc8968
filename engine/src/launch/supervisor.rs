//! Implements the launch supervisor, which runs outside the sandbox without restrictions and kills
//! the process tree at the end.
//!
//! ```text
//! plan ──> session, limits, subreaper, control group ──> sandbox ──> start ──> Started
//!   socket closed ──────────────────────────────────────────────────> kill the tree ──> Ended
//!   TERM, INT, HUP ──> to the program's group        main ended ──────────^
//! ```
//!
//! If bubblewrap is installed and the plan permits it, it is tried first. If bubblewrap cannot
//! create even the simplest namespaces on this host and Landlock is available, it is treated as not
//! installed. Any other failure of bubblewrap is an error, so that an attacker cannot weaken the
//! sandbox by making bubblewrap fail.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{getpid, set_child_subreaper, setsid};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use super::cgroup::{ControlGroup, StartError};
use super::channel::Channel;
use super::init::{self, Streams, code, reap, signal_group};
use super::limits;
use super::monitor::TreeMonitor;
use super::plan::{LaunchOrder, LaunchPlan, LaunchRefusal, LaunchReport, ResolvedPaths};
use super::proxy::Proxy;
use super::signals::Signals;
use super::view;
use crate::files::open_host;
use crate::process::{ExitStatus, tree, wait};
use crate::sandbox::placeholders::{Placeholders, create};
use crate::sandbox::private_git::{BorrowedObjects, Cover};
use crate::sandbox::resolve::{ResolvedSandbox, resolve};
use crate::sandbox::{
    AppliedLimit, AppliedSandbox, Overuse, SandboxLevel, SandboxMechanism, TreeControl, bwrap,
    landlock, probe, sockets,
};

/// Maximum number of attempts to start bubblewrap while other programs remove their sockets. One
/// attempt takes a few milliseconds.
const STARTS: u32 = 100;
/// Maximum number of bytes of bubblewrap's output in an error message.
const LONGEST: u64 = 1000;

/// Starts and watches the program, and kills the rest of its process tree when it exits. Returns
/// this process's exit code.
pub(super) fn attend(channel: &Channel, plan: &LaunchPlan, streams: Vec<OwnedFd>) -> i32 {
    let mut supervisor = match LaunchSupervisor::prepare(channel, plan, streams) {
        Ok(supervisor) => supervisor,
        Err(refusal) => return refused(channel, refusal),
    };
    let done = supervisor.start_program().and_then(|()| supervisor.watch());
    let swept = supervisor.clear();
    supervisor.blockers = None;
    match done {
        Err(refusal) => refused(channel, refusal),
        Ok((status, killed)) => {
            let ended = LaunchReport::Ended {
                status,
                killed: killed + swept.count,
                survivors: swept.survivors,
                requested: supervisor.proxy.as_ref().map(Proxy::requested).unwrap_or_default(),
                over: supervisor.over,
            };
            let _ = channel.send(&ended, &[]);
            code(status)
        }
    }
}

fn refused(channel: &Channel, refusal: LaunchRefusal) -> i32 {
    let _ = channel.send(&LaunchReport::Refused(refusal), &[]);
    super::BROKEN
}

struct LaunchSupervisor<'a> {
    channel: &'a Channel,
    plan: &'a LaunchPlan,
    streams: Option<Streams>,
    signals: Signals,
    group: Option<ControlGroup>,
    real: ResolvedSandbox,
    covers: Vec<Cover>,
    blockers: Option<Placeholders>,
    /// The process id of the program, or of bubblewrap if it is used.
    main: u32,
    /// The channel to the first process inside the mount namespace, and the pipe that carries
    /// bubblewrap's messages.
    inner: Option<(Channel, io::PipeReader)>,
    /// The proxy for a program that may reach only certain hosts.
    proxy: Option<Proxy>,
    monitor: TreeMonitor,
    /// The memory limit, in bytes.
    memory: u64,
    limits: Vec<AppliedLimit>,
    over: Option<Overuse>,
}

impl<'a> LaunchSupervisor<'a> {
    fn prepare(
        channel: &'a Channel,
        plan: &'a LaunchPlan,
        mut streams: Vec<OwnedFd>,
    ) -> Result<Self, LaunchRefusal> {
        let signals = Signals::catch(&[SIGTERM, SIGINT, SIGHUP, SIGCHLD])
            .map_err(|error| LaunchRefusal::at("catch signals", error))?;
        // This process becomes the leader of a session without a terminal, so its children cannot
        // acquire one.
        setsid().map_err(|error| LaunchRefusal::at("start a session", error))?;
        set_child_subreaper(Some(getpid()))
            .map_err(|error| LaunchRefusal::at("become a subreaper", error))?;
        limits::set(&plan.sandbox.caps).map_err(|error| LaunchRefusal::at("set limits", error))?;
        let own = |stream: BorrowedFd<'_>| {
            let copy = stream.try_clone_to_owned();
            copy.map_err(|error| LaunchRefusal::at("copy a stream", error))
        };
        let input = streams
            .pop()
            .ok_or_else(|| LaunchRefusal::Other("no standard input was received".to_owned()))?;
        let streams = [input, own(io::stdout().as_fd())?, own(io::stderr().as_fd())?];
        let group = ControlGroup::make(&plan.marker);
        let mut monitor = TreeMonitor::new(&plan.sandbox.caps);
        let set = |group: &ControlGroup| group.limit(monitor.memory(), plan.sandbox.caps.processes);
        let memory = monitor.memory().unwrap_or(u64::MAX);
        let enforced = group.as_ref().map_or((false, false), set);
        monitor.leave(enforced);
        if let Some(temp) = &plan.sandbox.temp {
            fs::create_dir_all(temp)
                .map_err(|error| LaunchRefusal::at(&format!("create {}", temp.display()), error))?;
        }
        Ok(Self {
            channel,
            plan,
            streams: Some(streams),
            signals,
            group,
            real: ResolvedSandbox::default(),
            covers: Vec::new(),
            blockers: None,
            main: 0,
            inner: None,
            proxy: None,
            monitor,
            memory,
            limits: plan.sandbox.caps.stated(enforced),
            over: None,
        })
    }

    /// Starts bubblewrap with a second launcher inside, or else the program directly.
    fn start_program(&mut self) -> Result<(), LaunchRefusal> {
        let plan = self.plan;
        if !plan.sandbox.off
            && plan.sandbox.means != SandboxMechanism::Landlock
            && let Some(bwrap) = bwrap::find()
        {
            let (mut real, held) = create(&plan.sandbox)?;
            let covers = plan.sandbox.git.iter().flat_map(|git| git.covers()).collect::<Vec<_>>();
            covers.iter().try_for_each(|cover| real.cover(cover))?;
            self.borrow_objects(BorrowedObjects::Mounted)?;
            self.covers = covers;
            self.real = real;
            self.blockers = Some(held);
            if let Some(temp) = &plan.sandbox.temp {
                let shared = bwrap::shared_memory(temp);
                fs::create_dir_all(&shared).map_err(|error| {
                    LaunchRefusal::at(&format!("create {}", shared.display()), error)
                })?;
            }
            for turn in 1.. {
                let sockets = sockets::bound();
                let StartResult::Failed(why) = self.start_bubblewrap(&bwrap, &sockets)? else {
                    return Ok(());
                };
                // A socket that no longer exists cannot be mounted over.
                if turn < STARTS && !sockets.is_subset(&sockets::bound()) {
                    continue;
                }
                if probe::probe(&bwrap).is_ok() || !landlock::is_there() {
                    return Err(LaunchRefusal::Sandbox(format!("bubblewrap: {why}")));
                }
                break;
            }
            self.blockers = None;
        }
        self.start_directly()
    }

    fn start_directly(&mut self) -> Result<(), LaunchRefusal> {
        if !self.plan.sandbox.hosts.is_empty() {
            return Err(LaunchRefusal::Sandbox(
                "a list of hosts in `network` needs bubblewrap, which does not work here"
                    .to_owned(),
            ));
        }
        if !self.plan.sandbox.off {
            self.real = resolve(&self.plan.sandbox)?;
            let objects = match &self.plan.sandbox.git {
                Some(git) if view::cover(git)? => BorrowedObjects::Mounted,
                _ => BorrowedObjects::InProject,
            };
            self.borrow_objects(objects)?;
        }
        let streams = self.streams.take().expect("the streams are taken only once");
        let plan = self.plan;
        let off = plan.sandbox.off;
        let level = if off { SandboxLevel::Off } else { SandboxLevel::FilesOnly };
        let start = || init::start(plan, &self.real, level, &streams, None);
        let started = self.group.as_ref().map(|group| group.within(start));
        let (child, made_of) = match started {
            Some(Ok(started)) => started?,
            None | Some(Err(_)) => {
                self.continue_without_group();
                init::start(plan, &self.real, level, &streams, None)?
            }
        };
        drop(streams);
        self.main = child.id();
        let containment = AppliedSandbox {
            tree: self.tree(TreeControl::Subreaper),
            sandbox: level,
            made_of,
            network: off || plan.sandbox.network,
            hosts: Vec::new(),
            requested: Vec::new(),
            limits: self.limits.clone(),
        };
        self.report_started(containment);
        Ok(())
    }

    fn borrow_objects(&self, objects: BorrowedObjects) -> Result<(), LaunchRefusal> {
        let mut git = self.plan.sandbox.git.iter();
        git.try_for_each(|git| git.borrow_objects(objects))
            .map_err(|error| LaunchRefusal::at("write the path of the project's objects", error))
    }

    fn start_bubblewrap(
        &mut self,
        bwrap: &Path,
        sockets: &BTreeSet<PathBuf>,
    ) -> Result<StartResult, LaunchRefusal> {
        let at = |what: &'static str| move |error: io::Error| LaunchRefusal::at(what, error);
        let plan = self.plan;
        let visible = self.visible();
        let view = bwrap::MountView {
            real: &self.real,
            covers: &self.covers,
            temp: plan.sandbox.temp.as_deref(),
            visible: &visible,
            sockets,
            network: plan.sandbox.network,
        };
        let (ours, theirs) = Channel::pair().map_err(at("create a socket"))?;
        let (said, stderr) = io::pipe().map_err(at("create a pipe"))?;
        // This program's file is passed on as a descriptor, because another version may have
        // replaced the file at its path, and the path may not be visible inside the mount view.
        let exe = open_host("/proc/self/exe").map_err(at("open this program"))?;
        fcntl_setfd(&exe, FdFlags::empty())
            .map_err(|error| LaunchRefusal::at("pass on this program", error))?;
        let number = std::os::fd::AsRawFd::as_raw_fd(&exe);
        let mut command = Command::new(bwrap);
        command
            .args(bwrap::options(&view))
            .arg("--")
            .arg(format!("/proc/self/fd/{number}"))
            .arg("__launch")
            .env_clear()
            .env(crate::process::MARKER_VARIABLE, &plan.marker)
            .current_dir("/")
            .stdin(theirs)
            .stdout(Stdio::null())
            .stderr(stderr)
            .process_group(0);
        // The kernel kills bubblewrap when the thread that started it exits. This thread exits only
        // with the process.
        self.main = self.start_in_group(&mut command).map_err(at("start bubblewrap"))?;
        drop(command);
        drop(exe);
        let inside = Some(ResolvedPaths { real: self.real.clone() });
        let inner_plan = LaunchPlan { inside, ..plan.clone() };
        let streams = self.streams.as_ref().expect("the streams are taken only once");
        let streams: Vec<_> = streams.iter().map(AsFd::as_fd).collect();
        let sent = ours.send(&inner_plan, &streams);
        // The wait ends when a report arrives or bubblewrap exits without a report. It also ends
        // when the run ends, because no other process would then kill bubblewrap. Both channels are
        // therefore watched.
        let report = match sent {
            Ok(()) => self.first_report(&ours)?,
            Err(_) => None,
        };
        match report {
            Some((LaunchReport::Started(mut containment), with)) => {
                self.streams = None;
                if let Some(listener) = with.into_iter().next() {
                    let served = Proxy::serve(listener, &plan.sandbox.hosts);
                    self.proxy = Some(served.map_err(at("start the proxy"))?);
                }
                containment.limits.clone_from(&self.limits);
                containment.tree = self.tree(TreeControl::Namespace);
                containment.made_of.insert(0, "bubblewrap".to_owned());
                self.report_started(containment);
                self.inner = Some((ours, said));
                Ok(StartResult::Started)
            }
            Some((LaunchReport::Refused(refusal), _)) => Err(refusal),
            Some((LaunchReport::Ended { .. }, _)) | None => {
                // The tree is killed first. Otherwise, reading bubblewrap's output might not end.
                tree::kill_descendants();
                reap(self.main);
                self.main = 0;
                let mut why = String::new();
                let _ = said.take(LONGEST).read_to_string(&mut why);
                Ok(StartResult::Failed(why.trim().to_owned()))
            }
        }
    }

    /// Waits for the first report from the first process inside the mount view. Returns `None` if
    /// that process has closed its channel, and an error if the run has ended.
    fn first_report(
        &self,
        inner: &Channel,
    ) -> Result<Option<(LaunchReport, Vec<OwnedFd>)>, LaunchRefusal> {
        loop {
            let mut fds =
                [PollFd::new(inner, PollFlags::IN), PollFd::new(self.channel, PollFlags::IN)];
            wait::poll_within(&mut fds, None);
            if !fds[0].revents().is_empty() {
                return Ok(inner.receive::<LaunchReport>().ok().flatten());
            }
            if !fds[1].revents().is_empty() {
                return Err(LaunchRefusal::Other(
                    "the run ended before the program was started".to_owned(),
                ));
            }
        }
    }

    /// Waits until the program has exited or must be stopped. Returns its exit status and the
    /// number of other processes that the launcher inside bubblewrap has found alive.
    fn watch(&mut self) -> Result<(ExitStatus, usize), LaunchRefusal> {
        let mut inner_end = None;
        loop {
            if let Some(status) = reap(self.main) {
                self.over = self.exceeded_at_end();
                let Some((inner, _)) = &self.inner else {
                    return Ok((status, 0));
                };
                // The last report from inside the mount view is more precise than bubblewrap's exit
                // code.
                while let Ok(Some((report, _))) = inner.receive::<LaunchReport>() {
                    if let LaunchReport::Ended { status, killed, .. } = report {
                        inner_end = Some((status, killed));
                    }
                }
                return Ok(inner_end.unwrap_or((status, 0)));
            }
            let mut fds = vec![
                PollFd::new(self.channel, PollFlags::IN),
                PollFd::new(&self.signals, PollFlags::IN),
            ];
            wait::poll_within(&mut fds, self.monitor.wait());
            let reported = !fds[0].revents().is_empty();
            drop(fds);
            if let Some(over) = self.monitor.sample(self.group.as_ref()) {
                self.over = Some(over);
                return Ok((ExitStatus::Signal(rustix::process::Signal::KILL.as_raw()), 0));
            }
            for signal in self.signals.take() {
                if signal != SIGCHLD {
                    self.pass_on(signal);
                }
            }
            if reported && !matches!(self.channel.receive::<LaunchOrder>(), Ok(Some(_))) {
                let killed = rustix::process::Signal::KILL.as_raw();
                return Ok((ExitStatus::Signal(killed), 0));
            }
        }
    }

    /// Returns the limit that the tree had exceeded by the time the program exited, if any. The
    /// samples may have missed it.
    fn exceeded_at_end(&mut self) -> Option<Overuse> {
        let group = self.group.as_ref();
        if group.is_some_and(ControlGroup::ran_out_of_memory) {
            return Some(Overuse::Memory { limit: self.memory, seen: self.memory });
        }
        let refused = self.monitor.refused_task(group);
        refused.or_else(|| self.monitor.sample_time(group, &tree::all_descendants()))
    }

    fn pass_on(&self, signal: i32) {
        match &self.inner {
            Some((inner, _)) => {
                let _ = inner.send(&LaunchOrder::Signal(signal), &[]);
            }
            None => signal_group(self.main, signal),
        }
    }

    /// Kills all remaining processes. The returned count excludes the program itself and, with
    /// bubblewrap, every process that was alive before.
    fn clear(&mut self) -> tree::Killed {
        let main_lives = self.main != 0 && tree::is_there(self.main);
        let before = tree::descendants_alive();
        if let Some(group) = &self.group {
            group.kill();
        }
        let swept = tree::kill_descendants();
        reap(self.main);
        if let Some(group) = self.group.take() {
            group.remove();
        }
        // With bubblewrap, the launcher inside has already counted the program's remaining
        // processes.
        let own = if self.inner.is_some() { before.len() } else { usize::from(main_lives) };
        tree::Killed {
            count: before.len().max(swept.count).saturating_sub(own),
            survivors: swept.survivors,
        }
    }

    /// Starts a program in the control group, and returns its process id. If the group cannot
    /// contain processes, the program is started without it.
    fn start_in_group(&mut self, command: &mut Command) -> io::Result<u32> {
        match self.group.as_ref().map(|group| group.start(command)) {
            Some(Ok(pid)) => return Ok(pid),
            Some(Err(StartError::Program(error))) => return Err(error),
            None | Some(Err(StartError::Group)) => self.continue_without_group(),
        }
        command.spawn().map(|child| child.id())
    }

    /// Removes the control group. The monitor then enforces the limits by sampling.
    fn continue_without_group(&mut self) {
        if let Some(group) = self.group.take() {
            group.remove();
            self.monitor = TreeMonitor::new(&self.plan.sandbox.caps);
            self.limits = self.plan.sandbox.caps.stated((false, false));
        }
    }

    fn tree(&self, otherwise: TreeControl) -> TreeControl {
        if self.group.is_some() { TreeControl::Cgroup } else { otherwise }
    }

    fn report_started(&self, containment: AppliedSandbox) {
        // If sending fails, runner has exited, and the closed socket will show that.
        let _ = self.channel.send(&LaunchReport::Started(containment), &[]);
    }

    /// Returns the paths that must be readable in the mount view even if they are in a private
    /// folder.
    fn visible(&self) -> Vec<PathBuf> {
        let plan = self.plan;
        let mut visible = vec![plan.cwd.clone(), plan.program.clone()];
        visible.extend(plan.program.parent().map(Path::to_owned));
        visible.extend(plan.env.get("HOME").map(PathBuf::from));
        let real = visible.iter().filter_map(|path| fs::canonicalize(path).ok());
        let mut visible: Vec<PathBuf> = real.collect();
        visible.sort();
        visible.dedup();
        visible
    }
}

enum StartResult {
    Started,
    Failed(String),
}
