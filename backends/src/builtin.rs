//! The backend that returns the rule-based answer, without a network, a key or a server.
//!
//! This backend must never fail for any reason other than cancellation.

use async_trait::async_trait;
use runner_engine::process::Cancel;

use crate::{Backend, BackendError, Description, Event, Reply, Request, Sink, Stop, Usage};

/// A backend that returns the request's rule-based answer.
#[derive(Clone, Debug)]
pub struct Builtin {
    name: String,
}

impl Builtin {
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }
}

impl Default for Builtin {
    fn default() -> Self {
        Self::new("builtin")
    }
}

#[async_trait]
impl Backend for Builtin {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> Description {
        Description {
            kind: "builtin".to_owned(),
            model: None,
            containment: "in-process, no tools".to_owned(),
            sandbox: None,
        }
    }

    fn preflight(&self) -> Result<(), BackendError> {
        Ok(())
    }

    fn window(&self) -> Option<u64> {
        None
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
        let text = request.rule_answer.to_string();
        let usage = Usage { cost_micros: Some(0), ..Usage::default() };
        sink.event(Event::Text(&text));
        sink.event(Event::Usage(usage));
        Ok(Reply {
            text,
            value: Some(request.rule_answer.clone()),
            usage: Some(usage),
            stop: Stop::End,
            notes: Vec::new(),
        })
    }
}
