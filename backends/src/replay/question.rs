//! Extracts the question from a request, and finds the first difference between two questions.
//!
//! A request's id, folders, deadlines and fence nonce are specific to a single run, and are not
//! part of the question. Two questions that a model could distinguish must never be treated as
//! equal.

use runner_engine::digest::Digest;
use runner_text::counted;
use runner_text::redact::Redactor;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Request, Source, Temperature};

/// Replacement for a fence's nonce.
const NONCE: &str = "0000000000000000";

/// A recorded question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayQuestion {
    /// See [`Request::purpose`].
    pub purpose: String,
    /// See [`Request::instructions`].
    pub instructions: String,
    /// See [`Request::sources`].
    pub sources: Vec<Source>,
    /// See [`Request::rule_answer`].
    pub rule_answer: Value,
    /// See [`Request::offer`].
    pub offer: Value,
    /// See [`Request::schema`].
    pub schema: Option<Value>,
    /// Maximum length of the answer in tokens.
    pub max_output_tokens: u64,
    /// See [`RequestLimits::temperature`](crate::RequestLimits::temperature).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<Temperature>,
    /// Whether the backend works in the project (see [`Request::work`]).
    #[serde(default)]
    pub works: bool,
}

impl ReplayQuestion {
    /// Returns the redacted question of a request.
    pub fn of(request: &Request, redactor: &Redactor) -> Self {
        let nonce = request.sources.iter().find_map(|source| nonce(&source.fenced));
        let clean = |text: &str| {
            let text = match nonce {
                Some(nonce) => text.replace(nonce, NONCE),
                None => text.to_owned(),
            };
            redactor.redact(&text).into_owned()
        };
        Self {
            purpose: request.purpose.clone(),
            instructions: clean(&request.instructions),
            sources: (request.sources.iter())
                .map(|source| Source {
                    label: clean(&source.label).into(),
                    fenced: clean(&source.fenced).into(),
                })
                .collect(),
            rule_answer: redacted(&request.rule_answer, redactor),
            offer: redacted(&request.offer, redactor),
            schema: (request.schema.as_ref()).map(|schema| redacted(schema, redactor)),
            max_output_tokens: request.limits.max_output_tokens,
            temperature: request.limits.temperature,
            works: request.work.is_some(),
        }
    }

    /// Returns the digest that identifies the question.
    pub fn digest(&self) -> Digest {
        Digest::of(&serde_json::to_vec(self).expect("a question has string keys only"))
    }

    /// Describes the first difference from another question, or returns `None` if there is none.
    pub fn differs(&self, other: &Self) -> Option<String> {
        let texts = |what: &str, one: &str, two: &str| {
            line_of(one, two).map(|line| format!("{what}, line {line}"))
        };
        if self.purpose != other.purpose {
            let (one, two) = (&self.purpose, &other.purpose);
            return Some(format!("purpose: recorded as {one:?}, but now {two:?}"));
        }
        texts("instructions", &self.instructions, &other.instructions)
            .or_else(|| {
                let pairs = self.sources.iter().zip(&other.sources);
                let first = pairs.enumerate().find_map(|(at, (one, two))| {
                    let what = format!("source {} ({})", at + 1, one.label);
                    texts(&format!("{what}: its name"), &one.label, &two.label)
                        .or_else(|| texts(&what, &one.fenced, &two.fenced))
                });
                first.or_else(|| {
                    let (one, two) = (self.sources.len(), other.sources.len());
                    (one != two).then(|| format!("sources: {one} in the recording, {two} now"))
                })
            })
            .or_else(|| value("rule_answer", &self.rule_answer, &other.rule_answer))
            .or_else(|| value("offer", &self.offer, &other.offer))
            .or_else(|| {
                let none = Value::Null;
                let (one, two) = (&self.schema, &other.schema);
                value("schema", one.as_ref().unwrap_or(&none), two.as_ref().unwrap_or(&none))
            })
            .or_else(|| {
                let (one, two) = (self.max_output_tokens, other.max_output_tokens);
                (one != two).then(|| format!("max_output_tokens: recorded as {one}, but now {two}"))
            })
            .or_else(|| (self.temperature != other.temperature).then(|| "temperature".to_owned()))
            .or_else(|| {
                (self.works != other.works)
                    .then(|| "work: only one of the two requests works in the project".to_owned())
            })
    }
}

fn nonce(fenced: &str) -> Option<&str> {
    let nonce = fenced.strip_prefix("<<<UNTRUSTED ")?.split_once(">>>")?.0;
    let good = nonce.len() >= 8 && nonce.bytes().all(|byte| byte.is_ascii_alphanumeric());
    good.then_some(nonce)
}

/// Returns a value with all its keys and strings redacted, except digests.
pub fn redacted(value: &Value, redactor: &Redactor) -> Value {
    match value {
        Value::String(text) if Digest::parse(text).is_some() => value.clone(),
        Value::String(text) => Value::String(redactor.redact(text).into_owned()),
        Value::Array(items) => items.iter().map(|item| redacted(item, redactor)).collect(),
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(key, item)| (redactor.redact(key).into_owned(), redacted(item, redactor)))
                .collect(),
        ),
        _ => value.clone(),
    }
}

