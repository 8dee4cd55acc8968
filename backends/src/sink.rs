//! The sink to which a backend reports its progress.
//!
//! A run may still fail after its sink has received text. A sink cannot reply to a report: if it
//! meters usage, it stops a request by cancelling the request's cancellation token.

use jiff::Timestamp;

use crate::request::Usage;

/// A progress report from a running request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A piece of the model's text. It is untrusted and not redacted.
    Text(&'a str),
    /// The usage so far. Each event replaces the previous one.
    Usage(Usage),
    /// The final usage of the complete request, even if the answer is unusable. This event is not
    /// sent for an aborted request, because unfinished work may be billed without being reported.
    Total(Usage),
    /// A remark by the backend itself.
    Note(&'a str),
    /// The model uses one of its program's tools. All fields are untrusted text.
    ToolUse {
        /// The id that links the tool's result to this use, or an empty string if the program
        /// provides none.
        id: &'a str,
        name: &'a str,
        /// The tool's target, if reported.
        target: Option<Target<'a>>,
    },
    /// A tool returned.
    ToolResult(ToolResult<'a>),
    /// The provider's report of a usage limit.
    Limit(Limit),
    /// The request was rejected, or never arrived, so it is not billed.
    NotBilled,
}

/// The target that a tool works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// A file or folder.
    Path(&'a str),
    /// A command line.
    Command(&'a str),
    /// Any other input to the tool: a pattern, a query, the name of a server's tool.
    Pipeline(&'a str),
}

/// The result of a tool use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolResult<'a> {
    /// The id of the tool use to which this result belongs, or an empty string if the program
    /// provides none.
    pub id: &'a str,
    /// Whether the tool failed or was not permitted.
    pub failed: bool,
    /// A command's exit code, if reported.
    pub exit_code: Option<i64>,
    /// The tool's description of its failure, which is untrusted text and may be long.
    pub error: Option<&'a str>,
}

/// A provider's report of a usage limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The time at which the limit is reset, if reported.
    pub until: Option<Timestamp>,
    /// Whether the limit has been reached, in which case the provider answers no more requests
    /// before `until`.
    pub reached: bool,
    /// Whether answers are currently billed on top of the subscription.
    pub overage: bool,
    /// How much of the subscription's window is used, in thousandths, if reported.
    pub used: Option<u16>,
}

/// Converts the used share of a window, given as a fraction of 1 or in percent, to thousandths.
/// Returns `None` if the number can be neither.
pub(crate) fn thousandths(used: f64) -> Option<u16> {
    let fraction = if used > 1.0 { used / 100.0 } else { used };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
    (0.0..=1.0).contains(&fraction).then(|| (fraction * 1000.0).round() as u16)
}

/// Receives the events of a run, in order, from the task that awaits the run.
pub trait Sink: Send {
    /// Receives one event. The run waits until this method returns.
    fn event(&mut self, event: Event<'_>);
}

/// A sink that ignores all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullSink;

impl Sink for NullSink {
    fn event(&mut self, _: Event<'_>) {}
}

/// A sink that keeps all events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VecSink {
    pub events: Vec<OwnedEvent>,
}

/// An [`Event`] that outlives the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedEvent {
    Text(String),
    Usage(Usage),
    Total(Usage),
    Note(String),
    ToolUse { id: String, name: String, target: Option<OwnedTarget> },
    ToolResult { id: String, failed: bool, exit_code: Option<i64>, error: Option<String> },
    Limit(Limit),
    NotBilled,
}

/// A [`Target`] that outlives the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedTarget {
    Path(String),
    Command(String),
    Pipeline(String),
}

impl From<Target<'_>> for OwnedTarget {
    fn from(target: Target<'_>) -> Self {
        match target {
            Target::Path(text) => Self::Path(text.to_owned()),
            Target::Command(text) => Self::Command(text.to_owned()),
            Target::Pipeline(text) => Self::Pipeline(text.to_owned()),
        }
    }
}

impl OwnedTarget {
    /// Returns the borrowed form of the target.
    pub fn as_target(&self) -> Target<'_> {
        match self {
            Self::Path(text) => Target::Path(text),
            Self::Command(text) => Target::Command(text),
            Self::Pipeline(text) => Target::Pipeline(text),
        }
    }

    /// Extracts the target from a tool's input, as reported by an agent program or its hook.
    /// Returns `None` if the input names no target.
    pub fn of_input(input: &serde_json::Value) -> Option<Self> {
        let text = |keys: &[&str]| {
            let mut texts = keys.iter().filter_map(|key| input[*key].as_str());
            texts.find(|text| !text.is_empty()).map(str::to_owned)
        };
        text(&["file_path", "notebook_path", "path"])
            .map(Self::Path)
            .or_else(|| text(&["command"]).map(Self::Command))
            .or_else(|| {
                text(&["pattern", "query", "url", "description", "prompt", "skill"])
                    .map(Self::Pipeline)
            })
    }
}

impl OwnedEvent {
    /// Returns the borrowed form of the event.
    pub fn as_event(&self) -> Event<'_> {
        match self {
            Self::Text(text) => Event::Text(text),
            Self::Usage(usage) => Event::Usage(*usage),
            Self::Total(usage) => Event::Total(*usage),
            Self::Note(note) => Event::Note(note),
            Self::ToolUse { id, name, target } => {
                Event::ToolUse { id, name, target: target.as_ref().map(OwnedTarget::as_target) }
            }
            Self::ToolResult { id, failed, exit_code, error } => Event::ToolResult(ToolResult {
                id,
                failed: *failed,
                exit_code: *exit_code,
                error: error.as_deref(),
            }),
            Self::Limit(limit) => Event::Limit(*limit),
            Self::NotBilled => Event::NotBilled,
        }
    }
}

impl Sink for VecSink {
    fn event(&mut self, event: Event<'_>) {
        self.events.push(match event {
            Event::Text(text) => OwnedEvent::Text(text.to_owned()),
            Event::Usage(usage) => OwnedEvent::Usage(usage),
            Event::Total(usage) => OwnedEvent::Total(usage),
            Event::Note(note) => OwnedEvent::Note(note.to_owned()),
            Event::ToolUse { id, name, target } => OwnedEvent::ToolUse {
                id: id.to_owned(),
                name: name.to_owned(),
                target: target.map(OwnedTarget::from),
            },
            Event::ToolResult(result) => OwnedEvent::ToolResult {
                id: result.id.to_owned(),
                failed: result.failed,
                exit_code: result.exit_code,
                error: result.error.map(str::to_owned),
            },
            Event::Limit(limit) => OwnedEvent::Limit(limit),
            Event::NotBilled => OwnedEvent::NotBilled,
        });
    }
}
