//! The file of a static model: a header, the sorted vocabulary, and one row of integers for each
//! piece.
//!
//! ```text
//! "runner static 1\n" | pieces u32 | vocabulary bytes u32 | SHA-256 of the rest (64 hex digits)
//! ends of the pieces (u32 each) | the pieces, sorted, without separators
//! rows: scale f32, then 256 i8
//! ```
//!
//! Numbers are little-endian. Rows are read by position instead of mapped into memory. A mapping
//! needs unsafe code, and a process crashes if another program truncates a mapped file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use runner_engine::digest::Digest;
use runner_engine::files::{open_host, read_host};

use super::{DIMENSIONS, ModelError, Vector, wordpiece};

const MAGIC: &[u8; 16] = b"runner static 1\n";
const HEADER: usize = 88;
const ROW: usize = 4 + DIMENSIONS;
/// Maximum number of pieces.
const MOST: usize = 250_000;
/// Maximum size of the vocabulary in bytes.
const VOCABULARY: usize = 4 << 20;
/// Maximum number of pieces used from a string.
const PIECES: usize = 512;

/// A static model.
#[derive(Debug)]
pub struct Table {
    rows: Rows,
    /// The end of each piece in `pieces`.
    ends: Vec<u32>,
    pieces: Vec<u8>,
    /// The position of the first row in the file.
    start: u64,
}

/// The location of a table's rows.
#[derive(Debug)]
enum Rows {
    File(File),
    Memory(Vec<u8>),
}

/// A description of a static model.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Summary {
    pub path: PathBuf,
    /// The size of the file in bytes.
    pub bytes: u64,
    pub pieces: usize,
    pub dimensions: usize,
    /// The SHA-256 digest of the content, in hexadecimal digits.
    pub digest: String,
}

impl Table {
    /// Opens a model and reads its vocabulary, but not its rows.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or does not have this format.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let io = |source| ModelError::Io { path: path.to_owned(), source };
        let file = open_host(path).map_err(io)?;
        let size = file.metadata().map_err(io)?.len();
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, 0).map_err(|_| not(path, "it is too short"))?;
        let (count, length) = counts(&header, size).map_err(|why| not(path, why))?;
        let mut index = vec![0; count * 4 + length];
        file.read_exact_at(&mut index, HEADER as u64).map_err(io)?;
        let pieces = index.split_off(count * 4);
        let ends = index.as_chunks().0.iter().map(|it| u32::from_le_bytes(*it)).collect();
        let start = (HEADER + count * 4 + length) as u64;
        Ok(Self { rows: Rows::File(file), ends, pieces, start })
    }

    /// Reads all rows into memory, for embedding many strings.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn load(mut self) -> io::Result<Self> {
        if let Rows::File(file) = &self.rows {
            let mut rows = vec![0; self.ends.len() * ROW];
            file.read_exact_at(&mut rows, self.start)?;
            self.rows = Rows::Memory(rows);
        }
        Ok(self)
    }

    /// Checks the digest of a model and describes the model.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, does not have this format, or was changed.
    pub fn check(path: &Path) -> Result<Summary, ModelError> {
        let table = Self::open(path)?;
        let limit = (HEADER + VOCABULARY + MOST * (4 + ROW)) as u64;
        let bytes = read_host(path, limit)
            .map_err(|source| ModelError::Io { path: path.to_owned(), source })?;
        let (header, content) = bytes.split_at_checked(HEADER).unwrap_or((&[], &[]));
        let digest = Digest::of(content).to_string();
        if header.get(24..) != Some(digest.as_bytes()) {
            return Err(not(path, "its content does not match the digest in its header"));
        }
        Ok(Summary {
            path: path.to_owned(),
            bytes: bytes.len() as u64,
            pieces: table.ends.len(),
            dimensions: DIMENSIONS,
            digest,
        })
    }

    /// Returns the vector of a string, or `None` if the string contains no known word, a row cannot
    /// be read, or the rows' sum has no direction.
    pub fn embed(&self, text: &str) -> Option<Vector> {
        let mut sum = [0.0; DIMENSIONS];
        for piece in wordpiece::pieces(text, PIECES, |piece| self.find(piece)) {
            let row = self.row(piece)?;
            let (scale, values) = row.split_first_chunk()?;
            let scale = f32::from_le_bytes(*scale);
            for (sum, value) in sum.iter_mut().zip(values) {
                *sum += scale * f32::from(value.cast_signed());
            }
        }
        Vector::nearest_to(&sum)
    }

    fn row(&self, piece: u32) -> Option<[u8; ROW]> {
        let at = piece as usize * ROW;
        let mut row = [0; ROW];
        match &self.rows {
            Rows::Memory(rows) => row.copy_from_slice(rows.get(at..at + ROW)?),
            Rows::File(file) => file.read_exact_at(&mut row, self.start + at as u64).ok()?,
        }
        Some(row)
    }

    /// Returns the index of a piece, or `None` if the vocabulary does not contain the piece.
    fn find(&self, wanted: &str) -> Option<u32> {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let start = if middle == 0 { 0 } else { self.ends[middle - 1] };
            let piece = self.pieces.get(start as usize..self.ends[middle] as usize)?;
            match piece.cmp(wanted.as_bytes()) {
                std::cmp::Ordering::Equal => return u32::try_from(middle).ok(),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }
}

