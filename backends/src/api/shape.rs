//! An endpoint's protocol, and the mechanism that enforces an answer's schema.

/// The backend kinds that are API endpoints.
pub(crate) const KINDS: [&str; 3] = ["anthropic", "openai", "ollama"];

/// A provider's request protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Anthropic's Messages API.
    Messages,
    /// OpenAI's Chat Completions, also used by compatible servers.
    Chat,
    /// OpenAI's Responses API.
    Responses,
    /// Ollama's own API.
    Ollama,
}

/// The mechanism that enforces an answer's schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Structured {
    /// The provider's own schema mechanism.
    Schema,
    /// A tool whose input is the answer.
    Tool,
    /// Instructions in the question only, for providers that support neither.
    Prompt,
}
