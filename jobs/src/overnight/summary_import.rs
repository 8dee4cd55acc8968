//! Reads summaries written by other programs, in version 2 and version 1 formats.
//!
//! ```text
//! JSON ──each field separately──> Summary of the valid fields ──> reported like runner's own
//!                           └──> missing, malformed or unknown fields: reported, not guessed
//! ```
//!
//! The field names are a contract, but the formats of the values often differ: a duration may be a
//! number, a status may be a different word, and a list may be null. A JSON object with at least
//! one required field is always imported. This module must never write a summary.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::corpus::fitness::Fitness;
use super::packet::Packet;
use super::summary::{Iteration, NightStep, RunStatus, StepStatus, Summary};
use crate::dream::proposal::clean;

/// Maximum length of an imported string in characters.
const LONGEST: usize = 2_000;
/// Maximum number of entries to import from each list.
const MOST: usize = 1_000;
/// The fields present in every version 2 summary.
const NEEDED: [&str; 16] = [
    "schema_version",
    "mode",
    "run_id",
    "repo_root",
    "output_dir",
    "status",
    "dry_run",
    "started_at",
    "finished_at",
    "duration",
    "runtime",
    "steps",
    "artifacts",
    "dreamscape",
    "recommended",
    "next_action",
];
const OPTIONAL: [&str; 19] = [
    "goal",
    "metrics_health",
    "retrieval_live",
    "close_loop",
    "briefing",
    "council",
    "morning_packets",
    "degraded",
    "yield",
    "long_haul",
    "iterations",
    "fitness_delta",
    "plateau_reason",
    "regression_reason",
    "warn_only_budget_initial",
    "warn_only_remaining",
    "measure_failure_halt",
    "budget_exhausted",
    "failure_reason",
];

/// The fields that [`ImportReader::summary`] reads one by one.
const READ_APART: [&str; 12] = [
    "schema_version",
    "status",
    "runtime",
    "steps",
    "artifacts",
    "dreamscape",
    "morning_packets",
    "degraded",
    "recommended",
    "next_action",
    "long_haul",
    "iterations",
];

/// Reads a summary, and returns it with messages about missing and unexpected fields.
///
/// # Errors
/// Returns an error if the value is not a JSON object or has none of the required fields.
pub fn read(value: &Value) -> Result<(Summary, Vec<String>), String> {
    let Value::Object(fields) = value else {
        return Err("it is not a JSON object".to_owned());
    };
    let mut read = ImportReader { fields, reported: Vec::new() };
    if !NEEDED.iter().any(|name| fields.contains_key(*name)) {
        return Err("it has none of the fields of a summary".to_owned());
    }
    let version = fields.get("schema_version").and_then(Value::as_u64);
    match version {
        Some(2) => {}
        Some(1) => read
            .reported
            .push("it is version 1: it has no iterations, no fitness and no long haul".to_owned()),
        Some(other) => read.reported.push(format!(
            "it is version {other}, which is not known: only the fields with known names are shown"
        )),
        None => read.reported.push("it does not state its version".to_owned()),
    }
    let missing: Vec<&str> = NEEDED
        .into_iter()
        .skip(1)
        .filter(|name| fields.get(*name).is_none_or(Value::is_null))
        .collect();
    if !missing.is_empty() {
        read.reported.push(format!("it has no {}", missing.join(", ")));
    }
    let unknown: Vec<String> = fields
        .keys()
        .filter(|name| !NEEDED.contains(&name.as_str()) && !OPTIONAL.contains(&name.as_str()))
        .map(|name| clean(name, 60))
        .take(20)
        .collect();
    if !unknown.is_empty() {
        read.reported
            .push(format!("it has fields that are not in the contract: {}", unknown.join(", ")));
    }
    let summary = read.summary(version);
    Ok((summary, read.reported))
}

struct ImportReader<'a> {
    fields: &'a Map<String, Value>,
    reported: Vec<String>,
}

