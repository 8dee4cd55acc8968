//! The prompt job, which asks a model one question and writes the answer to one file.
//!
//! The sources are project files, fenced as untrusted text. The rule-based answer is an index of
//! the sources that contains no text from a model. A run without a model is degraded and replaces
//! no file. The answer must never determine the file that it is written to.

use runner_backends::Request;
use runner_engine::outcome::Class;
use runner_engine::scope::Expect;
use runner_text::counted;
use runner_text::markdown;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dry_run::{DryRunPlan, priced};
use crate::kind::{BadSetting, Kind, Targets};
use crate::reserved;
use crate::{Context, Finished, JobError};

/// Maximum size of a source in bytes. A larger source is left out and named in the result.
const LARGEST: u64 = 256 * 1024;

/// Why a run without a model is degraded.
const NO_MODEL: &str = "no model answered the question";

/// The question, the files shown with it, and the file that receives the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PromptSpec {
    /// The question for the model.
    pub prompt: String,
    /// The project files shown with the question.
    #[serde(default)]
    pub sources: Vec<String>,
    /// The file for the answer; {date} is the date when the night opened.
    pub to: String,
}

/// Asks the question and stages the answer.
///
/// # Errors
/// Returns an error if there is no answer, if the answer is empty, or if the scope refuses the
/// target.
pub fn run(ctx: &mut Context<'_>, spec: &PromptSpec) -> Result<Finished, JobError> {
    let PromptQuestion { request, left_out } = question(ctx, spec);
    let reply = ctx.spender.ask(&request, 0)?;
    let text = match &reply.value {
        Some(Value::String(text)) => text.clone(),
        _ => reply.text.clone(),
    };
    if text.trim().is_empty() {
        return Err(JobError::failed(Class::Malformed, "the answer is empty"));
    }
    let to = &spec.to;
    let by_rule = ctx.spender.backend().kind == "builtin";
    if by_rule && ctx.files.root().join(to).symlink_metadata().is_ok() {
        // The file may contain a model's answer, which is more useful than an index of the sources.
        return Ok(Finished {
            degraded: Some(NO_MODEL.to_owned()),
            headline: format!("{to} was kept, because {NO_MODEL}"),
            lines: left_out,
            ..Finished::default()
        });
    }
    let mut body = ctx.redactor.redact(text.trim_end()).into_owned();
    body.push('\n');
    ctx.files.stage(to, body.as_bytes(), Expect::Current)?;
    let mut finished = Finished {
        headline: format!(
            "{} wrote {to} ({})",
            ctx.spender.backend_name(),
            counted(body.split_whitespace().count(), "word")
        ),
        ..Finished::default()
    };
    let mut missing = Vec::new();
    if by_rule {
        missing.push(format!("{NO_MODEL}, so {to} lists only the sources"));
    }
    if !left_out.is_empty() {
        let sources = counted(spec.sources.len(), "source");
        missing.push(format!("left out: {} of {sources}", left_out.len()));
        finished.lines = left_out;
    }
    finished.degraded = (!missing.is_empty()).then(|| missing.join("; "));
    Ok(finished)
}

/// A prompt job's question.
pub(crate) struct PromptQuestion {
    pub(crate) request: Request,
    /// The sources that are not shown, each with the reason.
    pub(crate) left_out: Vec<String>,
}

/// Reads the sources and builds the request, without calling a model or writing anything.
pub(crate) fn question(ctx: &Context<'_>, spec: &PromptSpec) -> PromptQuestion {
    let mut texts = Vec::new();
    let mut left_out = Vec::new();
    for path in &spec.sources {
        match ctx.files.read(path, LARGEST).map(String::from_utf8) {
            // The rule-based answer quotes parts of the text, and part of a secret would not be
            // recognized.
            Ok(Ok(text)) => texts.push((path.as_str(), ctx.redactor.redact(&text).into_owned())),
            Ok(Err(_)) => left_out.push(format!("{path} is not UTF-8")),
            Err(error) => left_out.push(format!("{path}: {error}")),
        }
    }
    let frame = ctx.frame(1);
    let (_, sources) = frame.fenced(&texts);
    let request = Request {
        rule_answer: Value::String(index(&spec.prompt, &texts)),
        ..frame.request("prompt", &spec.prompt, sources)
    };
    PromptQuestion { request, left_out }
}

/// Returns the rule-based answer: the question, and the files that could answer it.
fn index(prompt: &str, texts: &[(&str, String)]) -> String {
    let mut out = format!("No model was asked. The question was: {prompt}\n");
    for (path, text) in texts {
        let stem = path.rsplit('/').next().unwrap_or(path);
        out.push_str(&format!(
            "\n- {path}: {} ({})\n  {}\n",
            markdown::title(text, stem),
            counted(markdown::word_count(text), "word"),
            markdown::summary(text, 200)
        ));
    }
    out
}

impl Kind for PromptSpec {
    fn name(&self) -> &'static str {
        "prompt"
    }

    fn run(&self, ctx: &mut Context<'_>, _job: &str) -> Result<Finished, JobError> {
        run(ctx, self)
    }

    fn dry_run(&self, ctx: &mut Context<'_>) -> Result<DryRunPlan, JobError> {
        let PromptQuestion { request, left_out } = question(ctx, self);
        Ok(DryRunPlan {
            requests: vec![priced(&mut ctx.spender, request, 0)?],
            notes: left_out.iter().map(|why| format!("left out: {why}")).collect(),
            checks: vec![
                "the answer is not empty".to_owned(),
                format!(
                    "{} is a regular file or does not exist, and does not change during the run",
                    self.to
                ),
            ],
            ..DryRunPlan::default()
        })
    }

    fn publishes(&self) -> Targets {
        Targets::Files(vec![self.to.clone()])
    }

    fn check(&self) -> Result<(), BadSetting> {
        reserved::target(&self.to.replace("{date}", "date")).map_err(|why| ("to", why))
    }

    fn set_date(&mut self, date: &str) {
        self.to = self.to.replace("{date}", date);
    }

    fn is_unattended(&self) -> bool {
        false
    }

    fn paths(&self) -> Vec<(&'static str, String)> {
        vec![("to", self.to.clone())]
    }

    fn unchecked_targets(&self) -> Option<(&'static str, Vec<String>)> {
        Some(("to", vec![self.to.clone()]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_answer_names_every_source() {
        let texts =
            [("docs/a.md", "# Alpha\n\nFirst words.\n".to_owned()), ("b.md", "plain\n".to_owned())];
        let index = index("What is new?", &texts);
        assert!(
            index.contains("What is new?")
                && index.contains("docs/a.md: Alpha")
                && index.contains("b.md"),
            "{index}"
        );
    }
}
