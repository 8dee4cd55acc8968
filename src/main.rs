//! `runner`, the night shift for coding agents. [`entry`] runs the program.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests read the files that they create")
)]

mod alerts;
mod budget;
mod cancel;
mod commands;
mod config;
mod cycles;
mod daemon;
mod doctor;
mod entry;
mod env;
mod filesystem;
mod fleet;
mod follow;
mod guard;
mod hooks;
mod keyring;
mod maintenance;
mod metrics;
#[cfg(feature = "otel")]
mod otel;
mod project;
mod sessions;
mod setup;
mod socket;
mod spawn;
mod tick;
mod tick_record;
mod tui;
mod ui;
mod wait;
mod web;

fn main() -> std::process::ExitCode {
    entry::run()
}