impl ImportReader<'_> {
    fn summary(&mut self, version: Option<u64>) -> Summary {
        let mut plain = self.fields.clone();
        plain.retain(|name, _| !READ_APART.contains(&name.as_str()));
        let summary: Summary = lenient(&plain, |name, value| self.odd(name, value));
        let part = |name: &str| self.fields.get(name).and_then(Value::as_object);
        let (runtime, dreamscape) = (part("runtime"), part("dreamscape"));
        Summary {
            schema_version: version.and_then(|it| u32::try_from(it).ok()).unwrap_or(0),
            status: self.status(),
            runtime: runtime.map(quietly).unwrap_or_default(),
            steps: self.list("steps", step),
            artifacts: self.artifacts(),
            council: summary.council.filter(Value::is_object),
            dreamscape: dreamscape.map(quietly).unwrap_or_default(),
            morning_packets: self.fields.contains_key("morning_packets").then(|| self.packets()),
            degraded: self.list("degraded", text_of),
            recommended: self.list("recommended", text_of),
            next_action: self.fields.get("next_action").map_or_else(String::new, command_of),
            long_haul: part("long_haul").map(quietly),
            iterations: self.list("iterations", iteration),
            ..summary
        }
    }

    fn odd(&mut self, name: &str, value: &Value) {
        let shown = clean(&value.to_string(), 60);
        self.reported.push(format!("its {name} does not have the expected form: {shown}"));
    }

    fn list<T>(&mut self, name: &str, of: fn(&Value) -> Result<T, String>) -> Vec<T> {
        let Some(value) = self.fields.get(name).filter(|it| !it.is_null()) else {
            return Vec::new();
        };
        let Value::Array(all) = value else {
            self.odd(name, value);
            return Vec::new();
        };
        if all.len() > MOST {
            self.reported
                .push(format!("its {name} has {} items, of which {MOST} are shown", all.len()));
        }
        let mut read = Vec::new();
        for (at, one) in all.iter().take(MOST).enumerate() {
            match of(one) {
                Ok(one) => read.push(one),
                Err(why) => self.reported.push(format!("{name}[{at}]: {why}")),
            }
        }
        read
    }

    fn artifacts(&mut self) -> BTreeMap<String, String> {
        let all = self.fields.get("artifacts").filter(|it| !it.is_null());
        if let Some(value) = all.filter(|it| !it.is_object()) {
            self.odd("artifacts", value);
        }
        let texts = all.and_then(Value::as_object).into_iter().flatten().take(MOST);
        texts.filter_map(|(key, value)| Some((clean(key, 200), text_of(value).ok()?))).collect()
    }

    fn status(&mut self) -> RunStatus {
        let word = self.fields.get("status").and_then(|it| text_of(it).ok()).unwrap_or_default();
        match word.to_lowercase().replace(['_', ' '], "-").as_str() {
            "done" | "completed" | "complete" | "succeeded" | "success" | "ok" => RunStatus::Done,
            "failed" | "error" | "crashed" => RunStatus::Failed,
            "dry-run" => RunStatus::DryRun,
            "planned" => RunStatus::Planned,
            // A summary that does not specify how the run ended is treated as failed.
            "" => {
                self.reported
                    .push("it does not state how it ended: it is treated as failed".to_owned());
                RunStatus::Failed
            }
            _ => {
                self.reported.push(format!(
                    "its status is {word:?}, which is not in the contract: it is treated as failed"
                ));
                RunStatus::Failed
            }
        }
    }

    /// Returns the packets, ordered by rank. A packet without a rank is given its position in the
    /// list.
    fn packets(&mut self) -> Vec<Packet> {
        let mut packets = self.list("morning_packets", packet);
        for (at, packet) in packets.iter_mut().enumerate() {
            if packet.rank == 0 {
                packet.rank = at as u64 + 1;
            }
        }
        packets.sort_by_key(|it| it.rank);
        packets
    }
}

/// Reads each field of an object separately. A field whose value does not have the expected form,
/// even after conversion to strings, keeps its default and is passed to `odd`.
fn lenient<T: Default + Serialize + DeserializeOwned>(
    own: &Map<String, Value>,
    mut odd: impl FnMut(&str, &Value),
) -> T {
    let default = serde_json::to_value(T::default()).unwrap_or_default();
    let mut read = default.clone();
    for (name, value) in own.iter().filter(|(_, value)| !value.is_null() && **value != "") {
        let fits = |form: &Value| {
            let mut one = default.clone();
            one[name] = form.clone();
            serde_json::from_value::<T>(one).is_ok()
        };
        match forms(value).into_iter().flatten().find(fits) {
            Some(form) => read[name] = form,
            None => odd(name, value),
        }
    }
    serde_json::from_value(read).unwrap_or_default()
}

