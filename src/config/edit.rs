//! Changes one setting in the text of a file and keeps every other byte.
//!
//! `toml_edit` makes the change. It normalises line endings, so unchanged lines are copied from the
//! old text. This module must never return a text with an error that the old text does not have.

use std::borrow::Cow;
use std::path::Path;

use toml_edit::{DocumentMut, Item, TableLike, Value};

use super::inline::inline;
use super::overrides::{Overrides, value};
use super::sources::{ConfigMistake, Layer, Sources, syntax_mistakes};
use super::{Stack, merged, reference, resolve, texts};
use crate::ui::Failure;

/// A change of one setting in one file.
#[derive(Clone, Copy, Debug)]
pub struct Edit<'a> {
    /// The dotted name of the setting.
    pub key: &'a str,
    /// The new value, parsed as TOML or else taken as text.
    pub value: &'a str,
    /// The file to change.
    pub file: &'a Path,
    /// Whether the file is the user's and not the project's.
    pub user: bool,
}

/// Returns the file's old text, its new text, and the number of earlier errors that remain. The old
/// text is empty if the file does not exist.
///
/// # Errors
/// Returns an error if the file cannot be parsed, or if the new value would be an error.
pub fn edit(user: &Path, edit: &Edit<'_>) -> Result<(String, String, usize), Failure> {
    edit_text(user, edit, None)
}

/// Does the same as [`edit`], but with `text` in place of the file's content, so that several
/// changes can be combined before one of them is written.
pub fn edit_text(
    user: &Path,
    edit: &Edit<'_>,
    text: Option<String>,
) -> Result<(String, String, usize), Failure> {
    let path: Vec<String> = edit.key.split('.').map(str::to_owned).collect();
    allowed(&path, edit)?;
    let nothing = Overrides::default();
    let mut sources =
        texts(&Stack { user, project: (!edit.user).then_some(edit.file), overrides: &nothing })?;
    let name = if edit.user { "user" } else { "project" };
    let at = match sources.layers.iter().position(|layer| layer.name == name) {
        Some(at) => at,
        None => {
            sources.layers.push(Layer {
                name,
                path: edit.file.to_owned(),
                text: Cow::Borrowed(""),
            });
            sources.layers.len() - 1
        }
    };
    if let Some(text) = text {
        sources.layers[at].text = Cow::Owned(text);
    }
    for layer in &sources.layers {
        if let Some(mistake) = syntax_mistakes(layer).into_iter().next() {
            return Err(mistake.into());
        }
    }
    let old = sources.layers[at].text.clone().into_owned();
    let new = changed(&old, &path, edit)?;
    let before = known_mistakes(&sources);
    sources.layers[at].text = Cow::Owned(new.clone());
    let remain = mistakes_in(sources)?;
    let rest = remain.len();
    let fresh = remain
        .into_iter()
        .find(|mistake| !before.contains(&(mistake.key.clone(), unplaced(mistake.said()))));
    match fresh {
        // The location in the error refers to the new text, which is never written, so it is left
        // out.
        Some(mistake) => Err(Failure::configuration(format!(
            "{} {}: {}; nothing was written",
            edit.key,
            edit.value,
            unplaced(mistake.said())
        ))),
        None => Ok((old, new, rest)),
    }
}

/// Returns all errors in the files.
fn mistakes_in(sources: Sources) -> Result<Vec<ConfigMistake>, ConfigMistake> {
    let (table, sources) = merged(sources)?;
    Ok(resolve(&table, &sources).err().unwrap_or_default())
}

/// Returns the existing errors without their locations, because the locations may change.
fn known_mistakes(sources: &Sources) -> Vec<(String, String)> {
    let known = mistakes_in(sources.clone()).unwrap_or_default().into_iter();
    known.map(|mistake| (mistake.key.clone(), unplaced(mistake.said()))).collect()
}

/// Strips the location and the key from the text of an error.
fn unplaced(said: &str) -> String {
    let mut parts = said.splitn(3, ": ");
    let (first, second, third) = (parts.next(), parts.next(), parts.next());
    third.or(second).or(first).unwrap_or_default().to_owned()
}

