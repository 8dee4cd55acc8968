//! Creates backends from their settings.
//!
//! This module must never read the environment. The caller passes in an environment. A child
//! receives only the default variables, those that its backend lists, and those in its `env_file`.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use runner_engine::digest::Digest;
use runner_engine::sandbox::SandboxedStart;
use runner_engine::time::Clock;

use crate::agent::AgentPlan;
use crate::child::LastSandbox;
use crate::claude::Claude;
use crate::codex::Codex;
use crate::command::{Command, CommandPlan, REQUEST_FILE};
use crate::redact::ORDINARY;
use crate::slots::Slotted;
use crate::spec::{AgentKind, AgentSettings, ChildSettings, CommandSettings, at_home};
use crate::{Backend, BackendError, BackendKind, BackendSpec, Builtin, Replay, api, credentials};

/// The caller's environment, sandbox, slots and clock for a backend.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The environment from which each child receives the default variables and those listed by its
    /// backend.
    pub env: &'a BTreeMap<String, String>,
    /// The requesting job's sandbox. A backend adds its program's state folder to it. If this is
    /// `None`, the program starts without a launcher.
    pub sandbox_start: Option<&'a SandboxedStart>,
    /// The folder that contains the slots' lock files, or `None` if there is no limit.
    pub slots: Option<&'a Path>,
    /// The clock for interpreting the times that a program or an API reports.
    pub clock: &'a Clock,
}

/// Creates the backend that `spec` describes.
///
/// # Errors
/// Returns [`BackendError::Rejected`] if the configuration or a recording is invalid, and
/// [`BackendError::NotLoggedIn`] if the `env_file` cannot be used.
pub fn build(
    spec: &BackendSpec,
    around: &Surroundings<'_>,
) -> Result<Arc<dyn Backend>, BackendError> {
    match &spec.kind {
        BackendKind::Builtin => Ok(Arc::new(Builtin::new(&spec.name))),
        BackendKind::Replay(settings) => {
            let path = at_home(&settings.recording, around.env);
            Ok(Arc::new(Replay::open(&spec.name, path)?))
        }
        BackendKind::Command(own, child) => {
            Ok(Arc::new(Command::new(command_plan(spec, own, child, around)?)))
        }
        BackendKind::Agent(kind, agent, child) => {
            let plan = agent_plan(spec, (kind, agent, child), around)?;
            let home = credentials::home(&plan).unwrap_or_default();
            let inner: Arc<dyn Backend> = match kind {
                AgentKind::Claude(settings) => Arc::new(Claude::new(plan, settings.clone())),
                AgentKind::Codex => Arc::new(Codex::new(plan)),
            };
            let login = home.as_os_str().as_encoded_bytes();
            Ok(limited(spec, inner, login, Some(agent.slots.unwrap_or(1)), around))
        }
        BackendKind::Api(_, settings) => {
            let plan = api::plan::EndpointPlan::of(spec, around)?;
            let login = format!("{}{:?}", plan.base, plan.key.as_ref().map(|(name, _)| name));
            let inner = Arc::new(api::Api::new(plan));
            Ok(limited(spec, inner, login.as_bytes(), settings.slots, around))
        }
    }
}

/// Wraps a backend so that its requests wait for one of the `slots` of its login. Returns the
/// backend unchanged if there is no limit.
fn limited(
    spec: &BackendSpec,
    inner: Arc<dyn Backend>,
    login: &[u8],
    slots: Option<u32>,
    around: &Surroundings<'_>,
) -> Arc<dyn Backend> {
    let (Some(folder), Some(slots)) = (around.slots, slots) else { return inner };
    let digest = Digest::of(login).to_string();
    let short: String = digest.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    let login = format!("{}-{short}", spec.kind.name());
    Arc::new(Slotted { inner, folder: folder.to_owned(), login, slots })
}

fn rejected(spec: &BackendSpec, why: &str) -> BackendError {
    BackendError::Rejected { why: format!("backend {:?}: {why}", spec.name) }
}

/// Checks that a program is a name or an absolute path.
fn program(spec: &BackendSpec, program: &str) -> Result<PathBuf, BackendError> {
    match program.is_empty() || program.contains('/') && !program.starts_with('/') {
        true => {
            let why = format!("the program {program:?} is neither a name nor an absolute path");
            Err(rejected(spec, &why))
        }
        false => Ok(program.into()),
    }
}

