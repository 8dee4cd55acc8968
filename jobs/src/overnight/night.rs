//! Runs one night: takes the lock, recovers dead runs, runs the loop and the steps, and writes a
//! summary.
//!
//! ```text
//! lock ──> settle dead runs ──> open or resume ────> loop ──> steps ──> summary staged by the run
//!   └ held: wait                       │                       │
//!                                      └──────── error ────────┴──> summary `failed`, written here
//! ```
//!
//! A failed hard step, such as close-loop or metrics-health, ends the run. A failed soft step only
//! degrades the report. In the project, a night must never write outside the corpus's five paths,
//! `.agents/overnight`, the output folder and the `runs` folder beside it. If `bd` is installed,
//! `bd` also writes to `.beads`. A night must never write to git, and never create a link.

use runner_text::counted;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jiff::tz::TimeZone;
use runner_engine::awake::{InhibitLevel, Inhibitor};
use runner_engine::digest::Digest;
use runner_engine::ids::{Fence, RunId};
use runner_engine::outcome::Class;
use runner_engine::scope::Expect;
use runner_engine::time::boot_time;
use serde_json::{Value, json};

use super::commit::{self, Commit, Recovered, Target};
use super::corpus::brief::brief;
use super::corpus::defrag::{Options, defrag, suggestions};
use super::corpus::health::{Measured, measure};
use super::corpus::oscillation::FileHistory;
use super::corpus::{Corpus, FOLDER as CORPUS, NEXT_WORK, read};
use super::council::CouncilResult;
use super::facts::Facts;
use super::import::CommitEnd;
use super::iterate::LoopResult;
use super::lock::{FOLDER, LockError, RUN_LOCK, RunLock};
use super::output::{LOG, Output, PACKETS, SUMMARY};
use super::packets::{Packet, PacketIndex, PacketSources, beads, markdown, queue, sync};
use super::proposals::Proposals;
use super::state::{Night, disk, failed};
use super::summary::{
    Dreamscape, GUIDE, Iteration, IterationStatus, RunStatus, Runtime, StepStatus, Summary, length,
};
use super::{OvernightSpec, council, report, resume};
use crate::curator::events;
use crate::json::pretty;
use crate::{Context, Finished, JobError};

/// Delay before a night is retried after finding the corpus locked.
const LOCKED_WAIT: jiff::SignedDuration = jiff::SignedDuration::from_mins(5);
/// Maximum time to reserve for the steps after the loop. The reserve is a tenth of the night's
/// time, up to this maximum.
const RESERVE: Duration = Duration::from_secs(300);

/// Maximum number of critical events that a night reports.
const EVENTS: usize = 5;

