//! The full-screen application for `runner top` and `runner dream review`: its state, keys and
//! rendering.
//!
//! ```text
//! commands/top ──texts of the commands──> App ──draw──> Screen
//!      ^                                   │ update(key)
//!      └────────────── Request ────────────┘
//! ```
//!
//! The commands read all data and carry out all requests. This module must never read a file or the
//! database, and must never format a fact that a command already formats.

pub mod app;
pub mod paint;
pub mod proposals;
mod rows;
pub mod terminal;
mod viewer;

pub use app::{Action, App, Request, RunsView, Tab};
pub use viewer::Viewer;
