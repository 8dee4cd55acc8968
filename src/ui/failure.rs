//! The error type for commands: the problem and, if known, the command that fixes it.

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use runner_engine::error_chain::{plain, whole};
use runner_engine::outcome::Exit;
use runner_engine::store::StoreError;
use runner_memory::MemoryError;
use runner_text::{shell_line, shell_word};

#[derive(Clone, Debug)]
pub struct Failure {
    pub exit: Exit,
    what: String,
    hint: Option<String>,
    drawing: Option<String>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// Defines constructors that set the exit code.
macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident = $exit:ident;)+) => {
        impl Failure {
            $($(#[$doc])* pub fn $name(what: impl Into<String>) -> Self {
                Self::new(Exit::$exit, what)
            })+
        }
    };
}

constructors! {
    /// Creates a failure for a problem in the program's environment.
    environment = Configuration;
    /// Creates a failure for an error in the configuration.
    configuration = Configuration;
    /// Creates a failure for invalid input.
    data = Data;
    /// Creates a failure for invalid arguments that the parser does not detect.
    usage = Usage;
    cannot_write = CannotWrite;
    /// Creates a failure for an action that was refused.
    refused = Failed;
    /// Creates a failure for a temporary condition, such as a resource in use.
    later = TryLater;
    /// Creates a failure for a program or feature that this system lacks.
    unavailable = Unavailable;
    /// Creates a failure for a bug in this program.
    internal = Internal;
}

impl Failure {
    /// Returns whether the cause is a damaged database. No job may run until the user has repaired
    /// the database.
    pub fn is_damage(&self) -> bool {
        let source = self.source.as_ref().and_then(|source| source.downcast_ref());
        matches!(source, Some(StoreError::Damaged { .. }))
    }

    /// Returns whether the cause is a damaged memory store.
    pub fn is_damaged_memory(&self) -> bool {
        let source = self.source.as_ref().and_then(|source| source.downcast_ref());
        matches!(source, Some(MemoryError::Damaged { .. }))
    }

    /// Discards the cause, so that a damaged copy is not reported as a damaged database.
    pub fn of_a_copy(mut self) -> Self {
        self.source = None;
        self
    }

    fn new(exit: Exit, what: impl Into<String>) -> Self {
        Self { exit, what: plain(&what.into()), hint: None, drawing: None, source: None }
    }

    /// Creates a failure for a path that cannot be read or used, with exit code 78.
    pub fn unreadable(path: &Path, error: impl fmt::Display) -> Self {
        Self::environment(format!("{}: {error}", path.display()))
    }

    /// Creates a failure for a file or folder that cannot be created, with exit code 73.
    pub fn not_made(path: &Path, error: impl fmt::Display) -> Self {
        Self::cannot_write(format!("cannot create {}: {error}", path.display()))
    }

    /// Creates a failure for a file that cannot be written, with exit code 73.
    pub fn not_written(path: &Path, error: impl fmt::Display) -> Self {
        Self::cannot_write(format!("cannot write {}: {error}", path.display()))
    }

