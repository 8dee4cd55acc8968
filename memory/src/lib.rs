//! Stores and searches knowledge nodes that outlive a coding session, and exchanges them with
//! sessions through hooks.
//!
//! This crate must never read the environment, print, start a process or call a model. The caller
//! passes the current time. The text of nodes is data and must never be executed. Only the
//! `<ctx:…>` elements in an assistant's answers are commands.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests read only files that they wrote")
)]

pub mod apply;
pub mod compose;
pub mod element;
pub mod error;
pub mod exchange;
pub mod folders;
pub mod hooks;
pub mod model;
pub mod node;
pub mod query;
pub mod rank;
pub mod session;
pub mod store;

pub use error::MemoryError;
pub use node::{EdgeType, Node, NodeType, Scope, Tier};
pub use store::Memory;
