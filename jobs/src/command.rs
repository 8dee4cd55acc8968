//! Runs a program and publishes its declared artifacts.
//!
//! The program runs in the project's folder and writes its artifacts to the private folder named by
//! `RUNNER_OUT`. The run succeeds only if the program exits with code 0 and every declared artifact
//! exists and is valid. Runner reads the artifacts after the whole process tree has exited, and
//! publishes the bytes that it read. This module must never move a file that the child wrote.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::SignedDuration;
use runner_engine::outcome::Class;
use runner_engine::process::{
    self, ChildSandbox, ChildSpec, Ended, ExitStatus, Limits, OutputVerdict, Reason, SpawnError,
    Stdin,
};
use runner_engine::publish::{RealFs, RelPath};
use runner_engine::recording::{InputRecording, UnrecordedInput};
use runner_engine::scope::Expect;
use runner_text::counted;
use runner_text::redact::{Redacted, Redactor};
use runner_text::values::read_folders;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::context::OUT_FOLDER;
use crate::denied::{DeniedAccess, PathSetting};
use crate::dry_run::{DryRunPlan, PlannedChild};
use crate::kind::{Asks, BadSetting, Kind, Targets, Works};
use crate::output::Output;
use crate::reserved;
use crate::{Context, Finished, JobError};

/// The keys of the program's result and of its artifacts in a recording.
const PROGRAM: &str = "program";
const LEFT: &str = "left";

/// Maximum size of a published artifact, in bytes.
const LARGEST: u64 = 64 * 1024 * 1024;
/// Maximum number of characters that a report quotes from the end of a program's output.
const LAST_WORDS: usize = 400;

/// The program to run and the artifacts that it must produce.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandSpec {
    /// The program: a name to look up in PATH, or a path.
    pub program: String,
    /// The program's arguments. They must never contain a secret, because every user can read them.
    #[serde(default)]
    pub args: Vec<String>,
    /// The names of environment variables to pass to the program in addition to the default ones.
    #[serde(default)]
    pub env: Vec<String>,
    /// The files that the program must produce.
    #[serde(default)]
    pub artifacts: Vec<Artifact>,
    /// The paths in the project that the program may write; "." is the whole project except the
    /// paths reserved for runner, git and agents. Default: ["."].
    #[serde(default, deserialize_with = "read_folders")]
    #[schemars(with = "Option<Vec<String>>")]
    pub writes: Option<Vec<String>>,
}

/// One file that a run must produce.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Artifact {
    /// The path inside RUNNER_OUT where the program writes the file.
    pub from: String,
    /// The path in the project where the file is published.
    pub to: String,
}

/// Runs the program and stages its artifacts.
///
/// # Errors
/// Returns an error if the program cannot be run or fails, if its commits cannot be imported, or if
/// a declared artifact is missing, invalid or refused by the scope.
pub fn run(ctx: &mut Context<'_>, spec: &CommandSpec) -> Result<Finished, JobError> {
    let out = ctx.files.run_dir().join(OUT_FOLDER);
    let ran = match ctx.recording.replays() {
        true => recalled(&ctx.recording),
        false => start(ctx, spec, &out),
    };
    match &ran {
        Ok(killed) => (ctx.recording).note(PROGRAM, "", json!({ "killed": killed }), None),
        Err(error) => note_failure(&ctx.recording, PROGRAM, "", error),
    }
    let killed = ran?;
    let commits = ctx.work.close()?.imported.commits;
    let mut finished = Finished {
        headline: match spec.artifacts.len() {
            0 => format!("{} exited with 0; the job declares no artifact", spec.program),
            n => format!("{} produced {}", spec.program, counted(n, "artifact")),
        },
        ..Finished::default()
    };
    if killed > 0 {
        finished.lines.push(format!("killed {} that it left behind", counted(killed, "process")));
    }
    finished.lines.extend(commits.iter().map(|commit| format!("committed {commit}")));
    for artifact in &spec.artifacts {
        let bytes = match ctx.recording.replays() {
            true => left_then(&ctx.recording, &artifact.from),
            false => noted(&ctx.recording, &artifact.from, collect(&out, &artifact.from)),
        }?;
        parses(&artifact.to, &bytes)?;
        ctx.files.stage(&artifact.to, &bytes, Expect::Current)?;
        finished.lines.push(format!("{} ({} bytes)", artifact.to, bytes.len()));
    }
    finished.facts.insert("exit".to_owned(), json!(0));
    finished.facts.insert("killed".to_owned(), json!(killed));
    finished.facts.insert("commits".to_owned(), json!(commits));
    Ok(finished)
}

