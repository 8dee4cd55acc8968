//! `runner hook post-tool-use`: adds one row to `_steps.jsonl` for a tool that a session used.
//!
//! The hook is called after every tool, so it opens no database, does not call git and starts no
//! runtime. It must never end with exit code 2, which would show its output to the model, and never
//! write anything except the row.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use runner_engine::outcome::Exit;
use runner_jobs::lifecycle::manifest::is_agent_name;
use runner_jobs::steps::{self, StepsFile};
use runner_text::redact::Redactor;
use serde::Deserialize;

use crate::cli::Failure;
use crate::config;
use crate::env::{self, Env};
use crate::project;

/// Maximum size of a payload, in bytes. The payload contains the tool's whole output.
const LONGEST: u64 = 64 * 1024 * 1024;

/// The folder in which the session works.
#[derive(Deserialize)]
struct SessionPlace {
    cwd: Option<PathBuf>,
}

/// Records the tool use in the payload. Outside of a project, or in a run of runner itself, it
/// records nothing.
pub fn post_tool_use(home: &Env, here: &Path, agent: Option<&str>) -> Result<Exit, Failure> {
    if let Some(agent) = agent.filter(|it| !is_agent_name(it)) {
        return Err(Failure::usage(format!("{agent:?} is not a valid agent name")));
    }
    let mut payload = Vec::new();
    let read = io::stdin().lock().take(LONGEST + 1).read_to_end(&mut payload);
    let read = read.map_err(|error| Failure::data(format!("the payload: {error}")))?;
    if read as u64 > LONGEST {
        return Err(Failure::data(format!("the payload is longer than {LONGEST} bytes")));
    }
    // For its own runs, runner writes the rows from the event stream.
    if env::setting("RUNNER_RUN").is_some() {
        return Ok(Exit::Done);
    }
    let at: SessionPlace = serde_json::from_slice(&payload)
        .map_err(|error| Failure::data(format!("the payload: {error}")))?;
    let folder = at.cwd.unwrap_or_else(|| here.to_owned());
    let Ok(root) = project::find(&folder) else {
        return Ok(Exit::Done);
    };
    let config = config::load(&home.stack(Some(&root.join(project::FILE))))?;
    let redactor = Redactor::new(Vec::new());
    let step = steps::of_hook(&payload, &root, &redactor)
        .map_err(|why| Failure::data(why).hint("runner hook post-tool-use --help"))?;
    let file = StepsFile::new(&root, &config.lifecycle.steps, agent);
    file.append(step, home.wall()?).map_err(|error| {
        Failure::cannot_write(format!("cannot write {}: {error}", config.lifecycle.steps))
    })?;
    Ok(Exit::Done)
}
