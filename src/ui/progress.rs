//! Shows the progress of a run on standard error.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use runner_jobs::Progress;

use super::Ui;
use super::show::complain_raw;

/// A progress bar on a terminal. Elsewhere, each new step is printed on a line if the command is
/// verbose.
pub struct Steps {
    bar: ProgressBar,
    plain: bool,
    last: String,
}

impl Steps {
    pub fn new(job: &str, ui: Ui, verbose: u8) -> Self {
        let shown = io::stderr().is_terminal() && !ui.quiet;
        let target =
            if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        let style =
            ProgressStyle::with_template("{spinner} {prefix}: {wide_msg} {pos}/{len} {elapsed}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style);
        bar.set_prefix(job.to_owned());
        if shown {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        Self { bar, plain: !shown && verbose > 0 && !ui.quiet, last: String::new() }
    }
}

impl Progress for Steps {
    fn step(&mut self, what: &str, done: u64, total: u64) {
        if total > 0 {
            self.bar.set_length(total);
        }
        self.bar.set_position(done);
        if self.last != what {
            self.bar.set_message(what.to_owned());
            if self.plain {
                complain_raw(&format!("  {what}"));
            }
            what.clone_into(&mut self.last);
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