fn allowed(path: &[String], edit: &Edit<'_>) -> Result<(), Failure> {
    let key = edit.key;
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    if parts[0] == "project" {
        let why = "project.id connects this folder to its history and cannot be set manually";
        return Err(Failure::configuration(why.to_owned()).hint("runner init"));
    }
    if let Some(why) = reference::users_only(&parts).filter(|_| !edit.user) {
        let why = format!("{key}: {why}, so it is read only from the user's file");
        let hint = format!("runner config set --user {key} {}", edit.value);
        return Err(Failure::configuration(why).hint(hint));
    }
    reference::known(path).map_err(|near| {
        let failure = Failure::configuration(format!("there is no setting {key:?}"));
        match near {
            Some(near) => failure.hint(format!("runner config set {near} {}", edit.value)),
            None => failure.hint("runner config schema"),
        }
    })
}

/// Returns the text with the setting changed.
fn changed(old: &str, path: &[String], edit: &Edit<'_>) -> Result<String, Failure> {
    let refuse =
        |why: &str| Failure::configuration(format!("{}: {}: {why}", edit.file.display(), edit.key));
    let plain = old.replace("\r\n", "\n");
    let mut document: DocumentMut =
        plain.parse().map_err(|_| refuse("the file is not valid TOML"))?;
    let new: Value = format!("{} ", inline(&value(edit.value)))
        .trim_end()
        .parse()
        .map_err(|_| refuse("the value cannot be written as TOML"))?;
    let Some((last, outer)) = path.split_last() else {
        return Err(refuse("the setting has no name"));
    };
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for part in outer {
        let inner = table.entry(part).or_insert_with(|| {
            let mut fresh = toml_edit::Table::new();
            fresh.set_implicit(true);
            Item::Table(fresh)
        });
        table = inner
            .as_table_like_mut()
            .ok_or_else(|| refuse("the setting that contains it is not a table"))?;
    }
    match table.get_mut(last) {
        Some(item) if item.is_value() => {
            if let Some(known) = item.as_value_mut() {
                let decor = known.decor().clone();
                *known = new;
                *known.decor_mut() = decor;
            }
        }
        Some(_) => return Err(refuse("this is a table; set one of its keys")),
        None => {
            table.insert(last, Item::Value(new));
        }
    }
    Ok(spliced(old, &plain, &document.to_string()))
}

/// Merges the changed lines of `new` into `old`. Lines that equal those of `plain` keep their form
/// in `old`.
fn spliced(old: &str, plain: &str, new: &str) -> String {
    let same = |a: &str, b: &str| a.trim_end_matches('\n') == b.trim_end_matches('\n');
    let (kept, plain, new): (Vec<&str>, Vec<&str>, Vec<&str>) = (
        old.split_inclusive('\n').collect(),
        plain.split_inclusive('\n').collect(),
        new.split_inclusive('\n').collect(),
    );
    let most = plain.len().min(new.len());
    let head = (0..most).take_while(|at| same(plain[*at], new[*at])).count();
    let tail = (0..most - head)
        .take_while(|at| same(plain[plain.len() - 1 - at], new[new.len() - 1 - at]))
        .count();
    let end = if old.contains("\r\n") { "\r\n" } else { "\n" };
    let mut text = String::new();
    let mut add = |line: &str| {
        // A last line without a line ending gets one when another line follows.
        if !text.is_empty() && !text.ends_with('\n') {
            text.push_str(end);
        }
        text.push_str(line);
    };
    for line in &kept[..head] {
        add(line);
    }
    let middle = &new[head..new.len() - tail];
    for (at, line) in middle.iter().enumerate() {
        // A changed last line without a line ending still has none.
        let last = at + 1 == middle.len() && tail == 0 && middle.len() == plain.len() - head;
        match line.strip_suffix('\n') {
            Some(line) if last && !old.ends_with('\n') => add(line),
            Some(line) => add(&format!("{line}{end}")),
            None => add(line),
        }
    }
    for line in &kept[kept.len() - tail..] {
        add(line);
    }
    text
}