/// Runs a night.
///
/// # Errors
/// Returns [`JobError::Wait`] if another process holds the lock. Returns another error if the lock,
/// the output folder, the corpus or the database cannot be used, if an earlier commit cannot be
/// finished, if a hard step fails, or if the run is stopped.
pub fn run(ctx: &mut Context<'_>, spec: &OvernightSpec) -> Result<Finished, JobError> {
    let root = ctx.files.root();
    let lock = RunLock::take(root, ctx.admitted.run().as_str(), ctx.clock.now());
    let _lock = lock.map_err(|error| match error {
        LockError::Held { .. } => JobError::Wait {
            until: ctx.clock.now().saturating_add(LOCKED_WAIT).unwrap_or(ctx.clock.now()),
            why: error.to_string(),
        },
        LockError::Io { .. } => disk(error),
    })?;
    let out = Output::new(root, &spec.output_dir);
    out.inspect().map_err(disk)?;
    let recovered = recover(root).inspect_err(|_| {
        // This run cannot continue, so it writes the summary of the dead run now, if there is one.
        if let Err(error) = resume::report_dead(&out, ctx.clock.now()) {
            tracing::error!(%error, "the summary of the dead run could not be written");
        }
    })?;
    let reported = resume::note(&out, &recovered);
    commit::clear(root).map_err(failed)?;
    super::staging::discard_all(root).map_err(disk)?;
    // The time since the admission counts towards the requested time.
    let waited = ctx.clock.wall().duration_since(ctx.clock.now());
    let waited = Duration::try_from(waited).unwrap_or_default();
    let seconds = (ctx.clock.left() + waited).as_secs_f64().round() as u64;
    let opened =
        resume::open(&out, spec, ctx.admitted.run(), ctx.clock.now(), seconds).map_err(disk)?;
    out.make().map_err(disk)?;
    // The report uses these facts to find the summary, which even a failed night has.
    let place = [("run_id", json!(opened.state.run_id)), ("output_dir", json!(out.below()))];
    ctx.facts.extend(place.map(|(name, value)| (name.to_owned(), value)));
    // A resumed night has only its remaining time.
    let timeout = opened.left(ctx.clock.now()).min(ctx.clock.left());
    // The steps after the loop take as long in a resumed night as in a new night. Their reserve is
    // therefore a share of the whole night's time.
    let whole = match opened.state.resumed {
        0 => timeout,
        _ => Duration::from_secs(opened.state.timeout_seconds),
    };
    let began = boot_time();
    let awake = ctx.keeper.as_mut().map(Inhibitor::standing);
    let note = awake.as_ref().filter(|awake| awake.held != InhibitLevel::Sleep);
    let note = note.map(ToString::to_string);
    let missed = note.clone().filter(|_| must_stay_awake(ctx));
    let mut night = Night {
        summary: Summary {
            goal: Some(spec.goal.clone()).filter(|goal| !goal.is_empty()),
            repo_root: root.display().to_string(),
            output_dir: out.below().to_owned(),
            started_at: opened.state.started_at.clone(),
            iterations: opened.iterations,
            degraded: reported.into_iter().chain(opened.reported).chain(missed).collect(),
            runtime: Runtime {
                keep_awake: spec.keep_awake,
                keep_awake_mode: awake
                    .as_ref()
                    .filter(|awake| awake.held != InhibitLevel::Nothing)
                    .map_or_else(|| "none".to_owned(), |awake| awake.by.clone()),
                keep_awake_note: note,
                requested_timeout: length(Duration::from_secs(seconds)),
                effective_timeout: length(Duration::from_secs(timeout.as_secs())),
                lock_path: format!("{FOLDER}/{RUN_LOCK}"),
                log_path: out.path_of(LOG),
                process_contract_doc: GUIDE.to_owned(),
                report_contract_doc: GUIDE.to_owned(),
            },
            ..Summary::planned(&opened.state.run_id)
        },
        state: opened.state,
        facts: Facts::default(),
        date: ctx.clock.now().to_zoned(TimeZone::UTC).date(),
        known: None,
        index: None,
        proposed: 0,
        began,
        until: began + timeout.saturating_sub((whole / 10).min(RESERVE)),
        out,
        spec,
        ctx,
    };
    let done = night.steps();
    match done {
        Ok(composite) => night.stage_summary(composite),
        Err(error) => {
            night.fail(&error);
            Err(error)
        }
    }
}

/// Returns whether a run is degraded if its host is not kept awake: always on macOS, and elsewhere
/// if the run was started with `--keep-awake`.
fn must_stay_awake(ctx: &mut Context<'_>) -> bool {
    let row = ctx.spender.store().run(ctx.admitted.run());
    let asked = row.is_ok_and(|row| row.settings.iter().any(|(key, _)| key == "keep_awake"));
    asked || cfg!(target_os = "macos")
}

/// Finishes the commits of dead runs. Returns an error while another program's commit is
/// unfinished, because the corpus may then be only partly committed.
fn recover(root: &Path) -> Result<Recovered, JobError> {
    let recovered = commit::settle(root).map_err(failed)?;
    let (unfinished, _) = super::import::commits(root).map_err(disk)?;
    match unfinished.iter().find(|it| it.end != CommitEnd::LeftAlone) {
        None => Ok(recovered),
        Some(commit) => Err(JobError::failed(
            Class::Environment,
            format!(
                "another program did not finish its commit {}, so the corpus may be only partly committed; fix: runner overnight import --apply",
                commit.marker
            ),
        )),
    }
}

