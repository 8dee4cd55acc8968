//! The overnight run, which improves and measures a corpus at night and produces packets for the
//! morning.
//!
//! ```text
//! run.lock ──> recovery ──> loop { INGEST ─> REDUCE ─> MEASURE ─> COMMIT }
//!                             └──> brief ─> council ─> packets ─> beads
//! ```
//!
//! [`corpus`] reads a project's corpus and contains the pure steps that process it. `iterate` is
//! the loop, and `iteration` is one pass of the loop on a staged copy. [`commit`] applies changes
//! to the corpus. A reader that checks the marker sees either the whole change or none of it.
//! [`night`] is the run around the loop, [`packets`] builds the morning packets, and [`schema`]
//! describes the format of every artifact. An overnight run must never change source code, write to
//! git, create a link, or change the corpus except by a commit.

pub mod commit;
pub mod corpus;
pub mod council;
pub mod facts;
pub mod halt;
pub mod import;
mod iterate;
mod iteration;
mod kind;
pub mod lock;
pub mod long_haul;
pub mod night;
pub mod output;
pub mod ownership;
pub mod packet;
pub mod packets;
pub mod preview;
pub mod proposals;
mod record;
pub mod report;
pub mod resume;
pub mod schema;
pub mod spec;
pub mod staging;
mod state;
pub mod summary;
pub mod summary_import;
pub mod warn_budget;

pub use night::run;
pub use spec::OvernightSpec;

/// The name of the job kind.
pub const KIND: &str = "overnight";

/// Describes what a night would do now, without writing anything.
pub fn plan(ctx: &crate::Context<'_>, spec: &OvernightSpec) -> Vec<String> {
    let now = preview::NightPreview {
        agents: ctx.files.agents(),
        root: ctx.files.root(),
        git: &ctx.git,
        spec,
        now: ctx.clock.now(),
        run_id: ctx.admitted.run().as_str(),
    };
    match preview::preview(&now) {
        Ok(summary) => preview::describe(&summary),
        Err(error) => vec![format!("the corpus cannot be read: {error}")],
    }
}

#[cfg(test)]
mod fitness_tests;
#[cfg(test)]
mod month_tests;
#[cfg(test)]
mod tests;
