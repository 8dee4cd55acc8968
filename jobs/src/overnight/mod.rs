//! The overnight run: a corpus that improves itself by night, measured, and packets for the morning.
//!
//! ```text
//! run.lock ──> recovery ──> loop { INGEST ─> REDUCE ─> MEASURE ─> COMMIT } ──> brief ─> council ─> packets ─> beads
//! ```
//!
//! [`corpus`] is what a project has learned and the pure steps on it; `iterate` the loop and `iteration` one
//! round of it on a staged copy; [`commit`] how a copy becomes the corpus, whole for every reader that honours the marker;
//! [`night`] the run around it; [`packets`] what to begin with; [`schema`] the form of every artifact.
//! Must never change source code, write to git, make a link, or change the corpus but by a commit.

pub mod commit;
pub mod corpus;
pub mod council;
pub mod facts;
pub mod halt;
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

/// Whether a failed run that was lost is tried once more: nothing of a night is done twice, for what was
/// committed is noted.
pub const KIND: &str = "overnight";

/// Describes what a night would do now, and writes nothing.
pub fn plan(ctx: &crate::Context<'_>, spec: &OvernightSpec) -> Vec<String> {
    let now = preview::NightPreview {
        root: ctx.root,
        git: &ctx.git,
        spec,
        now: ctx.now,
        run_id: ctx.admitted.run().as_str(),
    };
    match preview::preview(&now) {
        Ok(summary) => preview::describe(&summary),
        Err(error) => vec![format!("the corpus cannot be read: {error}")],
    }
}

#[cfg(test)]
mod tests;
