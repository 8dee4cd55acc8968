//! `runner memory model`: builds a static embedding model from a sentence model, and shows it.
//!
//! The commands must never open the memory store: no stored data depends on the model.

use std::path::PathBuf;

use runner_engine::outcome::Exit;
use runner_memory::model::{ModelError, Summary, Table};

use crate::commands::Cli;
use crate::ui::{Failure, Ui, View, show};

/// Build a static embedding model from a sentence model, or show it
///
/// The model has one vector for each piece of a word. No other command uses the model, because it
/// did not help in the measured cases. The guide to memory has the figures.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner memory model show")]
pub struct ModelArgs {
    #[command(subcommand)]
    command: ModelCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ModelCommand {
    /// Build the model from a folder with model.safetensors, config.json and vocab.txt
    ///
    /// The sentence model must have the BERT architecture, like all-MiniLM-L6-v2. The command requires a runner built
    /// with the feature `minilm`, and takes a minute or two.
    #[command(after_help = "Example: runner memory model build ~/models/all-MiniLM-L6-v2")]
    Build {
        /// The folder of the sentence model
        folder: PathBuf,
    },
    /// Check the model and show its size
    #[command(after_help = "Example: runner memory model show --json | jq .digest")]
    Show,
}

impl View for Summary {
    fn print(&self, _: Ui) {
        let Self { path, bytes, pieces, dimensions, digest } = self;
        show::out(&format!(
            "{}\n  {pieces} pieces of words, {dimensions} dimensions, {}\n  SHA-256 {digest}\n",
            path.display(),
            format_args!("{:.1} MB", *bytes as f64 / 1e6)
        ));
    }
}

impl ModelArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let path = cli.env.store_path().with_file_name("static.model");
        match &self.command {
            ModelCommand::Build { folder } => build(cli, folder, &path)?,
            ModelCommand::Show => {}
        }
        cli.ui.show(&Table::check(&path).map_err(Failure::from)?);
        Ok(Exit::Done)
    }
}

#[cfg(feature = "minilm")]
fn build(cli: &Cli<'_>, folder: &std::path::Path, to: &std::path::Path) -> Result<(), Failure> {
    use runner_jobs::Progress as _;
    let mut steps = crate::ui::progress::Steps::new("model", cli.ui, cli.verbose);
    if let Some(parent) = to.parent() {
        std::fs::create_dir_all(parent).map_err(|error| Failure::not_made(parent, error))?;
    }
    let mut step = |done: usize, all: usize| steps.step("pieces", done as u64, all as u64);
    runner_memory::model::distil::distil(&cli.env.here.join(folder), to, &mut step)?;
    Ok(())
}

#[cfg(not(feature = "minilm"))]
fn build(_: &Cli<'_>, _: &std::path::Path, _: &std::path::Path) -> Result<(), Failure> {
    Err(Failure::environment("this runner was built without the feature minilm")
        .hint("cargo install --path . --features minilm"))
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        let failure = match &error {
            ModelError::Io { .. } => Self::environment(error.to_string()),
            ModelError::Malformed { .. } => Self::data(error.to_string()),
        };
        failure.hint("runner memory model build FOLDER")
    }
}
