//! The plain subject and text of a message.
//!
//! A message has one section for each job's problems and one for its recoveries; jobs with the same
//! news share a section. This module is pure.

use jiff::Timestamp;
use runner_engine::alerts::AlertKind;
use runner_engine::store::Delivery;
use runner_text::redact::Redacted;
use runner_text::some_of;
use serde::Serialize;

use crate::ui::show;

/// Maximum length of a reason, in characters.
const WHY: usize = 2_000;
/// Maximum number of commands in a section.
const HINTS: usize = 6;

/// An alert that is still open.
#[derive(Clone, Debug, Serialize)]
pub struct OpenItem {
    pub alert: String,
    pub kind: AlertKind,
    pub job: String,
    pub since: Timestamp,
}

/// The news in one section of a message.
struct Section<'d> {
    /// The jobs with this news.
    jobs: Vec<&'d str>,
    /// The news of the first job.
    news: Vec<&'d Delivery>,
    /// The news of the other jobs.
    others: Vec<&'d Delivery>,
}

/// Returns the subject and the text of a message. `place` is the line at the end of the text.
pub fn plain(
    project: &str,
    delivery: &Delivery,
    open: &[OpenItem],
    place: &str,
) -> (String, String) {
    let sections = sections(delivery);
    let mut subject = format!("{project}: {}", sections[0].summary());
    if sections.len() > 1 {
        let more = show::count(sections.len() as u64 - 1, "other item");
        subject.push_str(&format!(", and {more}"));
    }
    let mut text = sections[0].text();
    for section in &sections[1..] {
        text.push_str(&format!("\n{}\n{}", section.summary(), section.text()));
    }
    text.push('\n');
    let mut listed: Vec<&str> = Vec::new();
    for alert in open {
        if listed.contains(&alert.job.as_str()) {
            continue;
        }
        listed.push(&alert.job);
        let of_job = open.iter().filter(|it| it.job == alert.job);
        let problems: Vec<&str> = of_job.map(|it| problem(it.kind, 1)).collect();
        let since = show::format_time(alert.since);
        let problems = problems.join(" and ");
        text.push_str(&format!("still open: {} {problems}, since {since}\n", alert.job));
    }
    text.push_str(&format!("{place}\n"));
    (subject, text)
}

/// Returns the beginning of a reason, redacted for sending.
pub fn reason(why: &str) -> String {
    Redacted::of(why).head(WHY).into_string()
}

/// Returns the command to run next for an item, or an empty string for a recovery.
pub fn hint(item: &Delivery) -> String {
    let job = &item.job;
    if is_recovery(item) {
        return String::new();
    }
    match (item.kinds.first(), &item.run) {
        (Some(AlertKind::Breaker), _) => format!("runner jobs reset {job}, when it is fixed"),
        (Some(AlertKind::Missed | AlertKind::SilentHost), _) => "runner doctor".to_owned(),
        (Some(AlertKind::CriticalEvent), _) => "runner curator events".to_owned(),
        (Some(AlertKind::Failure) | None, Some(run)) => format!("runner runs show {run}"),
        (Some(AlertKind::Failure | AlertKind::Stale) | None, _) => {
            format!("runner runs --job {job}")
        }
    }
}

fn sections(delivery: &Delivery) -> Vec<Section<'_>> {
    let mut of_jobs: Vec<Section<'_>> = Vec::new();
    for item in std::iter::once(delivery).chain(&delivery.more) {
        let known = of_jobs.iter_mut().find(|section| {
            section.jobs[0] == item.job && is_recovery(section.news[0]) == is_recovery(item)
        });
        match known {
            Some(section) => section.news.push(item),
            None => of_jobs.push(Section {
                jobs: vec![&item.job],
                news: vec![item],
                others: Vec::new(),
            }),
        }
    }
    let mut sections: Vec<Section<'_>> = Vec::new();
    for section in of_jobs {
        match sections.iter_mut().find(|known| known.states_the_same(&section)) {
            Some(known) => {
                known.jobs.extend(section.jobs);
                known.others.extend(section.news);
            }
            None => sections.push(section),
        }
    }
    sections
}