/// Reads an object like [`lenient`], but does not report fields with an unexpected form.
fn quietly<T: Default + Serialize + DeserializeOwned>(own: &Map<String, Value>) -> T {
    lenient(own, |_, _| {})
}

/// Returns the forms to try for a value, in order: the value itself, unless it is a string or a
/// list that contains strings, and the value converted to cleaned strings.
fn forms(value: &Value) -> [Option<Value>; 2] {
    match value {
        Value::String(text) => [Some(clean(text, LONGEST).into()), None],
        Value::Array(all) => {
            let texts = all.iter().take(MOST).filter_map(|it| text_of(it).ok());
            [
                Some(value.clone()).filter(|_| !all.iter().any(Value::is_string)),
                Some(texts.collect()),
            ]
        }
        other => [Some(other.clone()), text_of(other).ok().map(Value::from)],
    }
}

/// Converts a string, a number or a boolean to a cleaned string.
fn text_of(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(clean(text, LONGEST)),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Null => Err("it is null".to_owned()),
        other => Err(format!("it is not text: {}", clean(&other.to_string(), 60))),
    }
}

/// Returns a command, or an empty string if the value is not a string, is too long or contains
/// control characters. A command is not truncated, because the result would be another command.
fn command_of(value: &Value) -> String {
    let whole = |text: &&str| text.len() <= 2 * LONGEST && !text.chars().any(char::is_control);
    value.as_str().filter(whole).unwrap_or_default().to_owned()
}

fn object(value: &Value) -> Result<&Map<String, Value>, String> {
    let odd = || format!("it is not an object: {}", clean(&value.to_string(), 60));
    value.as_object().ok_or_else(odd)
}

fn step(value: &Value) -> Result<NightStep, String> {
    let own = object(value)?;
    let text = |key: &str| own.get(key).and_then(|it| text_of(it).ok());
    let word = text("status").unwrap_or_default();
    let (status, odd) = match word.to_lowercase().replace(['_', ' '], "-").as_str() {
        "done" | "ok" | "completed" | "succeeded" | "success" | "passed" => {
            (StepStatus::Done, false)
        }
        "soft-fail" | "soft-failed" | "degraded" | "warn" | "warning" => {
            (StepStatus::SoftFail, false)
        }
        "failed" | "hard-fail" | "error" => (StepStatus::Failed, false),
        "skipped" | "skip" => (StepStatus::Skipped, false),
        "planned" | "pending" | "" => (StepStatus::Planned, false),
        _ => (StepStatus::Planned, true),
    };
    let name = text("name").ok_or("it has no name")?;
    if odd {
        return Err(format!("{name} is {word:?}, which is not in the contract"));
    }
    Ok(NightStep { name, status, ..quietly(own) })
}

fn iteration(value: &Value) -> Result<Iteration, String> {
    let own = object(value)?;
    let word = own.get("status").and_then(|it| text_of(it).ok()).unwrap_or_default();
    let status = serde_json::from_value(Value::String(word.clone()))
        .map_err(|_| format!("its status is {word:?}, which is not in the contract"))?;
    own.get("index").and_then(Value::as_u64).ok_or("it has no number")?;
    Ok(Iteration {
        status,
        fitness_before: own.get("fitness_before").and_then(fitness),
        fitness_after: own.get("fitness_after").and_then(fitness),
        ..quietly(own)
    })
}

/// Reads a fitness from a number or from an object with a numeric composite.
fn fitness(value: &Value) -> Option<Fitness> {
    let composite = value.as_f64().or_else(|| value["composite"].as_f64())?;
    let metrics = value["metrics"].as_object();
    let metrics = metrics.into_iter().flatten();
    Some(Fitness {
        composite: Some(composite),
        metrics: metrics.filter_map(|(name, it)| Some((clean(name, 60), it.as_f64()?))).collect(),
        floors: None,
    })
}

