//! Formats dry runs as text and as JSON.
//!
//! The output must never contain a secret that the run would receive.

use std::path::Path;

use runner_engine::store::{Amounts, Budget};
use runner_jobs::DryRunPlan;
use runner_text::counted;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::super::execute::dry_run::{DryRun, DryRunOutcome, RemainingBudget};
use super::{BudgetFit, NightTurn, why_not};
use crate::ui::{Ui, View, show};

const UNITS: [&str; 5] = ["calls", "tokens", "micros", "seconds", "ideas"];

/// A request whose key was already used, so nothing would run.
#[derive(Debug, Serialize)]
pub struct KnownRequest<'a> {
    pub dry_run: bool,
    pub job: &'a str,
    pub known: &'a str,
}

impl View for KnownRequest<'_> {
    fn print(&self, _ui: Ui) {
        show::out(&format!("{}: {}\n", self.job, self.known));
    }
}

pub struct SimulatedRun<'a> {
    pub project: &'a Path,
    pub reported: DryRun,
}

impl Serialize for SimulatedRun<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        json(&self.reported, self.project).serialize(serializer)
    }
}

impl View for SimulatedRun<'_> {
    fn print(&self, _ui: Ui) {
        show::out(&text(&self.reported));
    }
}

pub struct SimulatedNight<'a> {
    pub project: &'a Path,
    pub name: String,
    pub turns: Vec<NightTurn>,
    /// The night's remaining budget after all runs.
    pub account: RemainingBudget,
}

impl Serialize for SimulatedNight<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let runs = self.turns.iter().map(|turn| {
            let mut run = json(&turn.reported, self.project);
            run["fits"] = json!(fit_name(turn.fits));
            run
        });
        let out = self.turns.iter().filter(|turn| turn.fits != BudgetFit::Yes);
        let out: Vec<&str> = out.map(|turn| turn.reported.row.job_name.as_str()).collect();
        json!({
            "dry_run": true,
            "project": self.project,
            "night": self.name,
            "runs": runs.collect::<Vec<_>>(),
            "at_most": self.account.used,
            "budget": left_json(&self.account),
            "would_not_fit": out,
        })
        .serialize(serializer)
    }
}

impl View for SimulatedNight<'_> {
    fn print(&self, _ui: Ui) {
        let mut all = format!(
            "night {}: dry run; no backend was asked and nothing was written\n\n",
            self.name
        );
        for turn in &self.turns {
            all.push_str(&text(&turn.reported));
            if turn.fits != BudgetFit::Yes {
                all.push_str(&format!("  {:<9} {}\n", "fits", fit_name(turn.fits)));
            }
            all.push('\n');
        }
        all.push_str(&format!(
            "{}, at most {}\n{}, after all of them\n",
            show::count(self.turns.len() as u64, "job"),
            amounts(self.account.used),
            left(&self.account)
        ));
        show::out(&all);
    }
}

fn json(reported: &DryRun, root: &Path) -> Value {
    let clean = |text: &str| reported.redactor.redact(text).into_owned();
    let plan = reported.plan.as_ref().and_then(|plan| plan.as_ref().ok());
    let (starts, reserved, outcome) = match &reported.stands {
        DryRunOutcome::Admitted(reserved) => (true, Some(*reserved), None),
        DryRunOutcome::Declined(outcome) => (false, None, Some(outcome)),
    };
    json!({
        "dry_run": true,
        "project": root,
        "job": reported.row.job_name,
        "kind": reported.row.kind,
        "backend": {
            "name": reported.backend_name,
            "type": reported.backend.as_ref().map(|it| &it.kind),
            "model": reported.backend.as_ref().map(|it| &it.model),
            "sandbox": reported.backend.as_ref().map(|it| &it.containment),
        },
        "admission": { "would_start": starts, "reserved": reserved, "outcome": outcome },
        "ends_before_asking": match &reported.plan {
            Some(Err(outcome)) => json!(outcome),
            _ => Value::Null,
        },
        "requests": plan.map_or_else(|| json!([]), |plan| requests(plan, &reported.row.kind, &clean)),
        "at_most": plan.map(DryRunPlan::at_most),
        "program": plan.and_then(|plan| plan.child.as_ref()).map(|child| {
            let mut child = json!(child);
            for key in ["program", "args"] {
                child[key] = redacted(&child[key], &clean);
            }
            child
        }),
        "own_budget": budget_json(reported.want),
        "budgets": reported.levels.iter().map(left_json).collect::<Vec<_>>(),
        "writes": reported.writes,
        "program_writes": reported.program,
        "checks": plan.map_or(&[][..], |plan| &plan.checks),
        "notes": notes(reported),
    })
}

