//! The results of an overnight run, read from the run's summary: numbers for text and charts.
//!
//! ```text
//! a run of kind overnight ──> facts: output_dir, run_id ──┐
//!                                                         v
//!     OUTPUT/summary.json, or .agents/overnight/runs/RUN/summary.json once it is moved
//!                                                         v
//!                Dreamscape { weather, land, tension, packets, … }
//! ```
//!
//! The summary is a contract between programs (version 2, and the fields of version 1 that have the
//! same names). Only the fields that are drawn or reported are read, each separately, and a field
//! with an unexpected type is treated as missing. A problem with a summary never fails the report,
//! and a value that is missing from the summary is not drawn.

use std::collections::BTreeMap;
use std::path::Path;

use runner_engine::outcome::Class;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::run_line::RunLine;
use crate::dream::inventory::{ReadProblem, Reader};
use crate::dream::proposal::clean;

/// The job kind whose runs leave a summary.
pub const KIND: &str = "overnight";
/// The default output folder, for a run whose facts do not name one.
const OUTPUT: &str = ".agents/overnight/latest";
/// The folder beside an output folder to which the next night moves it.
const MOVED: &str = "runs";
/// Maximum number of folders of one run. A folder whose name is taken gets a number.
const NUMBERED: u32 = 9;
/// Maximum size of a summary to read, in bytes.
const LARGEST: u64 = 16 * 1024 * 1024;
/// Maximum number of entries in a list, and maximum length of a string in characters.
const MOST: usize = 60;
const LONGEST: usize = 400;
/// The counts in a summary's `yield` that are changes to the corpus.
const CHANGES: [&str; 4] = ["compiled", "harvested", "promoted", "removed"];

/// One overnight run in the report.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Dreamscape {
    pub job: String,
    pub run: String,
    /// The reason why there are no figures. If it is set, all other results are empty.
    pub missing: Option<String>,
    /// The path of the summary, relative to the project.
    pub summary: String,
    /// The status of the run, for example `done` or `failed`.
    pub status: String,
    pub goal: Option<String>,
    /// The run's own description of the state of the corpus.
    pub weather: String,
    /// The fitness before the first iteration.
    pub before: Option<f64>,
    /// The iterations, in order.
    pub land: Vec<Point>,
    /// Why the loop ended, if the summary gives a reason.
    pub ended: Option<String>,
    /// The soft failures of the run, and its failed steps.
    pub degraded: Vec<String>,
    /// The drop in a measure that ended the loop before the iteration was committed.
    #[serde(default)]
    pub regression: Option<String>,
    /// Number of drops for which the run spent a rescue, and number of rescues left.
    #[serde(default)]
    pub rescues: (u64, u64),
    /// The changes to the corpus: counts by name, excluding zeros.
    #[serde(default)]
    pub changes: BTreeMap<String, u64>,
    /// The points on which the run's councillors disagree.
    pub tension: Option<String>,
    /// The answers of the run's councillors; `None` if no councillor was asked.
    #[serde(default)]
    pub council: Option<Council>,
    /// The first command that the run recommends.
    pub first_move: Option<String>,
    /// The morning packets, ordered by rank.
    pub packets: Vec<Packet>,
}

impl Dreamscape {
    /// Returns whether the run ended as failed.
    pub fn has_failed(&self) -> bool {
        self.status == "failed"
    }
}

/// The answers of a run's councillors.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Council {
    /// The result of the council in a few words.
    pub words: String,
    /// The councillors who answered, starting with those in the leading position.
    pub voices: Vec<CouncillorView>,
    /// The councillors who did not answer; `action` contains the reason.
    pub unheard: Vec<CouncillorView>,
    /// Unsolicited ideas.
    pub wildcards: Vec<CouncillorView>,
}

/// The answer of one councillor.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct CouncillorView {
    pub runner: String,
    /// The recommended kind of work, in one word.
    pub kind: String,
    /// The recommended first step.
    pub action: String,
    pub confidence: String,
    /// The name of the councillor's backend, if the councillor did not answer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub backend: String,
    /// The class of the reason why the councillor did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    #[serde(default)]
    pub was_asked: bool,
}

