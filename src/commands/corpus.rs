//! `runner corpus`: runs each step over the corpus manually.
//!
//! A read respects the commit marker: it first finishes the commit of a dead process, and waits for
//! an active commit. A change takes the overnight lock, is written in a separate commit, and is
//! refused while an overnight run is active.

use runner_text::counted;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use runner_engine::files::{DOCUMENT, read_in};
use runner_engine::git::Git;
use runner_engine::ids::{Fence, RunId};
use runner_engine::outcome::Exit;
use runner_jobs::overnight::commit::{self, Commit, CommitError};
use runner_jobs::overnight::corpus::bench::{Bench, JudgedQuestion, bench};
use runner_jobs::overnight::corpus::brief::brief;
use runner_jobs::overnight::corpus::close_loop::{CloseLoop, close_loop};
use runner_jobs::overnight::corpus::defrag::{Defrag, Options, defrag};
use runner_jobs::overnight::corpus::harvest::{Harvest, harvest};
use runner_jobs::overnight::corpus::health::{Health, measure};
use runner_jobs::overnight::corpus::oscillation::FileHistory;
use runner_jobs::overnight::corpus::{Changes, Corpus, FOLDER, read};
use runner_jobs::overnight::facts::Facts;
use runner_jobs::overnight::lock::{CommitLock, FOLDER as NIGHT, LockError, RunLock};
use serde_json::Value;

use crate::cli::args::Listing;
use crate::cli::corpus::CorpusCommand;
use crate::cli::{Failure, Ui, safe, show};
use crate::config::values::duration;
use crate::env::{self, Env};

/// Carries out one of the `corpus` commands.
pub fn run(home: &Env, here: &Path, command: &CorpusCommand, ui: Ui) -> Result<Exit, Failure> {
    let room = CorpusCommandContext { home, root: find(here)?, ui };
    match command {
        CorpusCommand::Health { listing } => room.health(*listing),
        CorpusCommand::Bench { live: _, corpus, global, listing } => {
            room.bench(corpus.as_deref(), *global, *listing)
        }
        CorpusCommand::CloseLoop { threshold, dry_run, listing } => {
            room.close_loop(threshold, *dry_run, *listing)
        }
        CorpusCommand::Defrag { prune, dedup, oscillation_sweep, apply, listing } => {
            let all = !(*prune || *dedup || *oscillation_sweep);
            let options = Options {
                prune: *prune || all,
                dedup: *dedup || all,
                oscillation_sweep: *oscillation_sweep || all,
                ..Options::default()
            };
            room.defrag(options, *apply, *listing)
        }
        CorpusCommand::Brief { goal, listing } => room.brief(goal, *listing),
        CorpusCommand::Harvest { dry_run, listing } => room.harvest(*dry_run, *listing),
    }
}

/// Returns the nearest folder at or above `from` that contains a corpus.
fn find(from: &Path) -> Result<PathBuf, Failure> {
    let from = fs::canonicalize(from)
        .map_err(|error| Failure::data(format!("{}: {error}", from.display())))?;
    let found = from.ancestors().find(|folder| folder.join(FOLDER).is_dir());
    found.map(Path::to_owned).ok_or_else(|| {
        Failure::data(format!("could not find {FOLDER} in {} or any parent folder", from.display()))
            .hint(format!("mkdir -p {FOLDER}/learnings"))
    })
}

struct CorpusCommandContext<'h> {
    home: &'h Env,
    root: PathBuf,
    ui: Ui,
}

