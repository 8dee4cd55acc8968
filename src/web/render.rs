//! Renders pages from templates. Every value is escaped.
//!
//! A page's text comes from models, programs and repositories, so no template may mark a value as
//! safe, and no value may become a link target without a check.

use jiff::Timestamp;
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value};
use runner_text::counted;

const TEMPLATES: &[(&str, &str)] = &[
    ("base.html", include_str!("templates/base.html")),
    ("macros.html", include_str!("templates/macros.html")),
    ("alerts.html", include_str!("templates/alerts.html")),
    ("artifact.html", include_str!("templates/artifact.html")),
    ("board.html", include_str!("templates/board.html")),
    ("budget.html", include_str!("templates/budget.html")),
    ("fleet.html", include_str!("templates/fleet.html")),
    ("error.html", include_str!("templates/error.html")),
    ("jobs.html", include_str!("templates/jobs.html")),
    ("login.html", include_str!("templates/login.html")),
    ("memory.html", include_str!("templates/memory.html")),
    ("night.html", include_str!("templates/night.html")),
    ("nights.html", include_str!("templates/nights.html")),
    ("open.html", include_str!("templates/open.html")),
    ("overview.html", include_str!("templates/overview.html")),
    ("projects.html", include_str!("templates/projects.html")),
    ("proposal.html", include_str!("templates/proposal.html")),
    ("proposals.html", include_str!("templates/proposals.html")),
    ("run.html", include_str!("templates/run.html")),
    ("runs.html", include_str!("templates/runs.html")),
    ("sessions.html", include_str!("templates/sessions.html")),
    ("settings.html", include_str!("templates/settings.html")),
    ("welcome.html", include_str!("templates/welcome.html")),
];

/// The templates of the pages.
pub struct Renderer {
    environment: Environment<'static>,
}

impl Renderer {
    /// Parses the templates.
    ///
    /// # Panics
    /// Panics if a built-in template contains a syntax error.
    pub fn new() -> Self {
        let mut environment = Environment::new();
        environment.set_auto_escape_callback(|_| AutoEscape::Html);
        // A command's JSON omits fields that do not apply.
        environment.set_undefined_behavior(UndefinedBehavior::Chainable);
        environment.set_formatter(|out, _state, value| {
            let text = if value.is_undefined() || value.is_none() {
                String::new()
            } else {
                value.to_string()
            };
            Ok(out.write_str(&if value.is_safe() { text } else { escaped(&text) })?)
        });
        let mut syntax = SyntaxConfig::builder();
        syntax.trim_blocks(true).lstrip_blocks(true);
        environment.set_syntax(syntax.build().expect("these are Jinja's own delimiters"));
        environment.add_filter("time", time);
        environment.add_filter("counted", |count: u64, what: &str| counted(count, what));
        environment.add_filter("dollars", |micros: u64| {
            format!("${}.{:02}", micros / 1_000_000, micros % 1_000_000 / 10_000)
        });
        environment.add_filter("tone", |outcome: &str| tone(outcome).to_owned());
        environment.add_filter("segment", |text: &str| segment(text));
        environment.add_global("has_fleets", cfg!(feature = "fleet"));
        for (name, text) in TEMPLATES {
            environment.add_template(name, text).expect("a test parses every template");
        }
        Self { environment }
    }

    /// Renders a page.
    ///
    /// # Panics
    /// Panics if there is no such template. If the template cannot be rendered with the data, the
    /// page is an error message.
    pub fn page(&self, template: &str, data: Value) -> String {
        let template =
            self.environment.get_template(template).expect("every template is in the table");
        template.render(data).unwrap_or_else(|error| {
            tracing::error!(%error, "a page could not be rendered");
            "<!doctype html><title>runner</title><p>This page could not be rendered.</p>".to_owned()
        })
    }
}

/// Returns an HTML `time` element, or an empty string if `at` is not a time.
fn time(at: Option<&str>) -> Value {
    let Some(at) = at.and_then(|at| at.parse::<Timestamp>().ok()) else { return Value::from("") };
    let exact = at.strftime("%Y-%m-%dT%H:%M:%SZ");
    let shown = at.strftime("%Y-%m-%d %H:%M:%S");
    Value::from_safe_string(format!("<time datetime=\"{exact}\" title=\"UTC\">{shown}</time>"))
}

/// Returns the CSS class of an outcome or a state, which determines its colour.
fn tone(outcome: &str) -> &'static str {
    match outcome {
        "succeeded" | "decided" => "good",
        "failed" | "timed-out" | "lost" => "bad",
        "degraded" | "deferred" | "cancelled" | "missed" | "ending" => "warn",
        _ => "plain",
    }
}

/// Percent-encodes text as a single path segment.
pub fn segment(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_~".contains(&byte);
    let encoded = text.bytes().map(|byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    encoded.collect()
}

/// Escapes text for HTML, and replaces characters that change the text direction or that no page
/// may contain.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_segments_are_percent_encoded() {
        for (text, expected) in
            [("dream", "dream"), ("../x", "%2E%2E%2Fx"), ("a b?", "a%20b%3F"), ("é", "%C3%A9")]
        {
            assert_eq!(segment(text), expected);
        }
    }

    #[test]
    fn invalid_times_are_empty() {
        assert_eq!(time(Some("<script>")).to_string(), "");
        assert!(
            time(Some("2026-11-23T14:20:34.602Z")).to_string().contains(">2026-11-23 14:20:34<")
        );
    }
}
