//! Parses queries. A syntax error reports the column of its cause.

use jiff::{SignedDuration, Timestamp, civil::Date};
use runner_text::nearest::nearest;
use strum::VariantNames as _;

use super::{Compare, Expr, Has, Term, TimeField, TimeValue};
use crate::NodeType;
use crate::error::{MemoryError, Result};

/// Maximum nesting depth of parentheses and `NOT`, counted together.
const DEEPEST: usize = 64;
/// Maximum number of terms.
const MOST: usize = 400;
const FIELDS: [&str; 12] = [
    "type", "tag", "text", "id", "since", "created", "updated", "tokens", "project", "has", "from",
    "to",
];

/// A token with the 1-based column of its first character.
#[derive(Clone, Debug, PartialEq)]
struct Token {
    column: usize,
    what: TokenKind,
}

#[derive(Clone, Debug, PartialEq)]
enum TokenKind {
    Open,
    Close,
    Not,
    And,
    Or,
    /// A field, or `None` for a word without one, and the value. Quoted text without a field is a
    /// `text` field.
    Term(Option<String>, String),
}

/// Parses a query. An empty query selects every node.
///
/// # Errors
/// Returns [`MemoryError::Syntax`] with the column of the error.
pub fn parse(query: &str) -> Result<Expr> {
    let fail = |(column, why): (usize, String)| MemoryError::Syntax {
        query: query.replace(['\n', '\t'], " "),
        column,
        why,
    };
    let tokens = tokens(query).map_err(fail)?;
    if tokens.is_empty() {
        return Ok(Expr::All);
    }
    let end = query.chars().count() + 1;
    let mut parser = Parser { tokens: &tokens, at: 0, end, depth: 0 };
    let expr = parser.or().map_err(fail)?;
    match parser.peek() {
        None => Ok(expr),
        Some(token) => Err(fail((token.column, "unmatched closing parenthesis".to_owned()))),
    }
}

type Parsed<T> = std::result::Result<T, (usize, String)>;

fn tokens(query: &str) -> Parsed<Vec<Token>> {
    let chars: Vec<char> = query.chars().collect();
    let mut out = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let column = at + 1;
        let what = match chars[at] {
            c if c.is_whitespace() => {
                at += 1;
                continue;
            }
            '(' => {
                at += 1;
                TokenKind::Open
            }
            ')' => {
                at += 1;
                TokenKind::Close
            }
            '"' => TokenKind::Term(Some("text".to_owned()), quoted(&chars, &mut at)?),
            _ => word(&chars, &mut at)?,
        };
        out.push(Token { column, what });
        if out.len() > 4 * MOST {
            return Err((column, "the query is too long".to_owned()));
        }
    }
    let terms = out.iter().filter(|token| matches!(token.what, TokenKind::Term(..)));
    match terms.clone().nth(MOST) {
        Some(token) => Err((token.column, format!("a query can have at most {MOST} terms"))),
        None => Ok(out),
    }
}

/// Parses quoted text, in which `\"` is a quotation mark and `\\` is a backslash.
fn quoted(chars: &[char], at: &mut usize) -> Parsed<String> {
    let start = *at;
    let mut text = String::new();
    *at += 1;
    while let Some(c) = chars.get(*at) {
        *at += 1;
        match c {
            '"' => return Ok(text),
            '\\' if matches!(chars.get(*at), Some('"' | '\\')) => {
                text.push(chars[*at]);
                *at += 1;
            }
            c => text.push(*c),
        }
    }
    Err((start + 1, "this quotation mark is not closed".to_owned()))
}

/// Parses a keyword, a word, or a field with its value.
fn word(chars: &[char], at: &mut usize) -> Parsed<TokenKind> {
    let start = *at;
    let ends = |c: char| c.is_whitespace() || matches!(c, '(' | ')' | '"');
    while chars.get(*at).is_some_and(|c| !ends(*c)) {
        *at += 1;
    }
    let text: String = chars[start..*at].iter().collect();
    match text.as_str() {
        "NOT" => return Ok(TokenKind::Not),
        "AND" => return Ok(TokenKind::And),
        "OR" => return Ok(TokenKind::Or),
        _ => {}
    }
    let Some((field, value)) = text.split_once(':') else {
        return Ok(TokenKind::Term(None, text));
    };
    if !FIELDS.contains(&field) {
        let hint =
            nearest(field, FIELDS).map_or(String::new(), |it| format!("; did you mean {it}:?"));
        return Err((start + 1, format!("there is no field {field:?}{hint}")));
    }
    let mut value = value.to_owned();
    if chars.get(*at) == Some(&'"') && (value.is_empty() || value.ends_with(':')) {
        value.push_str(&quoted(chars, at)?);
    }
    match value.is_empty() {
        true => Err((*at + 1, format!("{field}: has no value"))),
        false => Ok(TokenKind::Term(Some(field.to_owned()), value)),
    }
}

