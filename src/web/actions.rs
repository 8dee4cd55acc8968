//! The table of actions. An action is a command: it has the same effect, and is refused in the same
//! cases, as on the command line. The audit trail records who requested it and from where.

use std::sync::Arc;

use axum::response::{IntoResponse as _, Redirect, Response};

use super::access::Client;
use super::pages;
use super::render::segment;
use super::state::{Answer, Purpose, Web};
use super::views::{Parts, QueryFlag, QueryKind};
use crate::ui::Failure;

#[derive(Debug)]
pub struct Action {
    /// The name of the operation in the API's description.
    pub name: &'static str,
    /// The path of the form. The API has the same path below `/api/v1`.
    pub path: &'static str,
    pub summary: &'static str,
    /// The command, with `{NAME}` replaced by part of the path.
    pub words: &'static [&'static str],
    /// The fields of the body, which become flags of the command.
    pub fields: &'static [QueryFlag],
    /// The path of the page to show next.
    pub then: &'static str,
}

const NOTE: &[QueryFlag] = &[QueryFlag {
    name: "note",
    kind: QueryKind::Text,
    summary: "The reason, which is kept with the decision",
}];
const UNTIL: &[QueryFlag] = &[QueryFlag {
    name: "until",
    kind: QueryKind::Text,
    summary: "When the pause ends, such as 08:00 or 2h; if omitted, the pause lasts until you resume",
}];
const QUEUE: &[QueryFlag] = &[
    QueryFlag {
        name: "at",
        kind: QueryKind::Text,
        summary: "Earliest start time, such as 02:30 or 2h",
    },
    QueryFlag { name: "key", kind: QueryKind::Text, summary: "Run the job only once for this key" },
];
const NO_FIELDS: &[QueryFlag] = &[];

pub const ACTIONS: &[Action] = &[
    Action {
        name: "run-job",
        path: "/projects/{project}/jobs/{job}/runs",
        summary: "Put a job into the queue",
        words: &["enqueue", "--", "{job}"],
        fields: QUEUE,
        then: "/projects/{project}/jobs",
    },
    Action {
        name: "pause-job",
        path: "/projects/{project}/jobs/{job}/pause",
        summary: "Pause a job",
        words: &["pause", "--", "{job}"],
        fields: UNTIL,
        then: "/projects/{project}/jobs",
    },
    Action {
        name: "resume-job",
        path: "/projects/{project}/jobs/{job}/resume",
        summary: "Resume a job",
        words: &["resume", "--", "{job}"],
        fields: NO_FIELDS,
        then: "/projects/{project}/jobs",
    },
    Action {
        name: "reset-job",
        path: "/projects/{project}/jobs/{job}/reset",
        summary: "Close a job's circuit breaker",
        words: &["jobs", "reset", "--", "{job}"],
        fields: NO_FIELDS,
        then: "/projects/{project}/jobs",
    },
    Action {
        name: "pause-all",
        path: "/pause",
        summary: "Pause everything",
        words: &["pause", "--all"],
        fields: UNTIL,
        then: "/",
    },
    Action {
        name: "resume-all",
        path: "/resume",
        summary: "Resume everything",
        words: &["resume", "--all"],
        fields: NO_FIELDS,
        then: "/",
    },
    Action {
        name: "cancel-run",
        path: "/runs/{run}/cancel",
        summary: "Cancel a run",
        words: &["cancel", "--", "{run}"],
        fields: NO_FIELDS,
        then: "/runs/{run}",
    },
    Action {
        name: "retry-run",
        path: "/runs/{run}/retry",
        summary: "Queue another attempt at a finished run",
        words: &["retry", "--", "{run}"],
        fields: NO_FIELDS,
        then: "/runs/{run}",
    },
    Action {
        name: "accept-proposal",
        path: "/projects/{project}/proposals/{proposal}/accept",
        summary: "Carry out a proposal",
        words: &["dream", "accept", "--", "{proposal}"],
        fields: NOTE,
        then: "/projects/{project}/proposals/{proposal}",
    },
    Action {
        name: "reject-proposal",
        path: "/projects/{project}/proposals/{proposal}/reject",
        summary: "Record that a proposal is wrong",
        words: &["dream", "reject", "--", "{proposal}"],
        fields: NOTE,
        then: "/projects/{project}/proposals/{proposal}",
    },
    Action {
        name: "skip-proposal",
        path: "/projects/{project}/proposals/{proposal}/skip",
        summary: "Leave an idea as it is, and ask again when it changes",
        words: &["dream", "skip", "--", "{proposal}"],
        fields: NOTE,
        then: "/projects/{project}/proposals/{proposal}",
    },
    Action {
        name: "undo-decision",
        path: "/projects/{project}/proposals/{proposal}/undo",
        summary: "Undo a decision",
        words: &["dream", "undo", "--", "{proposal}"],
        fields: NO_FIELDS,
        then: "/projects/{project}/proposals/{proposal}",
    },
    Action {
        name: "silence-alert",
        path: "/alerts/{alert}/silence",
        summary: "Send no more messages about an alert",
        words: &["alerts", "ack", "--", "{alert}"],
        fields: NO_FIELDS,
        then: "/alerts",
    },
];

