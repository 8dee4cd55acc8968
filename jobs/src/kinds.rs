//! The table of all kinds of jobs.
//!
//! A new kind adds its own folder and one row here. Everything else about a kind belongs in its
//! implementation of [`Kind`].

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;

use crate::command::CommandSpec;
use crate::curator::CuratorSpec;
use crate::dream::DreamSpec;
use crate::kind::Kind;
use crate::lifecycle::cycle::CycleSpec;
use crate::lifecycle::daydream::DaydreamSpec;
use crate::lifecycle::rem::RemSpec;
use crate::lifecycle::spec::StateKind;
use crate::lifecycle::work::WorkSpec;
use crate::overnight::OvernightSpec;
use crate::prompt::PromptSpec;
use crate::report::kind::ReportSpec;
use crate::sessions::SessionsSpec;
use crate::{curator, dream, overnight, sessions};

/// Why a setting is refused, with the path of the setting.
pub type BadValue = serde_path_to_error::Error<toml::de::Error>;

/// A row in the table: one kind of job.
#[derive(Clone, Copy, Debug)]
pub struct KindRow {
    /// The name of the kind in the configuration.
    pub name: &'static str,
    /// Whether a run whose process died before any model call is retried. Programs are not retried,
    /// because they may already have done work that must not be repeated.
    pub retries_lost: bool,
    /// Why runs are not recorded and cannot be replayed, or `None` if they are recorded.
    pub unrecorded: Option<&'static str>,
    /// Reads a job's settings from the configuration.
    pub read: fn(toml::Value) -> Result<Box<dyn Kind>, BadValue>,
    pub schema: fn(&mut SchemaGenerator) -> Schema,
    /// Reads a job's settings from a recording.
    pub restore: fn(serde_json::Value) -> serde_json::Result<Box<dyn Kind>>,
}

impl KindRow {
    const fn new<T: Kind + DeserializeOwned + JsonSchema>(name: &'static str) -> Self {
        Self {
            name,
            retries_lost: true,
            unrecorded: None,
            read: |value| Ok(Box::new(serde_path_to_error::deserialize::<_, T>(value)?)),
            schema: |generator| T::json_schema(generator),
            restore: |value| Ok(Box::new(serde_json::from_value::<T>(value)?)),
        }
    }

    const fn unrecorded(self, why: &'static str) -> Self {
        Self { unrecorded: Some(why), ..self }
    }

    const fn never_repeated(self) -> Self {
        Self { retries_lost: false, ..self }
    }
}

/// Expands to the row for a kind whose work is done by an agent.
macro_rules! work {
    ($kind:ident) => {
        KindRow {
            read: |value| {
                let spec: WorkSpec = serde_path_to_error::deserialize(value)?;
                Ok(Box::new(spec.with_kind(StateKind::$kind)))
            },
            restore: |value| {
                let spec = serde_json::from_value::<WorkSpec>(value)?;
                Ok(Box::new(spec.with_kind(StateKind::$kind)))
            },
            ..KindRow::new::<WorkSpec>(StateKind::$kind.as_str())
        }
    };
}

/// The kinds that may be used in a configuration.
pub const KINDS: [KindRow; 12] = [
    KindRow::new::<DreamSpec>("dream"),
    KindRow::new::<CommandSpec>("command").never_repeated(),
    KindRow::new::<PromptSpec>("prompt"),
    KindRow::new::<OvernightSpec>(overnight::KIND).unrecorded(
        "it publishes each iteration while it runs, and reads a corpus of any size: \
         its own artifacts record what it did",
    ),
    KindRow::new::<RemSpec>("rem"),
    KindRow::new::<DaydreamSpec>("daydream"),
    KindRow::new::<CycleSpec>("lifecycle"),
    work!(Wake),
    work!(Audit),
    work!(Plan),
    KindRow::new::<CuratorSpec>(curator::KIND).unrecorded(
        "each file of its queue is handled separately while it runs: its events describe each one",
    ),
    KindRow::new::<SessionsSpec>(sessions::KIND).unrecorded(
        "it reads transcripts of any size outside the project: its findings cite the lines",
    ),
];

/// The row for a night's report, which cannot be used in a configuration.
const REPORT: KindRow = KindRow::new::<ReportSpec>("report");

/// The names of the kinds that may be used in a configuration.
pub const NAMES: [&str; KINDS.len()] = {
    let mut names = [""; KINDS.len()];
    let mut at = 0;
    while at < KINDS.len() {
        names[at] = KINDS[at].name;
        at += 1;
    }
    names
};

/// Returns the row for a kind that may be used in a configuration.
pub fn find(name: &str) -> Option<&'static KindRow> {
    const { &KINDS }.iter().find(|row| row.name == name)
}

/// Returns the row for a kind that may occur in a recording.
pub fn find_recorded(name: &str) -> Option<&'static KindRow> {
    find(name).or_else(|| (name == REPORT.name).then_some(const { &REPORT }))
}

/// Returns whether a run of a kind is retried if its process died before any model call.
pub fn retries_lost(name: &str) -> bool {
    // The user starts each manual edit and can repeat a lost one, because its proposal is still
    // undecided.
    name != dream::review::KIND && find(name).is_none_or(|row| row.retries_lost)
}

/// Returns why runs of a kind are not recorded, or `None` if they are recorded.
pub fn unrecorded(name: &str) -> Option<&'static str> {
    find(name)?.unrecorded
}
