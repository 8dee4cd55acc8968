//! Restricts and starts the program, and implements the first process inside a mount view.
//!
//! A thread applies Landlock, drops all capabilities, installs the system call filter, starts the
//! program and exits. The program inherits the thread's restrictions. The rest of this process is
//! not restricted, so that it can wait for the program.
//!
//! ```text
//! plan ──check paths──> thread: Landlock, capabilities, seccomp, spawn ──> started
//!                                         orders: signal   CHLD: reap  ──> ended
//! ```

use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, WaitStatus, kill_process_group,
    set_dumpable_behavior, wait as wait_any,
};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};
use signal_hook::consts::SIGCHLD;

use super::channel::Channel;
use super::plan::{LaunchOrder, LaunchPlan, LaunchRefusal, LaunchReport};
use super::signals::Signals;
use crate::process::{ExitStatus, MARKER_VARIABLE, tree, wait};
use crate::sandbox::resolve::{ResolvedSandbox, unchanged};
use crate::sandbox::{
    AppliedSandbox, SandboxError, SandboxLevel, SandboxMechanism, TreeControl, landlock, syscalls,
};

/// The environment variables that pass a program the address of its proxy.
const PROXY_VARIABLES: [&str; 6] =
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

/// The standard input, output and error of the program.
pub(super) type Streams = [OwnedFd; 3];

/// Starts the program with the remaining parts of the sandbox, waits for it, and returns this
/// process's exit code. When this process exits, the kernel kills all other processes in its PID
/// namespace.
pub(super) fn attend(channel: &Channel, plan: &LaunchPlan, streams: Vec<OwnedFd>) -> i32 {
    let (Some(inside), Ok(streams)) = (&plan.inside, Streams::try_from(streams)) else {
        return super::BROKEN;
    };
    let refuse = |refusal: LaunchRefusal| {
        let _ = channel.send(&LaunchReport::Refused(refusal), &[]);
        super::BROKEN
    };
    let Ok(mut signals) = Signals::catch(&[SIGCHLD]) else {
        return refuse(LaunchRefusal::Other("cannot catch signals".to_owned()));
    };
    // The program runs as the same user, so it must be kept from accessing this process's memory
    // and descriptors.
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        return refuse(LaunchRefusal::at("protect this process from other processes", error));
    }
    let seen = inside.real.write.iter().chain(&inside.real.keep);
    if let Some(place) = seen.into_iter().find(|place| !unchanged(place)) {
        return refuse(LaunchRefusal::Sandbox(format!(
            "{} was replaced while the sandbox was set up",
            place.path.display()
        )));
    }
    let proxy = match plan.sandbox.hosts.as_slice() {
        [] => None,
        _ => match TcpListener::bind((Ipv4Addr::LOCALHOST, 0)) {
            Ok(listener) => Some(listener),
            Err(error) => return refuse(LaunchRefusal::at("create a socket for the proxy", error)),
        },
    };
    let port = proxy.as_ref().and_then(|it| it.local_addr().ok()).map(|address| address.port());
    let (child, made_of) = match start(plan, &inside.real, SandboxLevel::Full, &streams, port) {
        Ok(started) => started,
        Err(refusal) => return refuse(refusal),
    };
    drop(streams);
    let started = AppliedSandbox {
        tree: TreeControl::Namespace,
        sandbox: SandboxLevel::Full,
        made_of,
        network: plan.sandbox.network,
        hosts: plan.sandbox.hosts.clone(),
        requested: Vec::new(),
        limits: Vec::new(),
    };
    let main = child.id();
    let with: Vec<_> = proxy.iter().map(AsFd::as_fd).collect();
    if channel.send(&LaunchReport::Started(started), &with).is_err() {
        return super::BROKEN;
    }
    drop(proxy);
    loop {
        if let Some(status) = reap(main) {
            let others = tree::others_alive();
            let ended = LaunchReport::Ended {
                status,
                killed: others,
                survivors: 0,
                requested: Vec::new(),
                over: None,
            };
            let _ = channel.send(&ended, &[]);
            return code(status);
        }
        let mut fds = [PollFd::new(channel, PollFlags::IN), PollFd::new(&signals, PollFlags::IN)];
        wait::poll_within(&mut fds, None);
        let reported = !fds[0].revents().is_empty();
        signals.take();
        if reported {
            match channel.receive::<LaunchOrder>() {
                Ok(Some((LaunchOrder::Signal(signal), _))) => signal_group(main, signal),
                // The supervisor has exited. When this process exits too, all processes in the
                // namespace are killed.
                _ => return super::BROKEN,
            }
        }
    }
}

