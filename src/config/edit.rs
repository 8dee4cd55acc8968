//! Changes settings in a file's contents, preserving every other byte.
//!
//! `toml_edit` makes the change. It normalizes line endings, so unchanged lines are copied from the
//! old text. This module must never return new text with an error that was not in the old text.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use toml_edit::{DocumentMut, Item, TableLike, Value};

use super::inline::inline;
use super::overrides::{Overrides, value};
use super::sources::{ConfigMistake, Layer, Sources, syntax_mistakes};
use super::{Stack, merged, reference, resolve, texts};
use crate::ui::Failure;
use runner_text::shell_line;

/// Changes to settings in one file.
#[derive(Clone, Copy, Debug)]
pub struct Edit<'a> {
    pub changes: &'a [SettingChange],
    pub file: &'a Path,
    /// Whether this is the user's file rather than the project's.
    pub user: bool,
}

/// A change to one setting, by its dotted name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingChange {
    /// Sets a value, which is parsed as TOML or, failing that, treated as a string.
    Set(String, String),
    /// Removes a value or a table, with the comment lines directly above it.
    Remove(String),
}

impl SettingChange {
    pub fn key(&self) -> &str {
        match self {
            Self::Set(key, _) | Self::Remove(key) => key,
        }
    }
}

impl fmt::Display for SettingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(key, value) => write!(f, "{key} {value}"),
            Self::Remove(key) => write!(f, "without {key}"),
        }
    }
}

/// Returns the file's old contents, its new contents, and the number of earlier errors that remain.
/// The old contents are empty if the file does not exist. If `text` is given, it is used as the old
/// contents.
///
/// # Errors
/// Returns an error if a change names an unknown setting or one that the file must not contain, if
/// a configuration file cannot be read or parsed, or if the changes would cause a new error.
pub fn edit(
    user: &Path,
    edit: &Edit<'_>,
    text: Option<String>,
) -> Result<(String, String, usize), Failure> {
    edit.changes.iter().try_for_each(|change| edit.allows(change))?;
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
    let mut new = old.clone();
    for change in edit.changes {
        let next = changed(&new, change, edit.file)?;
        if next == new {
            edit.needs_a_setting(change)?;
        }
        new = next;
    }
    let before = known_mistakes(&sources);
    sources.layers[at].text = Cow::Owned(new.clone());
    let remain = mistakes_in(sources)?;
    let rest = remain.len();
    let fresh = remain
        .into_iter()
        .find(|mistake| !before.contains(&(mistake.key.clone(), mistake.reason())));
    match fresh {
        Some(mistake) => Err(refused(edit.changes, &mistake)),
        None => Ok((old, new, rest)),
    }
}

