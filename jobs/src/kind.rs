//! The trait that every kind of job implements.
//!
//! Each kind implements the trait for its settings type, in its own file or folder. `kinds.rs`
//! contains the only table of kinds.

use std::any::Any;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::SignedDuration;
use runner_engine::git::Git;
use runner_engine::outcome::Class;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::curator::spec::CuratorSpec;
use crate::dry_run::DryRunPlan;
use crate::lifecycle::files::Files;
use crate::{Context, Finished, JobError};

/// An invalid setting of a job: its key, and the reason to show to the user.
pub type BadSetting = (&'static str, String);

/// A kind of job, implemented by the type of its settings.
pub trait Kind: KindObject + Debug + Send + Sync + 'static {
    /// Returns the name of the kind in the configuration and in lists.
    fn name(&self) -> &'static str;

    /// Does the work of an admitted run. `job` is the job's name.
    ///
    /// # Errors
    /// Returns an error if the run does not finish its work. Its staged files are then discarded.
    fn run(&self, ctx: &mut Context<'_>, job: &str) -> Result<Finished, JobError>;

    /// Plans the work up to the point where a run would call a model or start a program.
    ///
    /// # Errors
    /// Returns the error that would end the run before that point.
    fn dry_run(&self, ctx: &mut Context<'_>) -> Result<DryRunPlan, JobError>;

    /// Returns the paths inside the project that runner itself writes for a run.
    fn publishes(&self) -> Targets;

    /// Checks the settings of the kind.
    ///
    /// # Errors
    /// Returns the first invalid setting.
    fn check(&self) -> Result<(), BadSetting> {
        Ok(())
    }

    /// Copies the project-level settings that the kind needs.
    fn adopt(&mut self, _project: &ProjectSettings<'_>) {}

    /// Returns whether a job scheduled at a time of day belongs to the project's night, and
    /// therefore uses the night's budget and appears in the night's report. Jobs of other kinds
    /// belong to the night only with the trigger `night`.
    fn belongs_to_night(&self) -> bool {
        false
    }

    /// Sets whether the host is kept awake during a run.
    fn set_keep_awake(&mut self, _keep_awake: bool) {}

    /// Replaces `{date}` in the settings with the date of the night or day.
    fn set_date(&mut self, _date: &str) {}

    /// Returns the inputs that runner supplied in addition to the settings, for a recording.
    fn given(&self) -> Value {
        Value::Null
    }

    /// Restores the inputs of [`Kind::given`] from a recording.
    ///
    /// # Errors
    /// Returns a message that describes the invalid input.
    fn give(&mut self, _given: Value) -> Result<(), String> {
        Ok(())
    }

    /// Returns the time limit of a run if the job does not set one.
    fn default_timeout(&self) -> SignedDuration {
        SignedDuration::from_mins(10)
    }

    /// Returns how long a manual run waits for another run of its job to end. After that time, the
    /// manual run is skipped.
    fn manual_wait(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns the number of retries of a failed run if the job does not set one. `None` selects
    /// the general default.
    fn default_retries(&self) -> Option<u32> {
        None
    }

    /// Returns the number of ideas that one run may use if the job's budget does not set one.
    /// `None` means that the number is not limited.
    fn default_ideas(&self) -> Option<u64> {
        None
    }

    /// Returns whether the host is kept awake by default even when the run does not belong to a
    /// night.
    fn is_unattended(&self) -> bool {
        true
    }

    /// Returns whether runs of the kind call a model.
    fn asks(&self) -> Asks {
        Asks::Always
    }

    /// Returns whether the built-in backend answers when no configured one can.
    fn falls_back_to_rules(&self) -> bool {
        false
    }

    /// Returns the names of additional backends, each of which is asked for a separate report.
    fn panel(&self) -> &[String] {
        &[]
    }

    /// Returns the program that the job itself starts, as named in the configuration, or `None` if
    /// the job starts none.
    fn program(&self) -> Option<&str> {
        None
    }

    /// Returns the names of the environment variables that the job passes to its program.
    fn variables(&self) -> &[String] {
        &[]
    }

    /// Returns whether runs are exempt from pauses, gates, budgets and the circuit breaker.
    ///
    /// Reports are exempt, because a failure must not prevent the report that describes it. Results
    /// from other hosts are exempt, because their work has already passed these checks.
    fn is_exempt(&self) -> bool {
        false
    }

    /// Returns whether consecutive failures open the circuit breaker.
    fn opens_breaker(&self) -> bool {
        !self.is_exempt()
    }

    /// Returns the uncommitted changes that defer a run.
    ///
    /// # Errors
    /// Returns an error if git fails.
    fn uncommitted(&self, _git: &Git) -> Result<Vec<String>, JobError> {
        Ok(Vec::new())
    }

    /// Returns why no run may start in the project's current state, or `None` if one may.
    fn refusal(&self, _root: &Path) -> Option<(Class, String)> {
        None
    }

    /// Returns the paths in the project that the job's own processes may write, or `None` if they
    /// may write only to [`Kind::shared_folders`].
    fn works(&self) -> Option<Works<'_>> {
        None
    }

    /// Returns the paths of [`Kind::works`] that apply to the next run.
    fn works_now(&self) -> Option<Works<'_>> {
        self.works()
    }

    /// Returns the paths inside the project that a run writes, whether runner or one of the job's
    /// processes writes them.
    fn touches(&self) -> Vec<String> {
        self.publishes().paths()
    }

    /// Returns the folders inside the project that the job's processes may write if they exist.
    fn shared_folders(&self) -> &[&'static str] {
        &[]
    }

    /// Returns the folders inside the project that no other job's process may write.
    fn protects(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the paths in the project that the settings name, each with the key of its setting.
    fn paths(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Returns the files to which text from a program or model is written unmodified, and the key
    /// that sets them. Returns `None` if there are none.
    fn unchecked_targets(&self) -> Option<(&'static str, Vec<String>)> {
        None
    }

    /// Returns the values of the settings that contain instructions or the path of a file with
    /// instructions.
    fn prompts(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the folder inside the project under which a run stages its files.
    fn staging(&self) -> String {
        ".runner/staging".to_owned()
    }

    /// Returns the lock file defined by the kind's contract, relative to the project, or `None` if
    /// the contract defines none.
    fn lock_file(&self) -> Option<PathBuf> {
        None
    }

    /// Returns the failure marker defined by the kind's contract, relative to the project, or
    /// `None` if the contract defines none.
    fn failure_marker(&self) -> Option<PathBuf> {
        None
    }
}

/// Project-level settings that kinds use.
#[derive(Clone, Copy, Debug)]
pub struct ProjectSettings<'a> {
    /// The `[lifecycle]` section.
    pub lifecycle: &'a Files,
    /// The `[curator]` section.
    pub curator: &'a CuratorSpec,
}

/// Paths inside the project that runner writes for a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    /// Exactly these files.
    Files(Vec<String>),
    /// Any files in these folders.
    Folders(Vec<String>),
}

impl Targets {
    pub fn paths(self) -> Vec<String> {
        match self {
            Self::Files(paths) | Self::Folders(paths) => paths,
        }
    }
}

/// The paths in the project that a job's own processes may write. `None` means nearly all paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Works<'a> {
    /// The paths that a program may write.
    Program(Option<&'a [String]>),
    /// The paths that an agent may write. An agent may also commit.
    Agent(Option<&'a [String]>),
}

/// Whether runs of a kind call a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// Each run calls a model.
    Always,
    /// A run calls a model if one is ready, and otherwise applies its rules.
    Optionally,
    /// No run calls a model.
    Never,
}

/// Operations that the settings type of every [`Kind`] provides.
pub trait KindObject: Any {
    fn boxed(&self) -> Box<dyn Kind>;
    /// Returns the settings as JSON.
    ///
    /// # Errors
    /// Returns an error if the settings cannot be written as JSON.
    fn settings(&self) -> serde_json::Result<Value>;
}

impl<T: Kind + Clone + Serialize> KindObject for T {
    fn boxed(&self) -> Box<dyn Kind> {
        Box::new(self.clone())
    }

    fn settings(&self) -> serde_json::Result<Value> {
        serde_json::to_value(self)
    }
}

impl dyn Kind {
    /// Returns the settings if they are of kind `T`.
    pub fn of<T: Kind>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }

    /// Returns a mutable reference to the settings if they are of kind `T`.
    pub fn of_mut<T: Kind>(&mut self) -> Option<&mut T> {
        (self as &mut dyn Any).downcast_mut()
    }
}

impl Clone for Box<dyn Kind> {
    fn clone(&self) -> Self {
        (**self).boxed()
    }
}

/// Returns one input of [`Kind::given`], or the type's default if the recording has none.
///
/// # Errors
/// Returns an error if the input has another type.
pub fn given_input<T: DeserializeOwned + Default>(given: &Value, name: &str) -> Result<T, String> {
    match given.get(name) {
        None | Some(Value::Null) => Ok(T::default()),
        Some(value) => {
            serde_json::from_value(value.clone()).map_err(|error| format!("{name}: {error}"))
        }
    }
}