fn command_plan(
    spec: &BackendSpec,
    own: &CommandSettings,
    child: &ChildSettings,
    around: &Surroundings<'_>,
) -> Result<CommandPlan, BackendError> {
    let artifact = own.artifact.as_deref().unwrap_or("proposals.json");
    let mut parts = Path::new(artifact).components();
    let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    if artifact == REQUEST_FILE {
        let why = format!("the artifact cannot be {artifact:?}, which is the request");
        return Err(rejected(spec, &why));
    }
    if !plain || artifact.contains('/') {
        return Err(rejected(spec, &format!("the artifact {artifact:?} is not a plain file name")));
    }
    let (env, missing) = given(spec, around)?;
    Ok(CommandPlan {
        name: spec.name.clone(),
        program: program(spec, &own.program)?,
        settings: child.clone(),
        env,
        missing,
        artifact: artifact.to_owned(),
        sandbox_start: around.sandbox_start.cloned(),
        held: LastSandbox::default(),
    })
}

/// Returns the environment for the backend `spec`, and the names in its `env` that are unset.
pub(crate) fn given(
    spec: &BackendSpec,
    around: &Surroundings<'_>,
) -> Result<(BTreeMap<String, String>, Vec<String>), BackendError> {
    let from_file = match spec.env_file(around.env) {
        Some(path) => credentials::from_file(&path)?,
        None => BTreeMap::new(),
    };
    let wanted = ORDINARY.into_iter().chain(spec.variables());
    let mut env: BTreeMap<String, String> =
        wanted.filter_map(|name| Some((name.to_owned(), around.env.get(name)?.clone()))).collect();
    env.extend(from_file);
    let named = spec.kind.env().unwrap_or_default().iter();
    let missing = named.filter(|name| !env.contains_key(*name)).cloned().collect();
    Ok((env, missing))
}

/// Returns the plan for running the agent of the backend `spec` with these settings.
///
/// # Errors
/// Returns the same errors as [`build`].
pub(crate) fn agent_plan(
    spec: &BackendSpec,
    (kind, agent, child): (&AgentKind, &AgentSettings, &ChildSettings),
    around: &Surroundings<'_>,
) -> Result<AgentPlan, BackendError> {
    let kind = kind.name();
    let (env, missing) = given(spec, around)?;
    let mut plan = AgentPlan {
        name: spec.name.clone(),
        kind,
        program: program(spec, agent.program.as_deref().unwrap_or(kind))?,
        settings: child.clone(),
        env,
        missing,
        state: (agent.state.as_deref()).map(|path| at_home(path, around.env)),
        sessions: agent.sessions,
        tools: agent.tools.clone(),
        sandbox_start: around.sandbox_start.cloned(),
        clock: around.clock.clone(),
        held: LastSandbox::default(),
    };
    if plan.is_sandboxed() {
        plan.state = credentials::home(&plan);
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use runner_engine::sandbox::Sandbox;

    use super::*;

    const NOWHERE: Surroundings<'_> = Surroundings {
        env: &BTreeMap::new(),
        sandbox_start: None,
        slots: None,
        clock: &Clock::Host,
    };

    #[test]
    fn invalid_program_and_artifact_are_refused() {
        let spec = |program: &str, artifact: &str| {
            let artifact = Some(artifact.to_owned());
            let own = CommandSettings { program: program.to_owned(), artifact };
            BackendSpec::new("mine", BackendKind::Command(own, ChildSettings::default()))
        };
        let why = |spec: &BackendSpec| match build(spec, &NOWHERE) {
            Ok(backend) => panic!("built {:?}", backend.describe()),
            Err(error) => error.to_string(),
        };
        for program in ["", "bin/x"] {
            let why = why(&spec(program, "a"));
            assert!(why.contains("neither a name nor an absolute path"), "{why}");
        }
        for artifact in ["", "..", ".", "a/b", "/a", "a/"] {
            assert!(why(&spec("x", artifact)).contains("plain file name"), "{artifact:?}");
        }
        let reserved = why(&spec("x", "request.json"));
        assert!(reserved.contains("request"), "{reserved}");
        assert!(build(&spec("x", "answer.json"), &NOWHERE).is_ok());
    }

    #[test]
    fn only_the_own_login_is_visible() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let [own, other] = ["own", "other"].map(|name| root.join(name).join("auth.json"));
        let sandbox = Sandbox { hide: vec![own, other.clone()], ..Sandbox::default() };
        let start = SandboxedStart { launcher: "/launcher".into(), sandbox };
        let around = Surroundings { sandbox_start: Some(&start), ..NOWHERE };
        std::fs::create_dir(root.join("own")).unwrap();
        let agent = AgentSettings { state: Some(root.join("own")), ..AgentSettings::default() };
        let child = ChildSettings::default();
        let kind = BackendKind::Agent(AgentKind::Codex, agent.clone(), child.clone());
        let spec = BackendSpec::new("night", kind);
        let plan = agent_plan(&spec, (&AgentKind::Codex, &agent, &child), &around).unwrap();
        assert_eq!(plan.sandbox().unwrap().sandbox.hide, [other]);
    }
}
