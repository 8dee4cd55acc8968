//! The sessions that coding agents leave behind, read and never changed.
//!
//! A session is never trusted: its text is data with a position in a file, never an instruction.

pub mod transcript;
