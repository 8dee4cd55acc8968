//! An error in a setting, before its location is looked up.

use runner_jobs::overnight::OvernightSpec;

/// The part of a setting that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// The name, which must not exist.
    Key,
    /// The value, or the name of a table.
    Value,
    /// A missing part of a table.
    Missing,
}

/// An error without its location.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    /// The full name of the setting.
    pub(super) key: String,
    /// The reason.
    pub(super) why: String,
    /// The part of the setting that is wrong.
    pub(super) part: Part,
    /// The fix, if it needs more than another value. Such an error has exit code 78 in every layer.
    pub(super) fix: Option<Fix>,
}

/// The fix of an error, if it needs more than a valid value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fix {
    /// Another output folder for an overnight job.
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