fn requests(plan: &DryRunPlan, kind: &str, clean: &dyn Fn(&str) -> String) -> Value {
    // The sources of a prompt are files that the user chose, and are shown in full. Other sources,
    // such as the notes and history that a dream reads, are shown only by name and size.
    let whole = kind == "prompt";
    let of = plan.requests.iter().map(|one| {
        let sources = one.request.sources.iter().map(|source| {
            let mut reported =
                json!({ "label": clean(&source.label), "bytes": source.fenced.len() });
            if whole {
                reported["fenced"] = json!(clean(&source.fenced));
            }
            reported
        });
        json!({
            "purpose": one.request.purpose,
            "instructions": clean(&one.request.instructions),
            "sources": sources.collect::<Vec<_>>(),
            "tokens": one.tokens,
            "max_output_tokens": one.request.limits.max_output_tokens,
            "at_most": one.reserved.as_ref().ok(),
            "refused": one.reserved.as_ref().err(),
        })
    });
    Value::Array(of.collect())
}

fn redacted(value: &Value, clean: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => json!(clean(text)),
        Value::Array(items) => items.iter().map(|item| redacted(item, clean)).collect(),
        other => other.clone(),
    }
}

fn budget_json(budget: Budget) -> Value {
    let set = UNITS.iter().zip(budget.array());
    let set = set.filter_map(|(unit, cap)| Some(((*unit).to_owned(), json!(cap?))));
    Value::Object(set.collect::<Map<_, _>>())
}

fn left_json(left: &RemainingBudget) -> Value {
    let used = left.used.array();
    let over = UNITS.iter().zip(left.limit).zip(used);
    let over = over.filter_map(|((unit, cap), used)| {
        let cap = cap?;
        let left = cap.saturating_sub(used);
        Some(((*unit).to_owned(), json!({ "cap": cap, "used": used, "left": left })))
    });
    json!({ "name": left.label, "units": Value::Object(over.collect::<Map<_, _>>()) })
}

fn notes(reported: &DryRun) -> Vec<String> {
    let of_plan = reported.plan.as_ref().and_then(|plan| plan.as_ref().ok());
    let of_plan = of_plan.map_or(&[][..], |plan| &plan.notes);
    let all = reported.notes.iter().chain(of_plan);
    all.map(|note| reported.redactor.redact(note).into_owned()).collect()
}

