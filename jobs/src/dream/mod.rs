//! The dream pass: reads the changed ideas, gathers evidence about them, classifies them, and
//! publishes proposals.
//!
//! ```text
//! list ────> delta ──> evidence ──> rule ──> ask ──> check ──> lock ──> hash again ──> stage
//!            │ ^ HEAD moved: rule ┘             │ none valid: malformed
//!            └ none: skipped
//! ```
//!
//! A pass proposes and the user decides; a pass never changes an idea. It must never publish a
//! model's reply unchanged: the published files are built from the checked reply. It must never
//! mark an idea as triaged without a valid answer about the content that the idea still has at the
//! end of the pass.

mod answer;
mod ask;
pub mod bench;
pub mod classify;
pub mod compare;
pub mod decisions;
pub mod delta;
mod dirty;
mod excerpt;
mod external;
pub mod features;
pub mod inventory;
mod kept;
mod kind;
pub mod leak;
mod noted;
mod pass_summary;
pub mod proposal;
mod published;
pub mod quarantine;
pub mod request;
pub mod review;
pub mod rule;
mod spec;
pub mod stat_cache;
pub mod state;
mod state_file;
pub mod walk;
mod world;

use std::collections::BTreeSet;

use jiff::Timestamp;
use runner_backends::Request;
use runner_engine::files::write_atomic;
use runner_engine::outcome::Class;
use runner_engine::publish::FsFailure as DiskTrouble;
use runner_engine::recording::InputRecording;
use runner_engine::scope::{Expect, ScopeError};
use runner_text::markdown;
use serde_json::json;

use crate::evidence::{EvidenceSource, HistoryLimits, ProjectEvidence};
use crate::json::pretty;
use crate::{Context, Finished, JobError, RunFiles};
pub use dirty::dirty;
pub use spec::{ALL, Dirty, DreamSpec, Selection};

use answer::{Checks, none_good, worded};
use ask::Answers;
use classify::{ClassifiedIdea, ClassifiedIdeas};
use compare::OtherNotes;
use decisions::Decisions;
use excerpt::Excerpts;
use external::Offered;
pub use external::{ExternalRequest, ExternalRequests, Submission};
use inventory::{Idea, Reader};
use kept::{changed_meanwhile, changes, undecided, valid_answers};
use pass_summary::{PassSummary, nothing, unreadable};
use proposal::Proposal;
use published::{check_targets, pass_folder, proposals_path};
use quarantine::Quarantine;
use request::QuestionFacts;
use state::DreamState;
use state_file::StateFile;
use world::{SeenEvidence, Unchanged};

/// Maximum size of the state file, the decisions file and each file read for a review, in bytes.
const LONGEST: u64 = 256 * 1024 * 1024;
/// The recording key for the list of all ideas.
const SURVEY: &str = "survey";
/// The recording key for the quarantine.
const PARKED: &str = "parked";
/// The recording key for the evidence seen by earlier passes.
const SEEN: &str = "seen";

