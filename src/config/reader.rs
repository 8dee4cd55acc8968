//! Reads one configuration: converts each table to the type that declares it, and collects all
//! errors.
//!
//! The reader replaces an invalid setting with its default, or removes a setting without a default,
//! so that it can still check the others. It must never return a configuration in which it found an
//! error.

use runner_jobs::kinds::BadValue;
use runner_text::nearest::nearest;
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;
use toml::{Table, Value};

use super::finding::{Finding, Fix, Part, Reason};
use super::reference;
use super::shape::{MOST, misfits};
use super::sources::{ConfigMistake, Sources, locate, within};

/// A configuration being read.
pub(super) struct Reader<'a> {
    /// The settings as written.
    written: &'a Table,
    /// The settings without the invalid ones found so far.
    table: Table,
    found: Vec<Finding>,
}

impl<'a> Reader<'a> {
    /// Creates a reader and checks the structure of all settings.
    pub(super) fn new(written: &'a Table) -> Self {
        let mut reader = Self { written, table: written.clone(), found: Vec::new() };
        for misfit in misfits(written) {
            match misfit.path.as_slice() {
                _ if misfit.part == Part::Missing => false,
                // A job without a valid kind, or a backend without a valid type, cannot be read.
                [table, _, key]
                    if matches!((&**table, &**key), ("jobs", "kind") | ("backends", "type")) =>
                {
                    reader.set_aside(&misfit.path[..2])
                }
                path => reader.set_aside(path),
            };
            reader.add(misfit.path.join("."), misfit.why, misfit.part, misfit.fix);
        }
        reader
    }

    fn add(&mut self, key: String, why: Reason, part: Part, fix: Option<Fix>) {
        if self.found.len() < MOST {
            self.found.push(Finding { key, why, part, fix });
        }
    }

    /// Adds an error about a value.
    pub(super) fn wrong(&mut self, key: &str, why: impl Into<Reason>) {
        self.add(key.to_owned(), why.into(), Part::Value, None);
    }

    /// Adds an error about a value that needs a particular fix.
    pub(super) fn forbidden(&mut self, key: &str, why: impl Into<Reason>, fix: Fix) {
        self.add(key.to_owned(), why.into(), Part::Value, Some(fix));
    }

    /// Reports whether this setting or table is free of errors so far.
    pub(super) fn is_good(&self, key: &str) -> bool {
        !self.found.iter().any(|it| within(&it.key, key))
    }

    /// Returns the names of all entries of a table, valid or not.
    pub(super) fn names(&self, table: &str) -> Vec<&'a str> {
        let written = self.written.get(table).and_then(Value::as_table);
        written.into_iter().flat_map(Table::keys).map(String::as_str).collect()
    }

    /// Returns whether a table has an entry with this name. If not, adds an error about `key`.
    pub(super) fn exists(&mut self, key: &str, table: &str, name: &str) -> bool {
        let names = self.names(table);
        let there = names.contains(&name);
        if !there {
            let why = Reason::from(format!("there is no [{table}.{name}]"));
            self.wrong(key, why.near(name, names));
        }
        there
    }

    /// Returns the names of a table's entries, except invalid ones that have been removed.
    pub(super) fn entries(&self, table: &str) -> Vec<String> {
        let table = self.table.get(table).and_then(Value::as_table);
        table.into_iter().flat_map(Table::keys).cloned().collect()
    }

    /// Returns a table without the invalid settings found so far.
    pub(super) fn table(&self, path: &[&str]) -> Option<&Table> {
        path.iter().try_fold(&self.table, |table, part| table.get(*part)?.as_table())
    }

    /// Adds a job that does not appear in any file.
    pub(super) fn put_job(&mut self, name: &str, job: Table) {
        if let Some(Value::Table(jobs)) = self.table.get_mut("jobs") {
            jobs.insert(name.to_owned(), Value::Table(job));
        }
    }

    /// Reads a table as `T`. Returns `None` if the table is missing, or if it cannot be read even
    /// without its invalid settings.
    pub(super) fn read<T: DeserializeOwned>(&mut self, path: &[&str]) -> Option<T> {
        self.read_with(path, |table| serde_path_to_error::deserialize(Value::Table(table)))
    }

    /// Reads a table with `read`, and retries without each value that `read` refuses.
    pub(super) fn read_with<T>(
        &mut self,
        path: &[&str],
        read: impl Fn(Table) -> Result<T, BadValue>,
    ) -> Option<T> {
        loop {
            let error = match read(self.table(path)?.clone()) {
                Ok(read) => return Some(read),
                Err(error) => error,
            };
            let mut whole: Vec<String> = path.iter().map(|part| (*part).to_owned()).collect();
            let below = error.path().iter().map_while(|segment| match segment {
                Segment::Map { key } => Some(key.clone()),
                _ => None,
            });
            whole.extend(below);
            if whole.len() == path.len() {
                if self.is_good(&whole.join(".")) {
                    self.wrong(&whole.join("."), error.inner().message());
                }
                return None;
            }
            self.wrong(&whole.join("."), error.inner().message());
            if !self.set_aside(&whole) {
                return None;
            }
        }
    }

    /// Replaces a setting with its default, or removes it if it has none. Returns `false` if
    /// nothing changed.
    pub(super) fn set_aside(&mut self, path: &[String]) -> bool {
        let Some((last, outer)) = path.split_last() else { return false };
        let inner = |table, part: &String| Table::get(table, part)?.as_table();
        let stated = outer.iter().try_fold(reference::default(), inner);
        let stated = stated.and_then(|table| table.get(last)).cloned();
        let table = outer
            .iter()
            .try_fold(&mut self.table, |table, part| table.get_mut(part)?.as_table_mut());
        let Some(table) = table else { return false };
        match stated {
            Some(value) => table.insert(last.clone(), value.clone()) != Some(value),
            None => table.remove(last).is_some(),
        }
    }

    /// Returns `config` if no error was found, otherwise all errors in the order of their
    /// locations.
    pub(super) fn finish<T>(
        self,
        config: Option<T>,
        sources: &Sources,
    ) -> Result<T, Vec<ConfigMistake>> {
        match config {
            Some(config) if self.found.is_empty() => Ok(config),
            _ => Err(locate(sources, self.found)),
        }
    }
}

/// Returns text that suggests the nearest of several names, or an empty string if none is similar.
pub fn did_you_mean<'n>(name: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    nearest(name, names).map_or_else(String::new, |near| format!("; did you mean {near:?}?"))
}