/// Returns the file content for a model with these pieces.
#[cfg(any(feature = "minilm", test))]
pub(super) fn content(mut pieces: Vec<(String, [f32; DIMENSIONS])>) -> Vec<u8> {
    pieces.sort_by(|a, b| a.0.cmp(&b.0));
    pieces.dedup_by(|a, b| a.0 == b.0);
    let (mut index, mut names, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for (piece, row) in &pieces {
        names.extend_from_slice(piece.as_bytes());
        index.extend_from_slice(&(names.len() as u32).to_le_bytes());
        let largest = row.iter().fold(f32::MIN_POSITIVE, |most, value| most.max(value.abs()));
        let scale = largest / 127.0;
        rows.extend_from_slice(&scale.to_le_bytes());
        #[expect(clippy::cast_possible_truncation, reason = "at most 127 by its scale")]
        rows.extend(row.iter().map(|value| ((value / scale).round() as i8).cast_unsigned()));
    }
    let mut header = MAGIC.to_vec();
    header.extend_from_slice(&(pieces.len() as u32).to_le_bytes());
    header.extend_from_slice(&(names.len() as u32).to_le_bytes());
    let rest = [index, names, rows].concat();
    header.extend_from_slice(Digest::of(&rest).to_string().as_bytes());
    header.extend_from_slice(&rest);
    header
}

/// Returns the number of pieces and the size of the vocabulary in bytes, if the header is valid.
fn counts(header: &[u8; HEADER], size: u64) -> Result<(usize, usize), &'static str> {
    let number = |at: usize| {
        let bytes = header.get(at..at + 4).and_then(|it| it.try_into().ok());
        bytes.map_or(0, u32::from_le_bytes) as usize
    };
    let (count, length) = (number(16), number(20));
    if !header.starts_with(MAGIC) {
        return Err("it does not have the format of a static model");
    }
    if count > MOST || length > VOCABULARY {
        return Err("its header is damaged");
    }
    match (HEADER + count * (4 + ROW) + length) as u64 == size {
        true => Ok((count, length)),
        false => Err("its size does not match its header"),
    }
}

fn not(path: &Path, why: &str) -> ModelError {
    ModelError::Malformed { path: path.to_owned(), why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Writes a table in which the nth piece points along the nth dimension.
    fn table(pieces: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        let row = |at: usize| std::array::from_fn(|it| if it == at { 1.0 } else { 0.0 });
        let all = pieces.iter().enumerate().map(|(at, it)| ((*it).to_owned(), row(at))).collect();
        std::fs::write(&path, content(all)).unwrap();
        (folder, path)
    }

    #[test]
    fn texts_with_shared_words_are_near() {
        let (_folder, path) = table(&["error", "type", "##s", "port", "is"]);
        let summary = Table::check(&path).unwrap();
        assert_eq!((summary.pieces, summary.dimensions), (5, DIMENSIONS));
        for table in [Table::open(&path).unwrap(), Table::open(&path).unwrap().load().unwrap()] {
            let near = |a, b| table.embed(a).unwrap().cosine(&table.embed(b).unwrap());
            assert!((near("Type error!", "errors: type") - 0.816).abs() < 0.01);
            assert!(near("type error", "port").abs() < 0.01);
            assert!(table.embed("zebra").is_none());
        }
    }

    #[test]
    fn changed_files_are_refused() {
        let (_folder, path) = table(&["a", "b"]);
        let bytes = std::fs::read(&path).unwrap();
        for cut in [0, 15, 40, HEADER, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            assert!(matches!(Table::open(&path), Err(ModelError::Malformed { .. })), "{cut}");
        }
        let mut other = bytes.clone();
        *other.last_mut().unwrap() ^= 1;
        std::fs::write(&path, other).unwrap();
        assert!(Table::open(&path).is_ok());
        let why = Table::check(&path).unwrap_err().to_string();
        assert!(why.contains("digest"), "{why}");
        assert!(matches!(Table::open(&path.join("x")), Err(ModelError::Io { .. })));
    }

    proptest! {
        #[test]
        fn damage_causes_no_panic(at in 0_usize..1_200, byte: u8, text in ".{0,40}") {
            let (_folder, path) = table(&["error", "type", "##s", "port"]);
            let mut bytes = std::fs::read(&path).unwrap();
            let at = at % bytes.len();
            bytes[at] = byte;
            std::fs::write(&path, bytes).unwrap();
            if let Ok(table) = Table::open(&path) {
                let _any = (table.embed("type errors: port"), table.embed(&text));
            }
        }
    }
}