fn text(reported: &DryRun) -> String {
    let clean = |text: &str| reported.redactor.redact(text).into_owned();
    let mut text = format!(
        "{} ({}): dry run; no backend was asked and nothing was written\n",
        reported.row.job_name, reported.row.kind
    );
    let mut line = |name: &str, what: &str| text.push_str(&format!("  {name:<9} {what}\n"));
    match (&reported.stands, why_not(reported)) {
        (_, Some(outcome)) => line("would", &format!("not run now: {outcome}")),
        _ => line("would", "start now"),
    }
    if reported.row.kind != "command" {
        line("backend", &backend(reported));
    }
    if let Some(Ok(plan)) = &reported.plan {
        for one in &plan.requests {
            let labels = counted(one.request.sources.len(), "source");
            line(
                "asks",
                &format!(
                    "{}: {labels}, about {}, an answer of at most {}",
                    one.request.purpose,
                    counted(one.tokens, "token"),
                    one.request.limits.max_output_tokens
                ),
            );
            if let Err(why) = &one.reserved {
                line("", &clean(why));
            }
        }
        if let Some(child) = &plan.child {
            let words: Vec<String> = std::iter::once(&child.program)
                .chain(&child.args)
                .map(|word| clean(word))
                .collect();
            line("starts", &words.join(" "));
            line("folder", &child.folder.display().to_string());
            line("variables", &child.environment.join(" "));
            if !child.unset.is_empty() {
                line("", &format!("not set: {}", child.unset.join(" ")));
            }
        }
    }
    let spends = reported.plan.as_ref().and_then(|plan| plan.as_ref().ok());
    match (&reported.stands, spends) {
        (DryRunOutcome::Admitted(reserved), plan) => {
            let mut most = plan.map(DryRunPlan::at_most).unwrap_or_default();
            most.seconds = reserved.seconds;
            line("costs", &format!("at most {}", amounts(most)));
            line("reserves", &amounts(*reserved));
        }
        (DryRunOutcome::Declined(_), Some(plan)) => {
            line("costs", &format!("at most {}", amounts(plan.at_most())));
        }
        _ => {}
    }
    for level in &reported.levels {
        line("budget", &left(level));
    }
    if !reported.writes.is_empty() {
        line("writes", &reported.writes.join(", "));
    }
    if let Some(reach) = &reported.program {
        let writes = match (reach.anything, reach.writes.as_slice()) {
            (true, _) => "anything that your user may write to (sandbox = \"off\")".to_owned(),
            (false, []) => "nothing in the project".to_owned(),
            (false, writes) => writes.join(", "),
        };
        line("program", &format!("writes {writes}"));
        if !reach.anything && !reach.never.is_empty() {
            line("", &format!("and never {}", reach.never.join(", ")));
        }
    }
    if let Some(Ok(plan)) = &reported.plan {
        for check in &plan.checks {
            line("checks", check);
        }
    }
    for note in notes(reported) {
        line("note", &note);
    }
    text
}

fn backend(reported: &DryRun) -> String {
    match &reported.backend {
        None => format!("{} (cannot be used)", reported.backend_name),
        Some(it) => {
            let model = it.model.as_deref().map_or_else(String::new, |model| format!(", {model}"));
            format!("{} ({}{model}; {})", reported.backend_name, it.kind, it.containment)
        }
    }
}

fn amounts(amounts: Amounts) -> String {
    let mut parts = Vec::new();
    for (unit, amount) in UNITS.iter().zip(amounts.array()) {
        if amount > 0 || *unit == "calls" {
            parts.push(format_amount(unit, amount));
        }
    }
    parts.join(", ")
}

fn format_amount(unit: &str, amount: u64) -> String {
    match unit {
        "micros" => dollars(amount),
        "seconds" => format!(
            "{:#}",
            jiff::SignedDuration::from_secs(i64::try_from(amount).unwrap_or(i64::MAX))
        ),
        unit => counted(amount, unit.trim_end_matches('s')),
    }
}

/// Formats millionths of a dollar as dollars, with at least two decimal places and no further
/// trailing zeros.
fn dollars(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    let short = text.trim_end_matches('0');
    let digits = short.len() - short.find('.').unwrap_or(0) - 1;
    format!("${short}{}", "0".repeat(2_usize.saturating_sub(digits)))
}

fn left(level: &RemainingBudget) -> String {
    let used = level.used.array();
    let caps = UNITS.iter().zip(level.limit).zip(used);
    let parts: Vec<String> = caps
        .filter_map(|((unit, cap), used)| {
            let cap = cap?;
            let left = cap.saturating_sub(used);
            Some(match *unit {
                "micros" | "seconds" => {
                    format!("{} of {} left", format_amount(unit, left), format_amount(unit, cap))
                }
                _ => format!("{left} of {} left", format_amount(unit, cap)),
            })
        })
        .collect();
    match parts.as_slice() {
        [] => format!("{}: no limit", level.label),
        parts => format!("{}: {}", level.label, parts.join(", ")),
    }
}

fn fit_name(fits: BudgetFit) -> &'static str {
    match fits {
        BudgetFit::Yes => "yes",
        BudgetFit::Perhaps => "yes, unless earlier jobs use up their limits",
        BudgetFit::No => "no",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_keep_all_significant_digits() {
        for (micros, said) in [
            (0, "$0.00"),
            (1, "$0.000001"),
            (100_000, "$0.10"),
            (1_000_000, "$1.00"),
            (12_345_600, "$12.3456"),
        ] {
            assert_eq!(dollars(micros), said);
        }
        assert_eq!(format_amount("calls", 1), "1 call");
        assert_eq!(format_amount("tokens", 0), "0 tokens");
    }
}