/// Returns the recorded result of the program instead of running the program again.
fn recalled(recording: &InputRecording) -> Result<usize, JobError> {
    let facts = recording.recall(PROGRAM, "").map_err(unrecorded)?.facts;
    if let Some(killed) = facts["killed"].as_u64() {
        return Ok(usize::try_from(killed).unwrap_or(usize::MAX));
    }
    Err(failure(&facts))
}

/// Records a failure. Other errors, such as the cancellation of the run, are not recorded.
fn note_failure(recording: &InputRecording, input: &str, question: &str, error: &JobError) {
    let class = match error {
        JobError::Failed { class, .. } => *class,
        JobError::Io { .. } => Class::Environment,
        _ => return,
    };
    recording.note(input, question, json!({ "class": class, "why": error.whole() }), None);
}

fn failure(facts: &Value) -> JobError {
    let class = serde_json::from_value(facts["class"].clone()).unwrap_or(Class::Internal);
    let why = facts["why"].as_str().unwrap_or("no reason was recorded");
    JobError::failed(class, why)
}

/// Records an artifact left by a program, or the failure to read it, and returns `left`.
fn noted(
    recording: &InputRecording,
    from: &str,
    left: Result<Vec<u8>, JobError>,
) -> Result<Vec<u8>, JobError> {
    match &left {
        Ok(bytes) => recording.note(LEFT, from, Value::Null, Some(bytes)),
        Err(error) => note_failure(recording, LEFT, from, error),
    }
    left
}

/// Returns the artifact left by the program in the recorded run.
fn left_then(recording: &InputRecording, from: &str) -> Result<Vec<u8>, JobError> {
    let answer = recording.recall(LEFT, from).map_err(unrecorded)?;
    match answer.content {
        Some((_, bytes)) => Ok(bytes),
        None => Err(failure(&answer.facts)),
    }
}

fn unrecorded(error: UnrecordedInput) -> JobError {
    JobError::failed(Class::ArtifactMissing, error.to_string())
}

/// Runs the program to completion and returns the number of leftover processes that were killed.
fn start(ctx: &mut Context<'_>, spec: &CommandSpec, out: &Path) -> Result<usize, JobError> {
    fs::create_dir_all(out).map_err(|source| JobError::Io {
        doing: "create",
        path: out.to_owned(),
        source,
    })?;
    let mut env = ctx.programs.env().clone();
    env.insert("RUNNER_OUT".to_owned(), out.display().to_string());
    let child = ChildSpec {
        program: PathBuf::from(&spec.program),
        args: spec.args.iter().map(OsString::from).collect(),
        cwd: ctx.files.root().to_owned(),
        env,
        stdin: Stdin::Null,
        limits: Limits { total: Some(ctx.clock.left()), ..Limits::default() },
        marker: ctx.admitted.run().to_string(),
        sandbox: ctx.programs.sandbox(),
    };
    ctx.progress.step(&spec.program, 0, 1);
    let mut said = Output::begin(ctx.files.run_dir(), &ctx.redactor)?;
    let ended = process::run(&child, &ctx.cancel, &mut |stream, bytes| {
        said.take(stream, bytes);
        OutputVerdict::Continue
    })
    .map_err(not_started)?;
    ctx.progress.step(&spec.program, 1, 1);
    ctx.programs.note_sandbox(ended.containment.as_ref());
    said.finish()?;
    judge(ctx, &ended, &child.sandbox)?;
    Ok(ended.killed)
}

fn not_started(error: SpawnError) -> JobError {
    let class = match error {
        SpawnError::NotFound { .. } | SpawnError::NotExecutable { .. } => Class::NotInstalled,
        SpawnError::Cwd { .. } | SpawnError::Io { .. } | SpawnError::Sandbox { .. } => {
            Class::Environment
        }
        SpawnError::Cancelled { why } => return JobError::Cancelled { why },
    };
    JobError::failed(class, error.to_string())
}

