//! `runner __launch`: the process between a run and its program.
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
//! The launcher receives everything through the socket that is its standard input, so nothing is in
//! an argument or an environment that others can read or set. It stays the program's parent, adopts
//! processes that lose their own parent, and kills the whole tree when the program ends or when the
//! socket is closed: even if runner dies by KILL, no process is left behind. It passes on the
//! program's standard input, output and error unchanged and copies nothing.
//!
//! The launcher must never read a configuration, a home or a database, never print, and never start
//! the program with a weaker sandbox than the plan requires.

mod cgroup;
mod channel;
mod init;
mod limits;
mod plan;
mod signals;
mod supervisor;

use std::os::fd::AsFd;

pub use cgroup::clear_marked;
pub(crate) use channel::Channel;
pub(crate) use plan::{LaunchPlan, LaunchRefusal, LaunchReport};

/// Carries out the plan from standard input; returns the exit code of the program, or 128 and its
/// signal.
pub fn launch(socket: impl AsFd) -> i32 {
    // The program must not get any inherited descriptor besides the three standard streams.
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

/// Exit code of the launcher if nothing was started.
const BROKEN: i32 = 70;
