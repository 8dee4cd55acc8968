//! Formats a message: its subject and text, from templates or in the built-in wording, and its JSON
//! for programs.
//!
//! Input from runs is data: it is redacted, truncated to a maximum length and prevented from
//! breaking the formats that contain it. A template that cannot be used never prevents a message
//! from being sent: the plain text is sent instead and mentions the problem.

use std::path::Path;

use jiff::Timestamp;
use minijinja::{Environment, UndefinedBehavior, Value};
use runner_engine::alerts::AlertKind;
use runner_engine::ids::MessageId;
use runner_engine::store::{AlertRow, Delivery};
use runner_text::redact::Redacted;
use serde::Serialize;

use super::text::{self, OpenItem};

/// Maximum number of steps that a template may take, which is more than any message template needs.
const FUEL: u64 = 50_000;
/// Maximum lengths of a subject and of a message's text, in characters.
const SUBJECT: usize = 200;
const TEXT: usize = 8_000;

/// The message templates of a project; `None` where the project has no template.
#[derive(Clone, Copy, Debug, Default)]
pub struct Templates<'a> {
    pub subject: Option<&'a str>,
    pub body: Option<&'a str>,
}

/// The fields that templates may use. The keys of the JSON have the same names.
#[derive(Clone, Debug, Serialize)]
struct Fields {
    schema_version: u32,
    id: String,
    alert: String,
    what: String,
    kind: String,
    kinds: Vec<String>,
    project: String,
    path: String,
    host: String,
    job: String,
    run: Option<String>,
    count: u32,
    since: Timestamp,
    at: Timestamp,
    why: String,
    hint: String,
    /// The other news that the message reports.
    more: Vec<NewsItem>,
    /// The project's open alerts, oldest first, without silenced alerts and without those whose news
    /// this message reports.
    open: Vec<OpenItem>,
}

/// Another news item in a message.
#[derive(Clone, Debug, Serialize)]
struct NewsItem {
    alert: String,
    what: String,
    kinds: Vec<String>,
    job: String,
    run: Option<String>,
    count: u32,
    since: Timestamp,
    why: String,
}

/// A message to send.
#[derive(Clone, Debug, Serialize)]
pub struct Message {
    #[serde(flatten)]
    fields: Fields,
    pub subject: String,
    pub text: String,
    #[serde(skip)]
    pub root: std::path::PathBuf,
}

impl Message {
    /// Creates the message for a delivery.
    pub fn of(
        delivery: &Delivery,
        open: &[AlertRow],
        root: &Path,
        templates: &Templates<'_>,
    ) -> Self {
        let kinds = names(delivery);
        let reported = |alert: &AlertRow| {
            let mut all = std::iter::once(delivery).chain(&delivery.more);
            all.any(|one| one.job == alert.job_name && one.kinds.contains(&alert.kind))
        };
        let open = open.iter().rev().filter(|alert| alert.silenced.is_none() && !reported(alert));
        let first = delivery.kinds.first().copied().unwrap_or(AlertKind::Failure);
        let fields = Fields {
            schema_version: 1,
            id: delivery.id.to_string(),
            alert: delivery.alert.to_string(),
            what: delivery.what.clone(),
            kind: first.as_str().to_owned(),
            kinds,
            project: name(root),
            path: root.display().to_string(),
            host: host(),
            job: delivery.job.clone(),
            run: delivery.run.as_ref().map(ToString::to_string),
            count: delivery.count,
            since: delivery.raised,
            at: delivery.made,
            why: text::reason(&delivery.why),
            hint: text::hint(delivery),
            more: delivery
                .more
                .iter()
                .map(|one| NewsItem {
                    alert: one.alert.to_string(),
                    what: one.what.clone(),
                    kinds: names(one),
                    job: one.job.clone(),
                    run: one.run.as_ref().map(ToString::to_string),
                    count: one.count,
                    since: one.raised,
                    why: text::reason(&one.why),
                })
                .collect(),
            open: open
                .map(|alert| OpenItem {
                    alert: alert.id.to_string(),
                    kind: alert.kind,
                    job: alert.job_name.clone(),
                    since: alert.raised,
                })
                .collect(),
        };
        Self::with(fields, root, templates, |fields| {
            let place = format!("{} on {}", fields.path, fields.host);
            text::plain(&fields.project, delivery, &fields.open, &place)
        })
    }

