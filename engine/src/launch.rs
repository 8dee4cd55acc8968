//! `runner __launch`: the process between a run and its program.
//!
//! ```text
//! runner ──socket: plan, standard input──> __launch (warden)
//!    ^                                        │ session, limits, control group, subreaper
//!    └──socket: started, ended <──────────────┤
//!         end of file = runner is gone        ├─ Landlock alone: a restricted thread starts the program
//!                                             └─ bubblewrap ──> __launch (first process inside)
//!                                                                  └─ a restricted thread starts it
//! ```
//!
//! It is told everything through the socket that is its standard input, so nothing stands in an
//! argument or an environment that others can read or set. It stays the program's parent, adopts
//! what loses its own, and kills the whole tree when the program has ended or when the socket does:
//! the death of runner, even by KILL, leaves nobody behind. It hands the program's standard
//! input, output and error on as they are and copies nothing.
//!
//! Must never read a configuration, a home or a database, never print, and never start the program
//! behind less than the plan asks for.

mod cgroup;
mod channel;
mod init;
mod limits;
mod plan;
mod supervisor;

use std::os::fd::AsFd;

pub use cgroup::clear_marked;
pub(crate) use channel::Channel;
pub(crate) use plan::{LaunchPlan, LaunchRefusal, LaunchReport};

/// Does what the plan on standard input says; the exit code of the program, or 128 and its signal.
pub fn launch(socket: impl AsFd) -> i32 {
    // Whatever was inherited besides the three is not for the program.
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

/// What the launcher ends with when nothing was started.
const BROKEN: i32 = 70;