fn judge(ctx: &Context<'_>, ended: &Ended, sandbox: &ChildSandbox) -> Result<(), JobError> {
    let took = format!("{:.1}", ended.took().as_secs_f64());
    match &ended.reason {
        Reason::Cancelled => {
            return Err(JobError::Cancelled {
                why: ctx.cancel.why().unwrap_or_else(|| "cancelled".to_owned()),
            });
        }
        Reason::TotalDeadline => {
            return Err(JobError::TimedOut {
                why: format!("it was terminated at its total deadline, after {took} s"),
            });
        }
        Reason::FirstByteDeadline | Reason::IdleDeadline => {
            return Err(JobError::failed(
                Class::Silent,
                format!("it was terminated after {took} s because it wrote no output for too long"),
            ));
        }
        Reason::OutputCap { .. } => {
            return Err(JobError::failed(
                Class::Crash,
                "it wrote more output than its limit allows and was terminated",
            ));
        }
        Reason::Quota => {
            return Err(JobError::failed(
                Class::Crash,
                "it wrote more data to its folder than its limit allows and was terminated",
            ));
        }
        Reason::Overuse(over) => {
            return Err(JobError::failed(Class::Crash, over.to_string()));
        }
        Reason::Exited => {}
    }
    match ended.status {
        ExitStatus::Exit(0) => Ok(()),
        status => {
            let words = if ended.stderr.is_empty() { &ended.stdout } else { &ended.stderr };
            let denied = DeniedAccess::find(&String::from_utf8_lossy(words), sandbox);
            let root = ctx.files.root();
            let denied = denied.map_or_else(String::new, |denied| {
                format!("; {}", denied.describe(root, PathSetting::Writes))
            });
            let words = last_words(words, &ctx.redactor) + &denied;
            let words = ctx.redactor.redact(&words).into_owned();
            let class = match status {
                ExitStatus::Exit(_) => Class::Exit,
                ExitStatus::Signal(_) => Class::Crash,
            };
            Err(JobError::failed(class, format!("it ended with {status}{words}")))
        }
    }
}

/// Joins a program's output into one line and returns its last [`LAST_WORDS`] characters after a
/// colon, or an empty string if there is no output. Secrets are replaced before anything is joined
/// or cut, because part of a secret would not be recognized.
fn last_words(bytes: &[u8], redactor: &Redactor) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = redactor.redact(&text).split_whitespace().collect::<Vec<_>>().join(" ");
    if line.is_empty() {
        return String::new();
    }
    format!(": {}", Redacted::of(&line).tail(LAST_WORDS))
}

/// Reads an artifact through the folder's handle, without following links.
fn collect(out: &std::path::Path, from: &str) -> Result<Vec<u8>, JobError> {
    use std::io::Read as _;
    let missing = |why: String| JobError::failed(Class::ArtifactMissing, format!("{from}: {why}"));
    let path = RelPath::new(from).map_err(|error| missing(error.to_string()))?;
    let folder = RealFs::open(out).map_err(|error| missing(error.to_string()))?;
    let file = folder.regular(&path).map_err(|error| missing(error.to_string()))?;
    let file = file.ok_or_else(|| {
        missing("it does not exist, although the program exited with 0".to_owned())
    })?;
    if file.links != 1 {
        return Err(missing(format!("it has {} hard links", file.links)));
    }
    if file.length > LARGEST {
        return Err(missing(format!("it has {} bytes; the limit is {LARGEST}", file.length)));
    }
    if file.length == 0 {
        return Err(missing("it is empty".to_owned()));
    }
    let mut bytes = Vec::new();
    file.file.take(LARGEST).read_to_end(&mut bytes).map_err(|source| JobError::Io {
        doing: "read",
        path: out.join(from),
        source,
    })?;
    Ok(bytes)
}

/// Returns the format required by a file name's extension, if any.
pub(crate) fn form(to: &str) -> Option<&'static str> {
    let (_, ending) = to.rsplit('/').next()?.rsplit_once('.')?;
    match ending {
        "json" => Some("JSON"),
        "jsonl" => Some("JSON, line by line"),
        "md" | "txt" | "org" | "toml" | "yaml" | "html" => Some("UTF-8"),
        _ => None,
    }
}

