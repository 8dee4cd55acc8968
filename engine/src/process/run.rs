//! The event loop, which waits for events, passes them to the supervisor and carries out the
//! supervisor's decisions.
//!
//! Every event source is a file descriptor: two output pipes, the input pipe, the child's pidfd,
//! the cancellation token and one alarm. The loop reads each stream once per pass, so that a flood
//! of output on one stream never delays a deadline. The loop must never block outside its one
//! `poll` call, and never make decisions.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, ioctl_fionbio, ioctl_fionread};
use rustix::process::{PidfdFlags, Signal, pidfd_open};

use super::Ended;
use super::cancel::{AT_ONCE, Cancel};
use super::disk_quota::DiskQuota;
use super::spec::{ChildSandbox, ChildSpec, MARKER_VARIABLE, SpawnError, Stdin};
use super::supervisor::{
    ExitStatus, Reason, Stream, Supervisor, SupervisorEffect, SupervisorEvent,
};
use super::sweep::{Owned, TreeExtent};
use super::wait::{Alarm, poll_within};
use crate::files::open_null;
use crate::launch::{Channel, LaunchPlan, LaunchRefusal, LaunchReport, clear_marked};
use crate::sandbox::placeholders::clear_abandoned;
use crate::sandbox::{AppliedSandbox, Overuse, RequestedHost, SandboxLevel, SandboxedStart, inert};
use crate::time::boot_time;

const CHUNK: usize = 64 * 1024;

/// The conclusion that the observer draws from a child's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputVerdict {
    Continue,
    /// The observer has seen the final result. The child must exit within its exit grace period.
    ResultSeen,
}

/// Runs one child on this thread until its whole process tree has exited.
///
/// `on_output` receives the kept part of each stream as it arrives, in chunks of any size.
///
/// # Errors
/// Returns an error if the program was not started. Returns [`SpawnError::Io`] if the started child
/// could not be watched and was killed.
pub fn run(
    spec: &ChildSpec,
    cancel: &Cancel,
    on_output: &mut dyn FnMut(Stream, &[u8]) -> OutputVerdict,
) -> Result<Ended, SpawnError> {
    let program = spec.check(cancel)?;
    let io = |what| {
        let program = program.clone();
        move |source: io::Error| SpawnError::Io { program, what, source }
    };
    let mut alarm = Alarm::new().map_err(io("create a timer"))?;
    let started = boot_time();
    let mut launcher = match spec.sandbox.launched() {
        Some(sandbox_start) => {
            Some(Launcher::new(spec, sandbox_start, &program).map_err(io("create a socket"))?)
        }
        None => None,
    };
    let extent = match spec.sandbox {
        ChildSandbox::Inert(_) => TreeExtent::ChildOnly,
        _ => TreeExtent::Any,
    };
    let mut owned = Owned::start(&spec.marker, extent, || match &mut launcher {
        Some(launcher) => launcher.spawn(),
        None => match &spec.sandbox {
            ChildSandbox::Inert(rights) => {
                inert::spawn(&mut command(spec, &program), &program, rights)
            }
            ChildSandbox::Off | ChildSandbox::Launched(_) => command(spec, &program).spawn(),
        },
    })
    .map_err(|error| match spec.sandbox.launched() {
        Some(sandbox_start) => SpawnError::Sandbox {
            program: sandbox_start.launcher.clone(),
            why: format!("the launcher cannot be started: {error}"),
        },
        None => spawn_error(program.clone(), error),
    })?;
    if let Some(launcher) = &mut launcher {
        // A launcher that does not accept the message has exited. The loop detects that like any
        // other exit.
        let _ = launcher.send();
    }
    let mut session = Session::new(spec, &mut owned, launcher, started).map_err(io("watch it"))?;
    session.watch(&mut owned, cancel, &mut alarm, on_output).map_err(io("watch it"))?;
    let Session { supervisor, kept: [stdout, stderr], launcher, quota, .. } = session;
    if launcher.as_ref().is_some_and(|launcher| launcher.said.sandboxed_tree_ended()) {
        owned.exclude_others();
    }
    let mut killed = owned.kill_rest();
    let filled = quota.is_some_and(|quota| quota.is_over_at_end());
    if let Some(launcher) = &launcher
        && launcher.said.status.is_none()
    {
        // The launcher could not clean up, so this process does.
        clear_marked(&spec.marker);
        if let Some(folder) = &launcher.plan.sandbox.blockers {
            clear_abandoned(folder);
        }
    }
    let mut said = launcher.map(|launcher| launcher.said).unwrap_or_default();
    if let Some(containment) = &mut said.containment {
        containment.requested = std::mem::take(&mut said.requested);
    }
    if let Some(refusal) = said.refused {
        return Err(refused(program, refusal));
    }
    if spec.sandbox.launched().is_some()
        && said.containment.is_none()
        && supervisor.reason() == Reason::Exited
    {
        return Err(SpawnError::Sandbox {
            program,
            why: "the launcher ended without a report".to_owned(),
        });
    }
    killed.count += said.killed;
    killed.survivors += said.survivors;
    Ok(Ended {
        containment: said.containment,
        // KILL was sent. If it did not take effect, `survivors` is nonzero.
        status: supervisor.status().unwrap_or(ExitStatus::Signal(Signal::KILL.as_raw())),
        reason: match (supervisor.reason(), said.over) {
            (Reason::Exited, Some(over)) => Reason::Overuse(over),
            // The child wrote too much after the last check.
            (Reason::Exited, None) if filled => Reason::Quota,
            (reason, _) => reason,
        },
        stdout,
        stderr,
        stdout_truncated: supervisor.truncated(Stream::Stdout),
        stderr_truncated: supervisor.truncated(Stream::Stderr),
        started,
        ended: boot_time(),
        killed: killed.count,
        lingered: supervisor.lingered(),
        survivors: killed.survivors,
    })
}

