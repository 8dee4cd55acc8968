//! Tests misbehaving agents in the real sandbox. Each run must end with one correct outcome, and
//! without surviving processes, forbidden writes or exposed secrets.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

// This suite uses only a part of the shared fixture.
#[allow(unused)]
#[path = "../cli/fixture.rs"]
mod fixture;
#[allow(unused)]
#[path = "../cli/served.rs"]
mod served;

mod behaviours;
mod injections;
mod limits;
mod metering;
mod nights;
mod payloads;
mod settings;
mod table;
mod testbed;
#[path = "../sandbox/ways.rs"]
mod ways;
