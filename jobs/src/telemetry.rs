//! Writes a backend's events to `events.jsonl` in the run's folder, while the backend answers.
//!
//! ```text
//! Event ──redact, truncate──> row ──> events.jsonl, up to its cap; a last row reports the cut
//!    └───────────────────────────────> Tally, for reports
//! ```
//!
//! An error while writing the file does not affect the run. The file must never contain a secret or
//! grow without limit, and no decision may depend on it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use jiff::Timestamp;
use runner_backends::{Event, Sink, Usage};
use runner_text::redact::Redactor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::steps::Recorder;
use runner_engine::files::{open_host, open_with};

/// The name of the file in a run's folder.
pub const FILE: &str = "events.jsonl";
/// Maximum length of a row's text, in bytes.
const PER_ROW: usize = 2_000;
/// Maximum total size of all rows, in bytes.
const ALL_ROWS: u64 = 4 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TelemetryRow {
    /// The wall-clock time of the event.
    pub at: Timestamp,
    pub request: String,
    pub backend: String,
    #[serde(flatten)]
    pub what: TelemetryEvent,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum TelemetryEvent {
    /// The request was sent.
    Asked,
    /// A piece of the model's text.
    Text {
        text: String,
        bytes: usize,
    },
    /// The usage so far, which replaces the previous report for the same request.
    Usage(Usage),
    Note {
        text: String,
    },
    ToolUse {
        name: String,
    },
    ToolResult {
        /// Whether the tool failed or was not permitted.
        failed: bool,
    },
    /// The request was rejected or did not arrive, so it is not billed.
    NotBilled,
    /// The limits reported by the provider.
    Limit {
        until: Option<Timestamp>,
        /// Whether the limit has been reached, in which case no request is answered before the
        /// reset.
        reached: bool,
        /// Whether usage beyond the subscription is billed.
        overage: bool,
    },
    /// The request ended with an answer or with an error.
    Ended {
        /// The redacted error, or `None` if the request was answered.
        error: Option<String>,
    },
    /// The file is full, and later events are not recorded.
    Full,
}

/// A sink that writes events to the file.
pub struct Telemetry<'a> {
    file: Option<File>,
    request: &'a str,
    backend: &'a str,
    redactor: &'a Redactor,
    now: Box<dyn Fn() -> Timestamp + Send + 'a>,
    steps: Option<Recorder>,
}

impl<'a> Telemetry<'a> {
    /// Opens the telemetry of one attempt at one request.
    pub fn new(
        run_dir: &Path,
        request: &'a str,
        backend: &'a str,
        redactor: &'a Redactor,
        now: impl Fn() -> Timestamp + Send + 'a,
    ) -> Self {
        let mut options = File::options();
        options.create(true).append(true).mode(0o600);
        let file = open_with(&mut options, run_dir.join(FILE));
        let file =
            file.inspect_err(|error| tracing::warn!(%error, "{FILE} cannot be written")).ok();
        let mut telemetry =
            Self { file, request, backend, redactor, now: Box::new(now), steps: None };
        telemetry.put(TelemetryEvent::Asked);
        telemetry
    }

    /// Also writes each tool use to the project's steps file.
    #[must_use]
    pub fn with_steps(mut self, steps: Recorder) -> Self {
        self.steps = Some(steps);
        self
    }

    /// Records the end of the request with its error, if it failed.
    pub fn ended(mut self, error: Option<&str>) {
        if let Some(mut steps) = self.steps.take() {
            steps.ended((self.now)());
        }
        let error = error.map(|error| self.clean(error));
        self.put(TelemetryEvent::Ended { error });
    }

    fn clean(&self, text: &str) -> String {
        let clean = self.redactor.redact_beginning(text, PER_ROW);
        let end = clean.floor_char_boundary(PER_ROW);
        if end < clean.len() { format!("{}…", &clean[..end]) } else { clean.into_owned() }
    }

    fn put(&mut self, what: TelemetryEvent) {
        let Some(file) = &mut self.file else { return };
        let line = |what| {
            let row = TelemetryRow {
                at: (self.now)(),
                request: self.request.to_owned(),
                backend: self.backend.to_owned(),
                what,
            };
            serde_json::to_string(&row).map(|line| line + "\n")
        };
        let Ok(mut text) = line(what) else { return };
        // Several attempts may write to the file at the same time.
        let size = file.metadata().map_or(0, |data| data.len());
        let full = size + text.len() as u64 > ALL_ROWS;
        if full {
            text = line(TelemetryEvent::Full).unwrap_or_default();
        }
        // Each line is one write, so a dying process leaves only complete lines.
        let written = file.write_all(text.as_bytes());
        if let Err(error) = &written {
            tracing::warn!(%error, "{FILE} cannot be written");
        }
        if full || written.is_err() {
            self.file = None;
        }
    }
}

