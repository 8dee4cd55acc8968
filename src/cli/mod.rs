//! The terminal interface: the command line, the output of results, the format of errors, and the
//! log of a run. This module must never depend on what a command does.

pub mod alerts;
pub mod args;
pub mod corpus;
pub mod curator;
pub mod dream;
mod failure;
pub mod journal;
mod keys;
pub mod lifecycle;
pub mod listing;
pub mod log;
pub mod overnight;
pub mod pages;
pub mod progress;
pub mod replay;
pub mod report;
pub mod safe;
pub mod screen;
pub mod show;
mod ui;
pub mod when;

pub use failure::{Failure, aside};
pub use ui::Ui;

#[cfg(test)]
mod docs_tests;