/// One iteration, as a point in the picture.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Point {
    /// The iteration number, starting at 1.
    pub index: u64,
    /// The fitness of the iteration, if it was measured.
    pub fitness: Option<f64>,
    /// The change in fitness.
    pub delta: f64,
    pub status: String,
    /// True if the iteration was committed.
    pub kept: bool,
    /// Soft failures of the iteration.
    pub degraded: Vec<String>,
}

/// One morning packet.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Packet {
    /// The rank, starting at 1.
    pub rank: u64,
    pub title: String,
    /// The kind of work.
    pub kind: String,
    pub severity: String,
    /// The night's confidence in the packet.
    pub confidence: Option<String>,
    /// Why the packet is listed.
    pub why: String,
    /// Number of evidence lines.
    pub evidence: usize,
    /// The councillors who support the packet.
    #[serde(default)]
    pub voices: Vec<String>,
    /// The command for starting work on the packet.
    pub command: String,
}

/// Reads the results of a night's overnight runs that have begun.
pub(super) fn read(root: &Path, runs: &[RunLine]) -> Vec<Dreamscape> {
    let overnight = runs.iter().filter(|run| run.kind == KIND);
    let began = overnight.filter(|run| run.started.is_some());
    let mut all: Vec<Dreamscape> = Vec::new();
    for scape in began.map(|run| of_run(root, run)) {
        // A run that was resumed after its process died has one summary, which is shown for its
        // last attempt.
        let same = |it: &Dreamscape| it.missing.is_none() && it.summary == scape.summary;
        all.retain(|it| !same(it));
        all.push(scape);
    }
    all
}

fn of_run(root: &Path, run: &RunLine) -> Dreamscape {
    let fact = |name: &str| run.facts.get(name).and_then(Value::as_str);
    let id = fact("run_id").unwrap_or(&run.run);
    let output = fact("output_dir").unwrap_or(OUTPUT).trim_end_matches('/');
    let mut scape =
        Dreamscape { job: run.job.clone(), run: run.run.clone(), ..Dreamscape::default() };
    let mut why = "there is no summary of the run".to_owned();
    let Ok(reader) = Reader::open(root, LARGEST) else {
        scape.missing = Some(why);
        return scape;
    };
    let beside = output.rsplit_once('/').map_or(String::new(), |(parent, _)| format!("{parent}/"));
    let numbers = (2..=NUMBERED).map(|number| format!("{beside}{MOVED}/{id}-{number}"));
    for folder in [output.to_owned(), format!("{beside}{MOVED}/{id}")].into_iter().chain(numbers) {
        let path = format!("{folder}/summary.json");
        match reader.read(&path) {
            Ok((bytes, _)) => match serde_json::from_slice::<Value>(&bytes) {
                Ok(summary) if summary["run_id"].as_str() == Some(id) => {
                    scape.summary = path;
                    fill(&mut scape, &summary);
                    return scape;
                }
                // This is another run's summary. The run's own summary was moved or never written.
                Ok(_) => {}
                Err(error) => why = format!("{path} cannot be read: {error}"),
            },
            Err(ReadProblem::Gone) => {}
            Err(problem) => why = format!("{path} {problem}"),
        }
    }
    scape.missing = Some(why);
    scape
}

fn text(value: &Value) -> Option<String> {
    let text = clean(value.as_str()?, LONGEST);
    (!text.is_empty()).then_some(text)
}

fn texts(value: &Value) -> Vec<String> {
    let all = value.as_array().into_iter().flatten();
    all.filter_map(text).take(MOST).collect()
}

/// Reads a fitness: a number, or the composite of a set of metrics.
fn fitness(value: &Value) -> Option<f64> {
    let number = value.as_f64().or_else(|| value["composite"].as_f64())?;
    number.is_finite().then_some(number)
}