impl CorpusCommandContext<'_> {
    fn date(&self) -> Result<jiff::civil::Date, Failure> {
        Ok(self.home.wall()?.to_zoned(TimeZone::UTC).date())
    }

    /// Reads the whole corpus, never a half-committed state.
    fn corpus(&self) -> Result<Corpus, Failure> {
        let whole = || {
            read(&self.root.join(FOLDER))
                .map_err(|it| Failure::environment(runner_engine::error_chain::whole(&it)))
        };
        let _reading = CommitLock::shared(&self.root).map_err(locked)?;
        if !commit::is_pending(&self.root).map_err(not_committed)? {
            return whole();
        }
        drop(_reading);
        let _lock = self.lock()?;
        for (id, _) in commit::settle(&self.root).map_err(not_committed)?.rolled_forward {
            self.ui.info(&format!("runner: finished the commit of {id}"));
        }
        whole()
    }

    fn lock(&self) -> Result<RunLock, Failure> {
        RunLock::take(&self.root, "corpus", self.home.wall()?).map_err(locked)
    }

    /// Makes a step's changes under the lock, after finishing commits of dead processes.
    fn change(
        &self,
        step: impl FnOnce(&Corpus) -> Result<Changes, Failure>,
    ) -> Result<usize, Failure> {
        let now = self.home.wall()?;
        let _lock = self.lock()?;
        commit::settle(&self.root).map_err(not_committed)?;
        let corpus = read(&self.root.join(FOLDER))
            .map_err(|error| Failure::environment(runner_engine::error_chain::whole(&error)))?;
        let changes = step(&corpus)?;
        let targets = commit::targets(&self.root, changes).map_err(not_committed)?;
        let kept =
            self.root.join(NIGHT).join("removed").join(now.strftime("%Y%m%dT%H%M%SZ").to_string());
        commit::keep_removed(&self.root, &kept, &targets).map_err(not_committed)?;
        // Only the lock protects the change: without a run there is no fence.
        let free = |_: &RunId, _: Fence| Ok(());
        let count = Commit {
            root: &self.root,
            run: RunId::new(now),
            fence: Fence(0),
            guard: &free,
            number: 0,
            iteration_id: "by-hand".to_owned(),
            started_at: format!("{now:.0}"),
            record: Value::Null,
        }
        .make(targets)
        .map_err(not_committed)?;
        // Clears only this commit. The next overnight run must still record the commits of a run
        // that died.
        commit::clear_one(&self.root, 0).map_err(not_committed)?;
        Ok(count)
    }

    fn history(&self) -> FileHistory {
        let bytes = read_in(&self.root, Path::new(NIGHT).join("oscillation.json"), DOCUMENT);
        bytes.map(|bytes| FileHistory::parse(&bytes)).unwrap_or_default()
    }

    fn health(&self, listing: Listing) -> Result<Exit, Failure> {
        let measured = measure(&self.corpus()?, self.date()?).map_err(inside)?;
        let below = measured.health.metrics.iter().any(|it| it.below_floor);
        print_report(listing, &measured.health, health_text);
        Ok(if below { Exit::Failed } else { Exit::Done })
    }

    fn bench(&self, other: Option<&Path>, global: bool, listing: Listing) -> Result<Exit, Failure> {
        let (corpus, judged) = match (other, global) {
            (Some(folder), _) => {
                let nested = folder.join(FOLDER);
                let folder = if nested.is_dir() { nested } else { folder.to_owned() };
                let judged = folder.join("bench.json");
                let judged: Option<Vec<JudgedQuestion>> = match read_in(&folder, &judged, DOCUMENT)
                {
                    Ok(bytes) => Some(serde_json::from_slice(&bytes).map_err(|error| {
                        Failure::data(format!("{}: {error}", judged.display()))
                    })?),
                    Err(_) => None,
                };
                (elsewhere(&folder)?, judged)
            }
            (None, true) => (elsewhere(&env::folder_of_user()?.join(FOLDER))?, None),
            (None, false) => (self.corpus()?, None),
        };
        let result = bench(&corpus, self.date()?, judged.as_deref()).map_err(inside)?;
        print_report(listing, &result, bench_text);
        Ok(Exit::Done)
    }

    fn close_loop(
        &self,
        threshold: &str,
        dry_run: bool,
        listing: Listing,
    ) -> Result<Exit, Failure> {
        let span = match threshold {
            "0" | "0h" | "0s" | "0m" | "0d" => jiff::SignedDuration::ZERO,
            other => {
                duration(other).map_err(|why| Failure::usage(format!("--threshold: {why}")))?
            }
        };
        let hours = u64::try_from(span.as_hours()).unwrap_or(0);
        let date = self.date()?;
        let report = if dry_run {
            close_loop(&self.corpus()?, date, hours).0
        } else {
            let mut report = CloseLoop::default();
            self.change(|corpus| {
                let (own, changes) = close_loop(corpus, date, hours);
                report = own;
                Ok(changes)
            })?;
            report
        };
        print_report(listing, &report, |it: &CloseLoop| {
            let mut text = format!("{} of {} promoted\n", it.promoted.len(), it.considered);
            for one in &it.promoted {
                text.push_str(&format!(
                    "  {} -> {}  {}\n",
                    one.from.as_str(),
                    one.to.as_str(),
                    safe::line(&one.path)
                ));
            }
            for (why, count) in &it.held {
                text.push_str(&format!("  held: {count} because {why}\n"));
            }
            text
        });
        Ok(Exit::Done)
    }

    fn defrag(&self, options: Options, apply: bool, listing: Listing) -> Result<Exit, Failure> {
        let (date, history) = (self.date()?, self.history());
        let report = if apply {
            let mut report = Defrag::default();
            self.change(|corpus| {
                let (own, changes) = defrag(corpus, &history, date, options);
                report = Defrag { applied: true, ..own };
                Ok(changes)
            })?;
            report
        } else {
            defrag(&self.corpus()?, &history, date, options).0
        };
        print_report(listing, &report, |it: &Defrag| {
            let mut text = String::new();
            for (word, all) in
                [("the same as", &it.removed), ("nearly the same as", &it.superseded)]
            {
                for one in all {
                    text.push_str(&format!(
                        "{} is {word} {}\n",
                        safe::line(&one.path),
                        safe::line(&one.of)
                    ));
                }
            }
            for (word, all) in [
                ("is past its time to live", &it.stale),
                ("is repeatedly added and removed; left unchanged", &it.oscillating),
                ("cannot be edited without guessing; left unchanged", &it.uneditable),
            ] {
                for path in all {
                    text.push_str(&format!("{} {word}\n", safe::line(path)));
                }
            }
            match (text.is_empty(), it.applied) {
                (true, _) => "everything is in order\n".to_owned(),
                (false, true) => text,
                (false, false) => {
                    text + "nothing was changed; run again with --apply to make these changes\n"
                }
            }
        });
        Ok(Exit::Done)
    }

    fn brief(&self, goal: &str, listing: Listing) -> Result<Exit, Failure> {
        let brief = brief(&self.corpus()?, goal, self.date()?).map_err(inside)?;
        if brief.nodes.is_empty() {
            return Err(Failure::data(format!("no node of the corpus matches {goal:?}"))
                .hint("use words that occur in the corpus, or run: runner corpus harvest"));
        }
        print_report(listing, &brief, |it| show::printable(&it.text).into_owned());
        Ok(Exit::Done)
    }

    fn harvest(&self, dry_run: bool, listing: Listing) -> Result<Exit, Failure> {
        let date = self.date()?;
        let git = Git::new(&self.root, &env::child_environment(), &env::marker()?);
        let history = self.history();
        // Checks the lock before anything is read, so that the command refuses at once.
        if !dry_run {
            RunLock::inspect(&self.root).map_err(locked)?;
        }
        let facts = Facts::read(&self.root, &git);
        let report = if dry_run {
            harvest(&self.corpus()?, &facts.sources, &history, date).map_err(inside)?.0
        } else {
            let mut report = Harvest::default();
            self.change(|corpus| {
                let (own, changes) =
                    harvest(corpus, &facts.sources, &history, date).map_err(inside)?;
                report = own;
                Ok(changes)
            })?;
            report
        };
        print_report(listing, &report, |it: &Harvest| {
            let mut text = format!(
                "{} new from {}, {} and {}; {} already known\n",
                it.added.len(),
                counted(it.commits, "commit"),
                counted(it.closed_items, "closed item"),
                counted(it.notes, "note"),
                it.known
            );
            for one in &it.added {
                text.push_str(&format!(
                    "  {}  ({})\n",
                    safe::line(&one.path),
                    safe::line(&one.source)
                ));
            }
            for why in &it.left_out {
                text.push_str(&format!("  left out: {}\n", safe::line(why)));
            }
            text
        });
        Ok(Exit::Done)
    }
}