/// Returns the first line, counted from 1, at which two strings differ, or `None` if they are
/// equal.
pub fn line_of(one: &str, two: &str) -> Option<usize> {
    if one == two {
        return None;
    }
    let (mut one, mut two) = (one.split('\n'), two.split('\n'));
    (1..).find(|_| match (one.next(), two.next()) {
        (None, None) => true,
        (one, two) => one != two,
    })
}

/// Describes the first difference between two values, if any.
fn value(path: &str, one: &Value, two: &Value) -> Option<String> {
    match (one, two) {
        _ if one == two => None,
        (Value::Array(one), Value::Array(two)) => {
            let pairs = one.iter().zip(two).enumerate();
            let mut deeper =
                pairs.filter_map(|(at, (one, two))| value(&format!("{path}[{at}]"), one, two));
            deeper.next().or_else(|| {
                let (one, two) = (counted(one.len(), "element"), two.len());
                Some(format!("{path}: {one} in the recording, {two} now"))
            })
        }
        (Value::Object(one), Value::Object(two)) => {
            let deeper = one.iter().find_map(|(key, old)| {
                let path = format!("{path}.{key}");
                match two.get(key) {
                    Some(new) => value(&path, old, new),
                    None => Some(format!("{path}: recorded, but missing now")),
                }
            });
            deeper.or_else(|| {
                let more = two.keys().find(|key| !one.contains_key(*key));
                Some(format!("{path}.{}: not in the recording", more.map_or("", String::as_str)))
            })
        }
        _ => Some(path.to_owned()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;
    use crate::RequestLimits;

    pub fn request(seed: u64) -> Request {
        let fence = runner_text::fence::Fence::around(seed, &["a\nb"]);
        Request {
            id: format!("{seed}/1"),
            purpose: "dream".into(),
            instructions: format!("between {} and {}", fence.nonce(), fence.nonce()).into(),
            sources: vec![Source {
                label: "ideas/a.md".into(),
                fenced: fence.wrap("ideas/a.md", "a\nb").unwrap().into(),
            }],
            rule_answer: json!([{ "id": "x" }]),
            offer: json!({ "ids": ["x"] }),
            schema: Some(json!({ "type": "array" })),
            limits: RequestLimits::default(),
            run_dir: None,
            work: None,
            form: crate::AnswerForm::default(),
        }
    }

    fn asked(request: &Request) -> ReplayQuestion {
        ReplayQuestion::of(request, &Redactor::new(Vec::new()))
    }

    #[test]
    fn run_specific_parts_do_not_matter() {
        let (one, mut two) = (request(1), request(2));
        assert_ne!(one.instructions, two.instructions);
        two.limits.total = std::time::Duration::from_secs(1);
        two.run_dir = Some("/elsewhere".into());
        assert_eq!(asked(&one), asked(&two));
        assert_eq!(asked(&one).digest(), asked(&two).digest());
    }

    #[test]
    fn differing_parts_are_named() {
        let old = request(1);
        type Change = fn(&mut Request);
        let changes: [(Change, &str); 10] = [
            (|it| it.purpose.push('x'), "purpose: recorded as \"dream\", but now \"dreamx\""),
            (
                |it| it.instructions = format!("{}\nmore", it.instructions).into(),
                "instructions, line 2",
            ),
            (
                |it| {
                    let changed = it.sources[0].fenced.replace("\nb\n", "\nc\n");
                    it.sources[0].fenced = changed.into();
                },
                "source 1 (ideas/a.md), line 4",
            ),
            (|it| it.sources.clear(), "sources: 1 in the recording, 0 now"),
            (|it| it.rule_answer = json!([{ "id": "y" }]), "rule_answer[0].id"),
            (
                |it| it.offer = json!({ "ids": ["x", "y"] }),
                "offer.ids: 1 element in the recording, 2 now",
            ),
            (|it| it.schema = None, "schema"),
            (
                |it| it.limits.max_output_tokens = 1,
                "max_output_tokens: recorded as 16384, but now 1",
            ),
            (|it| it.limits.temperature = Some(Temperature::hundredths(100)), "temperature"),
            (
                |it| it.work = Some("/a/project".into()),
                "work: only one of the two requests works in the project",
            ),
        ];
        for (change, words) in changes {
            let mut new = request(1);
            change(&mut new);
            let (old, new) = (asked(&old), asked(&new));
            assert_ne!(old.digest(), new.digest(), "{words}");
            let said = old.differs(&new);
            // A request without sources has no nonce that could be replaced, so its instructions
            // differ too.
            if words.starts_with("sources") {
                assert!(said.is_some());
            } else {
                assert_eq!(said.as_deref(), Some(words));
            }
            assert!(new.differs(&old).is_some(), "{words}");
            assert_eq!(new.differs(&new), None);
        }
    }

    #[test]
    fn questions_keep_digests_but_no_secrets() {
        let sum = Digest::of(b"x").to_string();
        let mut request = request(1);
        request.offer = json!({ "canary-123456": "canary-123456", "sum": sum });
        request.instructions = format!("{} canary-123456", request.instructions).into();
        let question = ReplayQuestion::of(&request, &Redactor::new(vec!["canary-123456".into()]));
        let text = serde_json::to_string(&question).unwrap();
        assert!(!text.contains("canary-123456"), "{text}");
        assert!(text.contains(&sum));
    }
}
