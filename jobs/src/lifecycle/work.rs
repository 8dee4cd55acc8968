//! Runs an agent once, for a cycle's state or for a job of kind `wake`, `audit` or `plan`.
//!
//! ```text
//! newest entry's verdicts ─> board ─pick─> the task        one publication, before the request
//! board, carry ─orient─> the request ──ask──> the agent, in the work tree, inside the sandbox
//! git before, git after ─────────────────────> the actual results
//! ```
//!
//! The report quotes the agent's description of the work, but takes the facts from git and the
//! board. This module must never write a journal entry, and never ask an agent to write one.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use runner_backends::{Request, Target};
use runner_engine::git::changes::{Changes, Untracked};
use runner_engine::git::{Git, Read};
use runner_engine::outcome::Class;
use runner_engine::process_id::ProcessIdentity;
use runner_text::counted;
use runner_text::values::read_folders;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::board::{self, BoardEditor, BoardError, BoardRequest};
use super::entry::Entry;
use super::manifest::{Newest, folder_of, newest_in};
use super::orient::{Orientation, orient, since, uncommitted};
use super::provenance::Provenance;
use super::spec::StateKind;
use super::{Files, audit, claims, files, prompts};
use crate::dry_run::{DryRunPlan, priced};
use crate::kind::{BadSetting, Kind, ProjectSettings, Targets, Works, given_input};
use crate::manual_edit::{EditActor, ManualEditError};
use crate::steps::{self, StepsFile, ToolStep};
use crate::{Context, Finished, JobError};

/// The delay before retrying a run whose board is busy.
const BUSY: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);
/// Maximum number of commits listed in a report, and of commits and of changed paths recorded as
/// steps.
const NAMED: usize = 20;
/// Number of most recent tool uses to search for a claim's command.
const STEPS: usize = 200;
/// Maximum number of lines from an agent's answer to show in a report.
const WORDS: usize = 12;

/// The recording key for the board changes.
const BOARD: &str = "board";

/// The settings of an agent's run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkSpec {
    /// The agent, which has its own position and journal. Default: the agent without a name.
    pub agent: String,
    /// The board, in org or Markdown.
    pub board: String,
    /// The agent's instructions: a project file, or the text itself. Default: the built-in
    /// instructions.
    pub prompt: Option<String>,
    /// The paths in the project that the agent may write; "." is the whole project except the paths
    /// reserved for runner, git and agents. Default: ["."].
    #[serde(deserialize_with = "read_folders")]
    #[schemars(with = "Option<Vec<String>>")]
    pub writes: Option<Vec<String>>,
    /// The kind of run.
    #[serde(skip)]
    pub kind: StateKind,
    /// The project's settings for the lifecycle's files.
    #[serde(skip)]
    pub files: Files,
    /// The description of the state in its cycle; empty for a run outside a cycle.
    #[serde(skip)]
    pub about: String,
}

impl WorkSpec {
    #[must_use]
    pub fn with_kind(self, kind: StateKind) -> Self {
        Self { kind, ..self }
    }
}

impl Default for WorkSpec {
    fn default() -> Self {
        Self {
            agent: String::new(),
            board: super::BOARD.to_owned(),
            prompt: None,
            writes: None,
            kind: StateKind::Wake,
            files: Files::default(),
            about: String::new(),
        }
    }
}

/// The result of the board changes at the start of a run.
#[derive(Default, Serialize, Deserialize)]
struct BoardInput {
    picked: Option<String>,
    lines: Vec<String>,
    moved: usize,
    unresolved: usize,
    trouble: Option<String>,
}