fn elsewhere(folder: &Path) -> Result<Corpus, Failure> {
    if !folder.is_dir() {
        return Err(Failure::data(format!("there is no corpus in {}", folder.display())));
    }
    read(folder).map_err(|error| Failure::environment(runner_engine::error_chain::whole(&error)))
}

fn print_report<T: serde::Serialize>(listing: Listing, report: &T, text: impl Fn(&T) -> String) {
    match listing.json {
        true => show::json(report),
        false => show::out(&text(report)),
    }
}

fn health_text(health: &Health) -> String {
    let mut rows = vec![["metric", "value", "floor", ""].map(str::to_owned).to_vec()];
    for metric in &health.metrics {
        let value = metric.value.map_or_else(|| "-".to_owned(), |it| format!("{it:.3}"));
        let mark = if metric.below_floor { "below its floor" } else { "" };
        rows.push(vec![
            metric.name.to_owned(),
            value,
            format!("{}", metric.floor),
            mark.to_owned(),
        ]);
    }
    let mut text = show::table(&rows);
    text.push_str(&format!("\nfitness {:.3}", health.composite));
    let nodes: Vec<String> =
        health.nodes.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    text.push_str(&format!(
        " · {} · {} inactive · {}\n",
        nodes.join(", "),
        health.inactive,
        counted(health.open_items, "open item")
    ));
    for trouble in &health.troubles {
        text.push_str(&format!("{}: {}\n", safe::line(&trouble.path), safe::line(&trouble.what)));
    }
    text
}

fn bench_text(bench: &Bench) -> String {
    let value = |it: Option<f64>| it.map_or_else(|| "-".to_owned(), |it| format!("{it:.3}"));
    let mut text = format!(
        "precision of the first three {} · mean reciprocal rank {} · {}, {} without an answer, {}\n",
        value(bench.precision_at_3),
        value(bench.mrr),
        counted(bench.questions, "question"),
        bench.unanswerable,
        counted(bench.nodes, "node")
    );
    for one in &bench.results {
        text.push_str(&format!(
            "  {:.2} {:.2}  {}\n",
            one.precision_at_3,
            one.reciprocal_rank,
            safe::line(&one.query)
        ));
    }
    text
}

fn inside(error: impl std::error::Error) -> Failure {
    Failure::internal(runner_engine::error_chain::whole(&error))
}

pub(super) fn locked(error: LockError) -> Failure {
    match error {
        LockError::Held { .. } => Failure::later(error.to_string())
            .hint("run the command again when the other one has finished"),
        LockError::Io { .. } => Failure::cannot_write(error.to_string()),
    }
}

fn not_committed(error: CommitError) -> Failure {
    match error {
        CommitError::Before(_) => Failure::cannot_write(error.to_string()),
        CommitError::Unfinished(_) => Failure::cannot_write(error.to_string())
            .hint("free disk space or restore the changed file, then run the command again"),
        CommitError::TakenOver => Failure::later(error.to_string()),
    }
}
