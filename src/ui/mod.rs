//! The terminal interface: the output of results, the format of errors, and the log of a run. This
//! module must never depend on a command.

mod failure;
mod keys;
pub mod log;
pub mod progress;
pub mod safe;
pub mod screen;
pub mod show;
mod view;
pub mod when;

pub use failure::{Failure, aside};
pub use view::{Ui, View};