impl Night<'_, '_> {
    /// Runs all steps, and returns the composite fitness of the corpus after them.
    fn steps(&mut self) -> Result<Option<f64>, JobError> {
        self.log(&format!("run {} begins", self.summary.run_id));
        for line in self.summary.degraded.clone() {
            self.log(&line);
        }
        self.at("open");
        self.critical_events();
        self.facts = Facts::read(self.ctx.files.root(), &self.ctx.git);
        let looped = self.iterate()?;
        self.close_loop(&looped)?;
        let mut corpus = read(&self.ctx.files.root().join(CORPUS)).map_err(disk)?;
        corpus.adopt(self.index.take());
        let history = self.history();
        self.learn(&corpus, &history);
        self.preview(&corpus, &history)?;
        let measured = measure(&corpus, self.facts.known_uses(), self.date);
        self.artifact("metrics-health", "metrics-health.json", &measured.health)?;
        self.summary.metrics_health = serde_json::to_value(&measured.health).ok();
        self.artifact("retrieval-bench", "retrieval-bench.json", &measured.bench)?;
        self.summary.retrieval_live = Some(json!({
            "precision_at_3": measured.bench.precision_at_3, "mrr": measured.bench.mrr,
            "questions": measured.bench.questions, "nodes": measured.bench.nodes,
        }));
        self.check_cancelled()?;
        self.brief(&corpus)?;
        let candidates = self.packets(&corpus, &measured, &CouncilResult::default());
        let mut counsel = self.council(&candidates, &measured)?;
        self.check_cancelled()?;
        self.at("morning-packets");
        let mut packets = self.packets(&corpus, &measured, &counsel);
        self.long_haul(&corpus, &mut packets);
        self.beads(&mut packets);
        self.trace(&mut counsel, &packets);
        self.deliver(packets)?;
        self.summarize(&measured);
        Ok(measured.fitness.composite)
    }

    /// Reports the curator's open critical events, which the user should see first.
    fn critical_events(&mut self) {
        let critical = match events::critical(self.ctx.files.root(), &self.spec.worker_dir) {
            Ok(critical) => critical.unwrap_or_default(),
            Err(error) => {
                return self.degrade(&format!("the curator's events cannot be read: {error}"));
            }
        };
        for event in critical.open.iter().take(EVENTS) {
            self.degrade(&format!("critical event {}: {}", event.id, event.desired_action));
        }
    }

    fn close_loop(&mut self, looped: &LoopResult) -> Result<(), JobError> {
        let last = self.summary.iterations.last();
        let last = last.filter(|it| it.status == IterationStatus::Failed);
        // In a resumed night, an earlier process may have completed the close-loop step.
        let never = !self.summary.iterations.iter().any(committed);
        if let (Value::Null, true, Some(last)) = (&looped.close_loop, never, last) {
            let why = last.error.clone().unwrap_or_default();
            self.at("close-loop");
            return Err(JobError::failed(Class::Environment, why));
        }
        if looped.close_loop.is_null() && never && !self.summary.iterations.is_empty() {
            self.at("close-loop");
            self.soft("close-loop", "no iteration was committed");
            return Ok(());
        }
        let mut report = match &looped.close_loop {
            Value::Object(_) => looped.close_loop.clone(),
            _ => {
                json!({"schema_version": 1, "threshold_hours": 0, "considered": 0, "promoted": [], "held": {}, "held_examples": []})
            }
        };
        report["promoted"] = serde_json::to_value(&looped.promoted).unwrap_or_default();
        self.summary.close_loop = Some(json!({
            "promoted": looped.promoted.len(), "considered": report["considered"],
        }));
        self.artifact("close-loop", "close-loop.json", &report)
    }

    /// Reports the changes that a defragmentation would still make, and proposes nodes to retire.
    fn preview(&mut self, corpus: &Corpus, history: &FileHistory) -> Result<(), JobError> {
        let date = self.date;
        let (mut report, _) = defrag(corpus, history, Options::default());
        report.suggested =
            suggestions(corpus, self.facts.known_uses(), history, date, Options::default());
        let root = self.ctx.files.root();
        let at = self.timestamp();
        let proposed = Proposals::read(root).and_then(|mut all| {
            let by = (self.summary.run_id.as_str(), at.as_str());
            all.update(corpus, &report.suggested, Options::default(), by);
            all.write(root).map(|()| all.open().count())
        });
        match proposed {
            Ok(count) => self.proposed = count as u64,
            Err(error) => self.degrade(&format!("the proposals were not updated: {error}")),
        }
        self.artifact("defrag-preview", "defrag/latest.json", &report)
    }

