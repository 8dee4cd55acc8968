//! The morning page: the report of a night as one self-contained file for a browser.
//!
//! ```text
//! NightReport ──> top: did it work, what did it cost, what was refused, what to do first
//!                  └─> dreamscape · runs · proposals · budgets · refused · sandbox · alerts
//! ```
//!
//! The page contains no script, no external image or font, and no external link: its own content security
//! policy forbids everything except the one style sheet, which it identifies by digest. All text
//! that came from a model, a repository or a person goes through [`write::Page::text`]. The page
//! must use nothing but the report, and never state anything that the report does not state.

mod details;
mod review;
mod runs;
mod scape;
mod top;
mod write;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use runner_engine::digest::Digest;

use super::model::NightReport;
use write::{Page, put};

/// The one style sheet.
const STYLE: &str = include_str!("style.css");

/// Renders the page.
pub fn render(report: &NightReport) -> String {
    let mut page = Page::default();
    put!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-",
        style_digest(),
        "'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n<title>Night ",
        report.night,
        " — ",
        report.project,
        "</title>\n<style>"
    );
    page.raw(STYLE);
    put!(page, "</style>\n</head>\n<body>\n<main>\n");
    top::write(&mut page, report);
    for (number, dreamscape) in report.dreamscapes.iter().enumerate() {
        scape::write(&mut page, dreamscape, number);
    }
    runs::write(&mut page, report);
    review::write(&mut page, report);
    details::write(&mut page, report);
    put!(
        page,
        "<footer>Made from the database and the artifacts of the night; made again at any time by ",
        "<code>runner report --night ",
        super::proposals::shell_word(&report.night),
        " --open</code></footer>\n</main>\n</body>\n</html>\n"
    );
    page.done()
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

/// Returns the CSS class that colours an outcome or a run state.
fn tone(word: &str) -> &'static str {
    match word {
        "succeeded" | "done" => "good",
        "degraded" | "missed" | "deferred" | "running" => "warn",
        "failed" | "timed-out" | "lost" => "bad",
        _ => "calm",
    }
}
