//! Controls which notices a command prints on the terminal.

use super::args::Args;
use super::listing::Listing;
use super::show;

/// Selects whether a command prints notices besides its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ui {
    /// Notices go to standard error.
    #[default]
    Normal,
    /// Only results and errors are printed.
    Quiet,
}

impl Ui {
    /// Returns the output mode that the flags of the command line request.
    pub fn of(args: &Args) -> Self {
        if args.quiet { Self::Quiet } else { Self::Normal }
    }

    /// Returns the mode without notices if the result is printed as JSON.
    #[must_use]
    pub fn beside(self, listing: Listing) -> Self {
        if listing.json { Self::Quiet } else { self }
    }

    /// Returns true if only results and errors are printed.
    pub fn is_quiet(self) -> bool {
        self == Self::Quiet
    }

    /// Prints a notice on standard error, unless the command is quiet.
    pub fn info(self, text: &str) {
        if self == Self::Normal {
            show::notice(text);
        }
    }
}