    fn caused_by(mut self, error: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(error));
        self
    }

    /// Adds an excerpt of the file with the error marked.
    pub fn drawn(mut self, drawing: impl Into<String>) -> Self {
        self.drawing = Some(drawing.into());
        self
    }

    /// Returns the text for a terminal. It includes the excerpt, which `Display` omits.
    pub fn message(&self) -> String {
        let mut text = self.what.clone();
        if let Some(drawing) = &self.drawing {
            text.push('\n');
            text.push_str(drawing);
        }
        if let Some(hint) = &self.hint {
            text.push_str("\n  fix: ");
            text.push_str(hint);
        }
        text
    }

    /// Returns the problem and the command that fixes it.
    pub fn parts(&self) -> (String, Option<String>) {
        (self.what.clone(), self.hint.clone())
    }

    /// Adds the command that fixes the problem.
    pub fn hint(mut self, command: impl Into<String>) -> Self {
        self.hint = Some(command.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  fix: {hint}"),
            None => Ok(()),
        }
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as _)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let what = whole(&error);
        let failure = match &error {
            StoreError::Damaged { path, .. } => Self::new(Exit::Internal, what).hint(match path.extension() {
                Some(ending) if ending == "sqlite" && path.file_stem().is_some_and(|it| it == "database") => {
                    "runner db restore   (replaces it with the newest backup; nothing is deleted)".to_owned()
                }
                _ => "name another backup".to_owned(),
            }),
            StoreError::HalfRestored { .. } => {
                Self::new(Exit::TryLater, what).hint("runner db restore   (finishes it)")
            }
            StoreError::NoBackup { .. } => {
                Self::new(Exit::Data, what).hint("ls \"$(dirname \"$(runner db path)\")/backups\"")
            }
            StoreError::Newer { .. } => {
                Self::new(Exit::Configuration, what)
                    .hint("start the newer version, which wrote the database; to return to a copy that this version can read: runner db restore")
            }
            StoreError::Older { .. } => Self::new(Exit::Configuration, what)
                .hint("runner tick   (or any other command that writes)"),
            StoreError::Stranger { path, .. } => {
                Self::new(Exit::Configuration, what).hint(aside(path))
            }
            StoreError::InUse { .. } => Self::new(Exit::TryLater, what)
                .hint("stop the older runner (or wait for its runs), then run the command again"),
            StoreError::Unsteady { .. } => Self::new(Exit::TryLater, what)
                .hint("runner status   (wait until fewer runs start and end, then try again)"),
            StoreError::CannotWrite { path, .. } => Self::new(Exit::CannotWrite, what).hint(format!(
                "df -h {0}; ls -l {1}*   (free some space there, or chmod u+rw the listed files)",
                shell_word(path.parent().unwrap_or(path).display()),
                shell_word(path.display())
            )),
            StoreError::CannotRead { path, .. } => Self::new(Exit::CannotWrite, what)
                .hint(format!("ls -ld {}", shell_word(path.parent().unwrap_or(path).display()))),
            StoreError::NotText { path } => Self::new(Exit::Configuration, what).hint(format!(
                "mv {} …   (to a path that is UTF-8)",
                shell_word(path.display())
            )),
            StoreError::NotFound { .. } => Self::new(Exit::Data, what).hint("runner runs"),
            StoreError::Missing { .. } => Self::new(Exit::Configuration, what).hint("runner init"),
            StoreError::Lost { path, left, .. } => {
                let lost = path.with_file_name("lost");
                Self::new(Exit::Internal, what).hint(format!(
                    "runner db restore   (or, to start with an empty database: mkdir {0} && mv {1} {0}/)",
                    shell_word(lost.display()),
                    shell_line(left.iter().map(|it| it.display()))
                ))
            }
            StoreError::Changed { .. } => Self::new(Exit::TryLater, what).hint("runner projects"),
            StoreError::Lock { .. } => Self::cannot_write(error.to_string()),
            StoreError::StaleFence { .. }
            | StoreError::Nonsense { .. }
            | StoreError::Sql { .. } => Self::new(Exit::Internal, what),
        };
        failure.caused_by(error)
    }
}

impl From<MemoryError> for Failure {
    fn from(error: MemoryError) -> Self {
        let what = error.to_string();
        let failure = match &error {
            MemoryError::Damaged { path, .. } => Self::new(Exit::Internal, what).hint(format!(
                "mv {0} {0}.damaged && runner memory import BACKUP.json   (an export; without one, memory starts empty)",
                shell_word(path.display())
            )),
            MemoryError::Busy { .. } => {
                Self::new(Exit::TryLater, what).hint("wait for the other program, then try again")
            }
            MemoryError::Newer { .. } => {
                Self::new(Exit::Configuration, what)
                    .hint("use the newer version of runner that wrote it")
            }
            MemoryError::Foreign { .. } => Self::new(Exit::Configuration, what)
                .hint("name another file with --db, or import it: runner memory import FILE"),
            MemoryError::Unusable { path, .. } => Self::new(Exit::CannotWrite, what)
                .hint(format!("ls -ld {0} && df -h {0}", shell_word(path.parent().unwrap_or(path).display()))),
            MemoryError::NotFound { what: "view", .. } => {
                Self::new(Exit::Data, what).hint("runner memory view list")
            }
            MemoryError::NotFound { .. } => Self::new(Exit::Data, what).hint("runner memory list"),
            MemoryError::Ambiguous { .. } => {
                Self::new(Exit::Data, what).hint("use more characters of the id")
            }
            MemoryError::Syntax { .. } => {
                Self::new(Exit::Usage, what).hint("runner memory query --help")
            }
            MemoryError::Invalid(_) => Self::new(Exit::Usage, what),
            MemoryError::Sql { .. } => Self::new(Exit::Internal, what),
        };
        failure.caused_by(error)
    }
}

/// Returns a shell command that moves an unusable database aside, together with the run logs and
/// the backups. The command names only folders that exist, because `mv` fails on others.
pub fn aside(store: &Path) -> String {
    let state = store.parent().unwrap_or(store);
    let beside: String = ["runs", "backups"]
        .iter()
        .map(|name| state.join(name))
        .filter(|path| path.exists())
        .map(|path| format!(" {}", shell_word(path.display())))
        .collect();
    format!(
        "mkdir {0}/damaged && mv {1}*{beside} {0}/damaged/   (history and budgets start again from zero; decisions are in your projects and are kept)",
        shell_word(state.display()),
        shell_word(store.display())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn os_error_numbers_are_omitted() {
        let failure = Failure::data("a: No such file (os error 2)");
        assert_eq!(failure.to_string(), "a: No such file");
    }
}