/// Explains why changes are refused. The message omits the location in `mistake`, because the
/// location refers to the new text, which is never written.
fn refused(changes: &[SettingChange], mistake: &ConfigMistake) -> Failure {
    let all: Vec<String> = changes.iter().map(ToString::to_string).collect();
    let (all, why) = (all.join(", "), mistake.reason());
    // The value itself is valid if the mistake is in another setting.
    let wrong = reference::key_parts(&mistake.key);
    match changes.iter().any(|change| reference::key_parts(change.key()) == wrong) {
        true => Failure::configuration(format!("{all}: {why}; nothing was written")),
        false => Failure::configuration(format!(
            "{all}: {}: {why}; nothing was written",
            mistake.key
        ))
        .hint(mistake.fix().unwrap_or_else(|| {
            "runner config set KEY VALUE KEY VALUE ...   (changes settings that depend on each other; runner config edit also removes settings)".to_owned()
        })),
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
    known.map(|mistake| (mistake.key.clone(), mistake.reason())).collect()
}

impl Edit<'_> {
    /// Checks that this change is allowed in this file.
    fn allows(&self, change: &SettingChange) -> Result<(), Failure> {
        let key = change.key();
        let path = reference::key_parts(key);
        let parts: Vec<&str> = path.iter().map(String::as_str).collect();
        if parts[0] == "project" {
            let why = "project.id connects this folder to its history and cannot be set manually";
            return Err(Failure::configuration(why.to_owned()).hint("runner init"));
        }
        // A setting in the wrong file, or with a wrong name, may be removed.
        let SettingChange::Set(_, value) = change else { return Ok(()) };
        if let Some(why) = reference::users_only(&parts).filter(|_| !self.user) {
            let why = format!("{key}: {why}, so it is read only from the user's file");
            let hint = shell_line(["runner", "config", "set", "--user", key, value]);
            return Err(Failure::configuration(why).hint(hint));
        }
        reference::known(&path).map_err(|unknown| match unknown.near {
            Some(near) => Failure::configuration(format!("there is no setting {key:?}"))
                .hint(shell_line(["runner", "config", "set", &near, value])),
            None => {
                Failure::configuration(format!("there is no setting {key:?}: {}", unknown.there))
                    .hint("runner config show   (lists all settings)")
            }
        })
    }

    /// Refuses to remove a setting that the file does not contain if its name is a misspelling.
    fn needs_a_setting(&self, change: &SettingChange) -> Result<(), Failure> {
        let SettingChange::Remove(key) = change else { return Ok(()) };
        let path = reference::key_parts(key);
        let Some(near) = reference::known(&path).err().and_then(|unknown| unknown.near) else {
            return Ok(());
        };
        let user = if self.user { "--user " } else { "" };
        let why =
            format!("there is no setting {key:?}, and {} does not contain it", self.file.display());
        Err(Failure::configuration(why).hint(format!("runner config unset {user}{near}")))
    }
}

/// Returns the file's contents with the setting changed.
fn changed(old: &str, change: &SettingChange, file: &Path) -> Result<String, Failure> {
    let key = change.key();
    let refuse = |why: &str| Failure::configuration(format!("{}: {key}: {why}", file.display()));
    let plain = old.replace("\r\n", "\n");
    let mut document: DocumentMut = plain.parse().map_err(|_| refuse("it is not valid TOML"))?;
    let path = reference::key_parts(key);
    let (last, outer) = path.split_last().ok_or_else(|| refuse("it has no name"))?;
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for part in outer {
        if matches!(change, SettingChange::Remove(_)) && !table.contains_key(part) {
            return Ok(old.to_owned());
        }
        let inner = table.entry(part).or_insert_with(|| {
            let mut fresh = toml_edit::Table::new();
            fresh.set_implicit(true);
            Item::Table(fresh)
        });
        table = inner
            .as_table_like_mut()
            .ok_or_else(|| refuse("the setting that contains it is not a table"))?;
    }
    match change {
        SettingChange::Remove(_) => {
            table.remove(last);
        }
        SettingChange::Set(_, text) => {
            let new = match value(text) {
                toml::Value::String(text) => toml::Value::String(text),
                // A string setting keeps text that is also valid TOML, such as the program name
                // `true`.
                _ if reference::is_text(path.iter().map(String::as_str)) => {
                    toml::Value::String(text.clone())
                }
                other => other,
            };
            let new: Value = format!("{} ", inline(&new))
                .trim_end()
                .parse()
                .map_err(|_| refuse("the value cannot be written"))?;
            put(table, last, new).map_err(refuse)?;
        }
    }
    Ok(spliced(old, &plain, &document.to_string()))
}

/// Sets a value in its table, and keeps the whitespace and comments around an existing value.
fn put(table: &mut dyn TableLike, key: &str, new: Value) -> Result<(), &'static str> {
    match table.get_mut(key) {
        Some(item) if item.is_value() => {
            if let Some(known) = item.as_value_mut() {
                let decor = known.decor().clone();
                *known = new;
                *known.decor_mut() = decor;
            }
        }
        Some(_) => return Err("this is a table"),
        None => {
            table.insert(key, Item::Value(new));
        }
    }
    Ok(())
}

/// Merges the changed lines of `new` into `old`. `plain` is `old` with LF line endings. The lines
/// before the first change and after the last change are copied from `old`.
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
        // A final line without a line ending gets one if another line follows it.
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
        // If a final line without a line ending changes, it still gets none.
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
