//! Tests every way in which an agent program can misbehave, through the built program and in the
//! real sandbox. Each ends in exactly one correct outcome, with no surviving process, no forbidden
//! write, no exposed secret and no silent success.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

// This file is shared with another suite, which uses more of it.
#[allow(unused)]
#[path = "../cli/fixture.rs"]
mod fixture;

mod behaviours;
mod injections;
mod payloads;
mod settings;
mod table;
mod testbed;
