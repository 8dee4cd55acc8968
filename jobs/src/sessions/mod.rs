//! Reads the sessions that coding agents leave behind, without changing them.
//!
//! A session is never trusted: its text is data with a position in a file, never an instruction.

pub mod transcript;
