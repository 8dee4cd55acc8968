//! The flags of `runner report`.

use clap::Args;

/// Selects the night and the output format.
#[derive(Clone, Debug, Default, Args)]
pub struct ReportArgs {
    /// The night's name [default: the last one]
    #[arg(long, value_name = "DATE")]
    pub night: Option<String>,
    #[command(flatten)]
    pub form: ReportFormat,
}

/// The output format, which is markdown by default.
#[derive(Clone, Copy, Debug, Default, Args)]
#[group(multiple = false)]
pub struct ReportFormat {
    /// Open the page with the host's default program for pages
    #[arg(long)]
    pub open: bool,
    /// Print the page as one self-contained file
    #[arg(long)]
    pub html: bool,
    /// Print markdown (the default)
    #[arg(long)]
    pub md: bool,
    /// Print JSON on standard output
    #[arg(long)]
    pub json: bool,
}
