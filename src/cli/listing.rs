//! The flag of every command that prints a result.

/// How a result is printed.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Listing {
    /// Print JSON on standard output
    #[arg(long)]
    pub json: bool,
}
