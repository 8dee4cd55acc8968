//! From configuration to backends: what kinds there are, and what each needs.
//!
//! Must never read the environment: a child's environment is handed in, and of that only the
//! ordinary variables and those that the backend names go on.

use std::collections::BTreeMap;
use std::path::{Component, Path};
use std::sync::Arc;

use runner_engine::walls::Confine;
use serde::{Deserialize, Serialize};

use crate::command::{Command, Plan, REQUEST_FILE};
use crate::redact::ORDINARY;
use crate::{Backend, BackendError, Builtin};

/// The kinds that [`build`] knows.
pub const KINDS: [&str; 2] = ["builtin", "command"];

/// One `[backends.NAME]` of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BackendSpec {
    /// The name that jobs refer to.
    pub name: String,
    /// One of [`KINDS`].
    pub kind: String,
    /// `command`: a name to look for in `PATH`, or an absolute path.
    pub program: Option<String>,
    /// `command`: its arguments. Never a secret: every user can read them.
    pub args: Vec<String>,
    /// The model, where the kind has a choice; shown in reports.
    pub model: Option<String>,
    /// `command`: names of variables that it needs besides the ordinary ones.
    pub env: Vec<String>,
    /// `command`: the file in the run folder that it may answer with. Default: `proposals.json`.
    pub artifact: Option<String>,
    /// `command`: it says nothing before its answer, as `claude -p --output-format json` does, so
    /// that only the total deadline applies. Default: no.
    pub quiet: bool,
    /// `command`: how many bytes of each stream, and of the artifact, are taken. Default: 64 MiB.
    pub output_cap: Option<usize>,
}

/// What a backend's child is started in.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The environment that children may be given; each gets the ordinary variables and what its
    /// backend names.
    pub env: &'a BTreeMap<String, String>,
    /// The walls of the job that asks; a backend adds its own program's state folders. `None`
    /// starts it without a launcher, as only tests do.
    pub confine: Option<&'a Confine>,
}

/// Makes the backend that `spec` describes.
///
/// # Errors
/// [`BackendError::Rejected`]: what is wrong with the configuration.
pub fn build(
    spec: &BackendSpec,
    around: &Surroundings<'_>,
) -> Result<Arc<dyn Backend>, BackendError> {
    let env = around.env;
    let rejected = |why: String| {
        Err(BackendError::Rejected {
            why: format!("backend {:?}: {why}", spec.name),
        })
    };
    match spec.kind.as_str() {
        "builtin" => Ok(Arc::new(Builtin::new(&spec.name))),
        "command" => {
            let program = spec.program.as_deref().unwrap_or_default();
            if program.is_empty() {
                return rejected("kind \"command\" needs a program".to_owned());
            }
            if program.contains('/') && !program.starts_with('/') {
                return rejected(format!(
                    "the program {program:?} is neither a name nor an absolute path"
                ));
            }
            let artifact = spec.artifact.as_deref().unwrap_or("proposals.json");
            let mut parts = Path::new(artifact).components();
            let plain = matches!(
                (parts.next(), parts.next()),
                (Some(Component::Normal(_)), None)
            );
            if !plain || artifact.contains('/') || artifact == REQUEST_FILE {
                return rejected(format!(
                    "the artifact {artifact:?} is not a plain file name"
                ));
            }
            let wanted = ORDINARY
                .into_iter()
                .chain(spec.env.iter().map(String::as_str));
            let given = wanted
                .filter_map(|name| Some((name.to_owned(), env.get(name)?.clone())))
                .collect();
            let missing = spec
                .env
                .iter()
                .filter(|name| !env.contains_key(*name))
                .cloned();
            Ok(Arc::new(Command::new(Plan {
                name: spec.name.clone(),
                model: spec.model.clone(),
                program: program.into(),
                args: spec.args.clone(),
                env: given,
                missing: missing.collect(),
                artifact: artifact.to_owned(),
                quiet: spec.quiet,
                confine: around.confine.cloned(),
                output_cap: spec.output_cap.unwrap_or(64 * 1024 * 1024),
                held: std::sync::Mutex::default(),
            })))
        }
        other => {
            let hint = nearest(other, &KINDS).map(|kind| format!("; did you mean {kind:?}?"));
            let known = KINDS.join(", ");
            rejected(format!(
                "unknown kind {other:?}{} (known: {known})",
                hint.unwrap_or_default()
            ))
        }
    }
}

/// The known word that is a typing slip away from `word`.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let distances = known.iter().map(|known| (distance(word, known), *known));
    let (distance, nearest) = distances.min()?;
    (distance <= nearest.len() / 2).then_some(nearest)
}

/// How many letters must be put in, left out or replaced.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOWHERE: Surroundings<'_> = Surroundings {
        env: &BTreeMap::new(),
        confine: None,
    };

    fn why(spec: &BackendSpec) -> String {
        match build(spec, &NOWHERE) {
            Ok(backend) => panic!("built {:?}", backend.describe()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn an_unknown_kind_names_the_nearest() {
        let spec = |kind: &str| BackendSpec {
            kind: kind.into(),
            ..BackendSpec::default()
        };
        assert!(why(&spec("comand")).contains("did you mean \"command\"?"));
        assert!(why(&spec("built-in")).contains("did you mean \"builtin\"?"));
        let far = why(&spec("xyzzy"));
        assert!(
            far.contains("known: builtin, command") && !far.contains("mean"),
            "{far}"
        );
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn programs_and_artifacts_are_named_without_doubt() {
        let spec = |program: &str, artifact: &str| BackendSpec {
            kind: "command".into(),
            program: Some(program.into()),
            artifact: Some(artifact.into()),
            ..BackendSpec::default()
        };
        assert!(why(&spec("", "a")).contains("needs a program"));
        assert!(why(&spec("bin/x", "a")).contains("neither a name nor an absolute path"));
        for artifact in ["", "..", ".", "a/b", "/a", "a/", "request.json"] {
            assert!(
                why(&spec("x", artifact)).contains("plain file name"),
                "{artifact:?}"
            );
        }
        assert!(build(&spec("x", "answer.json"), &NOWHERE).is_ok());
    }
}
