//! Decides whether a passage teaches something: it must describe a situation, name a cause, and
//! recommend an action.
//!
//! The decision relies on English connectives and modal verbs, not on the subject. A passage that
//! merely reports an event is not a learning.

/// Why a passage is not a learning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The passage is too short to describe a situation.
    Situation,
    /// The passage gives no cause.
    Cause,
    /// The passage recommends no action.
    Act,
}

impl Missing {
    pub fn describe(self) -> &'static str {
        match self {
            Self::Situation => "its text is too short to describe a situation",
            Self::Cause => "it names no cause",
            Self::Act => "it recommends no action",
        }
    }
}

/// Minimum number of words needed to describe a situation, a cause and an action.
const WORDS: usize = 10;

/// Words and phrases that introduce a cause or a consequence.
const CAUSES: [&str; 34] = [
    "because",
    "since",
    "due to",
    "caused by",
    "causes",
    "cause is",
    "caused",
    "root cause",
    "the reason",
    "so that",
    "otherwise",
    "or else",
    "without",
    "leads to",
    "led to",
    "results in",
    "resulted in",
    "prevents",
    "prevented",
    "which means",
    "means that",
    "makes",
    "made",
    "breaks",
    "fails when",
    "fails if",
    "fails because",
    "depends on",
    "requires",
    "required",
    "avoids",
    "to avoid",
    "why it matters",
    "therefore",
];

/// Words that express an obligation or a recommendation anywhere in a sentence.
const DUTIES: [&str; 17] = [
    "must",
    "should",
    "always",
    "never",
    "instead of",
    "prefer",
    "avoid",
    "do not",
    "don't",
    "needs to",
    "need to",
    "has to",
    "have to",
    "ensure",
    "make sure",
    "the fix",
    "fixed by",
];

/// Verbs that express an action at the beginning of a sentence, a clause or a line.
const ACTS: [&str; 43] = [
    "add", "ask", "build", "call", "check", "clear", "commit", "compare", "copy", "create",
    "declare", "define", "delete", "disable", "document", "enable", "export", "extract", "fix",
    "guard", "import", "include", "install", "keep", "limit", "merge", "move", "pass", "pin",
    "plan", "put", "quote", "read", "remove", "rename", "replace", "reset", "run", "set", "split",
    "test", "use", "validate",
];

/// Words that may precede an action.
const FILLERS: [&str; 7] = ["so", "then", "and", "please", "just", "now", "first"];

/// Checks whether a passage describes a situation, names a cause and recommends an action.
///
/// # Errors
/// Returns the first part that is missing.
pub fn teaches(text: &str) -> Result<(), Missing> {
    let plain = text.replace(['*', '_', '`', '"', '(', ')', '[', ']'], " ").to_lowercase();
    if plain.split_whitespace().nth(WORDS - 1).is_none() {
        return Err(Missing::Situation);
    }
    if !has_phrase(&words(&plain), &CAUSES) {
        return Err(Missing::Cause);
    }
    match states_act(&plain) {
        true => Ok(()),
        false => Err(Missing::Act),
    }
}

/// Returns whether a string expresses an action or an obligation.
pub fn states_act(text: &str) -> bool {
    let text = text.to_lowercase();
    let begins = |part: &str| {
        let mut words = part.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
        let first = words.find(|word| !FILLERS.contains(word));
        first.is_some_and(|first| ACTS.contains(&first))
    };
    text.split(['.', ',', ';', ':', '\n', '!']).any(begins) || has_phrase(&words(&text), &DUTIES)
}

/// Divides a string into sentences and lines.
pub fn sentences(text: &str) -> Vec<&str> {
    let ends = |(at, c): &(usize, char)| {
        let next = text[at + c.len_utf8()..].chars().next();
        *c == '\n' || (".!?".contains(*c) && next.is_none_or(char::is_whitespace))
    };
    let mut from = 0;
    let mut sentences = Vec::new();
    for (at, c) in text.char_indices().filter(ends) {
        sentences.push(&text[from..at + c.len_utf8()]);
        from = at + c.len_utf8();
    }
    sentences.push(&text[from..]);
    sentences
}

/// Returns, on one line, the first sentence of 5 to 60 words that names a cause, or `None` if there
/// is none.
pub fn cause(text: &str) -> Option<String> {
    let named = |sentence: &&str| {
        let line = words(&sentence.to_lowercase());
        let count = line.split_whitespace().count();
        (5..=60).contains(&count) && has_phrase(&line, &CAUSES)
    };
    let found = sentences(text).into_iter().find(named)?;
    Some(found.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Returns the words in a string, separated by single spaces and without punctuation.
fn words(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    let all = text.split(|c: char| !c.is_alphanumeric() && c != '\'');
    for word in all.filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    line
}

/// Returns whether one of the phrases occurs in a line returned by [`words`].
fn has_phrase(line: &str, phrases: &[&str]) -> bool {
    let starts = line.match_indices(' ').map(|(at, _)| at + 1);
    std::iter::once(0).chain(starts).any(|at| {
        let rest = &line[at..];
        let ends = |after: &str| after.is_empty() || after.starts_with(' ');
        phrases.iter().any(|it| rest.strip_prefix(it).is_some_and(ends))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_parts_of_a_learning_are_reported() {
        for (text, missing) in [
            ("Too short.", Some(Missing::Situation)),
            (
                "mise run lint failed. It said: exit status 1. The same call worked later in the session.",
                Some(Missing::Cause),
            ),
            (
                "The parser returned nil for the third time because the file was empty at that time.",
                Some(Missing::Act),
            ),
            (
                "Retries without jitter make all clients come back at once, because they share a timer. Add a random delay.",
                None,
            ),
            ("All clients come back at once without jitter and overload it, so add jitter", None),
            (
                "A test that shares a port must bind to port 0, otherwise parallel runs collide.",
                None,
            ),
        ] {
            assert_eq!(teaches(text).err(), missing, "{text}");
        }
    }
}
