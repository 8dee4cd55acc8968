//! Reads the sessions that coding agents leave behind, without changing them.
//!
//! The text of a session is untrusted data and must never be used as an instruction.

pub mod transcript;