fn command(spec: &ChildSpec, program: &PathBuf) -> Command {
    let mut command = Command::new(program);
    command
        .args(&spec.args)
        .current_dir(&spec.cwd)
        .env_clear()
        .envs(&spec.env)
        .env(MARKER_VARIABLE, &spec.marker)
        .stdin(match spec.stdin {
            Stdin::Null => Stdio::null(),
            Stdin::Bytes(_) => Stdio::piped(),
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    command
}

/// The launcher between this process and a sandboxed program. All messages go through one socket.
struct Launcher {
    command: Command,
    channel: Channel,
    theirs: Option<OwnedFd>,
    plan: LaunchPlan,
    /// The program's end of its standard input. If the input is a pipe, `write` is the other end.
    input: Option<OwnedFd>,
    write: Option<OwnedFd>,
    said: LauncherMessage,
}

/// The reports that the launcher has sent so far.
#[derive(Default)]
struct LauncherMessage {
    containment: Option<AppliedSandbox>,
    refused: Option<LaunchRefusal>,
    status: Option<ExitStatus>,
    killed: usize,
    survivors: usize,
    requested: Vec<RequestedHost>,
    over: Option<Overuse>,
}

impl LauncherMessage {
    /// Returns whether the launcher has reported that no processes remain in a sandboxed tree. A
    /// child with network access may have asked a service on this machine to start a process with
    /// the child's environment variables, so the report is disregarded for such a child.
    fn sandboxed_tree_ended(&self) -> bool {
        let sandboxed =
            |applied: &AppliedSandbox| applied.sandbox != SandboxLevel::Off && !applied.network;
        self.status.is_some()
            && self.survivors == 0
            && self.containment.as_ref().is_some_and(sandboxed)
    }
}

impl Launcher {
    fn new(spec: &ChildSpec, sandbox_start: &SandboxedStart, program: &Path) -> io::Result<Self> {
        let (channel, theirs) = Channel::pair()?;
        let (input, write) = match spec.stdin {
            Stdin::Null => (open_null()?, None),
            Stdin::Bytes(_) => {
                let (read, write) = io::pipe()?;
                (read.into(), Some(write.into()))
            }
        };
        let mut command = Command::new(&sandbox_start.launcher);
        // The launcher must not get its own process group yet: a group leader cannot create a
        // session.
        command
            .arg0("runner")
            .arg("__launch")
            .current_dir("/")
            .env_clear()
            .env(MARKER_VARIABLE, &spec.marker)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(Self {
            command,
            channel,
            theirs: Some(theirs),
            plan: LaunchPlan {
                program: program.to_owned(),
                args: spec.args.clone(),
                cwd: spec.cwd.clone(),
                env: spec.env.clone(),
                marker: spec.marker.clone(),
                sandbox: sandbox_start.sandbox.clone(),
                inside: None,
            },
            input: Some(input),
            write,
            said: LauncherMessage::default(),
        })
    }

    fn spawn(&mut self) -> io::Result<Child> {
        let theirs = self.theirs.take().ok_or(io::ErrorKind::InvalidInput)?;
        let child = self.command.stdin(theirs).spawn();
        // The command keeps the launcher's end of the socket open. Closing it lets this process
        // detect when the launcher exits.
        self.command.stdin(Stdio::null());
        child
    }

    fn send(&mut self) -> io::Result<()> {
        let input = self.input.take().ok_or(io::ErrorKind::InvalidInput)?;
        self.channel.send(&self.plan, &[input.as_fd()])
    }

    /// Receives the launcher's reports. The launcher has already exited, so this function does not
    /// wait.
    fn listen(&mut self) {
        while let Ok(Some((report, _))) = self.channel.receive::<LaunchReport>() {
            match report {
                LaunchReport::Started(containment) => self.said.containment = Some(containment),
                LaunchReport::Refused(refusal) => self.said.refused = Some(refusal),
                LaunchReport::Ended { status, killed, survivors, requested, over } => {
                    self.said.status = Some(status);
                    self.said.killed = killed;
                    self.said.survivors = survivors;
                    self.said.requested = requested;
                    self.said.over = over;
                }
            }
        }
    }
}

fn refused(program: PathBuf, refusal: LaunchRefusal) -> SpawnError {
    match refusal {
        LaunchRefusal::Sandbox(why) => SpawnError::Sandbox { program, why },
        LaunchRefusal::Spawn(number) => spawn_error(program, io::Error::from_raw_os_error(number)),
        LaunchRefusal::Other(why) => SpawnError::Sandbox { program, why },
    }
}

/// Converts a spawn error. The program and the working folder existed shortly before, so `ENOENT`
/// means that something else is missing.
fn spawn_error(program: PathBuf, error: io::Error) -> SpawnError {
    let why = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => "the interpreter or loader that it names does not exist",
        Some(Errno::NOEXEC) => "it is not an executable for this machine and names no interpreter",
        Some(Errno::ACCESS) => "permission denied for it or its interpreter",
        _ => {
            return SpawnError::Io { program, what: "spawn it", source: error };
        }
    };
    SpawnError::NotExecutable { program, why: why.to_owned() }
}

/// An event source that can be ready in one pass of the loop.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadySource {
    Output(Stream),
    Input,
    Cancel,
    Process,
    Alarm,
}