struct Parser<'t> {
    tokens: &'t [Token],
    at: usize,
    /// The column after the query.
    end: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<&'t Token> {
        self.tokens.get(self.at)
    }

    fn accepts(&mut self, what: &TokenKind) -> bool {
        let found = self.peek().is_some_and(|token| token.what == *what);
        self.at += usize::from(found);
        found
    }

    fn or(&mut self) -> Parsed<Expr> {
        let mut parts = vec![self.and()?];
        while self.accepts(&TokenKind::Or) {
            parts.push(self.and()?);
        }
        Ok(joined(parts, Expr::Or))
    }

    fn and(&mut self) -> Parsed<Expr> {
        let mut parts = vec![self.not()?];
        loop {
            let explicit = self.accepts(&TokenKind::And);
            match self.peek().map(|token| &token.what) {
                Some(TokenKind::Open | TokenKind::Not | TokenKind::Term(..)) => {
                    parts.push(self.not()?);
                }
                _ if explicit => parts.push(self.not()?),
                _ => return Ok(joined(parts, Expr::And)),
            }
        }
    }

    fn not(&mut self) -> Parsed<Expr> {
        let column = self.peek().map_or(self.end, |token| token.column);
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err((column, format!("more than {DEEPEST} levels of parentheses and NOT")));
        }
        let expr = match self.accepts(&TokenKind::Not) {
            true => Expr::Not(Box::new(self.not()?)),
            false => self.atom()?,
        };
        self.depth -= 1;
        Ok(expr)
    }

    fn atom(&mut self) -> Parsed<Expr> {
        let Some(token) = self.peek() else {
            return Err((self.end, "a term is missing at the end".to_owned()));
        };
        self.at += 1;
        match &token.what {
            TokenKind::Open => {
                let inner = self.or()?;
                match self.accepts(&TokenKind::Close) {
                    true => Ok(inner),
                    false => Err((token.column, "this parenthesis is not closed".to_owned())),
                }
            }
            TokenKind::Term(field, value) => {
                let term = term(field.as_deref(), value);
                term.map(Expr::Term).map_err(|why| (token.column, why))
            }
            _ => Err((token.column, "a term is missing here".to_owned())),
        }
    }
}

fn joined(mut parts: Vec<Expr>, of: fn(Vec<Expr>) -> Expr) -> Expr {
    match parts.len() {
        1 => parts.remove(0),
        _ => of(parts),
    }
}

fn term(field: Option<&str>, value: &str) -> std::result::Result<Term, String> {
    let text = value.to_owned();
    Ok(match field {
        None | Some("text") => match text.chars().any(char::is_alphanumeric) {
            true if field.is_none() => Term::Word(text),
            true => Term::Text(text),
            false => return Err(format!("{value:?} has no letters or digits to search for")),
        },
        Some("type") => Term::Type(NodeType::parse(value).map_err(|error| error.to_string())?),
        Some("tag") => Term::Tag(text),
        Some("id") => Term::Id(text.to_ascii_uppercase()),
        Some("since") => Term::Time(TimeField::Created, Compare::GreaterOrEqual, time(value)?),
        Some("created") => timed(TimeField::Created, value)?,
        Some("updated") => timed(TimeField::Updated, value)?,
        Some("tokens") => {
            let (how, number) = compared(value);
            let number =
                number.parse().map_err(|_| format!("{number:?} is not a number of tokens"))?;
            Term::Tokens(how, number)
        }
        Some("project") => Term::Project((!matches!(value, "none" | "global")).then_some(text)),
        Some("has") => {
            let names = Has::VARIANTS.join(", ");
            Term::Has(value.parse().map_err(|_| format!("has: accepts {names}, not {value:?}"))?)
        }
        Some("from") => Term::From(text.to_ascii_uppercase()),
        Some(_) => Term::To(text.to_ascii_uppercase()),
    })
}

fn compared(value: &str) -> (Compare, &str) {
    for (sign, how) in [
        ("<=", Compare::LessOrEqual),
        (">=", Compare::GreaterOrEqual),
        ("<", Compare::Less),
        (">", Compare::Greater),
        ("=", Compare::Equal),
    ] {
        if let Some(rest) = value.strip_prefix(sign) {
            return (how, rest);
        }
    }
    (Compare::Equal, value)
}