/// Runs one pass.
///
/// # Errors
/// Returns [`JobError::Nothing`] if no idea needs an answer, and [`JobError::Wait`] if a selected
/// idea has just been saved and the user did not start the run. Returns a failure of class
/// `malformed` if the replies contain no valid proposal, of class `environment` if a setting, the
/// submission or the state file is invalid or no selected idea can be read, and of class `guard` if
/// a target is canonical or could be committed. Also returns git, database and file errors, and the
/// backend or budget error of a pass without proposals. After an error, nothing is published.
pub fn run(ctx: &mut Context<'_>, spec: &DreamSpec) -> Result<Finished, JobError> {
    spec.check()?;
    let file = StateFile::default();
    let submission = Submission::read(ctx, spec)?;
    let mut grounded = ground(ctx, spec, &file, submission.as_ref())?;
    let excerpts = excerpts(ctx, spec, &grounded)?;
    let project = about_project(ctx);
    let answers = match &submission {
        Some(submission) => ask::take(submission, &grounded.judged)?,
        None => ask::ask(ctx, &grounded.facts(&excerpts, &project), &grounded.judged)?,
    };
    grounded.note_answers(ctx, &answers, submission.as_ref());
    let PassEvidence {
        state,
        ideas,
        folder,
        reader,
        room,
        mut judged,
        mut reported,
        seen_before,
        mut seen,
        moved,
        ..
    } = grounded;
    if answers.proposals.is_empty() {
        let advice = match submission {
            Some(_) => "; correct the answer and submit it again",
            None => "",
        };
        return Err(answers.error.unwrap_or_else(|| none_good(&answers.refused, advice)));
    }
    reported.notes = room.notes().to_vec();
    reported.notes.extend(reported.memory.take());
    reported.notes.extend(answers.notes);
    reported.refused = answers.refused;
    reported.unasked = answers.error.map(|error| error.whole());
    let proposals = answers.proposals.into_iter().map(|it| it.redacted(&ctx.redactor)).collect();
    let quotes = &answers.quotes;
    let open = answer::open_moves(ctx, spec)?;
    let checks = Checks { room: &room, judged: &judged, excerpts: &excerpts, quotes, open };
    let (proposals, struck) = checks.apply(proposals);
    reported.downgraded = struck;
    let proposals: Vec<Proposal> =
        proposals.into_iter().map(|it| worded(&judged, it, &ctx.redactor)).collect();
    let answered = |one: &&ClassifiedIdea| proposals.iter().any(|it| it.targets[0] == one.path);
    let shown = judged.shown.len();
    reported.unanswered = shown - judged.shown.iter().filter(answered).count();
    reported.since_request = submission.is_some();
    // While the lock is held, no decision can be made between the check and the publication.
    ctx.files.hold_lock(&review::files_lock(ctx.files.cache()));
    let changed = changed_meanwhile(&reader, &judged.offer, &proposals);
    let valid = valid_answers(&proposals, &changed);
    for one in judged.shown.iter().filter(|one| valid.contains(&one.path)) {
        seen.note(&room, one);
    }
    // An idea with new evidence must be selected again until a valid answer about it arrives.
    seen.head = seen.head.filter(|_| moved.is_subset(&valid));
    if submission.is_some() {
        // The other ideas of the request still await an answer.
        judged.shown.retain(|one| valid.contains(&one.path));
    }
    let changes = changes(&judged, &ideas, &state, &valid, ctx.clock.now());
    let kept = undecided(proposals, &changed, &decisions(ctx, spec)?, &mut reported);
    reported.changed = changed.into_iter().map(str::to_owned).collect();
    ctx.files.stage(&proposals_path(&folder), pretty(&kept).as_bytes(), Expect::Absent)?;
    // The user may have made decisions while the model was answering. Their entries must be kept.
    let (later_bytes, later) = state_file::read(ctx, spec)?;
    let text = if later == *file.expect(ctx, spec)? {
        state.with(&changes)
    } else {
        let state = DreamState::parse(&later_bytes);
        state.map_err(|bad| state_file::bad_state(spec, &bad))?.with(&changes)
    };
    ctx.files.stage(&spec.state_path(), text.as_bytes(), later)?;
    keep_seen(ctx, spec, &seen_before.then(proposals_path(&folder), seen));
    Ok(reported.finish(&kept, shown, ideas.len(), &folder))
}

/// The facts that a pass gathers before it calls a model.
struct PassEvidence<'a> {
    state: DreamState<'a>,
    ideas: Vec<Idea>,
    folder: String,
    reader: Reader,
    room: ProjectEvidence,
    judged: ClassifiedIdeas,
    parked: Quarantine,
    reported: PassSummary,
    /// The evidence that earlier passes saw.
    seen_before: SeenEvidence,
    /// The evidence that earlier passes and this pass saw.
    seen: SeenEvidence,
    /// The unchanged ideas that are selected because their evidence changed.
    moved: BTreeSet<String>,
}

