//! `runner report`: its flags.

use clap::Args;

/// Which night, and in which form.
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
    /// Open the page with the program that this host opens pages with
    #[arg(long)]
    pub open: bool,
    /// Print the page: one file, with nothing beside it
    #[arg(long)]
    pub html: bool,
    /// Print markdown (the default)
    #[arg(long)]
    pub md: bool,
    /// Print JSON on standard output
    #[arg(long)]
    pub json: bool,
}