/// Picks a task, asks the agent to work, and reports the results.
///
/// # Errors
/// Returns [`JobError::Wait`] if the board is busy, and another error if a file, the database or
/// git cannot be used or no backend answers.
pub fn run(ctx: &mut Context<'_>, spec: &WorkSpec) -> Result<Finished, JobError> {
    let newest = newest(ctx, spec)?;
    let (begun, entry) = begin(ctx, spec, &newest)?;
    let orientation = oriented(ctx, spec, &newest)?;
    let before = ctx.git.head()?;
    let dirty = ctx.git.changes(&[], Untracked::Folders)?;
    let request = question(ctx, spec, &orientation, begun.picked.as_deref())?;
    let agent = Some(spec.agent.as_str()).filter(|agent| !agent.is_empty());
    ctx.spender.record_steps(StepsFile::new(ctx.files.root(), &spec.files.steps, agent));
    let reply = match ctx.spender.ask(&request, 0) {
        Ok(reply) => reply,
        Err(error) => {
            record_failed_run(ctx, spec, before.as_deref(), &dirty, begun.picked.as_deref());
            return Err(error.into());
        }
    };
    ctx.work.close()?;
    let by_rule = ctx.spender.answers_by_rule();
    let left = RunResult::of(&ctx.git, before.as_deref(), &dirty)?;
    record_run(ctx, spec, &left, begun.picked.as_deref(), 0);
    let mut finished = Finished {
        headline: headline(spec.kind, &begun, (!by_rule).then_some(&left)),
        lines: begun.lines,
        ..Finished::default()
    };
    if by_rule {
        let why = "no agent ran: the built-in backend only picks a task".to_owned();
        finished.degraded = Some(why);
    } else {
        finished.lines.extend(left.lines());
        if spec.kind == StateKind::Audit
            && let Some(entry) = &entry
        {
            finished.lines.extend(audited(ctx, spec, entry, &reply.text)?);
        }
        let words = reply.text.lines().filter(|line| !line.trim().is_empty());
        finished.lines.extend(words.take(WORDS).map(|line| format!("answer: {}", line.trim())));
    }
    if let Some(entry) = orientation.entry.as_ref().filter(|_| !by_rule) {
        finished.lines.push(format!("oriented by the carry of {entry}"));
    }
    if let Some(trouble) = begun.trouble {
        finished.lines.push(trouble);
    }
    let facts = &mut finished.facts;
    facts.insert("kind".to_owned(), json!(spec.kind.as_str()));
    facts.insert("agent".to_owned(), json!(spec.agent));
    facts.insert("picked".to_owned(), json!(begun.picked));
    facts.insert("moved".to_owned(), json!(begun.moved));
    facts.insert("unresolved".to_owned(), json!(begun.unresolved));
    facts.insert("commits".to_owned(), json!(left.commits));
    facts.insert("carry".to_owned(), json!(orientation.entry));
    facts.insert("uncommitted".to_owned(), json!(left.uncommitted));
    Ok(finished)
}

/// Records the run of a `command` agent, whose tool calls runner cannot see. Writes one row for the
/// run, and one row for each of at most [`NAMED`] commits and [`NAMED`] changed paths. An error
/// while writing a row does not fail the run.
fn record_run(
    ctx: &Context<'_>,
    spec: &WorkSpec,
    left: &RunResult,
    picked: Option<&str>,
    exit_code: i64,
) {
    if ctx.spender.backend().kind != "command" || ctx.recording.replays() {
        return;
    }
    let agent = Some(spec.agent.as_str()).filter(|agent| !agent.is_empty());
    let file = StepsFile::new(ctx.files.root(), &spec.files.steps, agent);
    let row = |tool, target| ToolStep::of(tool, target, ctx.files.root(), &ctx.redactor);
    let task = format!("{}: {}", spec.kind, picked.unwrap_or("no open task"));
    let run = row(steps::RUN, Some(Target::Pipeline(&task)));
    let mut rows = vec![ToolStep { exit_code, ..run }];
    let commits = left.commits.iter().rev().take(NAMED);
    rows.extend(commits.map(|commit| row("commit", Some(Target::Pipeline(commit)))));
    let changed = left.changed.iter().take(NAMED);
    rows.extend(changed.map(|path| row("change", Some(Target::Path(path)))));
    for row in rows {
        if let Err(error) = file.append(row, ctx.clock.now()) {
            tracing::warn!(%error, "a step could not be recorded in {}", file.path);
            return;
        }
    }
}

/// Records a run whose agent failed after it had changed the project. Its commits are imported. An
/// error in this function does not replace the agent's error.
fn record_failed_run(
    ctx: &mut Context<'_>,
    spec: &WorkSpec,
    before: Option<&str>,
    dirty: &Changes,
    picked: Option<&str>,
) {
    if ctx.work.close().is_err() {
        return;
    }
    if let Ok(left) = RunResult::of(&ctx.git, before, dirty)
        && !(left.commits.is_empty() && left.changed.is_empty())
    {
        record_run(ctx, spec, &left, picked, 1);
    }
}