pub(super) fn fill(scape: &mut Dreamscape, summary: &Value) {
    let own = |name: &str| text(&summary[name]);
    scape.status = own("status").unwrap_or_default();
    scape.goal = own("goal");
    let dream = &summary["dreamscape"];
    scape.weather = text(&dream["weather"]).unwrap_or_default();
    scape.tension = text(&dream["tension"]);
    scape.first_move = text(&dream["first_move"]);
    scape.council = council(&summary["council"], &dream["council"]);
    let iterations = summary["iterations"].as_array();
    let iterations = iterations.map_or(&[][..], Vec::as_slice);
    scape.before = iterations.first().and_then(|it| fitness(&it["fitness_before"]));
    scape.land = iterations.iter().take(MOST).map(point).collect();
    scape.ended = own("regression_reason")
        .or_else(|| own("plateau_reason"))
        .or_else(|| own("failure_reason"))
        .or_else(|| {
            let over = summary["budget_exhausted"].as_bool() == Some(true);
            over.then(|| "its time was used up".to_owned())
        });
    scape.degraded = texts(&summary["degraded"]);
    scape.regression = own("regression_reason");
    let count = |name: &str| summary[name].as_u64().unwrap_or(0);
    let left = count("warn_only_remaining");
    scape.rescues = (count("warn_only_budget_initial").saturating_sub(left), left);
    let made = CHANGES.iter().map(|name| ((*name).to_owned(), summary["yield"][name].as_u64()));
    let made = made.filter_map(|(name, count)| Some((name, count.filter(|count| *count > 0)?)));
    scape.changes = made.collect();
    let steps = summary["steps"].as_array().into_iter().flatten();
    for step in steps {
        let name = text(&step["name"]).unwrap_or_default();
        let failed = matches!(step["status"].as_str(), Some("soft-fail" | "failed"));
        let reported = scape.degraded.iter().any(|line| line.contains(&name));
        if failed && !reported && scape.degraded.len() < MOST {
            let note = text(&step["note"]).unwrap_or_else(|| "failed".to_owned());
            scape.degraded.push(format!("{name}: {note}"));
        }
    }
    let packets = summary["morning_packets"].as_array().into_iter().flatten();
    let backed = &summary["council"]["backed"];
    let backed = |id: &Value| {
        let mut all = backed.as_array().into_iter().flatten();
        let one = all.find(|it| it["id"] == *id && id.is_string());
        one.map_or_else(Vec::new, |it| texts(&it["voices"]))
    };
    scape.packets =
        packets.take(MOST).map(|it| Packet { voices: backed(&it["id"]), ..packet(it) }).collect();
    scape.packets.sort_by_key(|packet| packet.rank);
}

fn council(council: &Value, words: &Value) -> Option<Council> {
    let own = |value: &Value| text(value).unwrap_or_default();
    let all = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut reported = Council { words: own(words), ..Council::default() };
    for position in all(&council["positions"]) {
        for voice in all(&position["voices"]) {
            reported.voices.push(CouncillorView {
                runner: own(&voice["runner"]),
                kind: own(&position["recommended_kind"]),
                action: own(&voice["recommended_first_action"]),
                confidence: own(&voice["confidence"]),
                was_asked: true,
                ..CouncillorView::default()
            });
        }
    }
    let said = |value: &Value, key: &str| CouncillorView {
        runner: own(&value["runner"]),
        action: own(&value[key]),
        backend: own(&value["backend"]),
        class: Class::deserialize(&value["class"]).ok(),
        was_asked: value["was_asked"].as_bool().unwrap_or(true),
        ..CouncillorView::default()
    };
    let unheard = all(&council["unheard"]);
    reported.unheard = unheard.iter().take(MOST).map(|it| said(it, "why")).collect();
    let wildcards = all(&council["wildcards"]);
    reported.wildcards = wildcards.iter().take(MOST).map(|it| said(it, "text")).collect();
    reported.voices.truncate(MOST);
    if reported.words.is_empty() {
        // A failed night has no description of its council.
        reported.words =
            format!("{} answered, {} did not", reported.voices.len(), reported.unheard.len());
    }
    let any = reported.voices.len() + reported.unheard.len() + reported.wildcards.len();
    (any > 0).then_some(reported)
}

fn point(value: &Value) -> Point {
    let status = text(&value["status"]).unwrap_or_default();
    Point {
        index: value["index"].as_u64().unwrap_or(0),
        fitness: fitness(&value["fitness_after"]),
        delta: value["fitness_delta"].as_f64().unwrap_or(0.0),
        kept: matches!(status.as_str(), "done" | "degraded"),
        degraded: texts(&value["degraded"]),
        status,
    }
}

