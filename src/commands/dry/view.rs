//! A dry run as people and programs read it.
//!
//! Must never show a secret that the run would be lent: all words are redacted here.

use runner_text::counted;
use std::path::Path;

use runner_engine::ledger::{Amounts, Budget};
use runner_jobs::Plan;
use serde_json::{Map, Value, json};

use super::super::perform::rehearsal::{Left, Rehearsed, Stands};
use super::{Fits, Turn, why_not};
use crate::cli::show;

const UNITS: [&str; 5] = ["calls", "tokens", "micros", "seconds", "ideas"];

fn of_amounts(amounts: Amounts) -> [u64; 5] {
    [
        amounts.calls,
        amounts.tokens,
        amounts.micros,
        amounts.seconds,
        amounts.ideas,
    ]
}

fn of_budget(budget: Budget) -> [Option<u64>; 5] {
    [
        budget.calls,
        budget.tokens,
        budget.micros,
        budget.seconds,
        budget.ideas,
    ]
}

/// One run as JSON.
pub fn json(told: &Rehearsed, root: &Path) -> Value {
    let clean = |text: &str| told.redactor.redact(text).into_owned();
    let plan = told.plan.as_ref().and_then(|plan| plan.as_ref().ok());
    let (starts, reserved, outcome) = match &told.stands {
        Stands::Admitted(reserved) => (true, Some(*reserved), None),
        Stands::Declined(outcome) => (false, None, Some(outcome)),
    };
    json!({
        "dry_run": true,
        "project": root,
        "job": told.row.job_name,
        "kind": told.row.kind,
        "backend": {
            "name": told.backend_name,
            "type": told.backend.as_ref().map(|it| &it.kind),
            "model": told.backend.as_ref().map(|it| &it.model),
            "confinement": told.backend.as_ref().map(|it| &it.containment),
        },
        "admission": { "would_start": starts, "reserved": reserved, "outcome": outcome },
        "ends_before_asking": match &told.plan {
            Some(Err(outcome)) => json!(outcome),
            _ => Value::Null,
        },
        "requests": plan.map_or_else(|| json!([]), |plan| requests(plan, &told.row.kind, &clean)),
        "at_most": plan.map(Plan::at_most),
        "program": plan.and_then(|plan| plan.child.as_ref()).map(|child| {
            let mut child = json!(child);
            for key in ["program", "args"] {
                child[key] = redacted(&child[key], &clean);
            }
            child
        }),
        "own_budget": budget_json(told.want),
        "budgets": told.levels.iter().map(left_json).collect::<Vec<_>>(),
        "writes": told.writes,
        "program_writes": told.program,
        "checks": plan.map_or(&[][..], |plan| &plan.checks),
        "notes": notes(told),
    })
}