/// Records an audit's findings on the newest entry's claims, and returns the findings as lines for
/// the report.
fn audited(
    ctx: &mut Context<'_>,
    spec: &WorkSpec,
    entry: &Entry,
    answer: &str,
) -> Result<Vec<String>, JobError> {
    let folder = folder_of(&spec.agent);
    let run = ctx.admitted.run();
    let mut claims = audit::read(&entry.claims(), answer);
    let agent = Some(spec.agent.as_str()).filter(|agent| !agent.is_empty());
    let steps = ctx.last_steps(&spec.files.steps, agent, STEPS)?.unwrap_or_default();
    claims::recheck(ctx, &steps, &mut claims)?;
    let audit = audit::record(&mut ctx.files, &folder, entry, claims, (run, ctx.clock.now()))?;
    let claims = audit.map(|audit| audit.claims).unwrap_or_default();
    let reported = claims
        .iter()
        .map(|it| format!("claim of {}: {}: {} ({})", entry.id, it.claim, it.finding, it.why));
    Ok(reported.collect())
}

/// The newest entry with its origin, `None` if there is no entry, or the reason why the entry could
/// not be read.
type NewestRead = Result<Option<(Newest, Provenance)>, JobError>;

/// Reads the newest entry and looks up its origin.
///
/// # Errors
/// Returns an error if the database cannot be read.
fn newest(ctx: &Context<'_>, spec: &WorkSpec) -> Result<NewestRead, JobError> {
    let newest = match newest_in(&ctx.files, &spec.agent) {
        Ok(Some(newest)) => newest,
        Ok(None) => return Ok(Ok(None)),
        Err(error) => return Ok(Err(error)),
    };
    let provenance = Provenance::in_run(ctx, &newest)?;
    Ok(Ok(Some((newest, provenance))))
}

/// Builds the orientation, including the uncommitted paths and the events since the newest entry.
fn oriented(
    ctx: &Context<'_>,
    spec: &WorkSpec,
    newest: &NewestRead,
) -> Result<Orientation, JobError> {
    let mut orientation = orient(&ctx.files, (&spec.board, &spec.agent), newest);
    let shown = newest.as_ref().ok().and_then(Option::as_ref);
    orientation.since =
        since(&ctx.git, &ctx.files, &spec.board, shown.map(|(newest, _)| &newest.listed))?;
    orientation.since.splice(0..0, uncommitted(&ctx.git, &spec.board)?);
    Ok(orientation)
}

/// Applies the newest entry's verdicts to the board, if runner published the entry or the user
/// adopted it, and picks a task. Also returns the entry if its verdicts take effect.
fn begin(
    ctx: &mut Context<'_>,
    spec: &WorkSpec,
    newest: &NewestRead,
) -> Result<(BoardInput, Option<Entry>), JobError> {
    let (entry, unread) = match newest {
        Ok(None) => (None, None),
        Ok(Some((newest, provenance))) => match provenance.describe(&newest.path, &spec.agent) {
            None => (Some(newest.entry.clone()), None),
            Some(why) => (None, Some(format!("no verdicts: {why}"))),
        },
        Err(error) => (None, Some(format!("no verdicts: {}", error.whole()))),
    };
    // The board changes are a separate publication, so a replayed run receives the recorded result.
    let recording = ctx.recording.clone();
    let done = recording.through(BOARD, &spec.board, || match on_board(ctx, spec, &entry) {
        Err(JobError::Failed { class, why }) => Ok(Err((class, why))),
        Err(error) => Err(error),
        Ok(begun) => Ok(Ok(begun)),
    })?;
    let mut begun: BoardInput = done.map_err(|(class, why)| JobError::failed(class, why))?;
    begun.lines.splice(0..0, unread);
    Ok((begun, entry))
}