struct Session<'a> {
    supervisor: Supervisor,
    streams: [Option<OwnedFd>; 2],
    kept: [Vec<u8>; 2],
    input: Option<(OwnedFd, &'a [u8])>,
    process: Option<OwnedFd>,
    heard_cancel: bool,
    done: bool,
    chunk: Vec<u8>,
    launcher: Option<Launcher>,
    quota: Option<DiskQuota>,
}

type Observer<'o> = &'o mut dyn FnMut(Stream, &[u8]) -> OutputVerdict;

impl<'a> Session<'a> {
    fn new(
        spec: &'a ChildSpec,
        owned: &mut Owned,
        mut launcher: Option<Launcher>,
        started: Duration,
    ) -> io::Result<Self> {
        let process = pidfd_open(owned.pid(), PidfdFlags::empty())?;
        let child = owned.child();
        let stdout = child.stdout.take().map(OwnedFd::from);
        let stderr = child.stderr.take().map(OwnedFd::from);
        let pipe = match &mut launcher {
            Some(launcher) => launcher.write.take(),
            None => child.stdin.take().map(OwnedFd::from),
        };
        let input = match (&spec.stdin, pipe) {
            (Stdin::Bytes(bytes), Some(pipe)) => Some((pipe, bytes.as_slice())),
            _ => None,
        };
        for pipe in
            [&stdout, &stderr].into_iter().flatten().chain(input.iter().map(|(pipe, _)| pipe))
        {
            ioctl_fionbio(pipe, true)?;
        }
        Ok(Self {
            supervisor: Supervisor::new(spec.limits.clone(), started),
            streams: [stdout, stderr],
            kept: [Vec::new(), Vec::new()],
            input,
            process: Some(process),
            heard_cancel: false,
            done: false,
            chunk: vec![0; CHUNK],
            launcher,
            quota: spec
                .sandbox
                .launched()
                .and_then(|sandbox_start| sandbox_start.sandbox.quota.clone())
                .map(|quota| DiskQuota::new(quota, started)),
        })
    }

    fn watch(
        &mut self,
        owned: &mut Owned,
        cancel: &Cancel,
        alarm: &mut Alarm,
        on_output: Observer<'_>,
    ) -> io::Result<()> {
        while !self.done {
            let check = self.quota.as_ref().map(|quota| quota.next);
            let deadline = self.supervisor.next_deadline();
            alarm.set(deadline.into_iter().chain(check).min())?;
            for ready in self.wait(cancel, alarm) {
                match ready {
                    ReadySource::Output(stream) => {
                        self.read(stream, owned, on_output);
                    }
                    ReadySource::Input => self.write(),
                    ReadySource::Cancel => {
                        self.heard_cancel = true;
                        if cancel.is_at_once() {
                            self.supervisor.hurry(AT_ONCE);
                        }
                        self.send(SupervisorEvent::Cancel, owned);
                    }
                    ReadySource::Process => self.exited(owned, on_output)?,
                    ReadySource::Alarm => {
                        if self.quota.as_mut().is_some_and(DiskQuota::is_over) {
                            self.send(SupervisorEvent::OverQuota, owned);
                        }
                        self.send(SupervisorEvent::Tick, owned);
                    }
                }
            }
        }
        Ok(())
    }