impl Section<'_> {
    fn states_the_same(&self, other: &Self) -> bool {
        let same = |one: &&Delivery, two: &&Delivery| {
            let reasons = is_recovery(one) || (&one.why, one.count) == (&two.why, two.count);
            (&one.what, &one.kinds) == (&two.what, &two.kinds) && reasons
        };
        let both = || self.news.iter().zip(&other.news);
        self.news.len() == other.news.len() && both().all(|(one, two)| same(one, two))
    }

    /// Describes the news briefly, such as "tidy failed".
    fn summary(&self) -> String {
        let many = self.jobs.len();
        let said: Vec<String> = self
            .news
            .iter()
            .map(|item| match item.what.as_str() {
                "recovered" if item.kinds == [AlertKind::SilentHost] => {
                    "sees all hosts of its fleet again".to_owned()
                }
                "recovered" if item.kinds == [AlertKind::CriticalEvent] => {
                    "no longer has a critical event".to_owned()
                }
                "recovered" if many > 1 => "have recovered".to_owned(),
                "recovered" => "has recovered".to_owned(),
                "repeated" => {
                    let times = show::count(item.count.into(), "time");
                    format!("{} (still: {times})", problems(&item.kinds, many))
                }
                _ => problems(&item.kinds, many),
            })
            .collect();
        format!("{} {}", some_of(self.jobs.iter().copied()), said.join(" and "))
    }

    /// Formats the reasons, the time at which the problem began, and the commands to run next.
    fn text(&self) -> String {
        let mut lines: Vec<String> = Vec::new();
        for item in &self.news {
            let line = match (is_recovery(item), self.jobs.len()) {
                (true, _) if item.kinds == [AlertKind::SilentHost] => {
                    "All hosts of the fleet are seen, and its database answers.".to_owned()
                }
                (true, _) if item.kinds == [AlertKind::CriticalEvent] => {
                    "A person has acknowledged every critical event.".to_owned()
                }
                (true, 1) => format!("It {}; now it has succeeded.", problems(&item.kinds, 1)),
                (true, many) => {
                    format!("They {}; now they have succeeded.", problems(&item.kinds, many))
                }
                (false, _) => reason(&item.why),
            };
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let all = || self.news.iter().chain(&self.others);
        let since = all().map(|item| item.raised).min().unwrap_or_default();
        let times = self.news.iter().map(|item| item.count).max().unwrap_or(1);
        let times = match self.jobs.len() == 1 && times > 1 {
            true => format!(", {times} times"),
            false => String::new(),
        };
        lines.push(format!("since {}{times}", show::format_time(since)));
        let mut hints: Vec<String> = Vec::new();
        for hint in all().map(|item| hint(item)).filter(|hint| !hint.is_empty()) {
            if !hints.contains(&hint) && hints.len() < HINTS {
                hints.push(hint);
            }
        }
        lines.extend(hints);
        lines.join("\n") + "\n"
    }
}

fn is_recovery(item: &Delivery) -> bool {
    item.what == "recovered"
}

/// Describes the problems. `jobs` is the number of jobs that have them.
fn problems(kinds: &[AlertKind], jobs: usize) -> String {
    kinds.iter().map(|kind| problem(*kind, jobs)).collect::<Vec<_>>().join(" and ")
}

fn problem(kind: AlertKind, jobs: usize) -> &'static str {
    match (kind, jobs) {
        (AlertKind::Failure, _) => "failed",
        (AlertKind::Breaker, 1) => "is no longer started",
        (AlertKind::Breaker, _) => "are no longer started",
        (AlertKind::Missed, 1) => "was missed",
        (AlertKind::Missed, _) => "were missed",
        (AlertKind::SilentHost, 1) => "has a silent host in its fleet",
        (AlertKind::SilentHost, _) => "have a silent host in their fleets",
        (AlertKind::CriticalEvent, 1) => "has a critical event",
        (AlertKind::CriticalEvent, _) => "have critical events",
        (AlertKind::Stale, 1) => "has not succeeded for too long",
        (AlertKind::Stale, _) => "have not succeeded for too long",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runner_engine::ids::{AlertId, MessageId, ProjectId};

    fn item(job: &str, what: &str, kinds: &[AlertKind], why: &str) -> Delivery {
        let at = Timestamp::UNIX_EPOCH;
        Delivery {
            id: MessageId::new(at),
            alert: AlertId::new(at),
            channel: "a".to_owned(),
            what: what.to_owned(),
            made: at,
            project: ProjectId::new(at),
            job: job.to_owned(),
            kinds: kinds.to_vec(),
            raised: at,
            count: 1,
            run: None,
            why: why.to_owned(),
            tries: 1,
            more: Vec::new(),
        }
    }

    fn message(mut items: Vec<Delivery>, open: &[OpenItem]) -> (String, String) {
        let more = items.split_off(1);
        plain("p", &Delivery { more, ..items.remove(0) }, open, "/p on host")
    }

    #[test]
    fn news_of_one_job_shares_a_section() {
        let (subject, text) = message(
            vec![
                item("a", "raised", &[AlertKind::Failure], "broken"),
                item("a", "raised", &[AlertKind::Breaker], "broken"),
            ],
            &[],
        );
        assert_eq!(subject, "p: a failed and is no longer started");
        let expected = "broken\nsince 1970-01-01 00:00:00 UTC\nrunner runs --job a\n\
                        runner jobs reset a, when it is fixed\n\n/p on host\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn jobs_with_same_news_share_a_section() {
        let missed = |job| item(job, "raised", &[AlertKind::Missed], "it waits");
        let open = |kind, job: &str| OpenItem {
            alert: String::new(),
            kind,
            job: job.to_owned(),
            since: Timestamp::UNIX_EPOCH,
        };
        let (subject, text) = message(
            vec![
                missed("a"),
                missed("b"),
                item("c", "repeated", &[AlertKind::Failure], "broken"),
                item("d", "recovered", &[AlertKind::Failure, AlertKind::Breaker], "1"),
                item("e", "recovered", &[AlertKind::Failure, AlertKind::Breaker], "2"),
            ],
            &[open(AlertKind::Failure, "f"), open(AlertKind::Breaker, "f")],
        );
        assert_eq!(subject, "p: a, b were missed, and 2 other items");
        for part in [
            "it waits\nsince 1970-01-01 00:00:00 UTC\nrunner doctor\n\nc failed (still: 1 time)\n",
            "\nd, e have recovered\nThey failed and are no longer started; now they have succeeded.\n",
            "\n\nstill open: f failed and is no longer started, since 1970-01-01 00:00:00 UTC\n/p on",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
    }
}
