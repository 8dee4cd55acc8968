//! `runner dream bench`: measures the rule-based answers on ideas with known answers.
//!
//! The command judges ideas and counts the results. It makes no proposals, stores nothing and calls
//! no model.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runner_engine::error_chain;
use runner_engine::files::{read_text_host, read_text_proc};
use runner_engine::git::Git;
use runner_engine::outcome::Exit;
use runner_engine::recording::InputRecording;
use runner_jobs::Silent;
use runner_jobs::dream::DreamSpec;
use runner_jobs::dream::bench::{self, Figures, truth};
use runner_jobs::dream::classify::{Born, judge_all};
use runner_jobs::dream::compare::{OtherNotes, all_notes};
use runner_jobs::dream::inventory::{Reader, take_inventory};
use runner_jobs::evidence::{EvidenceSource, HistoryLimits, ProjectEvidence};
use runner_text::counted;
use serde::Serialize;

use crate::commands::Cli;
use crate::env;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, show};

/// Maximum size of the label file, in bytes.
const LONGEST: u64 = 64 * 1024 * 1024;

/// Measure the rule-based answers on ideas with known answers, without making proposals
#[derive(Debug, clap::Args)]
#[command(
    after_help = "FILE is a JSON array. Each element has `idea`, a path, and what is known about it: \
                        `commits`, the hashes of the commits that implemented it; or `status`, one of the \
                        five statuses; or `open`, true if the idea is still open; or `duplicates`, the ideas with the same content.\n\nExample: runner dream bench --truth labels.json --past"
)]
pub(super) struct BenchArgs {
    /// The label file
    #[arg(long, value_name = "FILE")]
    truth: PathBuf,
    /// Also judge each finished idea as if it were open, using the history from before it was
    /// finished
    #[arg(long)]
    past: bool,
}

/// The measured quality and speed.
#[derive(Debug, Serialize)]
struct Measurement {
    #[serde(flatten)]
    figures: Figures,
    commits: usize,
    /// The time to read and index the history, in seconds.
    indexed_s: f64,
    /// The time to judge all ideas, in seconds.
    judged_s: f64,
    /// The peak memory usage of the process after judging, in bytes; `None` if it is unknown.
    peak_bytes: Option<u64>,
}

impl View for Measurement {
    fn print(&self, _ui: Ui) {
        show::out(&format_figures(self));
    }
}

impl BenchArgs {
    /// Compares the rule-based answers with the labels.
    pub(super) fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let labels = labels(&self.truth)?;
        let project = LoadedProject::load(cli.env, cli.here)?;
        let dream =
            project.config.jobs.values().find_map(|job| job.spec.kind.of::<DreamSpec>().cloned());
        let spec = dream.unwrap_or_default();
        cli.ui.show(&self.measure(cli, &project.root, &spec, &labels)?);
        Ok(Exit::Done)
    }

    fn measure(
        &self,
        cli: &Cli<'_>,
        root: &Path,
        spec: &DreamSpec,
        labels: &[truth::Label],
    ) -> Result<Measurement, Failure> {
        let environment =
            |error: &dyn std::error::Error| Failure::environment(error_chain::whole(error));
        // Every idea is read, because this command ignores the state that dream passes keep.
        let inventory =
            take_inventory(root, spec, Path::new("")).map_err(|error| environment(&error))?;
        let reader =
            Reader::open(root, spec.max_idea_bytes).map_err(|error| environment(&error))?;
        let git = Git::new(root, &env::child_environment(), &env::marker()?);
        let begun = cli.env.now()?;
        // The history is read without the cache, so the figures include the time to read it.
        let source = EvidenceSource {
            limits: HistoryLimits::default(),
            notes: &[&spec.ideas, &spec.dreams],
            cache: None,
        };
        let evidence = ProjectEvidence::open(&git, source, &InputRecording::off())
            .map_err(|error| environment(&error))?;
        let indexed = cli.env.now()?;
        let all: Vec<usize> = (0..inventory.ideas.len()).collect();
        let mut troubles = inventory.troubles.clone();
        let ideas = (inventory.ideas.as_slice(), all.as_slice());
        let list = || all_notes(root, spec, &inventory, &InputRecording::off());
        let read = |path: &str| reader.text(path).map(|(text, ..)| text);
        let others = || OtherNotes::new(&list, &read);
        let born: Born<'_> = &|_| None;
        let known = (&evidence, born, &others());
        let judged = judge_all(ideas, &reader, known, &mut troubles, &mut Silent);
        let ended = cli.env.now()?;
        let peak_bytes = peak();
        for trouble in &troubles {
            show::complain(&format!("{}: {}", trouble.path, trouble.why));
        }
        let figures =
            bench::measure(&evidence, &judged.shown, labels, self.past.then_some(&others as _));
        let seconds = |length: Duration| (length.as_secs_f64() * 1000.0).round() / 1000.0;
        Ok(Measurement {
            figures,
            commits: evidence.history().len(),
            indexed_s: seconds(indexed.boot.saturating_sub(begun.boot)),
            judged_s: seconds(ended.boot.saturating_sub(indexed.boot)),
            peak_bytes,
        })
    }
}