fn timed(field: TimeField, value: &str) -> std::result::Result<Term, String> {
    let (how, rest) = compared(value);
    Ok(Term::Time(field, how, time(rest)?))
}

/// Parses a day, a time in RFC 3339 format, or a duration such as `7d`, which means that long
/// before now.
fn time(value: &str) -> std::result::Result<TimeValue, String> {
    if let Ok(at) = value.parse::<Timestamp>() {
        return Ok(TimeValue::At(at));
    }
    if let Ok(day) = value.parse::<Date>() {
        return Ok(TimeValue::Day(day));
    }
    let unit = value.chars().last().unwrap_or(' ');
    let number = value.strip_suffix(unit).and_then(|text| text.parse::<i64>().ok());
    let hours = match unit {
        'h' => Some(1),
        'd' => Some(24),
        'w' => Some(24 * 7),
        _ => None,
    };
    match (number.filter(|number| (0..=100_000).contains(number)), hours) {
        (Some(number), Some(hours)) => {
            Ok(TimeValue::Ago(SignedDuration::from_hours(number * hours)))
        }
        _ => Err(format!(
            "{value:?} is not a time: use 2026-01-31, 2026-01-31T08:00:00Z, 12h, 7d or 2w"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(word: &str) -> Expr {
        Expr::Term(Term::Word(word.to_owned()))
    }

    #[test]
    fn only_plain_words_are_returned() {
        let words = |query: &str| parse(query).unwrap().words().map(|it| it.join("|"));
        assert_eq!(words("refresh token"), Some("refresh|token".to_owned()));
        for query in [
            "\"refresh token\"",
            "\"token\"",
            "text:\"refresh token\"",
            "text:token",
            "tag:a token",
        ] {
            assert_eq!(words(query), None, "{query}");
        }
    }

    #[test]
    fn not_binds_before_and_before_or() {
        let a_or = Expr::Or(vec![
            text("a"),
            Expr::And(vec![Expr::Not(Box::new(text("b"))), text("c"), text("d")]),
        ]);
        assert_eq!(parse("a OR NOT b AND c d").unwrap(), a_or);
        assert_eq!(
            parse("(a OR b) c").unwrap(),
            Expr::And(vec![Expr::Or(vec![text("a"), text("b")]), text("c")])
        );
        assert_eq!(parse(" ").unwrap(), Expr::All);
        assert_eq!(
            parse("NOT NOT a").unwrap(),
            Expr::Not(Box::new(Expr::Not(Box::new(text("a")))))
        );
    }

    #[test]
    fn values_may_be_quoted() {
        let phrase = Expr::Term(Term::Text("a (b) \"c\"".into()));
        assert_eq!(parse("text:\"a (b) \\\"c\\\"\"").unwrap(), phrase);
        assert_eq!(parse("tag:tier:pinned").unwrap(), Expr::Term(Term::Tag("tier:pinned".into())));
        assert_eq!(parse("\"AND\"").unwrap(), Expr::Term(Term::Text("AND".into())));
    }

    #[test]
    fn syntax_errors_name_the_column() {
        for (query, column) in [
            ("a AND", 6),
            ("OR a", 1),
            ("a (b", 3),
            ("a b)", 4),
            ("ä \"b", 3),
            ("typ:fact", 1),
            ("a type:fct", 3),
            ("type:", 6),
            ("since:yesterday", 1),
            ("tokens:>x", 1),
            ("a NOT", 6),
            ("()", 2),
            ("has:nothing", 1),
        ] {
            match parse(query) {
                Err(MemoryError::Syntax { column: found, .. }) => {
                    assert_eq!(found, column, "{query}");
                }
                other => panic!("{query}: {other:?}"),
            }
        }
        assert!(parse(&"(".repeat(5000)).is_err());
        assert!(parse(&"NOT ".repeat(5000)).is_err());
        assert!(parse(&"a ".repeat(5000)).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(
            parts in prop::collection::vec(prop_oneof![
                Just("AND "), Just("OR "), Just("NOT "), Just("("), Just(")"), Just("\""), Just("tag:"),
                Just("type:fact "), Just("x "), Just("é:"), Just("since:1d "), Just("\\"), Just("created:<"),
            ], 0..12)
        ) {
            let query = parts.concat();
            if let Err(MemoryError::Syntax { column, .. }) = parse(&query) {
                prop_assert!(column >= 1 && column <= query.chars().count() + 1, "{query}: {column}");
            }
        }
    }
}
