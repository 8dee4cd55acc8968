//! The lifecycle: what a project's agents do in turn, and the entry that each night's sleep leaves
//! (contracts/lifecycle.md).

pub mod board;
pub mod cycle;
pub mod entry;
pub mod newest;
pub mod orient;
pub mod position;
pub mod spec;
pub mod step;
pub mod work;

/// The board that a project has when it names none of its own.
pub const BOARD: &str = "plan.org";

/// The work of a state that dreams.
fn dream(
    _ctx: &mut crate::Context<'_>,
    _spec: &cycle::CycleSpec,
) -> Result<crate::Finished, crate::JobError> {
    unimplemented!()
}