    /// Creates a message that only tests a channel.
    pub fn test(root: &Path, now: Timestamp, templates: &Templates<'_>) -> Self {
        let id = MessageId::new(now).to_string();
        let fields = Fields {
            schema_version: 1,
            alert: id.clone(),
            id,
            what: "test".to_owned(),
            kind: "test".to_owned(),
            kinds: vec!["test".to_owned()],
            project: name(root),
            path: root.display().to_string(),
            host: host(),
            job: "test".to_owned(),
            run: None,
            count: 1,
            since: now,
            at: now,
            why: "a test message was requested".to_owned(),
            hint: "no action is needed".to_owned(),
            more: Vec::new(),
            open: Vec::new(),
        };
        Self::with(fields, root, templates, |fields| {
            let subject = format!("{}: a test of runner's alerts", fields.project);
            let text = format!("{} on {}\n", fields.why, fields.host);
            (subject, text)
        })
    }

    fn with(
        fields: Fields,
        root: &Path,
        templates: &Templates<'_>,
        plain: impl FnOnce(&Fields) -> (String, String),
    ) -> Self {
        let (mut subject, mut text) = plain(&fields);
        let mut context = Context { fields: &fields, subject: subject.clone(), text: text.clone() };
        let mut broken = Vec::new();
        if let Some(template) = templates.subject {
            match render(template, &context) {
                Ok(rendered) => subject = rendered,
                Err(why) => broken.push(format!("(the template `subject` cannot be used: {why})")),
            }
        }
        if let Some(template) = templates.body {
            context.subject.clone_from(&subject);
            match render(template, &context) {
                Ok(rendered) => text = rendered,
                Err(why) => broken.push(format!("(the template `body` cannot be used: {why})")),
            }
        }
        for line in broken {
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&line);
            text.push('\n');
        }
        Self {
            subject: one_line(&clean(&subject, SUBJECT)),
            text: clean(&text, TEXT),
            root: root.to_owned(),
            fields,
        }
    }

    /// Returns the id, which stays the same when the message is sent again.
    pub fn id(&self) -> &str {
        &self.fields.id
    }

    /// Returns the time at which the message was created.
    pub fn at(&self) -> Timestamp {
        self.fields.at
    }

    pub fn host(&self) -> &str {
        &self.fields.host
    }

    /// Formats the message as JSON, without a line break.
    pub fn json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a message has string keys only")
    }
}

/// The fields and the plain subject and text, for templates that extend them.
#[derive(Serialize)]
struct Context<'a> {
    #[serde(flatten)]
    fields: &'a Fields,
    subject: String,
    text: String,
}

impl Context<'_> {
    /// Returns the values available to templates.
    fn values(&self) -> Value {
        let json = serde_json::to_value(self).unwrap_or_default();
        let pairs = json.as_object().into_iter().flatten();
        Value::from_pairs(pairs.map(|(name, value)| (name.clone(), template_value(value))))
    }
}

fn template_value(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Number(number) => Value::from(number.as_i64().unwrap_or_default()),
        serde_json::Value::Array(items) => {
            Value::from(items.iter().map(template_value).collect::<Vec<_>>())
        }
        _ => Value::from(()),
    }
}

fn render(template: &str, context: &Context<'_>) -> Result<String, String> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment.render_str(template, context.values()).map_err(|error| one_line(&error.to_string()))
}

fn names(delivery: &Delivery) -> Vec<String> {
    delivery.kinds.iter().map(|kind| kind.as_str().to_owned()).collect()
}

