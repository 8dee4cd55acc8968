//! The morning page: the report of a night as one self-contained file for a browser.
//!
//! ```text
//! NightReport ──> views (this folder) ──> templates (`jobs/templates`) ──> page
//! ```
//!
//! The page contains no script, no external image or font, and no external link. Its own content
//! security policy forbids every resource except the one style sheet, which the policy identifies
//! by digest. Text from a model, a repository or a user reaches the page only as a value, and
//! [`write_escaped`] escapes every value. The page must use nothing but the report, and never make
//! a claim that is not in the report.

mod details;
mod overview;
mod rows;
mod scape;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, Output, State, UndefinedBehavior, Value};
use runner_engine::digest::Digest;
use runner_engine::outcome::{Outcome, SkipReason};
use runner_text::{counted, shell_word};
use serde::Serialize;

use super::budget_usage::format_amount;
use super::fleet_usage::FleetUsage;
use super::model::NightReport;
use super::run_line::RunLine;

/// The one style sheet.
const STYLE: &str = include_str!("style.css");

/// Expands to the name and the contents of each template.
macro_rules! templates {
    ($($name:literal),*) => {
        [$(($name, include_str!(concat!("../../../templates/", $name)))),*]
    };
}

const TEMPLATES: [(&str, &str); 8] = templates![
    "page.html",
    "index.html",
    "overview.html",
    "dreamscape.html",
    "picture.html",
    "runs.html",
    "proposals.html",
    "details.html"
];

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(environment);

/// The data for the page: the report, and the views derived from it.
#[derive(Serialize)]
struct PageView<'a> {
    report: &'a NightReport,
    links: Option<&'a NavLinks>,
    style: Value,
    style_digest: Value,
    overview: overview::Overview<'a>,
    scapes: Vec<scape::DreamscapeView<'a>>,
    groups: Vec<rows::RunGroup<'a>>,
    proposals: rows::Proposals<'a>,
    budgets: Vec<details::BudgetView<'a>>,
    /// The usage of the fleet budgets, line by line.
    fleets: Vec<String>,
    refused: Vec<details::RefusalView<'a>>,
    sandbox: details::SandboxView<'a>,
}

/// Renders the page.
///
/// # Panics
/// Panics if a template does not match the views. Both are compiled in.
pub fn render(report: &NightReport) -> String {
    page(report, None)
}

/// Renders the page of an export, with links to other pages in the same folder.
///
/// # Panics
/// Panics like [`render`].
pub fn render_linked(report: &NightReport, links: &NavLinks) -> String {
    page(report, Some(links))
}

fn page(report: &NightReport, links: Option<&NavLinks>) -> String {
    let view = PageView {
        report,
        links,
        style: Value::from_safe_string(STYLE.to_owned()),
        style_digest: Value::from_safe_string(style_digest()),
        overview: overview::Overview::of(report),
        scapes: report.dreamscapes.iter().map(scape::DreamscapeView::of).collect(),
        groups: rows::run_groups(report),
        proposals: rows::Proposals::of(report),
        budgets: report.budgets.iter().map(details::BudgetView::of).collect(),
        fleets: report.fleets.iter().flat_map(FleetUsage::lines).collect(),
        refused: report.refused.iter().map(details::RefusalView::of).collect(),
        sandbox: details::SandboxView::of(report),
    };
    let template = ENVIRONMENT.get_template("page.html").expect("the templates are compiled in");
    template.render(Value::from(Serde(view))).expect("the templates fit their views")
}

/// Renders the index of an export, with one linked row per night.
///
/// # Panics
/// Panics like [`render`].
pub fn index(project: &str, nights: &[ArchiveEntry]) -> String {
    let template = ENVIRONMENT.get_template("index.html").expect("the templates are compiled in");
    let view = IndexView {
        project,
        nights,
        style: Value::from_safe_string(STYLE.to_owned()),
        style_digest: Value::from_safe_string(style_digest()),
    };
    template.render(Value::from(Serde(view))).expect("the templates fit their views")
}

/// The data for the index.
#[derive(Serialize)]
struct IndexView<'a> {
    project: &'a str,
    nights: &'a [ArchiveEntry],
    style: Value,
    style_digest: Value,
}

/// A night in the index of an export.
#[derive(Clone, Debug, Serialize)]
pub struct ArchiveEntry {
    /// The name of the night.
    pub night: String,
    /// The file name of its page.
    pub file: String,
    /// The name of its worst outcome.
    pub worst: String,
    /// Its one-line summary.
    pub headline: String,
}

/// The file names of the pages linked from a page of an export.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NavLinks {
    /// The index of all nights.
    pub index: String,
    /// The page of the night before, if there is one.
    pub before: Option<String>,
    /// The page of the night after, if there is one.
    pub after: Option<String>,
}

/// Creates the template environment: every value is escaped, and a name that does not exist in the
/// view is an error.
fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_formatter(write_escaped);
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true);
    environment.set_syntax(syntax.build().expect("these are Jinja's own delimiters"));
    environment.add_filter("counted", counted::<u64>);
    environment.add_filter("shell_word", |word: &str| shell_word(word));
    environment.add_filter("fine", scape::fine);
    environment.add_filter("signed", |change: f64| format!("{change:+.3}"));
    environment.add_filter("tenth", scape::tenth);
    environment.add_function("amount", format_amount);
    for (name, text) in TEMPLATES {
        environment.add_template(name, text).expect("the templates are correct");
    }
    environment
}

/// Writes a value as text that a browser displays but never interprets. A safe value is one of this
/// module's own constants or the output of a macro.
fn write_escaped(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    if value.is_safe() {
        return minijinja::escape_formatter(out, state, value);
    }
    let shown: String = value.to_string().chars().map(visible).collect();
    minijinja::escape_formatter(out, state, &Value::from(shown))
}

/// Replaces a line feed or a tab with a space, and any other control character or character that
/// would hide text or change its visible order with U+FFFD.
fn visible(c: char) -> char {
    match c {
        '\n' | '\t' => ' ',
        '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{2069}'
        | '\u{feff}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// Returns the digest of the style sheet, in the form that the page's policy requires.
fn style_digest() -> String {
    let hex = Digest::of(STYLE.as_bytes()).to_string();
    let bytes: Vec<u8> = hex
        .as_bytes()
        .chunks_exact(2)
        .filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    BASE64_STANDARD.encode(bytes)
}

/// The colour of a result: a class in the style sheet. `Bad` sorts first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Tone {
    Bad,
    Good,
    Warn,
    Calm,
}

impl Tone {
    fn of(run: &RunLine) -> Self {
        match &run.outcome {
            Some(Outcome::Succeeded) => Self::Good,
            Some(Outcome::Failed { .. } | Outcome::TimedOut { .. } | Outcome::Lost { .. }) => {
                Self::Bad
            }
            Some(Outcome::Skipped { reason: SkipReason::Busy, .. }) => Self::Warn,
            Some(Outcome::Skipped { reason, .. }) if !reason.is_expected() => Self::Bad,
            Some(Outcome::Cancelled { .. } | Outcome::Skipped { .. }) => Self::Calm,
            None
            | Some(Outcome::Degraded { .. } | Outcome::Deferred { .. } | Outcome::Missed { .. }) => {
                Self::Warn
            }
        }
    }
}
