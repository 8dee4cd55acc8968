//! The flag of every command that prints a result.

/// Selects the format in which a result is printed.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Listing {
    /// Print JSON on standard output
    #[arg(long)]
    pub json: bool,
}