fn labels(path: &Path) -> Result<Vec<truth::Label>, Failure> {
    let shown = path.display();
    let bad =
        |why: String| Failure::usage(format!("{shown}: {why}")).hint("runner help dream bench");
    let size = std::fs::metadata(path).map_err(|error| bad(error.to_string()))?.len();
    if size > LONGEST {
        return Err(bad(format!("the file has {size} bytes; the limit is {LONGEST}")));
    }
    let text = read_text_host(path, LONGEST).map_err(|error| bad(error.to_string()))?;
    truth::parse(&text).map_err(bad)
}

/// Returns the peak memory usage of this process in bytes, or `None` if the system does not report
/// it.
fn peak() -> Option<u64> {
    let status = read_text_proc("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

fn format_figures(reported: &Measurement) -> String {
    let Measurement { figures, .. } = reported;
    let mut text = table(figures);
    let mut line = |what: &str, figure: String| {
        writeln!(text, "{what:36}{figure}").expect("writing to a string cannot fail");
    };
    let share = |share: Option<f64>| share.map_or("none labelled".to_owned(), percent);
    line("macro-F1", figures.classes.macro_f1.map_or("-".to_owned(), |f1| format!("{f1:.3}")));
    for (class, f1) in &figures.classes.f1 {
        line(&format!("  F1 {class}"), format!("{f1:.3}"));
    }
    line(
        "false archives",
        format!(
            "{} of {} live ideas, {}",
            figures.false_archives.len(),
            figures.live,
            share(figures.false_archive_rate)
        ),
    );
    let bench::Done { ideas, archived, recall, perhaps, abstention, .. } = &figures.done;
    line("done, archived", format!("{archived} of {ideas}, {}", share(*recall)));
    line(
        "done, kept as perhaps done",
        format!("{} of {ideas}, {}", perhaps.len(), share(*abstention)),
    );
    let bench::Hits { known, at_1, at_3, archived, right, precision, .. } = &figures.hits;
    line(
        "known commit is the best candidate",
        format!("{at_1} of {known}; among the best 3: {at_3}"),
    );
    line("archived with the known commit", format!("{right} of {archived}, {}", share(*precision)));
    let bench::Duplicates { known, at_10, recall, false_merges } = &figures.duplicates;
    if *known > 0 {
        let merges = counted(false_merges.len(), "other idea");
        line(
            "duplicate among the nearest 10",
            format!("{at_10} of {known}, {}; {merges} proposed for merge", share(*recall)),
        );
    }
    if let Some(past) = &figures.past {
        let (archived, ideas) = (past.archived.len(), past.ideas);
        line(
            "archived before they were done",
            format!("{archived} of {ideas}, {}", share(past.rate)),
        );
    }
    line("archived, unlabelled", figures.unlabelled_archived.len().to_string());
    line(
        "history",
        format!(
            "{} read and indexed in {} s",
            counted(reported.commits, "commit"),
            reported.indexed_s
        ),
    );
    let peak =
        reported.peak_bytes.map_or("unknown".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
    line(
        "judged",
        format!(
            "{} in {} s, peak memory {peak}",
            counted(figures.ideas, "idea"),
            reported.judged_s
        ),
    );
    for (what, paths) in [
        ("live, and proposed for archive", &figures.false_archives),
        ("archived with another commit", &figures.hits.wrong),
        ("done, and no commit named", &figures.done.missed),
        ("kept as perhaps done", &figures.done.perhaps),
        ("labelled, but missing", &figures.missing),
    ] {
        if !paths.is_empty() {
            writeln!(text, "\n{what}:\n  {}", paths.join("\n  "))
                .expect("writing to a string cannot fail");
        }
    }
    if figures.unknown_commits > 0 {
        let count = figures.unknown_commits;
        writeln!(text, "\nnot in this history: {}", counted(count, "known commit"))
            .expect("writing to a string cannot fail");
    }
    text
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Formats the confusion matrix: a row for each true class, a column for each assigned class.
fn table(figures: &Figures) -> String {
    let confusion = &figures.classes.confusion;
    let mut called: Vec<&str> = confusion.values().flat_map(|row| row.keys().copied()).collect();
    called.sort_unstable();
    called.dedup();
    let mut head = vec!["true \\ assigned".to_owned()];
    head.extend(called.iter().map(|class| (*class).to_owned()));
    let mut rows = vec![head];
    for (class, row) in confusion {
        let cells = called.iter().map(|said| row.get(said).copied().unwrap_or(0).to_string());
        rows.push(std::iter::once((*class).to_owned()).chain(cells).collect());
    }
    if confusion.is_empty() {
        return String::new();
    }
    show::table(&rows) + "\n"
}
