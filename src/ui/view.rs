//! Prints the results of commands, as text or as JSON, and their notices.

use std::io::{self, BufRead as _, IsTerminal as _};

use serde::Serialize;

use super::show;

/// Controls in which format a command prints its result, and whether it prints notices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ui {
    /// The result is printed as JSON, and notices are left out.
    pub json: bool,
    /// Only results and errors are printed.
    pub quiet: bool,
}

/// The result of a command.
///
/// The `Serialize` implementation is the form that `--json` prints.
pub trait View: Serialize {
    /// Prints the result for people: the result itself on standard output, notices through
    /// [`Ui::info`].
    fn print(&self, ui: Ui);
}

impl Ui {
    /// Prints a result in the requested format.
    pub fn show(self, view: &impl View) {
        if self.json { show::json(view) } else { view.print(self) }
    }

    /// Prints a part of the result early for people. The JSON form of the result contains it.
    pub fn show_part(self, view: &impl View) {
        if !self.json {
            view.print(self);
        }
    }

    /// Returns a result as a part of a stream: one line of JSON, or the text that `format` returns.
    pub fn frame<V: Serialize>(self, value: &V, format: fn(&V) -> String) -> String {
        if self.json { show::json_line(value) } else { format(value) }
    }

    /// Reports whether the text of a stream is redrawn in place.
    pub fn can_redraw(self) -> bool {
        !self.json && show::can_draw()
    }

    /// Prints a notice on standard error, unless the command is quiet or prints JSON.
    pub fn info(self, text: &str) {
        if !self.quiet && !self.json {
            show::notice(text);
        }
    }

    /// Reports whether the command may ask a question: on a terminal, unless it prints JSON.
    pub fn may_ask(self) -> bool {
        !self.json && io::stdin().is_terminal()
    }

    /// Asks for a confirmation on the terminal. An empty answer means no.
    pub fn confirm(self, question: &str) -> bool {
        show::notice(&format!("{question} [y/N]"));
        let mut answer = String::new();
        let _no_answer_is_no = io::stdin().lock().read_line(&mut answer);
        matches!(answer.trim(), "y" | "Y" | "yes")
    }

    /// Prints a document whose only form is JSON, such as a schema.
    pub fn document(value: &impl Serialize) {
        show::json(value);
    }
}
