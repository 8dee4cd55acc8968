//! Implements `runner __launch`, the process between a run and its program.
//!
//! ```text
//! runner ──socket: plan, standard input──> __launch (supervisor)
//!    ^                                        │ session, limits, control group, subreaper
//!    └──socket: started, ended <──────────────┤
//!         end of file = runner is gone        ├─ Landlock alone: a restricted thread starts the program
//!                                             └─ bubblewrap ──> __launch (first process inside)
//!                                                                  └─ a restricted thread starts it
//! ```
//!
//! The launcher receives all input through the socket that is its standard input, so that no data
//! appears in arguments or environment variables that other processes can read or set. It remains
//! the program's parent, adopts orphaned processes, and kills the whole tree when the program exits
//! or the socket is closed. No process is left behind, even if runner itself is killed. The
//! program's standard input, output and error are passed on directly, so the launcher does not copy
//! their data.
//!
//! The launcher must never read a configuration, a home folder or a database, never print, and
//! never start the program with a weaker sandbox than the plan requires.

mod cgroup;
mod channel;
mod clone_into;
mod init;
mod limits;
mod monitor;
mod plan;
mod proxy;
mod signals;
mod supervisor;
mod view;

use std::os::fd::AsFd;

pub use cgroup::clear_marked;
pub(crate) use channel::Channel;
pub(crate) use plan::{LaunchPlan, LaunchRefusal, LaunchReport};

/// Executes the plan received through the socket. Returns the program's exit code, or 128 plus the
/// number of the signal that terminated the program. Returns 70 if no program was started, or if
/// the supervisor exits before the first process inside the mount view.
pub fn launch(socket: impl AsFd) -> i32 {
    // The program must not inherit any descriptors except the three standard streams.
    close_fds::set_fds_cloexec(3, &[]);
    let Ok(channel) = socket.as_fd().try_clone_to_owned() else {
        return BROKEN;
    };
    let channel = Channel::new(channel);
    let Ok(Some((plan, streams))) = channel.receive::<LaunchPlan>() else {
        return BROKEN;
    };
    if plan.inside.is_some() {
        init::attend(&channel, &plan, streams)
    } else {
        supervisor::attend(&channel, &plan, streams)
    }
}

/// The launcher's exit code if it cannot return the program's.
const BROKEN: i32 = 70;
