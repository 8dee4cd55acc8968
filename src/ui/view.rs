//! Prints notices, and command results as text or JSON.

use std::io::{self, BufRead as _, IsTerminal as _};

use serde::Serialize;

use super::show;

/// The output options of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ui {
    /// Whether the result is printed as JSON, without notices.
    pub json: bool,
    /// Whether only results and errors are printed.
    pub quiet: bool,
}

/// The result of a command. `--json` prints its serialized form.
pub trait View: Serialize {
    /// Prints the result as text on standard output, and notices through [`Ui::info`].
    fn print(&self, ui: Ui);
}

impl Ui {
    /// Prints a result in the requested format.
    pub fn show(self, view: &impl View) {
        if self.json { show::json(view) } else { view.print(self) }
    }

    /// Prints part of the result early, as text. Does nothing for JSON output, because the final
    /// result contains the part.
    pub fn show_part(self, view: &impl View) {
        if !self.json {
            view.print(self);
        }
    }

    /// Returns a result as part of a stream: one line of JSON, or the text from `format`.
    pub fn frame<V: Serialize>(self, value: &V, format: fn(&V) -> String) -> String {
        if self.json { show::json_line(value) } else { format(value) }
    }

    /// Returns whether the text of a stream can be redrawn in place.
    pub fn can_redraw(self) -> bool {
        !self.json && show::can_draw()
    }

    /// Prints a notice on standard error, unless the command is quiet or prints JSON.
    pub fn info(self, text: &str) {
        if !self.quiet && !self.json {
            show::notice(text);
        }
    }

    /// Returns whether the command may ask questions: standard input is a terminal and the output
    /// is not JSON.
    pub fn may_ask(self) -> bool {
        !self.json && io::stdin().is_terminal()
    }

    /// Asks for confirmation on the terminal. An empty answer means no.
    pub fn confirm(self, question: &str) -> bool {
        show::notice(&format!("{question} [y/N]"));
        let mut answer = String::new();
        let _no_answer_is_no = io::stdin().lock().read_line(&mut answer);
        matches!(answer.trim(), "y" | "Y" | "yes")
    }

    /// Asks a question on the terminal. Returns the answer, `default` for an empty answer, or
    /// `None` if there is no more input.
    pub fn ask(self, question: &str, default: &str) -> Option<String> {
        let shown = if default.is_empty() { String::new() } else { format!(" [{default}]") };
        show::notice(&format!("{question}{shown}"));
        let mut answer = String::new();
        match io::stdin().lock().read_line(&mut answer) {
            Ok(0) | Err(_) => None,
            Ok(_) if answer.trim().is_empty() => Some(default.to_owned()),
            Ok(_) => Some(answer.trim().to_owned()),
        }
    }

    /// Prints a document whose only form is JSON, such as a schema.
    pub fn document(value: &impl Serialize) {
        show::json(value);
    }
}
