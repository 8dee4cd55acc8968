//! Splits a command line into words, output redirections and ends of commands. This module must
//! never run or expand anything. A here-document (`<<`) is an error, because it may contain code.

/// A word without its quotes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShellWord {
    pub text: String,
    /// Whether the shell expands the word.
    pub open: bool,
}

/// A part of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    Word(ShellWord),
    /// `>`, `>>`, `>|`, `&>` or `<>`; or `>&`, which may copy a descriptor.
    Redirection {
        copies: bool,
    },
    /// A command line inside a quoted word.
    Within(String),
    /// The end of a command: `;`, `|`, `&`, a newline or a parenthesis.
    End {
        pipe: bool,
    },
}

#[derive(Default)]
struct TokenReader {
    all: Vec<Token>,
    word: ShellWord,
    begun: bool,
}

impl TokenReader {
    fn push(&mut self, letter: char, open: bool) {
        self.begun = true;
        self.word.open |= open;
        self.word.text.push(letter);
    }

    fn flush(&mut self) {
        let word = std::mem::take(&mut self.word);
        if std::mem::take(&mut self.begun) {
            self.all.push(Token::Word(word));
        }
    }

    fn end(&mut self, pipe: bool) {
        self.flush();
        self.all.push(Token::End { pipe });
    }
}

/// Splits a line into its tokens.
///
/// # Errors
/// Returns an error if the line is incomplete or cannot be judged.
pub fn tokens(line: &str) -> Result<Vec<Token>, String> {
    let mut it = TokenReader::default();
    let mut letters = line.chars().peekable();
    let mut ticked = false;
    while let Some(letter) = letters.next() {
        match letter {
            '\'' => {
                it.begun = true;
                loop {
                    match letters.next() {
                        Some('\'') => break,
                        Some(inner) => it.word.text.push(inner),
                        None => return Err("a quote is not closed".to_owned()),
                    }
                }
            }
            '"' => {
                it.begun = true;
                quoted(&mut letters, &mut it)?;
            }
            '\\' => match letters.next() {
                // A backslash before a newline continues the line.
                Some('\n') => {}
                Some(next) => it.push(next, false),
                None => it.begun = true,
            },
            '#' if !it.begun => {
                while letters.peek().is_some_and(|next| *next != '\n') {
                    letters.next();
                }
            }
            '>' => {
                // A number before the redirection selects the output.
                if it.word.text.chars().all(|c| c.is_ascii_digit()) {
                    it.word = ShellWord::default();
                    it.begun = false;
                }
                it.flush();
                while letters.peek().is_some_and(|next| ['>', '|'].contains(next)) {
                    letters.next();
                }
                let copies = letters.next_if_eq(&'&').is_some();
                it.all.push(Token::Redirection { copies });
            }
            '&' if letters.peek() == Some(&'>') => it.flush(),
            '<' if letters.peek() == Some(&'<') => {
                return Err(
                    "a text in the command (<<) cannot be judged; write a file with the Write tool"
                        .to_owned(),
                );
            }
            ' ' | '\t' | '<' => it.flush(),
            '`' => {
                ticked = !ticked;
                if ticked {
                    // The `$` represents the output of the command substitution.
                    it.push('$', true);
                }
                it.end(false);
            }
            '|' => {
                it.end(letters.peek() != Some(&'|'));
                letters.next_if_eq(&'|');
            }
            ';' | '&' | '\n' | '\r' | '(' | ')' => it.end(false),
            other => it.push(other, ['$', '*', '?', '[', '{', '~'].contains(&other)),
        }
    }
    it.flush();
    Ok(it.all)
}

/// Reads the content of double quotes: a word, and any command lines nested in it.
fn quoted(
    letters: &mut std::iter::Peekable<std::str::Chars<'_>>,
    it: &mut TokenReader,
) -> Result<(), String> {
    let unclosed = || "a quote is not closed".to_owned();
    loop {
        match letters.next().ok_or_else(unclosed)? {
            '"' => return Ok(()),
            '\\' => match letters.next().ok_or_else(unclosed)? {
                '\n' => {}
                inner => it.word.text.push(inner),
            },
            '$' if letters.peek() == Some(&'(') => {
                letters.next();
                let mut inner = String::new();
                let mut depth = 1_usize;
                loop {
                    match letters.next().ok_or_else(unclosed)? {
                        ')' if depth == 1 => break,
                        letter => {
                            depth += usize::from(letter == '(');
                            depth -= usize::from(letter == ')');
                            inner.push(letter);
                        }
                    }
                }
                it.push('$', true);
                it.all.push(Token::Within(inner));
            }
            '`' => {
                let mut inner = String::new();
                loop {
                    match letters.next().ok_or_else(unclosed)? {
                        '`' => break,
                        letter => inner.push(letter),
                    }
                }
                it.push('$', true);
                it.all.push(Token::Within(inner));
            }
            inner => it.push(inner, inner == '$'),
        }
    }
}