    /// Waits for event sources and returns those that are ready. Output precedes the exit, so that
    /// a child's last output is never lost. The alarm is last, so that every event that arrived in
    /// time is handled before the deadline.
    fn wait(&self, cancel: &Cancel, alarm: &Alarm) -> Vec<ReadySource> {
        let mut sources = Vec::with_capacity(6);
        for stream in [Stream::Stdout, Stream::Stderr] {
            if let Some(pipe) = &self.streams[stream as usize] {
                sources.push((ReadySource::Output(stream), pipe.as_fd(), PollFlags::IN));
            }
        }
        if let Some((pipe, _)) = &self.input {
            sources.push((ReadySource::Input, pipe.as_fd(), PollFlags::OUT));
        }
        if let Some(process) = &self.process {
            sources.push((ReadySource::Process, process.as_fd(), PollFlags::IN));
        }
        if !self.heard_cancel {
            sources.push((ReadySource::Cancel, cancel.as_fd(), PollFlags::IN));
        }
        sources.push((ReadySource::Alarm, alarm.as_fd(), PollFlags::IN));
        let mut fds: Vec<PollFd<'_>> =
            sources.iter().map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        poll_within(&mut fds, None);
        let ready = sources.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        ready.map(|((ready, ..), _)| *ready).collect()
    }

    fn send(&mut self, event: SupervisorEvent, owned: &mut Owned) {
        for effect in self.supervisor.handle(event, boot_time()) {
            match effect {
                SupervisorEffect::Terminate => owned.terminate(),
                // The launcher kills the tree and reports the number of processes. At the end,
                // runner kills and reaps any processes that remain.
                SupervisorEffect::Kill => match &self.launcher {
                    Some(launcher) => launcher.channel.hang_up(),
                    None => owned.kill_all(),
                },
                SupervisorEffect::Finish => self.done = true,
            }
        }
    }

    /// Reads once from a stream and returns the number of bytes read.
    fn read(&mut self, stream: Stream, owned: &mut Owned, on_output: Observer<'_>) -> usize {
        let Some(pipe) = &self.streams[stream as usize] else {
            return 0;
        };
        let count = match rustix::io::read(pipe, &mut self.chunk[..]) {
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => return 0,
            // Reading from a pipe cannot fail in any other way. An unreadable stream is treated as
            // ended.
            Err(_) => 0,
        };
        if count == 0 {
            self.streams[stream as usize] = None;
            self.send(SupervisorEvent::Closed(stream), owned);
            return 0;
        }
        let kept = &self.chunk[..count.min(self.supervisor.room(stream))];
        self.kept[stream as usize].extend_from_slice(kept);
        let verdict =
            if kept.is_empty() { OutputVerdict::Continue } else { on_output(stream, kept) };
        self.send(SupervisorEvent::Output { stream, bytes: count }, owned);
        if verdict == OutputVerdict::ResultSeen {
            self.send(SupervisorEvent::Result, owned);
        }
        count
    }

    /// Writes as much of the input as the pipe accepts. A child that does not read all of its input
    /// causes no error.
    fn write(&mut self) {
        let Some((pipe, bytes)) = &mut self.input else {
            return;
        };
        let written = match rustix::io::write(&*pipe, bytes) {
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(_) => bytes.len(),
            Ok(written) => written,
        };
        *bytes = &bytes[written..];
        if bytes.is_empty() {
            self.input = None;
        }
    }

    /// Handles the child's exit. The bytes in the pipes at that time include everything that the
    /// child itself wrote.
    fn exited(&mut self, owned: &mut Owned, on_output: Observer<'_>) -> io::Result<()> {
        let Some(status) = owned.status()? else {
            return Ok(());
        };
        let mut status = status;
        if let Some(launcher) = &mut self.launcher {
            launcher.listen();
            status = launcher.said.status.unwrap_or(status);
        }
        self.process = None;
        self.input = None;
        for stream in [Stream::Stdout, Stream::Stderr] {
            let waiting = self.streams[stream as usize].as_ref().map(ioctl_fionread);
            let mut left = waiting.and_then(Result::ok).unwrap_or(0);
            while left > 0 {
                let count = self.read(stream, owned, on_output) as u64;
                if count == 0 {
                    break;
                }
                left = left.saturating_sub(count);
            }
        }
        self.send(SupervisorEvent::Exited(status), owned);
        Ok(())
    }
}