impl PassEvidence<'_> {
    fn facts<'a>(&'a self, excerpts: &'a Excerpts, project: &'a str) -> QuestionFacts<'a> {
        let neighbours = &self.judged.neighbours;
        QuestionFacts { room: &self.room, excerpts, neighbours, project }
    }

    /// Updates the quarantine with the answers, and reports which shown ideas are now set aside.
    fn note_answers(
        &mut self,
        ctx: &Context<'_>,
        answers: &Answers,
        submission: Option<&Submission>,
    ) {
        for one in &self.judged.shown {
            match answers.proposals.iter().any(|it| it.targets[0] == one.path) {
                true => self.parked.note_valid(&one.path),
                false if answers.unread.contains(&one.path) => {
                    self.parked.note_shown(&one.path, one.digest, ctx.clock.now());
                }
                // Without a reply, nothing is known about the idea.
                false if !answers.asked.contains(&one.path) => continue,
                // A submission may omit ideas, and it cannot answer content that its request did
                // not show.
                false
                    if submission.is_some_and(|submission| {
                        !answers.proposals.is_empty() || !submission.showed(one)
                    }) =>
                {
                    continue;
                }
                false => self.parked.note_invalid(&one.path, one.digest, ctx.clock.now()),
            }
            if self.parked.holds(&one.path, &one.digest) {
                self.reported.parked.push(one.path.clone());
            }
        }
        if let Err(error) = self.parked.save(ctx.files.cache()) {
            tracing::warn!(%error, "could not record which answers were unusable");
        }
    }
}

/// A question and the number of ideas in it.
pub(crate) type CountedRequest = (Request, u64);

/// Returns the questions that a pass would ask, each with the number of ideas in it, and the report
/// lines that are known before they are asked. Calls no backend and publishes nothing.
pub(crate) fn questions(
    ctx: &mut Context<'_>,
    spec: &DreamSpec,
) -> Result<(Vec<CountedRequest>, Vec<String>), JobError> {
    spec.check()?;
    let file = StateFile::default();
    let grounded = ground(ctx, spec, &file, None)?;
    let excerpts = excerpts(ctx, spec, &grounded)?;
    let project = about_project(ctx);
    let mut requests = ask::requests(ctx, &grounded.facts(&excerpts, &project), &grounded.judged);
    if spec.submission.is_some() {
        let offer = &grounded.judged.offer;
        requests.iter_mut().for_each(|(request, _)| Offered::note(offer, &mut request.offer));
    }
    let mut notes = grounded.room.notes().to_vec();
    notes.extend(grounded.reported.before_asking());
    Ok((requests, notes))
}

/// Returns the kind and the model of the backend that examines the ideas, or `runner dream submit`
/// if another program examines them.
fn backend_name(ctx: &Context<'_>, spec: &DreamSpec) -> String {
    if spec.submission.is_some() {
        return "runner dream submit".to_owned();
    }
    let backend = ctx.spender.backend();
    let parts = [Some(backend.kind), backend.model].into_iter().flatten();
    parts.collect::<Vec<_>>().join(" ")
}

