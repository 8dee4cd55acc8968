//! Splits a command line into words, output redirections and command ends. This module must never
//! run or expand anything. A here-document (`<<`) is an error, because it may contain code.

use std::iter::Peekable;
use std::str::Chars;

/// Characters that the shell expands in a word without quotes.
const EXPANDS: [char; 7] = ['$', '`', '*', '?', '[', '{', '~'];

/// A word without its quotes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShellWord {
    pub text: String,
    /// Whether the shell expands the word.
    pub open: bool,
}

impl ShellWord {
    pub fn literal(text: &str) -> Self {
        Self { text: text.to_owned(), open: false }
    }

    /// Returns whether the shell expands `part`, which is a part of this word.
    pub fn expands(&self, part: &str) -> bool {
        self.open && part.contains(EXPANDS)
    }
}

/// A part of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    Word(ShellWord),
    /// `>`, `>>`, `>|`, `&>` or `<>`; or `>&`, which may copy a descriptor.
    Redirection {
        copies: bool,
    },
    /// A command line inside a word.
    Within(String),
    /// The end of a command: `;`, `|`, `&`, a newline or a parenthesis.
    End {
        pipe: bool,
    },
}

#[derive(Default)]
struct TokenReader {
    all: Vec<Token>,
    word: Option<ShellWord>,
}

impl TokenReader {
    fn word(&mut self) -> &mut ShellWord {
        self.word.get_or_insert_default()
    }

    fn push(&mut self, letter: char) {
        let word = self.word();
        word.open |= EXPANDS.contains(&letter);
        word.text.push(letter);
    }

    fn flush(&mut self) {
        self.all.extend(self.word.take().map(Token::Word));
    }

    fn end(&mut self, pipe: bool) {
        self.flush();
        self.all.push(Token::End { pipe });
    }

    /// Records the command line inside a command substitution. A `$` in the word represents the
    /// output.
    fn within(&mut self, line: String) {
        self.push('$');
        self.all.push(Token::Within(line));
    }
}

/// Splits a line into its tokens.
///
/// # Errors
/// Returns an error if the line is incomplete or cannot be analyzed.
pub fn tokens(line: &str) -> Result<Vec<Token>, String> {
    let mut it = TokenReader::default();
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' => it.word().text += &until(&mut letters, '\'')?,
            '"' => quoted(&mut letters, &mut it)?,
            // A backslash before a newline continues the line.
            '\\' if letters.next_if_eq(&'\n').is_some() => {}
            '\\' => it.word().text.extend(letters.next()),
            '#' if it.word.is_none() => while letters.next_if(|next| *next != '\n').is_some() {},
            '>' => {
                // A number before the redirection is the file descriptor to redirect.
                it.word = it.word.filter(|word| !word.text.chars().all(|c| c.is_ascii_digit()));
                it.flush();
                while letters.next_if(|next| ['>', '|'].contains(next)).is_some() {}
                it.all.push(Token::Redirection { copies: letters.next_if_eq(&'&').is_some() });
            }
            '&' if letters.peek() == Some(&'>') => it.flush(),
            '<' if letters.peek() == Some(&'<') => {
                return Err(
                    "a here-document or here-string (<<) cannot be analyzed; write a file with the Write tool"
                        .to_owned(),
                );
            }
            ' ' | '\t' | '<' => it.flush(),
            '`' => it.within(until(&mut letters, '`')?),
            '|' => it.end(letters.next_if_eq(&'|').is_none()),
            ';' | '&' | '\n' | '\r' | '(' | ')' => it.end(false),
            other => it.push(other),
        }
    }
    it.flush();
    Ok(it.all)
}

/// Reads a double-quoted string: a word, and any command lines nested in it.
fn quoted(letters: &mut Peekable<Chars<'_>>, it: &mut TokenReader) -> Result<(), String> {
    let unclosed = "a quotation mark is not closed";
    it.word();
    loop {
        match letters.next().ok_or(unclosed)? {
            '"' => return Ok(()),
            '\\' if letters.next_if_eq(&'\n').is_some() => {}
            '\\' => it.word().text.push(letters.next().ok_or(unclosed)?),
            '$' if letters.next_if_eq(&'(').is_some() => it.within(until(letters, ')')?),
            '`' => it.within(until(letters, '`')?),
            '$' => it.push('$'),
            inner => it.word().text.push(inner),
        }
    }
}

/// Reads up to the closing quote, or up to the parenthesis that matches the opening one.
fn until(letters: &mut Peekable<Chars<'_>>, close: char) -> Result<String, String> {
    let mut inner = String::new();
    let mut depth = 0_usize;
    loop {
        match letters.next().ok_or("a quotation mark or a parenthesis is not closed")? {
            letter if letter == close && depth == 0 => return Ok(inner),
            letter => {
                depth += usize::from(close == ')' && letter == '(');
                depth -= usize::from(letter == close);
                inner.push(letter);
            }
        }
    }
}
