//! Every way in which an agent program can misbehave, through the built program, behind the real
//! sandbox: each ends in exactly one right outcome, with nobody left alive, nothing written where it may
//! not be, no secret in any place, and no silent success.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

// Shared with another suite, which uses more of it.
#[allow(unused)]
#[path = "../cli/fixture.rs"]
mod fixture;

mod behaviours;
mod injections;
mod payloads;
mod settings;
mod table;
mod testbed;
