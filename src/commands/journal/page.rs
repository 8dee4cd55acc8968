//! Renders the journal as one HTML page without scripts, with support for light and dark mode and
//! narrow screens.
//!
//! All of the journal's text is untrusted and is escaped. The content security policy allows only
//! the page's own style. This module must never create a link from untrusted text.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value, context};
use runner_text::counted;
use sha2::{Digest as _, Sha256};

use super::model::Journal;

const STYLE: &str = include_str!("page.css");
const PAGE: &str = include_str!("page.html");

/// Renders the journal as HTML.
///
/// # Panics
/// Panics if the built-in template does not match the journal.
pub fn html(journal: &Journal) -> String {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_formatter(|out, _state, value| {
        let text = value.to_string();
        Ok(out.write_str(&if value.is_safe() { text } else { esc(&text) })?)
    });
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true);
    environment.set_syntax(syntax.build().expect("the delimiters are valid"));
    environment.add_filter("counted", counted::<u64>);
    environment.add_filter("reason", |why: &str| reason(why).to_owned());
    environment.add_filter("subject", subject);
    environment.add_filter("time", time);
    let page = environment.template_from_named_str("page.html", PAGE).expect("valid template");
    let digest = BASE64_STANDARD.encode(Sha256::digest(STYLE));
    let view = context! { style => STYLE, digest, ..Value::from(Serde(journal)) };
    page.render(view).expect("the template fits the journal")
}

/// Shortens the reason for a missing entry to at most 200 bytes, without quoted model or program
/// output. The run's log contains that output.
fn reason(why: &str) -> &str {
    let end = why.find(": \"").unwrap_or(why.len());
    &why[..why.floor_char_boundary(end.min(200))]
}

/// Returns the commit's subject without the tag, which the page shows as a badge.
fn subject(subject: &str, tag: Option<&str>) -> String {
    let rest = tag.and_then(|tag| subject.strip_prefix(tag)?.strip_prefix(':'));
    rest.unwrap_or(subject).trim().to_owned()
}

fn time(at: &str) -> Value {
    let at: Timestamp = at.parse().unwrap_or_default();
    let exact = at.strftime("%Y-%m-%dT%H:%M:%SZ");
    let shown = at.strftime("%Y-%m-%d %H:%M UTC");
    Value::from_safe_string(format!("<time datetime=\"{exact}\">{shown}</time>"))
}

/// Escapes text for HTML. Replaces control characters other than newlines with spaces, and
/// characters that embed, override or isolate a text direction with U+FFFD.
fn esc(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' => out.push('\n'),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::model::{Commit, Gap, ShownEntry, TimelineItem};
    use super::*;
    use runner_jobs::lifecycle::daydream::Daydream;

    #[test]
    fn untrusted_text_is_escaped() {
        let evil = "<script>alert(1)</script>\"'&\u{202e}\u{0}<img src=x onerror=y>";
        let commit = Commit {
            hash: evil.into(),
            short: evil.into(),
            at: Timestamp::UNIX_EPOCH,
            subject: evil.into(),
            tag: None,
        };
        let shown = ShownEntry {
            id: evil.into(),
            agent: evil.into(),
            at: Timestamp::UNIX_EPOCH,
            title: evil.into(),
            model: evil.into(),
            tale: evil.into(),
            goals: vec![evil.into()],
            blue_sky: vec![evil.into()],
            fears: vec![evil.into()],
            verdicts: vec![super::super::model::AppliedVerdict {
                text: evil.into(),
                resolved: Some(commit.clone()),
            }],
            carry: vec![evil.into()],
            unseen: vec![evil.into()],
            facts: vec![evil.into()],
            failed_claims: vec![evil.into()],
            audited: Some(1),
            published: true,
            commit: Some(commit.clone()),
        };
        let journal = Journal {
            project: evil.into(),
            made: Timestamp::UNIX_EPOCH,
            items: vec![
                TimelineItem::Entry(Box::new(shown)),
                TimelineItem::Gap(Gap {
                    first: Timestamp::UNIX_EPOCH,
                    last: Timestamp::UNIX_EPOCH,
                    count: 2,
                    job: evil.into(),
                    why: evil.into(),
                }),
                TimelineItem::Commit(commit),
            ],
            daydreams: vec![Daydream { ts: Timestamp::UNIX_EPOCH, text: evil.into() }],
            commits_at: Some("https://example.org/a/commit/".into()),
        };
        let page = html(&journal);
        for bad in ["<script", "<img", "\u{202e}", "\u{0}", "onerror=y>\""] {
            assert!(!page.contains(bad), "{bad}");
        }
        assert!(page.matches("&lt;script&gt;").count() >= 19, "{page}");
        assert!(page.contains("default-src 'none'"));
    }
}
