//! The one way to the terminal: results, notices, and their two formats.

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
        match self.json {
            true => show::json(view),
            false => view.print(self),
        }
    }

    /// Prints a document whose only form is JSON, such as a schema.
    pub fn document(value: &impl Serialize) {
        show::json(value);
    }

    /// Prints a notice on standard error, unless the command is quiet or prints JSON.
    pub fn info(self, text: &str) {
        if !self.quiet && !self.json {
            show::notice(text);
        }
    }
}
