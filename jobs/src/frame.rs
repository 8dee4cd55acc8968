//! Builds the parts of a request that do not depend on the job's kind.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use runner_backends::{Request, RequestLimits, Source};
use runner_text::fence::Fence;
use runner_text::redact::Redactor;
use serde_json::{Value, json};

use crate::Context;

/// The parts of a request that are determined by the run.
pub struct Frame<'a> {
    pub id: String,
    /// The seed of the fence's nonce.
    pub seed: u64,
    /// The time limit for the answer.
    pub total: Duration,
    /// A private folder for a child process.
    pub run_dir: PathBuf,
    /// Removes secrets from all text.
    pub redactor: &'a Redactor,
}

impl Context<'_> {
    /// Returns the frame for the run's request `name`.
    pub fn frame(&self, name: impl Display) -> Frame<'_> {
        Frame {
            id: format!("{}/{name}", self.admitted.run()),
            seed: self.admitted.seed(),
            total: self.clock.left(),
            run_dir: self.files.child_dir(),
            redactor: &self.redactor,
        }
    }
}

impl Frame<'_> {
    /// Wraps each labelled source in a fence that none of the sources can close. The sources must
    /// already be redacted.
    pub fn fenced<L: AsRef<str>, T: AsRef<str>>(&self, texts: &[(L, T)]) -> (Fence, Vec<Source>) {
        let all: Vec<&str> =
            texts.iter().flat_map(|(label, text)| [label.as_ref(), text.as_ref()]).collect();
        let fence = Fence::around(self.seed, &all);
        let sources = texts.iter().map(|(label, text)| {
            let fenced = fence.wrap(label.as_ref(), text.as_ref());
            Source::new(label.as_ref(), fenced.expect("the nonce was made for this text and label"))
        });
        let sources = sources.collect();
        (fence, sources)
    }

    /// Returns a request with these sources, no schema and an empty offer.
    pub fn request(&self, purpose: &str, instructions: &str, sources: Vec<Source>) -> Request {
        Request {
            id: self.id.clone(),
            purpose: purpose.to_owned(),
            instructions: instructions.into(),
            sources,
            rule_answer: Value::Null,
            offer: json!({}),
            schema: None,
            limits: RequestLimits { total: self.total, ..RequestLimits::default() },
            run_dir: Some(self.run_dir.clone()),
            work: None,
            form: runner_backends::AnswerForm::default(),
        }
    }
}