    fn brief(&mut self, corpus: &Corpus) -> Result<(), JobError> {
        let Some(goal) = self.summary.goal.clone() else {
            self.skip("knowledge-brief", "the night has no goal");
            return Ok(());
        };
        let brief = brief(corpus, &goal, self.date);
        if brief.nodes.is_empty() {
            self.skip("knowledge-brief", "no node of the corpus matches the goal");
            return Ok(());
        }
        self.summary.briefing = Some(json!({
            "nodes": brief.nodes.iter().map(|node| &node.path).collect::<Vec<_>>(), "text": brief.text,
        }));
        self.artifact("knowledge-brief", "briefing.json", &brief)
    }

    fn packets(
        &mut self,
        corpus: &Corpus,
        measured: &Measured,
        counsel: &CouncilResult,
    ) -> Vec<Packet> {
        let pinned = self.pinned();
        let kept = self.out.kept(&self.summary.run_id);
        PacketSources {
            root: self.ctx.files.root(),
            corpus,
            health: &measured.health,
            facts: &self.facts,
            pinned: &pinned,
            goal: &self.spec.goal,
            date: self.date,
            output: self.out.below(),
            kept: &kept,
            command: &self.spec.morning_command,
            counsel,
        }
        .packets()
    }

    fn pinned(&mut self) -> Vec<queue::Pinned> {
        if self.spec.queue.is_empty() {
            return Vec::new();
        }
        let path = self.spec.queue.clone();
        match self.ctx.files.read(&path, 1024 * 1024).map(String::from_utf8) {
            Ok(Ok(text)) => queue::parse(&path, &text),
            Ok(Err(_)) => {
                self.degrade(&format!("the pinned queue {path} is not text"));
                Vec::new()
            }
            Err(error) => {
                let why = runner_engine::error_chain::whole(&error);
                self.degrade(&format!("the pinned queue was not read: {why}"));
                Vec::new()
            }
        }
    }

    fn beads(&mut self, packets: &mut [Packet]) {
        let Some(program) = beads::program(self.ctx) else {
            self.skip("bead-sync", "bd is not installed");
            return;
        };
        match beads::sync(self.ctx, &program, packets) {
            (made, None) => {
                self.finish("bead-sync", None, Some(format!("{} made", counted(made, "bead"))))
            }
            (made, Some(why)) => {
                self.soft("bead-sync", &format!("{} made; {why}", counted(made, "bead")))
            }
        }
    }

    /// Writes the packets and updates the work file from them.
    fn deliver(&mut self, packets: Vec<Packet>) -> Result<(), JobError> {
        // A resumed night may have written packets earlier that it no longer offers.
        self.out.clear(PACKETS).map_err(disk)?;
        for packet in &packets {
            let path = packet.artifact_path.clone().unwrap_or_default();
            let name = path.rsplit('/').next().unwrap_or_default();
            self.out.json(&format!("{PACKETS}/{name}"), packet).map_err(disk)?;
        }
        let names: Vec<&str> = packets
            .iter()
            .filter_map(|packet| packet.artifact_path.as_deref()?.rsplit('/').next())
            .collect();
        if let Err(error) = self.out.keep(&self.summary.run_id, PACKETS, &names) {
            self.degrade(&format!("no permanent copy of the packets could be made: {error}"));
        }
        let index = PacketIndex {
            run_id: self.summary.run_id.clone(),
            repo_root: self.summary.repo_root.clone(),
            generated_at: self.timestamp(),
            packets: packets.clone(),
        };
        self.out.text("morning-packets/index.md", &markdown(&index)).map_err(disk)?;
        self.artifact("morning-packets", "morning-packets/index.json", &index)?;
        self.summary
            .artifacts
            .insert("morning-packets-index".to_owned(), "morning-packets/index.md".to_owned());
        if let Err(why) = self.sync(&packets) {
            self.degrade(&format!("the work file was not updated from the packets: {why}"));
            if let Some(step) = self.summary.step("morning-packets") {
                step.note = Some(why);
            }
        }
        self.summary.morning_packets = Some(packets);
        Ok(())
    }

