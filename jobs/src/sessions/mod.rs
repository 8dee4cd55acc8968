//! What coding agents leave of their sessions, read and never changed.
//!
//! Must never believe a session: its words are data with a place, never instructions.

pub mod transcript;