/// Gathers the evidence and determines the rule-based answers. Stores only caches.
fn ground<'a>(
    ctx: &mut Context<'_>,
    spec: &DreamSpec,
    file: &'a StateFile,
    submission: Option<&Submission>,
) -> Result<PassEvidence<'a>, JobError> {
    let selection = submission.map_or_else(|| spec.selection(), |_| Selection::All);
    let (state, survey) = inputs((ctx, spec), selection, file)?;
    let (parked, before) = remembered(ctx, spec)?;
    let mut seen = before.clone();
    let mut delta = choose(&survey.ideas, state.as_ref(), &parked, (spec, submission))?;
    let reader = reader(ctx, spec)?;
    let head = ctx.git.head()?;
    let moved = head != seen.head && selection == Selection::Changed && delta.unchanged > 0;
    let state = match state {
        Some(state) => state,
        None if moved => state_file::parse((&*ctx, spec), file)?,
        // Nothing is selected, so no entry is needed.
        None => DreamState::default(),
    };
    let passes = state.passes();
    let born = |path: &str| state.absent_at(path, &passes).map(Timestamp::as_second);
    let (root, recording) = (ctx.files.root().to_owned(), ctx.recording.clone());
    let list = || compare::all_notes(&root, spec, &survey, &recording);
    let read = |path: &str| reader.text(path).map(|(text, ..)| text);
    let others = OtherNotes::new(&list, &read);
    let mut room = None;
    if moved {
        let evidence = evidence(ctx, spec)?;
        let decisions = decisions(ctx, spec)?;
        let (ideas, reader) = (survey.ideas.as_slice(), &reader);
        let (decisions, others) = (&decisions, &others);
        let unchanged = Unchanged { ideas, decisions, reader, room: &evidence, others };
        let selected: BTreeSet<usize> = delta.changed(ideas, &state);
        let rest = (0..survey.ideas.len()).filter(|at| !selected.contains(at));
        let newly = unchanged.newly_done(rest, &seen, &born);
        let is_parked = |at: usize| parked.holds(&ideas[at].path, &ideas[at].digest);
        delta.add(newly, is_parked, spec.max_ideas);
        room = Some(evidence);
    }
    if selection == Selection::Changed {
        // The next pass must find the deferred ideas again.
        seen.head = head.filter(|_| delta.deferred == 0);
    }
    let backend = backend_name(ctx, spec);
    let other = seen.backend.replace(backend.clone()).filter(|other| *other != backend);
    let path = |at: &usize| survey.ideas[*at].path.to_string();
    let aside: Vec<String> = delta.parked.iter().map(path).collect();
    if delta.selected.is_empty() {
        let mut why =
            nothing(delta.unchanged, survey.own, &aside, &survey.troubles, others.problem());
        if let Some(other) = other.filter(|_| delta.unchanged > 0) {
            why.push_str(&by_another(&other, &backend, spec));
            seen.backend = Some(other);
        }
        if seen != before {
            keep_seen(ctx, spec, &seen);
        }
        if let Some(cache) = survey.cache_digest.filter(|_| delta.parked.is_empty()) {
            file.mark(ctx, cache);
        }
        return Err(JobError::Nothing(why));
    }
    dirty::wait_for_writer(ctx, spec, &survey.ideas, &delta.selected)?;
    note_inputs(ctx, &survey, &parked, &before);
    let folder = pass_folder(ctx, spec);
    check_targets(ctx, spec, &folder)?;
    let mut reported = begun((&*ctx, spec), &survey, &delta, aside)?;
    let mut room = room.map_or_else(|| evidence(ctx, spec), Ok)?;
    if submission.is_some() {
        Submission::widen(&mut room);
    }
    let troubles = reported.troubles.len();
    let (selected, found) = ((&*survey.ideas, &*delta.selected), &mut reported.troubles);
    let known = (&room, &born as &dyn Fn(&str) -> Option<i64>, &others);
    let mut judged = classify::judge_all(selected, &reader, known, found, ctx.progress);
    if judged.shown.is_empty() {
        return Err(unreadable(delta.selected.len(), &reported.troubles));
    }
    // Selected ideas that exceeded a limit also wait for the next pass.
    let unread = reported.troubles.len() - troubles;
    reported.waiting += delta.selected.len() - judged.shown.len() - unread;
    reported.compared = judged.compared;
    reported.uncompared = others.problem();
    if let Some(submission) = submission {
        submission.restore(&room, &mut judged);
    }
    room.drop_index();
    reported.memory = noted::add(ctx, &mut judged);
    let moved = delta.selected[delta.selected.len() - delta.moved..].iter().map(path).collect();
    Ok(PassEvidence {
        state,
        ideas: survey.ideas,
        folder,
        reader,
        room,
        judged,
        parked,
        reported,
        seen_before: before,
        seen,
        moved,
    })
}

