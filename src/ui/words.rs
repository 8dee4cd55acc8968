//! Parsers for arguments whose values a contract defines. This module must never list those values.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::de::DeserializeOwned;

/// Creates a parser for `words`, which are serialized values of `T`.
pub fn contract_words<T: DeserializeOwned + Clone + Send + Sync + 'static>(
    words: impl IntoIterator<Item = &'static str>,
) -> impl TypedValueParser<Value = T> {
    let parser = PossibleValuesParser::new(words);
    parser.try_map(|word| serde_json::from_value::<T>(word.into()))
}