impl Sink for Telemetry<'_> {
    fn event(&mut self, event: Event<'_>) {
        if let Some(steps) = &mut self.steps {
            steps.event(event, (self.now)());
        }
        if self.file.is_none() {
            return;
        }
        let what = match event {
            Event::Text(text) => TelemetryEvent::Text { bytes: text.len(), text: self.clean(text) },
            Event::Usage(usage) | Event::Total(usage) => TelemetryEvent::Usage(usage),
            Event::Note(note) => TelemetryEvent::Note { text: self.clean(note) },
            Event::ToolUse { name, .. } => TelemetryEvent::ToolUse { name: self.clean(name) },
            Event::ToolResult(result) => TelemetryEvent::ToolResult { failed: result.failed },
            Event::NotBilled => TelemetryEvent::NotBilled,
            Event::Limit(limit) => TelemetryEvent::Limit {
                until: limit.until,
                reached: limit.reached,
                overage: limit.overage,
            },
        };
        self.put(what);
    }
}

/// The latest attempt at one request.
#[derive(Debug, Default)]
struct OpenAttempt {
    usage: Option<Usage>,
    /// Whether the attempt is billed even if no usage is reported.
    is_billed: bool,
}

/// The totals of a run's events.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Tally {
    /// The number of attempts to send a request, including repeated attempts.
    pub asked: u64,
    /// The number of uses of each tool, by name.
    pub tools: BTreeMap<String, u64>,
    /// The number of tool uses that failed or were not permitted.
    pub tools_failed: u64,
    /// The reported usage, summed over the attempts.
    pub usage: Usage,
    /// The number of billed attempts without reported usage.
    pub unstated: u64,
    /// Whether events are missing because the file was full.
    pub cut: bool,
}

impl Tally {
    /// Sums the events in the run's folder, without invalid lines. Returns `None` if the file does
    /// not exist or cannot be read.
    pub fn of(run_dir: &Path) -> Option<Self> {
        let file = open_host(run_dir.join(FILE)).ok()?;
        let mut tally = Self::default();
        // Councillors are asked at the same time, so attempts at several requests may be open.
        let mut open: BTreeMap<String, OpenAttempt> = BTreeMap::new();
        for line in BufReader::new(file.take(ALL_ROWS + 64 * 1024)).split(b'\n') {
            let Ok(row) = serde_json::from_slice::<TelemetryRow>(&line.ok()?) else {
                continue;
            };
            let attempt = open.entry(row.request).or_default();
            match row.what {
                TelemetryEvent::Asked => {
                    tally.close(std::mem::take(attempt));
                    attempt.is_billed = true;
                    tally.asked += 1;
                }
                TelemetryEvent::Usage(usage) => attempt.usage = Some(usage),
                TelemetryEvent::ToolUse { name } => *tally.tools.entry(name).or_default() += 1,
                TelemetryEvent::ToolResult { failed } => tally.tools_failed += u64::from(failed),
                TelemetryEvent::Full => tally.cut = true,
                TelemetryEvent::NotBilled => attempt.is_billed = false,
                TelemetryEvent::Text { .. }
                | TelemetryEvent::Note { .. }
                | TelemetryEvent::Limit { .. }
                | TelemetryEvent::Ended { .. } => {}
            }
        }
        open.into_values().for_each(|attempt| tally.close(attempt));
        Some(tally)
    }

    fn close(&mut self, attempt: OpenAttempt) {
        match attempt.usage {
            Some(usage) => self.add(usage),
            None => self.unstated += u64::from(attempt.is_billed),
        }
    }

