//! Parses job triggers.

use std::fmt;

use jiff::SignedDuration;
use runner_engine::schedule::{After, Cron, On, Trigger};
use runner_text::grammar;
use runner_text::nearest::nearest;

use super::values::{duration, time};

grammar! {
    /// The trigger of a job.
    TriggerText: TriggerSpec, "daily 02:30", PATTERN, trigger;
}

const PATTERN: &str =
    "night|manual|lifecycle|every +.+|daily +.+|cron +.+|after +[A-Za-z0-9_-]+( +ends)? *";

/// The event that makes a job due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TriggerSpec {
    /// The opening of the project's night.
    Night,
    /// The turn of the job's kind in a cycle. The cycle then uses this job's settings.
    Lifecycle,
    /// A schedule, another job, or manual runs only.
    Clock(Trigger),
}

impl fmt::Display for TriggerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Night => f.write_str("night"),
            Self::Lifecycle => f.write_str("lifecycle"),
            Self::Clock(trigger) => trigger.fmt(f),
        }
    }
}

fn trigger(text: &str) -> Result<TriggerSpec, String> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let rest = rest.trim();
    let trigger = match (word, rest) {
        ("night", "") => return Ok(TriggerSpec::Night),
        ("lifecycle", "") => return Ok(TriggerSpec::Lifecycle),
        ("manual", "") => Trigger::Manual,
        ("every", period) if !period.is_empty() => match duration(period)? {
            short if short < SignedDuration::from_secs(1) => {
                return Err(format!("{text:?}: the interval is shorter than one second"));
            }
            period => Trigger::Every(period),
        },
        ("daily", at) if !at.is_empty() => Trigger::Daily(time(at)?),
        ("cron", expression) if !expression.is_empty() => {
            Trigger::Cron(expression.parse::<Cron>().map_err(|error| error.to_string())?)
        }
        ("after", job) if !job.is_empty() => {
            let mut words = job.split_whitespace();
            match (words.next(), words.next(), words.next()) {
                (Some(job), None, None) => after(job, On::Success),
                (Some(job), Some("ends"), None) => after(job, On::End),
                _ => {
                    return Err(format!("{text:?}: write \"after JOB\" or \"after JOB ends\""));
                }
            }
        }
        _ => {
            let near = suggestion(word).filter(|near| trigger(near).is_ok());
            let near = near.map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
            return Err(format!(
                "{text:?} is not a trigger (\"night\", \"manual\", \"every 15m\", \"daily 02:30\", \
                 \"cron 30 2 * * *\", \"after JOB\", \"after JOB ends\", \"lifecycle\"){near}"
            ));
        }
    };
    Ok(TriggerSpec::Clock(trigger))
}

/// Returns a complete trigger that begins with the word nearest to `word`, or with `cron` if `word`
/// is a nickname such as `@daily`.
fn suggestion(word: &str) -> Option<String> {
    if word.starts_with('@') {
        return Some(format!("cron {word}"));
    }
    const COMPLETE: [&str; 7] = [
        "night",
        "lifecycle",
        "manual",
        "every 15m",
        "daily 02:30",
        "cron 30 2 * * *",
        "after JOB",
    ];
    let first = |complete: &'static str| complete.split(' ').next().unwrap_or(complete);
    let near = nearest(word, COMPLETE.map(first))?;
    COMPLETE.into_iter().find(|complete| first(complete) == near).map(str::to_owned)
}

fn after(job: &str, on: On) -> Trigger {
    let job = job.to_owned();
    Trigger::After(After { job, on })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triggers_round_trip() {
        for text in [
            "night",
            "lifecycle",
            "manual",
            "every 15m",
            "daily 02:30",
            "cron 30 2 * * *",
            "cron @daily",
            "after fetch",
            "after fetch ends",
        ] {
            assert_eq!(trigger(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn invalid_triggers_are_explained() {
        for (text, why) in [
            ("nightly", "is not a trigger"),
            ("nigth", "did you mean \"night\""),
            ("evry 15m", "did you mean \"every 15m\""),
            ("every", "did you mean \"every 15m\""),
            ("daily", "did you mean \"daily 02:30\""),
            ("@daily", "did you mean \"cron @daily\""),
            ("every 500ms", "shorter than one second"),
            ("every day", "not a duration"),
            ("daily 2:30", "not a time of day"),
            ("cron 61 * * * *", "not a cron expression"),
            ("cron", "is not a trigger"),
            ("after", "is not a trigger"),
            ("after a fails", "after JOB ends"),
            ("after a ends b", "after JOB ends"),
            ("night 3", "is not a trigger"),
        ] {
            let error = trigger(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
            // A suggestion is itself a valid trigger.
            if let Some((_, near)) = error.split_once("did you mean \"") {
                let near = near.trim_end_matches("\"?");
                assert!(trigger(near).is_ok(), "{text}: {near}");
            }
        }
    }
}
