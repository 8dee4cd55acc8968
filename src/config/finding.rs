//! An error in a setting, before its location is determined.

use std::fmt;
use std::path::Path;

use runner_jobs::overnight::OvernightSpec;
use runner_text::nearest::nearest;
use runner_text::shell_word;

/// The part of a setting that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// The name: there is no such setting.
    Key,
    /// The value, or the name of a table.
    Value,
    /// A missing part of a table.
    Missing,
}

/// The reason for an error, and the name that was probably meant.
#[derive(Clone, Debug)]
pub(super) struct Reason {
    pub(super) text: Box<str>,
    pub(super) near: Option<Box<str>>,
}

impl<T: Into<String>> From<T> for Reason {
    fn from(text: T) -> Self {
        Self { text: text.into().into(), near: None }
    }
}

impl Reason {
    /// Suggests the nearest of several names.
    pub(super) fn near<'n>(self, name: &str, names: impl IntoIterator<Item = &'n str>) -> Self {
        Self { near: nearest(name, names).map(Into::into), ..self }
    }

    /// Adds the location of the error within the value.
    pub(super) fn within(self, place: &str) -> Self {
        Self { text: format!("{place}: {}", self.text).into(), ..self }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match &self.near {
            Some(near) => write!(f, "; did you mean {near:?}?"),
            None => Ok(()),
        }
    }
}

/// An error without its location.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    /// The full name of the setting.
    pub(super) key: String,
    pub(super) why: Reason,
    pub(super) part: Part,
    /// The fix, if a different value is not enough. Such an error results in exit code 78,
    /// whichever layer contains it.
    pub(super) fix: Option<Fix>,
}

/// The fix for an error, if it needs more than a valid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fix {
    /// Another output folder for an overnight job.
    OutputFolder,
    /// A regular file that the user can read.
    ReadableFile,
    /// The removal of the setting.
    Unset,
}

impl Fix {
    /// Describes the fix of an error about `key`, which is in `file` if it is in a file.
    pub(super) fn text(self, key: &str, file: Option<&Path>) -> String {
        match self {
            Self::Unset => {
                format!("runner config unset {key}   (with --user if it is in your own file)")
            }
            Self::ReadableFile => format!(
                "ls -l {}   (expected a regular file that you can read)",
                shell_word(file.unwrap_or(Path::new("FILE")).display())
            ),
            Self::OutputFolder => format!(
                "name a folder that only nights use, such as {}",
                OvernightSpec::default().output_dir
            ),
        }
    }
}
