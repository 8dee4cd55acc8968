//! Creates a static model from a sentence model: encodes each piece of its vocabulary separately,
//! and reduces the vectors to the directions in which they differ most.
//!
//! Frequent pieces are given less weight (smooth inverse frequency). The frequency is estimated
//! from the position in the vocabulary, which is sorted by frequency.

use std::path::Path;

use nalgebra::{DMatrix, SymmetricEigen};
use runner_engine::files::{RECORD, read_host, read_text_host, write_atomic};
use serde::Deserialize;

use super::encoder::Encoder;
use super::safetensors::Tensors;
use super::{DIMENSIONS, ModelError, table};

/// Maximum size of the weights file in bytes.
const WEIGHTS: u64 = 1 << 30;
/// The number of pieces to encode at once.
const BATCH: usize = 64;
/// The relative frequency at which a piece has half the weight.
const RARE: f32 = 1e-4;

#[derive(Deserialize)]
struct Config {
    num_hidden_layers: usize,
    num_attention_heads: usize,
}

/// Creates a static model from the files `model.safetensors`, `config.json` and `vocab.txt` of a
/// sentence model, and writes it to `to`, whose folder must exist. `step` receives the number of
/// pieces encoded so far and the total number of pieces.
///
/// # Errors
/// Returns an error if a file cannot be read or written, or if its content is not as expected. The
/// model must have the BERT architecture, at least 256 dimensions and more than 256 pieces.
pub fn distil(
    folder: &Path,
    to: &Path,
    step: &mut dyn FnMut(usize, usize),
) -> Result<(), ModelError> {
    let named = |name: &str| folder.join(name);
    let io = |name: &str| {
        let path = named(name);
        move |source| ModelError::Io { path, source }
    };
    let bad = |name: &str| {
        let path = named(name);
        move |why| ModelError::Malformed { path, why }
    };
    let (weights, config, vocab) = ("model.safetensors", "config.json", "vocab.txt");
    let text = read_text_host(named(config), RECORD).map_err(io(config))?;
    let settings: Config =
        serde_json::from_str(&text).map_err(|error| bad(config)(error.to_string()))?;
    let names = read_text_host(named(vocab), RECORD).map_err(io(vocab))?;
    let bytes = read_host(named(weights), WEIGHTS).map_err(io(weights))?;
    let tensors = Tensors::of(&bytes).map_err(bad(weights))?;
    let Config { num_hidden_layers: layers, num_attention_heads: heads } = settings;
    let encoder = Encoder::of(&tensors, layers, heads).map_err(bad(weights))?;
    let names: Vec<&str> = names.lines().collect();
    let place = |wanted| names.iter().position(|name| *name == wanted);
    let (Some(start), Some(end)) = (place("[CLS]"), place("[SEP]")) else {
        return Err(bad(vocab)("it does not contain both [CLS] and [SEP]".to_owned()));
    };
    if names.len() > encoder.vocabulary() {
        return Err(bad(vocab)("it has more pieces than the weights".to_owned()));
    }
    let is_piece = |name: &str| {
        let text = name.strip_prefix("##").unwrap_or(name);
        !text.is_empty() && text.chars().all(char::is_alphanumeric)
    };
    let wanted: Vec<usize> = (0..names.len()).filter(|at| is_piece(names[*at])).collect();
    let mut columns = Vec::with_capacity(wanted.len());
    for (at, batch) in wanted.chunks(BATCH).enumerate() {
        step(at * BATCH, wanted.len());
        let tokens: Vec<usize> = batch.iter().flat_map(|token| [start, *token, end]).collect();
        columns.extend(encoder.encode(&tokens, 3).column_iter().map(|column| column.into_owned()));
    }
    if columns.len() <= DIMENSIONS || columns[0].len() < DIMENSIONS {
        let why = format!("a model needs more than {DIMENSIONS} pieces of {DIMENSIONS} dimensions");
        return Err(bad(vocab)(why));
    }
    let reduced = reduce(DMatrix::from_columns(&columns));
    let harmonic: f32 = (1..=wanted.len()).map(|rank| 1.0 / rank as f32).sum();
    let rows = wanted.iter().zip(reduced.column_iter()).enumerate().map(|(at, (token, column))| {
        let share = 1.0 / ((at + 1) as f32 * harmonic);
        let weight = RARE / (RARE + share);
        let row = std::array::from_fn(|it| column[it] * weight);
        (names[*token].to_owned(), row)
    });
    let content = table::content(rows.collect());
    write_atomic(to, &content, 0o644)
        .map_err(|error| ModelError::Io { path: error.path, source: error.source })
}

/// Reduces columns to the 256 directions in which they differ most (principal components).
fn reduce(mut columns: DMatrix<f32>) -> DMatrix<f32> {
    let mean = columns.column_mean();
    columns.column_iter_mut().for_each(|mut column| column -= &mean);
    let eigen = SymmetricEigen::new(&columns * columns.transpose());
    let mut order: Vec<usize> = (0..eigen.eigenvalues.len()).collect();
    order.sort_by(|a, b| eigen.eigenvalues[*b].total_cmp(&eigen.eigenvalues[*a]));
    order.truncate(DIMENSIONS);
    eigen.eigenvectors.select_columns(&order).transpose() * columns
}