fn name(root: &Path) -> String {
    root.file_name()
        .map_or_else(|| root.display().to_string(), |name| name.to_string_lossy().into_owned())
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the beginning of a string, redacted for sending.
fn clean(text: &str, most: usize) -> String {
    Redacted::of(text).head(most).into_string()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use runner_engine::ids::{AlertId, ProjectId};
    use runner_engine::store::JobId;

    #[test]
    fn other_open_alerts_of_a_job_are_listed() {
        let at = Timestamp::UNIX_EPOCH;
        let project = ProjectId::new(at);
        let delivery = Delivery {
            id: MessageId::new(at),
            alert: AlertId::new(at),
            channel: "a".to_owned(),
            what: "recovered".to_owned(),
            made: at,
            project: project.clone(),
            job: "dream".to_owned(),
            kinds: vec![AlertKind::Failure],
            raised: at,
            count: 1,
            run: None,
            why: "broken".to_owned(),
            tries: 1,
            more: Vec::new(),
        };
        let open = |kind| AlertRow {
            id: AlertId::new(at),
            project: project.clone(),
            job: JobId(1),
            job_name: "dream".to_owned(),
            kind,
            raised: at,
            last: at,
            count: 1,
            run: None,
            why: String::new(),
            silenced: None,
            ended: None,
        };
        let open = [open(AlertKind::CriticalEvent), open(AlertKind::Failure)];
        let message = Message::of(&delivery, &open, Path::new("/x/p"), &Templates::default());
        let listed: Vec<AlertKind> = message.fields.open.iter().map(|it| it.kind).collect();
        assert_eq!(listed, [AlertKind::CriticalEvent]);
        let line = "still open: dream has a critical event, since";
        assert!(message.text.contains(line), "{}", message.text);
    }

    fn message(templates: &Templates<'_>) -> Message {
        Message::test(Path::new("/x/my project"), Timestamp::UNIX_EPOCH, templates)
    }

    #[test]
    fn broken_templates_are_reported() {
        let good = Templates {
            subject: Some("{{ project }}/{{ job }}\n{{ what }}"),
            body: Some("{{ subject }}: {{ why }} {{ text }}"),
        };
        let reported = message(&good);
        assert_eq!(reported.subject, "my project/test test");
        assert!(
            reported.text.starts_with("my project/test\ntest: a test message"),
            "{}",
            reported.text
        );
        for bad in [
            "{{ nobody }}",
            "{{ job",
            "{% for i in range(9999) %}{% for j in range(9999) %}x{% endfor %}{% endfor %}",
            "{% include 'x' %}",
        ] {
            let reported = message(&Templates { subject: Some(bad), body: Some(bad) });
            assert!(reported.subject.contains("a test of runner's alerts"), "{bad}");
            assert!(reported.text.starts_with("a test message was requested"), "{bad}");
            assert_eq!(reported.text.matches("cannot be used").count(), 2, "{}", reported.text);
        }
    }

    #[test]
    fn messages_are_truncated_and_sanitized() {
        let secret = format!("sk-ant-api03-{}", "a1B2".repeat(24));
        let body = format!("{secret} \u{1b}[31m\u{202e}{}", "y".repeat(20_000));
        let reported = message(&Templates { subject: Some(&body), body: Some(&body) });
        for text in [&reported.subject, &reported.text] {
            assert!(!text.contains("a1B2a1B2"), "{text}");
            assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text}");
        }
        assert!(reported.subject.chars().count() <= SUBJECT + 1);
        assert!(reported.text.chars().count() <= TEXT + 1);
        let json: serde_json::Value = serde_json::from_slice(&reported.json()).unwrap();
        assert_eq!(json["schema_version"], 1);
        assert_eq!(json["kind"], "test");
        assert_eq!(json["id"].as_str(), Some(reported.id()));
    }
}
