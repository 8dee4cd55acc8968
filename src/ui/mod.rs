//! The terminal interface: output, keys, errors, and run logs. This module must never depend on a
//! command.

mod capture;
mod failure;
pub mod key_reader;
pub mod keys;
pub mod log;
pub mod progress;
pub mod safe;
pub mod show;
mod view;
pub mod when;
mod words;

pub use capture::{CalledCommand, Captured, capture};
pub use failure::{Failure, aside};
pub use view::{Ui, View};
pub use words::contract_words;