fn packet(value: &Value) -> Result<Packet, String> {
    let mut own = object(value)?.clone();
    if let Some(kind) = own.remove("kind") {
        own.entry("type").or_insert(kind);
    }
    let command = own.remove("morning_command");
    let mut packet: Packet = quietly(&own);
    if packet.title.is_empty() {
        return Err("it has no title".to_owned());
    }
    packet.morning_command = command.as_ref().map_or_else(String::new, command_of);
    Ok(packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overnight::report::{ReportForm, format_summary};
    use proptest::prelude::*;
    use serde_json::json;

    /// Returns a version 1 summary: one pass, no iterations, durations in nanoseconds.
    fn first_version() -> Value {
        json!({
            "schema_version": 1, "mode": "dream.local-bedtime", "run_id": "20260409T220000Z", "goal": "fewer flakes",
            "repo_root": "/home/a/p", "output_dir": ".agents/overnight/latest", "status": "done", "dry_run": false,
            "started_at": "2026-04-09T22:00:00Z", "finished_at": "2026-04-10T00:00:00Z", "duration": 7_200_000_000_000_u64,
            "runtime": {"keep_awake": true, "keep_awake_mode": "caffeinate", "log_path": "overnight.log"},
            "steps": [{"name": "close-loop", "status": "done"}, {"name": "metrics-health", "status": "soft-fail", "note": "slow"},
                {"name": "odd", "status": "transcended"}, 7],
            "artifacts": {"log": "overnight.log"}, "degraded": null,
            "morning_packets": [{"title": "Mend it", "kind": "bug", "severity": "high", "why_now": "now", "morning_command": "ao rpi"}],
            "recommended": ["ao overnight report"], "next_action": "ao rpi", "terrain": {"hills": 3},
        })
    }

    #[test]
    fn version_1_reports_missing_fields() {
        let (summary, missing) = read(&first_version()).unwrap();
        assert_eq!((summary.status, summary.steps.len()), (RunStatus::Done, 2));
        assert_eq!(summary.morning_packets.as_ref().unwrap()[0].rank, 1);
        let all = missing.join("\n");
        for part in ["version 1", "it has no dreamscape", "terrain", "transcended", "steps[3]"] {
            assert!(all.contains(part), "{part} in {all}");
        }
        for form in [ReportForm::Markdown, ReportForm::Plain] {
            let text = format_summary(&summary, &missing, form);
            for part in ["The night: done", "Mend it", "fewer flakes", "Problems with this summary"]
            {
                assert!(text.contains(part), "{part} in {text}");
            }
        }
    }

    #[test]
    fn own_summary_is_imported_unchanged() {
        let own = Summary::planned("R");
        let (summary, missing) = read(&serde_json::to_value(&own).unwrap()).unwrap();
        assert_eq!(missing, [""; 0]);
        assert_eq!(serde_json::to_value(&summary).unwrap(), serde_json::to_value(&own).unwrap());
        assert!(read(&json!([1])).is_err());
        assert!(read(&json!({"a": 1})).is_err());
    }

    #[test]
    fn unknown_status_is_imported_as_failed() {
        for status in [json!(null), json!(""), json!("transcended"), json!(7)] {
            let mut changed = first_version();
            changed["status"] = status.clone();
            let (summary, reported) = read(&changed).unwrap();
            assert_eq!(summary.status, RunStatus::Failed, "{status}");
            assert!(
                reported.iter().any(|it| it.contains("treated as failed")),
                "{status}: {reported:?}"
            );
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
            Just(json!("done")),
        ];
        let names = prop_oneof![
            proptest::sample::select(NEEDED.to_vec()).prop_map(str::to_owned),
            proptest::sample::select(OPTIONAL.to_vec()).prop_map(str::to_owned),
            proptest::sample::select(vec![
                "name",
                "index",
                "title",
                "evidence",
                "composite",
                "voices"
            ])
            .prop_map(str::to_owned),
        ];
        leaf.prop_recursive(4, 64, 6, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(names.clone(), inner, 0..8)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn reading_arbitrary_json_never_panics(
            name in proptest::sample::select([&NEEDED[..], &OPTIONAL[..]].concat()),
            value in any_json(),
            other in any_json(),
        ) {
            let mut changed = first_version();
            changed[name] = value;
            for one in [changed, other] {
                if let Ok((summary, missing)) = read(&one) {
                    format_summary(&summary, &missing, ReportForm::Markdown);
                    format_summary(&summary, &missing, ReportForm::Plain);
                }
            }
        }
    }
}
