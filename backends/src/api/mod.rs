//! Model APIs as backends, accessed over HTTP.
//!
//! ```text
//! BackendSpec ──plan──> EndpointPlan ──client──> one connection; the key is sent to no other host
//! Request ──dialect──> body ──exchange──> pieces ──framing──> events ──dialect──> Gathered
//!                                │ four deadlines, cancel           │
//!                                └──> refusal: status, limits       └──> Reply | BackendError
//! ```
//!
//! Each protocol is a `Dialect` with a module of its own (`anthropic`, `chat`, `responses`,
//! `ollama`), and almost everything else is shared. By default, an answer that must match a schema
//! is requested through the provider's own mechanism for structured output. This module must never
//! follow a redirect, retry by itself, or show a key.

mod anthropic;
#[cfg(test)]
mod chance_tests;
mod chat;
mod client;
mod dialect;
mod exchange;
mod framing;
mod gathered;
mod limits;
mod ollama;
pub(crate) mod ollama_health;
pub(crate) mod plan;
pub(crate) mod probe;
mod refusal;
mod responses;
pub(crate) mod shape;

use async_trait::async_trait;
use runner_engine::process::Cancel;
use runner_engine::time::boot_time;

use crate::redact::Secrets;
use crate::{Backend, BackendError, Description, Event, Reply, Request, Sink};
use dialect::Dialect;
pub(crate) use exchange::is_not_billed;
use exchange::{Exchange, Watch};
use gathered::Gathered;
use plan::EndpointPlan;

/// A backend for one endpoint and one model.
#[derive(Clone)]
pub(crate) struct Api {
    plan: EndpointPlan,
}

impl Api {
    pub(crate) fn new(plan: EndpointPlan) -> Self {
        Self { plan }
    }
}

#[async_trait]
impl Backend for Api {
    fn name(&self) -> &str {
        &self.plan.name
    }

    fn describe(&self) -> Description {
        Description {
            kind: self.plan.kind.to_owned(),
            model: Some(self.plan.model.clone()),
            containment: "in-process, no tools".to_owned(),
            sandbox: None,
        }
    }

    fn preflight(&self) -> Result<(), BackendError> {
        self.plan.secret()?;
        probe::preflight(&self.plan)
    }

    fn window(&self) -> Option<u64> {
        match self.plan.dialect {
            Dialect::Ollama => Some(ollama::largest(&self.plan)),
            _ => Some(self.plan.context_window.unwrap_or(crate::WINDOW)),
        }
    }

    async fn run(
        &self,
        request: &Request,
        sink: &mut dyn Sink,
        cancel: &Cancel,
    ) -> Result<Reply, BackendError> {
        if let Some(why) = cancel.why() {
            return Err(BackendError::Cancelled { why });
        }
        let plan = &self.plan;
        let limits = plan.limits(&request.limits);
        let prepared = prepare(plan, request, limits.connect);
        let (client, body) = prepared.inspect_err(|_| sink.event(Event::NotBilled))?;
        let secrets = Secrets::of(&plan.env);
        let mut reader = plan.dialect.reader(plan, request, body.len());
        let mut gathered = Gathered::new(plan.most_text(request));
        let exchange = Exchange {
            plan,
            client: &client,
            watch: Watch { limits: &limits, cancel, began: boot_time() },
            secrets: &secrets,
        };
        let mut heard = LastText { last: String::new(), behind: sink };
        exchange.ask(body, &mut *reader, &mut gathered, &mut heard).await?;
        let last = heard.last;
        // The reply has ended. If it contained a stop reason, its usage is final, even if the
        // answer is unusable.
        let total = gathered.usage().filter(|_| gathered.end.is_some());
        let done = gathered.reply(plan, request, &secrets);
        if let Ok(reply) = &done
            && last != reply.text
        {
            sink.event(Event::Text(&reply.text));
        }
        if let Some(total) = total {
            sink.event(Event::Total(total));
        }
        let reply = done?;
        reply.notes.iter().for_each(|note| sink.event(Event::Note(note)));
        Ok(reply)
    }
}

/// Creates the client and the body before anything is sent, so a request that fails locally is
/// certain not to be billed.
fn prepare(
    plan: &EndpointPlan,
    request: &Request,
    connect: std::time::Duration,
) -> Result<(reqwest::Client, Vec<u8>), BackendError> {
    if plan.dialect == Dialect::Ollama {
        ollama::window(plan, request)?;
    }
    let client = client::client(plan, connect)?;
    let body = plan.dialect.body(plan, request);
    let body = serde_json::to_vec(&body)
        .map_err(|error| BackendError::Rejected { why: format!("request: {error}") })?;
    Ok((client, body))
}

/// A sink that forwards every event and remembers the last text.
struct LastText<'a> {
    last: String,
    behind: &'a mut dyn Sink,
}

impl Sink for LastText<'_> {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Text(text) = event {
            text.clone_into(&mut self.last);
        }
        self.behind.event(event);
    }
}