fn requests(plan: &Plan, kind: &str, clean: &dyn Fn(&str) -> String) -> Value {
    // A prompt's sources are whole files that its owner chose; a dream's are the project's own notes
    // and history, long, and told by name.
    let whole = kind == "prompt";
    let of = plan.requests.iter().map(|one| {
        let sources = one.request.sources.iter().map(|source| {
            let mut told = json!({ "label": clean(&source.label), "bytes": source.fenced.len() });
            if whole {
                told["fenced"] = json!(clean(&source.fenced));
            }
            told
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
    let set = UNITS.iter().zip(of_budget(budget));
    let set = set.filter_map(|(unit, cap)| Some(((*unit).to_owned(), json!(cap?))));
    Value::Object(set.collect::<Map<_, _>>())
}

fn left_json(left: &Left) -> Value {
    let used = of_amounts(left.used);
    let over = UNITS.iter().zip(of_budget(left.cap)).zip(used);
    let over = over.filter_map(|((unit, cap), used)| {
        let cap = cap?;
        let left = cap.saturating_sub(used);
        Some((
            (*unit).to_owned(),
            json!({ "cap": cap, "used": used, "left": left }),
        ))
    });
    json!({ "name": left.label, "units": Value::Object(over.collect::<Map<_, _>>()) })
}

fn notes(told: &Rehearsed) -> Vec<String> {
    let of_plan = told.plan.as_ref().and_then(|plan| plan.as_ref().ok());
    let of_plan = of_plan.map_or(&[][..], |plan| &plan.notes);
    let all = told.notes.iter().chain(of_plan);
    all.map(|note| told.redactor.redact(note).into_owned())
        .collect()
}

/// One run for people.
pub fn text(told: &Rehearsed) -> String {
    let clean = |text: &str| told.redactor.redact(text).into_owned();
    let mut text = format!(
        "{} ({}): a dry run; nothing was asked and nothing written\n",
        told.row.job_name, told.row.kind
    );
    let mut line = |name: &str, what: &str| text.push_str(&format!("  {name:<9} {what}\n"));
    match (&told.stands, why_not(told)) {
        (_, Some(outcome)) => line("would", &format!("not run now: {outcome}")),
        _ => line("would", "start now"),
    }
    if told.row.kind != "command" {
        line("backend", &backend(told));
    }
    if let Some(Ok(plan)) = &told.plan {
        for one in &plan.requests {
            let labels = counted(one.request.sources.len(), "source");
            line(
                "asks",
                &format!(
                    "{}: {labels}, about {}, an answer of {} at most",
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
            line("in", &child.folder.display().to_string());
            line("with", &child.environment.join(" "));
            if !child.unset.is_empty() {
                line("", &format!("not set: {}", child.unset.join(" ")));
            }
        }
    }
    let spends = told.plan.as_ref().and_then(|plan| plan.as_ref().ok());
    match (&told.stands, spends) {
        (Stands::Admitted(reserved), plan) => {
            let mut most = plan.map(Plan::at_most).unwrap_or_default();
            most.seconds = reserved.seconds;
            line("costs", &format!("at most {}", amounts(most)));
            line("reserves", &amounts(*reserved));
        }
        (Stands::Declined(_), Some(plan)) => {
            line("costs", &format!("at most {}", amounts(plan.at_most())));
        }
        _ => {}
    }
    for level in &told.levels {
        line("budget", &left(level));
    }
    if !told.writes.is_empty() {
        line("writes", &told.writes.join(", "));
    }
    if let Some(reach) = &told.program {
        let writes = match (reach.anything, reach.writes.as_slice()) {
            (true, _) => "anything that you may: sandbox = \"off\"".to_owned(),
            (false, []) => "nothing of the project".to_owned(),
            (false, writes) => writes.join(", "),
        };
        line("program", &format!("writes {writes}"));
        if !reach.anything && !reach.never.is_empty() {
            line("", &format!("and never {}", reach.never.join(", ")));
        }
    }
    if let Some(Ok(plan)) = &told.plan {
        for check in &plan.checks {
            line("checks", check);
        }
    }
    for note in notes(told) {
        line("note", &note);
    }
    text
}

fn backend(told: &Rehearsed) -> String {
    match &told.backend {
        None => format!("{} (cannot be used)", told.backend_name),
        Some(it) => {
            let model = it
                .model
                .as_deref()
                .map_or_else(String::new, |model| format!(", {model}"));
            format!(
                "{} ({}{model}; {})",
                told.backend_name, it.kind, it.containment
            )
        }
    }
}

/// What there is of each unit, in words.
fn amounts(amounts: Amounts) -> String {
    let mut parts = Vec::new();
    for (unit, amount) in UNITS.iter().zip(of_amounts(amounts)) {
        if amount > 0 || *unit == "calls" {
            parts.push(said(unit, amount));
        }
    }
    parts.join(", ")
}

fn said(unit: &str, amount: u64) -> String {
    match unit {
        "micros" => dollars(amount),
        "seconds" => format!(
            "{:#}",
            jiff::SignedDuration::from_secs(i64::try_from(amount).unwrap_or(i64::MAX))
        ),
        unit => counted(amount, unit.trim_end_matches('s')),
    }
}

/// Millionths of a dollar as dollars, with as many digits as there are, two at least.
fn dollars(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    let short = text.trim_end_matches('0');
    let digits = short.len() - short.find('.').unwrap_or(0) - 1;
    format!("${short}{}", "0".repeat(2_usize.saturating_sub(digits)))
}

fn left(level: &Left) -> String {
    let used = of_amounts(level.used);
    let caps = UNITS.iter().zip(of_budget(level.cap)).zip(used);
    let parts: Vec<String> = caps
        .filter_map(|((unit, cap), used)| {
            let cap = cap?;
            let left = cap.saturating_sub(used);
            Some(match *unit {
                "micros" | "seconds" => {
                    format!("{} of {} left", said(unit, left), said(unit, cap))
                }
                _ => format!("{left} of {} left", said(unit, cap)),
            })
        })
        .collect();
    match parts.as_slice() {
        [] => format!("{}: not bounded", level.label),
        parts => format!("{}: {}", level.label, parts.join(", ")),
    }
}

/// A night as JSON.
pub fn night_json(name: &str, turns: &[Turn], account: &Left, root: &Path) -> Value {
    let runs = turns.iter().map(|turn| {
        let mut run = json(&turn.told, root);
        run["fits"] = json!(word(turn.fits));
        run
    });
    let out = turns.iter().filter(|turn| turn.fits != Fits::Yes);
    let out: Vec<&str> = out.map(|turn| turn.told.row.job_name.as_str()).collect();
    json!({
        "dry_run": true,
        "project": root,
        "night": name,
        "runs": runs.collect::<Vec<_>>(),
        "at_most": account.used,
        "budget": left_json(account),
        "would_not_fit": out,
    })
}

fn word(fits: Fits) -> &'static str {
    match fits {
        Fits::Yes => "yes",
        Fits::Perhaps => "unless those before it spend all that they may",
        Fits::No => "no",
    }
}

/// A night for people.
pub fn night_text(name: &str, turns: &[Turn], account: &Left) -> String {
    let mut all = format!("night {name}: a dry run; nothing was asked and nothing written\n\n");
    for turn in turns {
        all.push_str(&text(&turn.told));
        if turn.fits != Fits::Yes {
            all.push_str(&format!("  {:<9} {}\n", "fits", word(turn.fits)));
        }
        all.push('\n');
    }
    all.push_str(&format!(
        "{}, at most {}\n{}, after all of them\n",
        show::count(turns.len() as u64, "job"),
        amounts(account.used),
        left(account)
    ));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_said_to_the_last_millionth() {
        for (micros, said) in [
            (0, "$0.00"),
            (1, "$0.000001"),
            (100_000, "$0.10"),
            (1_000_000, "$1.00"),
            (12_345_600, "$12.3456"),
        ] {
            assert_eq!(dollars(micros), said);
        }
        assert_eq!(said("calls", 1), "1 call");
        assert_eq!(said("tokens", 0), "0 tokens");
    }
}
