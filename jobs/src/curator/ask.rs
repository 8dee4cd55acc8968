//! Asks the configured model for help. Without an answer, the caller uses the rule-based answer.

use runner_backends::Request;
use serde_json::Value;

use crate::{AskError, Context, JobError};

pub(super) struct CuratorQuestion<'a> {
    /// A name that identifies the question within the run.
    pub(super) name: &'a str,
    pub(super) instructions: &'a str,
    /// The untrusted texts, each with a label.
    pub(super) texts: Vec<(String, String)>,
    /// The rule-based answer.
    pub(super) rule: Value,
    /// The values that the answer may choose from.
    pub(super) offer: Value,
    /// The JSON schema of the answer.
    pub(super) schema: Value,
}

/// Asks the question and returns the answer, or the reason to use the rule-based answer.
///
/// # Errors
/// Returns an error if the run was cancelled or the database cannot be used.
pub(super) fn ask_or_reason(
    ctx: &mut Context<'_>,
    question: CuratorQuestion<'_>,
) -> Result<Result<Value, String>, JobError> {
    if ctx.spender.answers_by_rule() {
        return Ok(Err(without_model(ctx)));
    }
    let request = request(ctx, question);
    match ctx.spender.ask(&request, 0) {
        // The request fell back to the built-in backend, whose answer is rule-based.
        Ok(_) if ctx.spender.answers_by_rule() => Ok(Err(without_model(ctx))),
        Ok(reply) => Ok(reply.value.ok_or_else(|| "the answer is not JSON".to_owned())),
        Err(AskError::Ledger(error)) => Err(error.into()),
        Err(error) if ctx.cancel.is_cancelled() => Err(error.into()),
        Err(error) => Ok(Err(ctx.redactor.redact(&error.to_string()).into_owned())),
    }
}

/// Returns the reason why the answer is rule-based: a configured backend was not available or did
/// not answer, or no model is configured.
pub(super) fn without_model(ctx: &Context<'_>) -> String {
    let mut reasons = ctx.spender.passed().iter().chain(ctx.spender.fell());
    match reasons.next() {
        Some(why) => ctx.redactor.redact(why).into_owned(),
        None => "no model is configured for this job".to_owned(),
    }
}

pub(super) fn request(ctx: &Context<'_>, question: CuratorQuestion<'_>) -> Request {
    let frame = ctx.frame(question.name);
    let (_, sources) = frame.fenced(&question.texts);
    let mut request = frame.request("curator", question.instructions, sources);
    request.limits.max_output_tokens = 2_048;
    Request {
        rule_answer: question.rule,
        offer: question.offer,
        schema: Some(question.schema),
        ..request
    }
}
