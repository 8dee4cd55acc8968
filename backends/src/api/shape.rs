//! The protocol of an endpoint, and the way in which it holds an answer to a schema.

/// The kinds that are endpoints.
pub(crate) const KINDS: [&str; 3] = ["anthropic", "openai", "ollama"];

/// A provider's way of being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Anthropic's Messages.
    Messages,
    /// OpenAI's Chat Completions, and whoever does the same.
    Chat,
    /// OpenAI's Responses.
    Responses,
    /// Ollama's own.
    Ollama,
}

/// How an answer is held to its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Structured {
    /// The provider's own mechanism for a schema.
    Schema,
    /// A tool whose input is the answer.
    Tool,
    /// Words in the question only, for what knows no better.
    Prompt,
}