fn on_board(
    ctx: &mut Context<'_>,
    spec: &WorkSpec,
    entry: &Option<Entry>,
) -> Result<BoardInput, JobError> {
    let mut begun = BoardInput::default();
    let mut wishes = Vec::new();
    wishes.extend(entry.as_ref().map(BoardRequest::Apply));
    wishes.push(BoardRequest::Pick);
    let Some(state) = ctx.files.state() else {
        return Err(JobError::failed(Class::Internal, "the run has no folder for its locks"));
    };
    let project = ctx.spender.store().run(ctx.admitted.run())?.project;
    let me = ProcessIdentity::me();
    let mut desk = BoardEditor {
        hand: EditActor {
            root: ctx.files.root(),
            project: &project,
            state,
            clock: ctx.clock.clock(),
            me: &me,
            store: ctx.spender.store_mut(),
            // The admission check has just verified that there is enough space.
            free_bytes: u64::MAX,
        },
        board: &spec.board,
        agent: &spec.agent,
    };
    match desk.carry_out(&wishes) {
        Ok(done) => {
            begun.picked = done.picked.map(|task| task.heading);
            begun.lines = board::lines(&done.records);
            begun.moved = done.records.iter().map(|it| it.moves.len()).sum();
            begun.unresolved = done.records.iter().map(|it| it.unresolved.len()).sum();
            Ok(begun)
        }
        // An agent can work without a board, but the report mentions the problem.
        Err(error @ (BoardError::Missing(_) | BoardError::Unreadable { .. })) => {
            begun.trouble = Some(error.to_string());
            Ok(begun)
        }
        Err(BoardError::Act(ManualEditError::Busy(why) | ManualEditError::Changed(why))) => {
            Err(JobError::Wait {
                until: ctx.clock.now().saturating_add(BUSY).unwrap_or(ctx.clock.now()),
                why: format!("the board is busy: {why}"),
            })
        }
        Err(BoardError::Act(error)) => Err(error.into()),
        Err(error @ (BoardError::Cannot(_) | BoardError::Internal { .. })) => {
            Err(JobError::failed(Class::Internal, error.to_string()))
        }
    }
}

/// Builds the request for the agent.
pub(crate) fn question(
    ctx: &Context<'_>,
    spec: &WorkSpec,
    orientation: &Orientation,
    picked: Option<&str>,
) -> Result<Request, JobError> {
    let mut instructions = prompts::read(ctx, spec.prompt.as_deref(), spec.kind.prompt())?;
    if !spec.about.is_empty() {
        instructions.push_str(&format!("\nThis state of the cycle: {}\n", spec.about));
    }
    if spec.kind == StateKind::Audit && !orientation.claims.is_empty() {
        instructions.push_str(&format!("\n{}\n", audit::INSTRUCTIONS));
    }
    let orientation = orientation.lines(spec.kind, picked).join("\n");
    let orientation = ctx.redactor.redact(&orientation).into_owned();
    let rule = match picked {
        Some(task) => format!("{}: {task:?} was picked; no work was done on it", spec.kind),
        None => format!("{}: nothing is open on the board", spec.kind),
    };
    let frame = ctx.frame(1);
    let (_, sources) = frame.fenced(&[("orientation", orientation)]);
    Ok(Request {
        rule_answer: Value::String(rule),
        work: Some(ctx.files.root().to_owned()),
        ..frame.request(spec.kind.as_str(), &instructions, sources)
    })
}

/// The results of a run, as reported by git.
#[derive(Debug, Default)]
struct RunResult {
    /// At most 200 new commits, newest first, each as a short hash and a subject.
    commits: Vec<String>,
    /// Number of paths that differ from the last commit.
    uncommitted: usize,
    /// The paths that the commits changed, and those that differ from the last commit now but did
    /// not before the run.
    changed: BTreeSet<String>,
    /// A description of rewritten or lost history, if the run rewrote or lost any.
    odd: Option<String>,
}

