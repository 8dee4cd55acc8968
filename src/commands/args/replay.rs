//! The flags of `runner replay`.

use std::path::PathBuf;

use super::Listing;

/// The arguments of `runner replay`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "What the run read and the answers it received are taken from its recording: no model is asked, no \
                  program is started, and the project need not exist any more. Exit code 0: every artifact \
                  is byte for byte the same; 1: something differs, and where; 65: there is no complete recording.\n\
                  \n\
                  Example: runner replay 01K5 && runner replay 01K5 --export tests/night.jsonl"
)]
pub struct ReplayArgs {
    /// The run, by its id or the beginning of it, or the file of a recording
    #[arg(value_name = "RUN")]
    pub run: String,
    /// Write the results to this folder, which must not exist
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// Write the recording to this file, which must not exist, and replay nothing
    #[arg(long, value_name = "FILE", conflicts_with = "into")]
    pub export: Option<PathBuf>,
    /// The output format
    #[command(flatten)]
    pub listing: Listing,
}
