//! Reads the tensors of a safetensors file: a JSON header with the position of each tensor, then
//! the numbers. Only 32-bit floats are read.

use std::collections::HashMap;

use nalgebra::{DMatrix, DVector};
use serde::Deserialize;

/// The tensors of a file.
pub(super) struct Tensors<'b> {
    places: HashMap<String, Place>,
    content: &'b [u8],
}

#[derive(Deserialize)]
struct Place {
    #[serde(default)]
    dtype: String,
    #[serde(default)]
    shape: Vec<usize>,
    #[serde(default)]
    data_offsets: (usize, usize),
}

impl<'b> Tensors<'b> {
    /// Reads the header of a file.
    pub(super) fn of(bytes: &'b [u8]) -> Result<Self, String> {
        let short = || "the weights file is too short".to_owned();
        let (length, rest) = bytes.split_first_chunk().ok_or_else(short)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| short())?;
        let (header, content) = rest.split_at_checked(length).ok_or_else(short)?;
        let places = serde_json::from_slice(header).map_err(|error| error.to_string())?;
        Ok(Self { places, content })
    }

    /// Returns a two-dimensional tensor as a matrix.
    pub(super) fn matrix(&self, name: &str) -> Result<DMatrix<f32>, String> {
        match (self.numbers(name)?, self.places[name].shape.as_slice()) {
            (numbers, [rows, columns]) if rows * columns == numbers.len() => {
                Ok(DMatrix::from_row_iterator(*rows, *columns, numbers))
            }
            _ => Err(format!("{name} is not a matrix")),
        }
    }

    /// Returns a tensor as a column vector.
    pub(super) fn vector(&self, name: &str) -> Result<DVector<f32>, String> {
        self.numbers(name).map(DVector::from_vec)
    }

    fn numbers(&self, name: &str) -> Result<Vec<f32>, String> {
        let place = self.places.get(name).ok_or_else(|| format!("{name} is missing"))?;
        let (start, end) = place.data_offsets;
        let bytes = self.content.get(start..end).filter(|_| place.dtype == "F32");
        let bytes = bytes.ok_or_else(|| format!("{name} does not contain 32-bit floats"))?;
        Ok(bytes.as_chunks().0.iter().map(|it| f32::from_le_bytes(*it)).collect())
    }
}