impl RunResult {
    /// Compares the work tree with the commit and the changes from before the run.
    fn of(git: &Git, before: Option<&str>, dirty: &Changes) -> Result<Self, JobError> {
        let mut left = Self::default();
        let after = git.head()?;
        if after.as_deref() != before
            && let Some(after) = &after
        {
            let range = match before {
                Some(before) => format!("{before}..{after}"),
                None => after.clone(),
            };
            left.commits = git.log("%h %s", &["--max-count=200", &range, "--"])?;
            if let Some(before) = before {
                let options = ["-r", "--name-only", "-z", before, after, "--"];
                let paths = git.ask(Read::DiffTree, &options)?;
                let paths = paths.split(|byte| *byte == 0).filter(|path| !path.is_empty());
                left.changed.extend(paths.map(|path| String::from_utf8_lossy(path).into_owned()));
            }
            if let Some(before) = before
                && !git.leads_to(before, after)?
            {
                left.odd =
                    Some(format!("history was rewritten: {before} is no longer an ancestor"));
            }
        } else if after.is_none() && before.is_some() {
            left.odd = Some("the branch no longer has a commit".to_owned());
        }
        let changes = git.changes(&[], Untracked::Folders)?;
        left.uncommitted = changes.len();
        left.changed.extend(changes.into_keys().filter(|path| !dirty.contains_key(path)));
        Ok(left)
    }

    fn lines(&self) -> Vec<String> {
        let mut out: Vec<String> =
            self.commits.iter().take(NAMED).map(|commit| format!("committed {commit}")).collect();
        if self.commits.len() > NAMED {
            out.push(format!("… and {}", counted(self.commits.len() - NAMED, "more commit")));
        }
        if self.uncommitted > 0 {
            let paths = match self.uncommitted {
                1 => "1 path differs".to_owned(),
                n => format!("{n} paths differ"),
            };
            out.push(format!("{paths} from the last commit"));
        }
        out.extend(self.odd.clone());
        out
    }
}

/// Returns the headline of a run. `left` is `None` if no agent ran.
fn headline(kind: StateKind, begun: &BoardInput, left: Option<&RunResult>) -> String {
    let task = match &begun.picked {
        Some(task) => format!("{task:?}"),
        None => "no open task".to_owned(),
    };
    match left.map(|left| left.commits.len()) {
        None => format!("{kind}: {task} was picked; no agent ran"),
        Some(0) => format!("{kind}: {task}; no commit"),
        Some(count) => format!("{kind}: {task}; {}", counted(count, "commit")),
    }
}

impl Kind for WorkSpec {
    fn name(&self) -> &'static str {
        self.kind.as_str()
    }

    fn run(&self, ctx: &mut Context<'_>, _job: &str) -> Result<Finished, JobError> {
        run(ctx, self)
    }

    fn dry_run(&self, ctx: &mut Context<'_>) -> Result<DryRunPlan, JobError> {
        let newest = newest(ctx, self)?;
        let orientation = oriented(ctx, self, &newest)?;
        let request = question(ctx, self, &orientation, None)?;
        Ok(DryRunPlan {
            requests: vec![priced(&mut ctx.spender, request, 0)?],
            notes: orientation.lines(self.kind, None),
            checks: vec![
                "each verdict of the newest entry names exactly one task".to_owned(),
                "the agent writes nothing below rem/".to_owned(),
            ],
            ..DryRunPlan::default()
        })
    }

    /// An audit's findings are written next to the entry.
    fn publishes(&self) -> Targets {
        Targets::Folders(vec![folder_of(&self.agent)])
    }

    fn check(&self) -> Result<(), BadSetting> {
        files::check(&self.agent, &self.board, self.writes.as_deref())
    }

    fn adopt(&mut self, project: &ProjectSettings<'_>) {
        self.files = project.lifecycle.clone();
    }

    fn given(&self) -> Value {
        json!({ "files": self.files, "about": self.about })
    }

    fn give(&mut self, given: Value) -> Result<(), String> {
        self.files = given_input(&given, "files")?;
        self.about = given_input(&given, "about")?;
        Ok(())
    }

    fn default_timeout(&self) -> SignedDuration {
        SignedDuration::from_mins(12)
    }

    fn works(&self) -> Option<Works<'_>> {
        Some(Works::Agent(self.writes.as_deref()))
    }

    fn paths(&self) -> Vec<(&'static str, String)> {
        vec![("board", self.board.clone())]
    }

    fn prompts(&self) -> Vec<String> {
        self.prompt.iter().cloned().collect()
    }
}