    /// Commits the packets to the work file, which is one of the corpus's five paths.
    fn sync(&mut self, packets: &[Packet]) -> Result<(), String> {
        let root = self.ctx.files.root();
        let bytes = commit::live(root, NEXT_WORK).map_err(|error| error.to_string())?;
        if bytes.is_none() && packets.is_empty() {
            return Ok(());
        }
        let held = bytes.unwrap_or_default();
        let mut work = super::corpus::work::WorkFile::parse(&held);
        let synced = sync::sync(&mut work, packets, &self.timestamp());
        let after = work.kept.to_bytes();
        if after == held {
            return Ok(());
        }
        let before = root.join(CORPUS).join(NEXT_WORK).exists().then(|| Digest::of(&held));
        let store = self.ctx.spender.store();
        let guard = |run: &RunId, fence: Fence| store.holds(run, fence);
        let number = self.summary.iterations.len() as u64 + 1;
        let done = Commit {
            root,
            run: self.ctx.admitted.run().clone(),
            fence: self.ctx.admitted.fence(),
            guard: &guard,
            number,
            iteration_id: format!("{}-packets", self.summary.run_id),
            started_at: self.timestamp(),
            record: Value::Null,
        }
        .make(vec![Target { path: NEXT_WORK.to_owned(), before, after: Some(after) }]);
        done.and_then(|_| commit::clear(root)).map_err(|error| error.to_string())?;
        self.log(&format!("work file: {} amended, {} added", synced.amended, synced.added));
        Ok(())
    }

    /// Sets the summary's gain, fitness change, dreamscape and recommended commands.
    fn summarize(&mut self, measured: &Measured) {
        let packets = self.summary.morning_packets.clone().unwrap_or_default();
        let mut gain = gain(&self.summary.iterations);
        gain.insert("packets".to_owned(), packets.len() as u64);
        gain.insert("proposed".to_owned(), self.proposed);
        self.summary.gain = Some(gain);
        // An iteration that failed before its first measurement has no fitness and is skipped.
        let mut measured_before = self.summary.iterations.iter();
        let first = measured_before.find_map(|it| it.fitness_before.as_ref());
        if let Some(first) = first {
            self.summary.fitness_delta = Some(super::halt::delta(first, &measured.fitness));
        }
        let weather = match measured.fitness.composite {
            _ if self.summary.regression_reason.is_some() => "storm",
            None => "unknown",
            Some(it) if it >= 0.8 => "clear",
            Some(it) if it >= 0.6 => "fair",
            Some(it) if it >= 0.4 => "overcast",
            Some(_) => "fog",
        };
        let visibility = match self.summary.degraded.len() {
            0 => "high",
            1 | 2 => "medium",
            _ => "low",
        };
        let first = packets.first().map(|packet| packet.morning_command.clone());
        self.summary.dreamscape = Dreamscape {
            weather: weather.to_owned(),
            visibility: visibility.to_owned(),
            council: council::describe(self.summary.council.as_ref()),
            tension: self
                .summary
                .council
                .as_ref()
                .and_then(|it| it["tension"].as_str())
                .map(str::to_owned),
            first_move: first.clone(),
        };
        let mut recommended: Vec<String> = first.into_iter().collect();
        recommended.push("runner overnight report".to_owned());
        if self.proposed > 0 {
            recommended.push("runner corpus proposals".to_owned());
        }
        if !measured.health.troubles.is_empty() {
            recommended.push("runner corpus health".to_owned());
        }
        self.summary.next_action = recommended[0].clone();
        self.summary.recommended = recommended;
    }

