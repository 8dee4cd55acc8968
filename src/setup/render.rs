//! Renders host scheduler files from their templates.
//!
//! A template is data: the embedded one, or the user's own under the same name in
//! `scheduler-templates/` beside their config file. Every value that a template inserts is escaped
//! for the file's format automatically, so the user's own template cannot omit the escaping. This
//! module must never write a file.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value, context};

use super::escape::{Format, escaped, starts_a_unit, windows};
use crate::ui::Failure;
use runner_engine::files::{DOCUMENT, read_text_host};
use runner_text::shell_word;

/// Maximum number of steps in rendering a template, far more than the templates need. The limit
/// stops infinite loops.
const FUEL: u64 = 100_000;
/// Maximum number of triggers allowed by the Task Scheduler schema.
const TRIGGERS: usize = 48;
/// Maximum length of a crontab line in bytes. Debian's cron cuts off a longer command.
const CRON_LINE: usize = 980;

/// A host scheduler file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Template {
    /// The systemd service that runs a tick.
    Service,
    /// The systemd timer that starts the service.
    Timer,
    /// The systemd service that keeps the daemon running.
    Daemon,
    Crontab,
    /// The launchd property list that runs ticks.
    Plist,
    /// The launchd property list that keeps the daemon running.
    DaemonPlist,
    /// The Task Scheduler task.
    Task,
    /// The script that registers the task.
    Register,
}

impl Template {
    /// Returns the file's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Service => "runner-tick.service",
            Self::Timer => "runner-tick.timer",
            Self::Daemon => "runner-daemon.service",
            Self::Crontab => "crontab",
            Self::Plist => "runner.tick.plist",
            Self::DaemonPlist => "runner.daemon.plist",
            Self::Task => "runner-tick.xml",
            Self::Register => "register-runner-tick.ps1",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Service => include_str!("../../scheduler-templates/runner-tick.service"),
            Self::Timer => include_str!("../../scheduler-templates/runner-tick.timer"),
            Self::Daemon => include_str!("../../scheduler-templates/runner-daemon.service"),
            Self::Crontab => include_str!("../../scheduler-templates/crontab"),
            Self::Plist => include_str!("../../scheduler-templates/runner.tick.plist"),
            Self::DaemonPlist => include_str!("../../scheduler-templates/runner.daemon.plist"),
            Self::Task => include_str!("../../scheduler-templates/runner-tick.xml"),
            Self::Register => include_str!("../../scheduler-templates/register-runner-tick.ps1"),
        }
    }

    fn format(self) -> Format {
        match self {
            Self::Service | Self::Timer | Self::Daemon => Format::Systemd,
            Self::Crontab => Format::Cron,
            Self::Plist | Self::DaemonPlist | Self::Task => Format::Xml,
            Self::Register => Format::PowerShell,
        }
    }
}

/// The values that are available to the templates.
#[derive(Clone, Debug)]
pub struct TemplateData {
    /// The command for a tick or the daemon: the program and its arguments.
    pub words: Vec<String>,
    /// The minutes of each hour at which to tick.
    pub minutes: BTreeSet<i8>,
    /// Path of the log for tick output, for hosts that do not keep one.
    pub log: String,
    /// Path of the task's file, for the script that registers it.
    pub task_file: String,
}

/// Renders the contents of one file.
///
/// # Errors
/// Returns an error if the user's own template cannot be used, or if the format cannot represent
/// the data.
pub fn render(
    template: Template,
    data: &TemplateData,
    overrides: &Path,
) -> Result<String, Failure> {
    let own = overrides.join(template.name());
    let (source, place) = match read_text_host(&own, DOCUMENT) {
        Ok(text) => (text, own.display().to_string()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            (template.text().to_owned(), template.name().to_owned())
        }
        Err(error) => return Err(Failure::unreadable(&own, error)),
    };
    let mut words = data.words.clone();
    if template.format() == Format::Systemd && !starts_a_unit(&words[0]) {
        // A shell can start programs whose path systemd does not accept.
        words.splice(0..0, ["/bin/sh", "-c", "exec \"$@\"", "sh"].map(str::to_owned));
    }
    let refuse = |why: String| {
        Failure::data(format!("{place}: {why}")).hint(
        "move runner and its state folder (XDG_STATE_HOME) to paths without special characters, or choose another --scheduler",
    )
    };
    let command_line = match template {
        Template::Task => data
            .words
            .iter()
            .map(|word| windows(word))
            .collect::<Result<Vec<_>, _>>()
            .map_err(refuse)?
            .join(" "),
        _ => String::new(),
    };
    if template == Template::Task && data.minutes.len() > TRIGGERS {
        return Err(refuse(format!("a task has at most {TRIGGERS} triggers")));
    }
    let minutes: Vec<i8> = data.minutes.iter().copied().collect();
    let joined: Vec<String> = minutes.iter().map(ToString::to_string).collect();
    let two_digits: Vec<String> = minutes.iter().map(|it| format!("{it:02}")).collect();
    let format = template.format();
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment.set_formatter(move |out, _state, value| {
        out.write_str(&written(format, value)?)?;
        Ok(())
    });
    let mut text = environment
        .render_str(
            &source,
            context! {
                words => words,
                arguments => &data.words,
                command_line => command_line,
                minutes => joined.join(","),
                minute_list => minutes,
                two_digits => two_digits,
                log => &data.log,
                task_file => &data.task_file,
            },
        )
        .map_err(|error| match error.kind() {
            ErrorKind::BadSerialization => refuse(error.detail().unwrap_or_default().to_owned()),
            _ => Failure::configuration(format!("{place}: {error}"))
                .hint(format!("mv {0} {0}.old", shell_word(own.display()))),
        })?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    if template == Template::Crontab && text.lines().any(|line| line.len() > CRON_LINE) {
        return Err(refuse(format!("cron does not accept lines longer than {CRON_LINE} bytes")));
    }
    Ok(text)
}

/// Formats a value in the syntax of the file; several words are separated by spaces.
fn written(format: Format, value: &Value) -> Result<String, Error> {
    let one = |value: &Value| match value.as_str() {
        Some(text) => {
            escaped(format, text).map_err(|why| Error::new(ErrorKind::BadSerialization, why))
        }
        None => Ok(value.to_string()),
    };
    match value.kind() {
        ValueKind::Undefined => Err(Error::from(ErrorKind::UndefinedError)),
        ValueKind::Seq => {
            let words: Result<Vec<String>, Error> =
                value.try_iter()?.map(|value| one(&value)).collect();
            Ok(words?.join(" "))
        }
        _ => one(value),
    }
}