/// Returns the report of a pass that has selected its ideas but has not yet judged them.
fn begun(
    (ctx, spec): (&Context<'_>, &DreamSpec),
    survey: &inventory::Inventory,
    delta: &delta::Delta,
    parked: Vec<String>,
) -> Result<PassSummary, JobError> {
    Ok(PassSummary {
        troubles: survey.troubles.clone(),
        own: survey.own,
        waiting: delta.waiting,
        parked,
        moved: delta.moved,
        privacy: review::Privacy::of(&ctx.git, spec)?.to_string(),
        ..PassSummary::default()
    })
}

/// Returns the quarantine and the evidence seen by earlier passes.
fn remembered(ctx: &Context<'_>, spec: &DreamSpec) -> Result<(Quarantine, SeenEvidence), JobError> {
    Ok(match ctx.recording.replays() {
        true => (recalled(&ctx.recording, PARKED)?, recalled(&ctx.recording, SEEN)?),
        false => (Quarantine::load(ctx.files.cache()), SeenEvidence::load(&ctx.files, spec)),
    })
}

/// Selects the ideas that a pass examines: those that the settings choose, or those of the
/// submission that still need an answer. Selects none if the state covers all ideas.
///
/// # Errors
/// Returns a failure of class `environment` if the settings choose one idea and it does not exist,
/// and [`JobError::Nothing`] if no idea of the submission needs an answer.
fn choose(
    ideas: &[Idea],
    state: Option<&DreamState<'_>>,
    parked: &Quarantine,
    (spec, submission): (&DreamSpec, Option<&Submission>),
) -> Result<delta::Delta, JobError> {
    let Some(state) = state else {
        return Ok(delta::Delta { unchanged: ideas.len(), ..Default::default() });
    };
    if let Some(submission) = submission {
        let selected = submission.select(ideas, state);
        if selected.is_empty() {
            let why = "every idea of the request is gone, or a later pass or decision has settled \
                       it; `runner dream delta --json` prints a new request";
            return Err(JobError::Nothing(why.to_owned()));
        }
        let unchanged = ideas.len() - selected.len();
        return Ok(delta::Delta { selected, unchanged, ..Default::default() });
    }
    let delta = delta::select(ideas, state, parked, spec.selection(), spec.max_ideas);
    match spec.selection() {
        Selection::Idea(path) if delta.selected.is_empty() => {
            let command = match spec.submission {
                Some(_) => "delta",
                None => "run",
            };
            let why = format!(
                "there is no idea {path}; `runner dream {command} --all` examines every idea"
            );
            Err(JobError::failed(Class::Environment, why))
        }
        _ => Ok(delta),
    }
}

/// Formats a note that another backend examined the unchanged ideas, with the command to examine
/// them again.
fn by_another(other: &str, backend: &str, spec: &DreamSpec) -> String {
    let again = match spec.submission {
        Some(_) => "`runner dream delta --all` prints a request about them".to_owned(),
        None => format!("`runner dream run --all` examines them with {backend}"),
    };
    format!("; {other} examined them; {again}")
}

/// Records the list of ideas, the quarantine and the evidence seen by earlier passes. This is
/// skipped for a pass with nothing to do, so that recording does not slow it down.
fn note_inputs(
    ctx: &Context<'_>,
    survey: &inventory::Inventory,
    parked: &Quarantine,
    seen: &SeenEvidence,
) {
    if ctx.recording.records() {
        ctx.recording.note(SURVEY, "", json!(survey), None);
        ctx.recording.note(PARKED, "", json!(parked), None);
        ctx.recording.note(SEEN, "", json!(seen), None);
    }
}

/// Lists the ideas and reads the state. Returns `None` for the state if a mark shows that the state
/// file already covers every idea.
fn inputs<'a>(
    (ctx, spec): (&Context<'_>, &DreamSpec),
    selection: Selection<'_>,
    file: &'a StateFile,
) -> Result<(Option<DreamState<'a>>, inventory::Inventory), JobError> {
    let (files, recording) = (&ctx.files, &ctx.recording);
    let covered = state_file::covered(ctx, spec).filter(|_| selection == Selection::Changed);
    if covered.is_some() {
        let survey = take_inventory(files, spec)?;
        if survey.cache_digest == covered {
            return Ok((None, survey));
        }
        return Ok((Some(state_file::parse((ctx, spec), file)?), survey));
    }
    let bytes = file.bytes(ctx, spec)?;
    // The cost of both steps grows with the number of ideas, so they run in parallel.
    let (state, survey) = std::thread::scope(|scope| {
        let parsed = scope.spawn(|| DreamState::parse(bytes));
        let survey = match recording.replays() {
            true => recalled(recording, SURVEY),
            false => take_inventory(files, spec),
        };
        (parsed.join(), survey)
    });
    let state = state
        .map_err(|_| JobError::failed(Class::Internal, "the state file could not be parsed"))?
        .map_err(|bad| state_file::bad_state(spec, &bad))?;
    Ok((Some(state), survey?))
}

fn keep_seen(ctx: &Context<'_>, spec: &DreamSpec, seen: &SeenEvidence) {
    if ctx.files.keeps_caches() && !ctx.recording.replays() {
        seen.save(ctx.files.cache(), spec);
    }
}

/// Reads the changes made by the candidate commits. The result is empty if neither a model nor
/// another program will read it.
fn excerpts(
    ctx: &Context<'_>,
    spec: &DreamSpec,
    grounded: &PassEvidence<'_>,
) -> Result<Excerpts, JobError> {
    if ctx.spender.answers_by_rule() && spec.submission.is_none() {
        return Ok(Excerpts::default());
    }
    let candidates = grounded.judged.shown.iter().flat_map(|one| &one.grounds.candidates);
    let hashes = candidates.map(|it| grounded.room.commit(it).hash.as_str()).collect();
    Ok(Excerpts::read(&ctx.git, &grounded.room, &hashes)?)
}

/// Returns the title and the first paragraph of the project's README, or an empty string if the
/// README is missing, blank or unreadable.
fn about_project(ctx: &Context<'_>) -> String {
    const LONGEST_README: u64 = 256 * 1024;
    const PARAGRAPH: usize = 600;
    let read = ctx.files.read("README.md", LONGEST_README).unwrap_or_default();
    let text = String::from_utf8_lossy(&read);
    match text.trim() {
        "" => String::new(),
        _ => format!("{}: {}", markdown::title(&text, ""), markdown::summary(&text, PARAGRAPH)),
    }
}

/// Reads and indexes the history, and caches it for later passes if the run keeps caches.
fn evidence(ctx: &Context<'_>, spec: &DreamSpec) -> Result<ProjectEvidence, JobError> {
    let cache = ctx.files.cache().join("dream-history");
    let source = EvidenceSource {
        limits: HistoryLimits::default(),
        notes: &[&spec.ideas, &spec.dreams],
        cache: ctx.files.keeps_caches().then_some(cache.as_path()),
    };
    Ok(ProjectEvidence::open(&ctx.git, source, &ctx.recording)?)
}

/// Returns the input that a replayed run received when it was recorded.
fn recalled<T: serde::de::DeserializeOwned>(
    recording: &InputRecording,
    input: &str,
) -> Result<T, JobError> {
    let wrong = |error: &dyn std::fmt::Display| {
        JobError::failed(Class::Internal, format!("the recorded {input}: {error}"))
    };
    let answer = recording.recall(input, "").map_err(|error| wrong(&error))?;
    serde_json::from_value(answer.facts).map_err(|error| wrong(&error))
}

/// Lists the ideas, and stores the stat cache if the run keeps caches. A failure to store the cache
/// only costs time.
fn take_inventory(
    files: &RunFiles<'_>,
    spec: &DreamSpec,
) -> Result<inventory::Inventory, JobError> {
    let cache = files.cache().join("dream-stat-cache");
    let disk = |error: runner_engine::publish::FsError| {
        JobError::failed(Class::Environment, error.to_string())
    };
    let survey = inventory::take_inventory(files.root(), spec, &cache).map_err(disk)?;
    if let Some(bytes) = survey.cache.as_ref().filter(|_| files.keeps_caches())
        && let Err(error) = write_atomic(&cache, bytes, 0o600)
    {
        tracing::warn!(%error, "the stat cache could not be saved");
    }
    Ok(survey)
}

fn reader(ctx: &Context<'_>, spec: &DreamSpec) -> Result<Reader, JobError> {
    Reader::open(ctx.files.root(), spec.max_idea_bytes)
        .map(|reader| reader.with_recording(ctx.recording.clone()))
        .map_err(|error| JobError::failed(Class::Environment, error.to_string()))
}

/// Reads one of runner's own files. Returns `None` if the file does not exist yet.
fn read_own(ctx: &Context<'_>, path: &str) -> Result<Option<Vec<u8>>, JobError> {
    match ctx.files.read(path, LONGEST) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(ScopeError::Fs(error)) if matches!(error.trouble, DiskTrouble::Missing) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn decisions(ctx: &Context<'_>, spec: &DreamSpec) -> Result<Decisions, JobError> {
    Ok(Decisions::read(&read_own(ctx, &spec.decisions_path())?.unwrap_or_default()))
}