    fn add(&mut self, usage: Usage) {
        let sum = &mut self.usage;
        sum.input_tokens = sum.input_tokens.saturating_add(usage.input_tokens);
        sum.output_tokens = sum.output_tokens.saturating_add(usage.output_tokens);
        sum.cached_input_tokens = sum.cached_input_tokens.saturating_add(usage.cached_input_tokens);
        if let Some(cost) = usage.cost_micros {
            sum.cost_micros = Some(sum.cost_micros.unwrap_or(0).saturating_add(cost));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runner_backends::Limit;

    fn redactor() -> Redactor {
        Redactor::new(vec!["canary-123456".into()])
    }

    #[test]
    fn events_are_redacted_and_summed() {
        let folder = tempfile::tempdir().unwrap();
        let redactor = redactor();
        let now = || Timestamp::UNIX_EPOCH;
        let usage = |tokens| {
            Event::Usage(Usage {
                input_tokens: tokens,
                output_tokens: 1,
                cost_micros: Some(10),
                ..Usage::default()
            })
        };
        let mut first = Telemetry::new(folder.path(), "r/1", "claude", &redactor, now);
        first.event(Event::Text(&format!("{}canary-123456", "ä".repeat(990))));
        first.event(Event::ToolUse { id: "", name: "Bash", target: None });
        first.event(Event::ToolResult(runner_backends::ToolResult {
            failed: true,
            ..Default::default()
        }));
        first.event(usage(5));
        first.event(usage(7));
        first.event(Event::Limit(Limit { until: None, reached: true, overage: false, used: None }));
        first.ended(Some("key canary-123456 is bad"));
        Telemetry::new(folder.path(), "r/2", "codex", &redactor, now).ended(None);
        let mut third = Telemetry::new(folder.path(), "r/3", "codex", &redactor, now);
        third.event(usage(1));
        third.ended(None);
        let path = folder.path().join(FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("canary") && !text.contains("123456"), "{text}");
        assert!(text.lines().all(|line| serde_json::from_str::<TelemetryRow>(line).is_ok()));
        assert_eq!(text.lines().count(), 13);
        std::fs::write(&path, format!("{{half\n{text}\0\0\n")).unwrap();
        let tally = Tally::of(folder.path()).unwrap();
        let expected = Tally {
            asked: 3,
            tools: [("Bash".to_owned(), 1)].into(),
            tools_failed: 1,
            usage: Usage {
                input_tokens: 8,
                output_tokens: 2,
                cached_input_tokens: 0,
                cost_micros: Some(20),
            },
            unstated: 1,
            cut: false,
        };
        assert_eq!(tally, expected);
        assert_eq!(Tally::of(&folder.path().join("absent")), None);
    }

    #[test]
    fn concurrent_attempts_are_all_summed() {
        let folder = tempfile::tempdir().unwrap();
        let redactor = redactor();
        let start = |request| {
            Telemetry::new(folder.path(), request, "claude", &redactor, || Timestamp::UNIX_EPOCH)
        };
        let (mut first, mut second) = (start("r/1"), start("r/2"));
        let usage = |tokens| Event::Usage(Usage { input_tokens: tokens, ..Usage::default() });
        first.event(usage(5));
        second.event(usage(7));
        first.event(usage(11));
        first.ended(None);
        second.ended(None);
        let tally = Tally::of(folder.path()).unwrap();
        assert_eq!((tally.asked, tally.usage.input_tokens, tally.unstated), (2, 18, 0));
        let long = "x".repeat(PER_ROW);
        let mut floods = [start("r/3"), start("r/4"), start("r/5"), start("r/6")];
        for _ in 0..3_000 {
            floods.iter_mut().for_each(|flood| flood.event(Event::Text(&long)));
        }
        let size = std::fs::metadata(folder.path().join(FILE)).unwrap().len();
        assert!(size < ALL_ROWS + 5_000, "{size}");
    }

    #[test]
    fn full_or_unwritable_telemetry_is_harmless() {
        let folder = tempfile::tempdir().unwrap();
        let redactor = redactor();
        let now = || Timestamp::UNIX_EPOCH;
        let mut flood = Telemetry::new(folder.path(), "r/1", "claude", &redactor, now);
        let long = "x".repeat(100_000);
        for _ in 0..3_000 {
            flood.event(Event::Text(&long));
        }
        flood.ended(None);
        let size = std::fs::metadata(folder.path().join(FILE)).unwrap().len();
        assert!(size < ALL_ROWS + 1_000, "{size}");
        assert!(Tally::of(folder.path()).unwrap().cut);
        let absent = folder.path().join("absent");
        Telemetry::new(&absent, "r/1", "claude", &redactor, now).ended(None);
    }
}
