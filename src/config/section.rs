//! One table of the configuration while it is read: keys by shape, and errors that name their place.
//!
//! It must never accept a key that nobody asked for.

use runner_text::nearest::nearest;
use toml::{Table, Value};

use super::sources::{ConfigMistake, Sources, unknown, wrong};

/// One table while it is read: what is taken is known, what is left is a mistake.
pub(super) struct Section<'a> {
    path: &'a str,
    table: &'a mut Table,
    /// Where it was read.
    pub(super) sources: &'a Sources,
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    pub(super) fn of(path: &'a str, table: &'a mut Table, sources: &'a Sources) -> Self {
        Self { path, table, sources, known: Vec::new() }
    }

    pub(super) fn text(&mut self, key: &'static str) -> Result<Option<String>, ConfigMistake> {
        self.take(key, "text in quotes", |value| value.as_str().map(str::to_owned))
    }

    pub(super) fn flag(&mut self, key: &'static str) -> Result<Option<bool>, ConfigMistake> {
        self.take(key, "true or false", Value::as_bool)
    }

    /// Takes a key as a whole number of at least 0.
    pub(super) fn count(&mut self, key: &'static str) -> Result<Option<u64>, ConfigMistake> {
        self.take(key, "a whole number of at least 0", |value| {
            value.as_integer().and_then(|n| u64::try_from(n).ok())
        })
    }

    /// Takes a key as a whole number, which may be negative.
    pub(super) fn integer(&mut self, key: &'static str) -> Result<Option<i64>, ConfigMistake> {
        self.take(key, "a whole number", Value::as_integer)
    }

    /// Takes a key as a number of at least 0.
    pub(super) fn number(&mut self, key: &'static str) -> Result<Option<f64>, ConfigMistake> {
        self.take(key, "a number of at least 0", |value| {
            #[allow(clippy::cast_precision_loss, reason = "money in dollars is far below 2^52")]
            let number = value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
            number.filter(|n| n.is_finite() && *n >= 0.0)
        })
    }

    pub(super) fn texts(
        &mut self,
        key: &'static str,
    ) -> Result<Option<Vec<String>>, ConfigMistake> {
        self.take(key, "a list of texts", |value| {
            value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
        })
    }

    pub(super) fn table(&mut self, key: &'static str) -> Result<Option<Table>, ConfigMistake> {
        self.take(key, "a table", |value| value.as_table().cloned())
    }

    /// Removes a key whose value is `word`.
    pub(super) fn drop_if(&mut self, key: &'static str, word: &str) {
        if self.table.get(key).and_then(Value::as_str) == Some(word) {
            self.table.remove(key);
        }
    }

    /// Takes a key without checking its value.
    /// Reports whether the table has a key that was not read yet.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    pub(super) fn value(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.table.remove(key)
    }

    fn take<T>(
        &mut self,
        key: &'static str,
        shape: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, ConfigMistake> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        match read(&value) {
            Some(read) => Ok(Some(read)),
            None => Err(self.wrong(&self.full(key), &format!("it must be {shape}, it is {value}"))),
        }
    }

    /// Takes a key as text and parses it with `read`.
    pub(super) fn parsed<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfigMistake> {
        let Some(text) = self.text(key)? else {
            return Ok(None);
        };
        read(&text).map(Some).map_err(|why| self.wrong(&self.full(key), &why))
    }

    /// Returns the keys that were read so far.
    pub(super) fn known(&self) -> Vec<&'static str> {
        self.known.clone()
    }

    /// Takes all keys that were not read.
    pub(super) fn rest(&mut self) -> Table {
        std::mem::take(self.table)
    }

    pub(super) fn wrong(&self, key: &str, why: &str) -> ConfigMistake {
        wrong(self.sources, key, why)
    }

    /// Returns the full name of a key.
    pub(super) fn full(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Refuses what nobody took.
    pub(super) fn finish(self) -> Result<(), ConfigMistake> {
        let Some(key) = self.table.keys().next() else {
            return Ok(());
        };
        let why = no_such(key, &self.known);
        Err(unknown(self.sources, &self.full(key), &why))
    }
}

/// Explains why a key is refused, with the nearest key or the list of all keys.
pub(super) fn no_such(key: &str, known: &[&str]) -> String {
    match nearest(key, known.iter().copied()) {
        Some(near) => format!("there is no such setting; did you mean {near:?}?"),
        None => format!("there is no such setting (there are: {})", known.join(", ")),
    }
}