/// Checks that an artifact of a known format is valid.
fn parses(to: &str, bytes: &[u8]) -> Result<(), JobError> {
    let bad = |why: String| Err(JobError::failed(Class::Malformed, format!("{to}: {why}")));
    match form(to) {
        Some("JSON") => match serde_json::from_slice::<serde::de::IgnoredAny>(bytes) {
            Ok(_) => Ok(()),
            Err(error) => bad(format!("not JSON: {error}")),
        },
        Some("JSON, line by line") => {
            for (index, line) in
                bytes.split(|byte| *byte == b'\n').enumerate().filter(|(_, l)| !l.is_empty())
            {
                if let Err(error) = serde_json::from_slice::<serde::de::IgnoredAny>(line) {
                    return bad(format!("line {} is not JSON: {error}", index + 1));
                }
            }
            Ok(())
        }
        Some("UTF-8") => match std::str::from_utf8(bytes) {
            Ok(_) => Ok(()),
            Err(error) => bad(format!("not UTF-8: {error}")),
        },
        _ => Ok(()),
    }
}

impl Kind for CommandSpec {
    fn name(&self) -> &'static str {
        "command"
    }

    fn run(&self, ctx: &mut Context<'_>, _job: &str) -> Result<Finished, JobError> {
        run(ctx, self)
    }

    fn dry_run(&self, ctx: &mut Context<'_>) -> Result<DryRunPlan, JobError> {
        let child = PlannedChild::of(ctx, &self.program, &self.args, &self.env);
        let mut checks = vec!["the program exits with 0 before its deadline".to_owned()];
        checks.extend(self.artifacts.iter().map(|artifact| {
            let form =
                form(&artifact.to).map_or_else(String::new, |form| format!(" and is {form}"));
            format!("{} exists and is not empty{form}", artifact.from)
        }));
        let missing = child.found.is_none();
        Ok(DryRunPlan {
            notes: missing
                .then(|| format!("the program {} was not found", self.program))
                .into_iter()
                .collect(),
            child: Some(child),
            checks,
            ..DryRunPlan::default()
        })
    }

    fn publishes(&self) -> Targets {
        Targets::Files(self.artifacts.iter().map(|it| it.to.clone()).collect())
    }

    fn check(&self) -> Result<(), BadSetting> {
        if self.program.trim().is_empty() {
            return Err(("program", "must name a program".to_owned()));
        }
        for artifact in &self.artifacts {
            reserved::target(&artifact.to).map_err(|why| ("artifacts", why))?;
        }
        reserved::writes(self.writes.as_deref()).map_err(|why| ("writes", why))
    }

    fn default_timeout(&self) -> SignedDuration {
        SignedDuration::from_hours(1)
    }

    fn is_unattended(&self) -> bool {
        false
    }

    fn asks(&self) -> Asks {
        Asks::Never
    }

    fn program(&self) -> Option<&str> {
        Some(&self.program)
    }

    fn variables(&self) -> &[String] {
        &self.env
    }

    fn works(&self) -> Option<Works<'_>> {
        Some(Works::Program(self.writes.as_deref()))
    }

    fn paths(&self) -> Vec<(&'static str, String)> {
        let targets = self.artifacts.iter();
        targets.map(|it| ("artifacts", it.to.clone())).collect()
    }

    fn unchecked_targets(&self) -> Option<(&'static str, Vec<String>)> {
        Some(("artifacts", self.publishes().paths()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_formats_are_checked() {
        assert!(parses("a/b.json", b"{\"x\": 1}").is_ok());
        assert!(parses("a/b.json", b"{\"x\": 1").is_err());
        assert!(parses("b.jsonl", b"{}\n[]\n\n3\n").is_ok());
        assert!(parses("b.jsonl", b"{}\nnope\n").unwrap_err().to_string().contains("line 2"));
        assert!(parses("b.md", b"\xff").is_err());
        assert!(parses("b.bin", b"\xff").is_ok());
    }

    #[test]
    fn only_plain_nonempty_files_are_collected() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path();
        fs::write(out.join("good"), "x").unwrap();
        fs::write(out.join("empty"), "").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", out.join("link")).unwrap();
        fs::write(out.join("first"), "x").unwrap();
        fs::hard_link(out.join("first"), out.join("second")).unwrap();
        fs::create_dir(out.join("folder")).unwrap();
        assert_eq!(collect(out, "good").unwrap(), b"x");
        for bad in ["empty", "link", "second", "folder", "absent", "../good", "/etc/passwd"] {
            let error = collect(out, bad).unwrap_err();
            assert!(
                matches!(error, JobError::Failed { class: Class::ArtifactMissing, .. }),
                "{bad}: {error}"
            );
        }
    }
}