/// Starts the program under the parts of this sandbox level that apply to a thread: Landlock and
/// seccomp, or nothing if the level is `Off`. `proxy` is the port of the proxy through which the
/// program reaches its hosts. Returns the child and the names of the sandbox mechanisms.
pub(super) fn start(
    plan: &LaunchPlan,
    real: &ResolvedSandbox,
    level: SandboxLevel,
    streams: &Streams,
    proxy: Option<u16>,
) -> Result<(Child, Vec<String>), LaunchRefusal> {
    let copy = |at: usize| -> Result<Stdio, LaunchRefusal> {
        let copy = streams[at].as_fd().try_clone_to_owned();
        copy.map(Stdio::from).map_err(|error| LaunchRefusal::at("copy a stream", error))
    };
    let mut command = Command::new(&plan.program);
    command
        .args(&plan.args)
        .current_dir(&plan.cwd)
        .env_clear()
        .envs(&plan.env)
        .env(MARKER_VARIABLE, &plan.marker)
        .stdin(copy(0)?)
        .stdout(copy(1)?)
        .stderr(copy(2)?)
        .process_group(0);
    if let Some(temp) = &plan.sandbox.temp {
        command.env("TMPDIR", temp);
    }
    if let Some(port) = proxy {
        let address = format!("http://127.0.0.1:{port}");
        command.envs(PROXY_VARIABLES.map(|name| (name, address.as_str())));
        command.envs(["NO_PROXY", "no_proxy"].map(|name| (name, "localhost,127.0.0.1,::1")));
    }
    let work = || {
        let made_of = match level {
            SandboxLevel::Off => Vec::new(),
            level => restrict(plan, real, level)?,
        };
        let child = command.spawn().map_err(|error| LaunchRefusal::of_spawn(&error))?;
        Ok((child, made_of))
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(work);
        thread.join().unwrap_or_else(|_| {
            Err(LaunchRefusal::Other("the thread that starts the program panicked".to_owned()))
        })
    })
}

/// Restricts this thread permanently, and returns the names of the sandbox mechanisms.
fn restrict(
    plan: &LaunchPlan,
    real: &ResolvedSandbox,
    level: SandboxLevel,
) -> Result<Vec<String>, LaunchRefusal> {
    let held = level == SandboxLevel::Full;
    set_no_new_privs(true).map_err(|error| LaunchRefusal::at("disable new privileges", error))?;
    let mut made_of = Vec::new();
    let usable = plan.sandbox.means != SandboxMechanism::Bubblewrap && landlock::is_there();
    if usable {
        let wanted = landlock::LandlockRules { real, network: plan.sandbox.has_sockets(), held };
        made_of.push(format!("landlock {}", landlock::restrict(&wanted)?));
    } else if !held {
        return Err(SandboxError::Nothing {
            why: "neither Landlock with ABI 3 or later nor a working bubblewrap is available"
                .to_owned(),
        }
        .into());
    }
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, none)
        .map_err(|error| LaunchRefusal::at("drop the capabilities", error))?;
    syscalls::refuse(syscalls::SyscallRules {
        network: plan.sandbox.has_sockets(),
        sockets: held,
        processes: true,
    })?;
    made_of.push("seccomp".to_owned());
    Ok(made_of)
}

/// Reaps all exited children, and returns the exit status of `main` if it has exited.
pub(super) fn reap(main: u32) -> Option<ExitStatus> {
    let mut found = None;
    loop {
        match wait_any(WaitOptions::NOHANG) {
            Ok(Some((pid, ended))) => {
                if pid.as_raw_nonzero().get().unsigned_abs() == main {
                    found = how(ended);
                }
            }
            Err(Errno::INTR) => {}
            Ok(None) | Err(_) => return found,
        }
    }
}

fn how(ended: WaitStatus) -> Option<ExitStatus> {
    match (ended.exit_status(), ended.terminating_signal()) {
        (Some(code), _) => Some(ExitStatus::Exit(code)),
        (None, Some(signal)) => Some(ExitStatus::Signal(signal)),
        (None, None) => None,
    }
}

/// Sends a signal to the program's process group.
pub(super) fn signal_group(main: u32, signal: i32) {
    let group = i32::try_from(main).ok().and_then(Pid::from_raw);
    if let (Some(group), Some(signal)) = (group, Signal::from_named_raw(signal)) {
        let _ = kill_process_group(group, signal);
    }
}

/// Returns the exit code, or 128 plus the number of the signal.
pub(super) fn code(status: ExitStatus) -> i32 {
    match status {
        ExitStatus::Exit(code) => code,
        ExitStatus::Signal(signal) => 128 + signal,
    }
}
