//! A mistake in a setting, before it is looked up where it stands.

use runner_jobs::overnight::OvernightSpec;

/// The part of a setting that a mistake is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// Its name, which must not be there.
    Key,
    /// Its value, or the name of a table.
    Value,
    /// A part of a table that is not there.
    Missing,
}

/// A mistake before it is looked up where it stands.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    /// The setting, by its whole name.
    pub(super) key: String,
    /// The reason.
    pub(super) why: String,
    /// The part of the setting.
    pub(super) part: Part,
    /// The fix, if it is more than another value. Such a mistake has exit code 78 in every layer.
    pub(super) fix: Option<Fix>,
}

/// The fix of a mistake, if it needs more than a valid value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fix {
    /// Another output folder of a night.
    OutputFolder,
}

impl Fix {
    /// Describes the fix.
    pub(super) fn text(self) -> String {
        match self {
            Self::OutputFolder => format!(
                "name a folder that only nights use, such as {}",
                OvernightSpec::default().output_dir
            ),
        }
    }
}