    /// Stages the JSON and Markdown forms of the summary, which the run then publishes.
    fn stage_summary(mut self, composite: Option<f64>) -> Result<Finished, JobError> {
        self.summary.status = RunStatus::Done;
        self.close();
        self.at("published");
        let texts = [pretty(&self.summary), report::markdown(&self.summary)];
        for (name, text) in SUMMARY.into_iter().zip(&texts) {
            let path = self.out.path_of(name);
            let text = self.ctx.redactor.redact(text).into_owned();
            self.ctx.files.stage(&path, text.as_bytes(), Expect::Current)?;
        }
        self.log("done");
        let summary = &self.summary;
        let ended = [&summary.regression_reason, &summary.plateau_reason];
        let ended = ended.into_iter().flatten().next();
        let packets = summary.morning_packets.as_ref().map_or(0, Vec::len);
        let fitness = match composite {
            Some(it) => format!("fitness {it} ({:+})", summary.fitness_delta.unwrap_or(0.0)),
            None => "fitness unknown".to_owned(),
        };
        let mut lines: Vec<String> =
            ended.map(|why| format!("the loop ended: {why}")).into_iter().collect();
        lines.extend(summary.degraded.iter().cloned());
        let left_out = self.facts.sources.left_out.iter();
        lines.extend(left_out.map(|why| format!("not read: {why}")));
        let refused = council::refused(summary.council.as_ref());
        lines.extend(refused.iter().map(|what| format!("refused: {what}")));
        Ok(Finished {
            idle: None,
            degraded: summary.degraded.first().cloned(),
            headline: format!(
                "{}, {fitness}, {}",
                counted(summary.iterations.len(), "iteration"),
                counted(packets, "morning packet"),
            ),
            lines,
            refused,
            facts: [
                ("iterations".to_owned(), json!(summary.iterations.len())),
                ("composite".to_owned(), json!(composite)),
                ("packets".to_owned(), json!(packets)),
            ]
            .into_iter()
            .collect(),
        })
    }

    /// Writes the summary of a run that ends with an error.
    fn fail(&mut self, error: &JobError) {
        let why = self.ctx.redactor.redact(&error.whole()).into_owned();
        let at = self.state.at_step.clone().unwrap_or_default();
        for step in &mut self.summary.steps {
            if step.status == StepStatus::Planned && step.name == at {
                step.status = StepStatus::Failed;
                step.note = Some(why.clone());
            }
        }
        self.summary.status = RunStatus::Failed;
        self.summary.failure_reason = Some(why.clone());
        self.close();
        self.log(&format!("failed: {why}"));
        if let Err(error) = report::write(&self.out, &self.summary) {
            tracing::error!(%error, "the summary of the failed run could not be written");
        }
    }

    fn close(&mut self) {
        self.summary.finished_at = self.timestamp();
        self.summary.duration = length(boot_time().saturating_sub(self.began));
        self.summary.artifacts.insert("log".to_owned(), LOG.to_owned());
    }
}

/// Returns whether an iteration is part of the corpus.
fn committed(iteration: &Iteration) -> bool {
    matches!(iteration.status, IterationStatus::Done | IterationStatus::Degraded)
}

/// Returns the changes that the committed iterations made to the corpus: counts by name. In a
/// resumed night, these include the iterations of earlier processes.
fn gain(iterations: &[Iteration]) -> BTreeMap<String, u64> {
    let mut gain = BTreeMap::new();
    for one in iterations.iter().filter(|one| committed(one)) {
        for (stage, name) in [
            (&one.ingest, "harvested"),
            (&one.ingest, "promoted"),
            (&one.reduce, "removed"),
            (&one.reduce, "compiled"),
        ] {
            *gain.entry(name.to_owned()).or_default() += stage[name].as_u64().unwrap_or(0);
        }
    }
    gain
}

/// Reads an iteration and its run id from a marker's record. Returns `None` if the record is
/// invalid or names another output folder.
pub(super) fn noted(out: &Output, record: &Value) -> Option<(String, Iteration)> {
    if record.get("output")?.as_str()? != out.below() {
        return None;
    }
    let run: RunId = record.get("run_id")?.as_str()?.parse().ok()?;
    let iteration: Iteration = serde_json::from_value(record.get("iteration")?.clone()).ok()?;
    let id = format!("{run}-iter-{}", iteration.index);
    (iteration.id == id).then(|| (run.to_string(), iteration))
}