fn packet(value: &Value) -> Packet {
    let of = |name: &str| text(&value[name]).unwrap_or_default();
    Packet {
        rank: value["rank"].as_u64().unwrap_or(u64::MAX),
        title: of("title"),
        kind: of("type"),
        severity: of("severity"),
        confidence: text(&value["confidence"]),
        why: of("why_now"),
        evidence: value["evidence"].as_array().map_or(0, Vec::len),
        voices: Vec::new(),
        // A long command is left out, because a truncated command would be a different one.
        command: value["morning_command"]
            .as_str()
            .filter(|it| it.len() <= 4_000 && !it.chars().any(char::is_control))
            .unwrap_or_default()
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_tests as sample;
    use std::fs;

    #[test]
    fn only_the_runs_own_summary_is_read() {
        let root = tempfile::tempdir().unwrap();
        let write = |below: &str, value: &Value| {
            let path = root.path().join(below);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value.to_string()).unwrap();
        };
        let mut run = sample::run("overnight", KIND);
        run.facts.insert("run_id".into(), Value::from("01RUN"));
        let missing = read(root.path(), &[run.clone()]);
        assert_eq!(missing[0].missing.as_deref(), Some("there is no summary of the run"));

        write(".agents/overnight/latest/summary.json", &sample::summary("01OTHER"));
        assert!(read(root.path(), &[run.clone()])[0].missing.is_some());
        write(".agents/overnight/runs/01RUN/summary.json", &sample::summary("01RUN"));
        let scape = read(root.path(), &[run.clone()]).remove(0);
        assert_eq!(scape.missing, None);
        assert_eq!(scape.before, Some(0.61));
        let land: Vec<(u64, Option<f64>, bool)> =
            scape.land.iter().map(|it| (it.index, it.fitness, it.kept)).collect();
        assert_eq!(
            land,
            [
                (1, Some(0.66), true),
                (2, Some(0.71), true),
                (3, Some(0.58), false),
                (4, None, false)
            ]
        );
        assert_eq!(scape.packets.len(), 3);
        assert_eq!(scape.packets[0].rank, 1);
        assert!(scape.degraded.iter().any(|it| it.starts_with("bead-sync: ")), "{scape:?}");
        assert!(scape.tension.is_some());

        write(
            ".agents/overnight/runs/01RUN/summary.json",
            &serde_json::json!({
                "run_id": "01RUN", "iterations": 7, "dreamscape": [], "morning_packets": [3, {}],
                "degraded": "much", "steps": [null, {"name": 1}],
            }),
        );
        let odd = read(root.path(), &[run.clone()]).remove(0);
        assert_eq!((odd.missing, odd.land.len(), odd.packets.len()), (None, 0, 2));
        fs::write(root.path().join(".agents/overnight/runs/01RUN/summary.json"), "{").unwrap();
        let damaged = read(root.path(), &[run.clone()]).remove(0);
        assert!(damaged.missing.unwrap().contains("cannot be read"));
        // Two attempts at one run have one summary.
        fs::write(
            root.path().join(".agents/overnight/runs/01RUN/summary.json"),
            sample::summary("01RUN").to_string(),
        )
        .unwrap();
        let again = RunLine { run: "01AGAIN".into(), ..run.clone() };
        let reported = read(root.path(), &[run.clone(), again]);
        let runs: Vec<&str> = reported.iter().map(|it| it.run.as_str()).collect();
        assert_eq!(runs, ["01AGAIN"]);
        // Another output folder is moved to the folder `runs` beside it.
        let mut other = RunLine { run: "01ELSE".into(), ..run.clone() };
        other.facts.insert("run_id".into(), Value::from("01ELSE"));
        other.facts.insert("output_dir".into(), Value::from("nights/out"));
        write("nights/runs/01ELSE-2/summary.json", &sample::summary("01ELSE"));
        let moved = read(root.path(), &[other]).remove(0);
        assert_eq!(moved.summary, "nights/runs/01ELSE-2/summary.json", "{moved:?}");
        // A run that never began has no summary, and none is reported as missing.
        run.started = None;
        assert!(read(root.path(), &[run]).is_empty());
    }
}
