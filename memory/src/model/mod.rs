//! Static embeddings: each piece of a word has a vector, and the vector of a string is the sum of
//! the vectors of its pieces.
//!
//! ```text
//! model.safetensors, vocab.txt ──distil──> one file ──table──> vectors of texts
//! ```
//!
//! A [`Table`] is one file of about 8 MB. Unless [`Table::load`] is called, only its vocabulary is
//! held in memory. The rows for a string are then read by position, so embedding a string takes a
//! fraction of a millisecond. The file is data of unknown origin: reading it must never panic. This
//! module must never run a model in another process, and must never decide whether a node is
//! relevant.

#[cfg(feature = "minilm")]
pub mod distil;
#[cfg(feature = "minilm")]
mod encoder;
#[cfg(feature = "minilm")]
mod safetensors;
mod table;
mod vector;
mod wordpiece;

pub use table::{Summary, Table};
pub use vector::Vector;

use std::io;
use std::path::PathBuf;

/// The number of dimensions of a vector.
pub const DIMENSIONS: usize = 256;

/// A model error.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A file of the model cannot be read or written.
    #[error("cannot use {}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The content of a file is not as expected.
    #[error("{} is not a model: {why}", .path.display())]
    Malformed { path: PathBuf, why: String },
}
