//! The protocol of an endpoint, and its way to enforce the schema of an answer.

/// The backend kinds that are endpoints.
pub(crate) const KINDS: [&str; 3] = ["anthropic", "openai", "ollama"];

/// The request protocol of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Anthropic's Messages.
    Messages,
    /// OpenAI's Chat Completions, also used by compatible servers.
    Chat,
    /// OpenAI's Responses.
    Responses,
    /// Ollama's own API.
    Ollama,
}

/// The way in which the schema of an answer is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Structured {
    /// The provider's own schema mechanism.
    Schema,
    /// A tool whose input is the answer.
    Tool,
    /// Instructions in the question only, for providers that support nothing better.
    Prompt,
}
