//! The request protocols of providers.

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