impl Action {
    /// Returns the arguments of the action's command.
    ///
    /// # Errors
    /// Returns an error if the body has an unknown field.
    pub fn command(
        &self,
        parts: &Parts,
        fields: &[(String, String)],
    ) -> Result<Vec<String>, Failure> {
        let mut words = parts.fill(self.words);
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
            if !self.fields.iter().any(|field| field.name == name) {
                return Err(Failure::usage(format!("{name:?} is not a field of this request")));
            }
            let at = words.iter().position(|word| word == "--").unwrap_or(words.len());
            words.insert(at, format!("--{name}={value}"));
        }
        Ok(words)
    }

    /// Records who requested the action, and carries it out.
    ///
    /// # Errors
    /// Returns an error if the body has an unknown field, if the request cannot be recorded, or if
    /// the command fails.
    pub async fn carry_out(
        &self,
        web: &Arc<Web>,
        client: Client,
        request: &ActionRequest,
    ) -> Result<Answer, Failure> {
        let project = request.parts.project();
        let mut words = self.command(&request.parts, &request.fields)?;
        let (recorded, asked, of) = (Arc::clone(web), words.clone(), project.clone());
        web.blocking(Purpose::Act, move || {
            let folder = of.as_deref().map(|id| recorded.folder(id)).transpose()?;
            recorded.audit(&client, &asked, folder.and(of.as_deref()))
        })
        .await?;
        if request.output == Output::Json {
            // The flag must come after the subcommand's name.
            let nested = ["jobs", "dream", "alerts"].contains(&words[0].as_str());
            words.insert(if nested { 2 } else { 1 }, "--json".to_owned());
        }
        web.call(Purpose::Act, project, words).await
    }
}

#[derive(Debug)]
pub struct ActionRequest {
    pub parts: Parts,
    /// The fields of the body.
    pub fields: Vec<(String, String)>,
    pub output: Output,
}

/// The output format of a command's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    Json,
    Text,
}

/// Carries out a form's action and responds with the next page.
pub async fn from_form(
    action: &'static Action,
    web: Arc<Web>,
    client: Client,
    request: ActionRequest,
) -> Response {
    let (from, path) = (client.from.clone(), request.parts.path.clone());
    let acting = Arc::clone(&web);
    // The task continues even if the browser disconnects.
    let task = tokio::spawn(async move { action.carry_out(&acting, client, &request).await });
    let ended = task.await.unwrap_or_else(|_| Err(Failure::internal("the action did not finish")));
    match ended {
        Ok(Answer { text, notices, .. }) => {
            web.messages.put(from, format!("{text}{notices}").trim().to_owned());
            let mut next = action.then.to_owned();
            for (name, value) in &path {
                next = next.replace(&format!("{{{name}}}"), &segment(value));
            }
            Redirect::to(&next).into_response()
        }
        Err(failure) => {
            let mut response = pages::failed(&web, &failure);
            if response.status() == axum::http::StatusCode::NOT_FOUND {
                *response.status_mut() = axum::http::StatusCode::CONFLICT;
            }
            response
        }
    }
}
