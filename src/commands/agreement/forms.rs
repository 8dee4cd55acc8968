//! Reads the values that one form of output shows: JSON, a page as a browser parses it, or a
//! terminal's screen.
//!
//! These functions read only the form itself, and must never use the code that renders it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use ratatui::buffer::Buffer;
use scraper::{ElementRef, Html, Selector};
use serde_json::Value;

/// Values, keyed by field, or by row and field if the form is a list.
pub type Facts = BTreeMap<String, String>;

/// Returns the letters and digits of a string, except those in `\u{...}` escapes. Only these are
/// the same in all forms, which fold lines and escape or replace markup and control characters.
pub fn plain(text: &str) -> String {
    let mut out = String::new();
    // A Markdown renderer shows an entity as its character.
    let text = text.replace("&lt;", "<").replace("&gt;", ">");
    let mut rest = text.as_str();
    while let Some(at) = rest.find("\\u{") {
        let code = rest[at + 3..]
            .split_once('}')
            .filter(|(code, _)| !code.is_empty() && code.chars().all(|c| c.is_ascii_hexdigit()));
        match code {
            Some((_, after)) => {
                out.extend(rest[..at].chars().filter(|c| c.is_alphanumeric()));
                rest = after;
            }
            None => {
                out.extend(rest[..at + 3].chars().filter(|c| c.is_alphanumeric()));
                rest = &rest[at + 3..];
            }
        }
    }
    out.extend(rest.chars().filter(|c| c.is_alphanumeric()));
    out
}

/// Returns the text of a field, or an empty string if the field is not text.
pub fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

pub fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn joined(value: &Value) -> String {
    items(value).iter().map(|it| plain(it.as_str().unwrap())).collect()
}

/// Returns a run's state as users see it.
pub fn state(run: &Value) -> &str {
    match (run["outcome"].as_str(), run["asked_to_end"].is_string(), text(run, "state")) {
        (Some(outcome), ..) => outcome,
        (None, true, "running") => "ending",
        (None, _, state) => state,
    }
}

pub fn runs_of_json(runs: &Value) -> Facts {
    let mut facts = Facts::new();
    for run in items(runs) {
        let mut add = |field: &str, value: String| {
            facts.insert(format!("{} {field}", text(run, "id")), value)
        };
        add("job", plain(text(run, "job")));
        add("state", state(run).to_owned());
        let at: Timestamp = text(run, "requested").parse().unwrap();
        add("requested", at.strftime("%Y-%m-%d %H:%M").to_string());
        // For a queued run, the terminal's list shows the reason for the wait.
        if text(run, "state") != "queued" {
            let why = run["why"].as_str().unwrap_or_else(|| text(run, "headline"));
            add("result", plain(why));
        }
    }
    facts
}

/// A page as a browser parses it.
pub struct Page(Html);

impl Page {
    pub fn new(body: &str) -> Self {
        Self(Html::parse_document(body))
    }

    pub fn all(&self, selector: &str) -> Vec<ElementRef<'_>> {
        self.0.select(&Selector::parse(selector).unwrap()).collect()
    }

    /// Returns the [`plain`] text of each matching element.
    pub fn texts(&self, selector: &str) -> Vec<String> {
        self.all(selector).into_iter().map(|it| plain(&inner(it))).collect()
    }

    /// Returns the description of each term in the page's definition lists, keyed by term.
    pub fn terms(&self) -> BTreeMap<String, String> {
        let names = self.all("dt").into_iter().map(inner);
        names.zip(self.all("dd").into_iter().map(inner)).collect()
    }
}

pub fn inner(element: ElementRef<'_>) -> String {
    element.text().collect()
}

/// Returns the descendants of an element that match a selector.
pub fn within<'a>(element: ElementRef<'a>, selector: &str) -> Vec<ElementRef<'a>> {
    element.select(&Selector::parse(selector).unwrap()).collect()
}

pub fn runs_of_page(page: &Page) -> Facts {
    let mut facts = Facts::new();
    for row in page.all("tbody tr") {
        let cells = within(row, "td");
        let link = within(cells[0], "a")[0].value().attr("href").unwrap();
        let id = link.rsplit('/').next().unwrap();
        let mut add = |field: &str, value: String| facts.insert(format!("{id} {field}"), value);
        add("job", plain(&inner(cells[1])));
        let state = inner(cells[2]).trim().to_owned();
        add("requested", inner(cells[3]).trim()[..16].to_owned());
        if state != "queued" {
            add("result", plain(&inner(cells[4])));
        }
        add("state", state);
    }
    facts
}

/// A terminal's screen.
pub struct Shown(pub Buffer);

impl Shown {
    /// Returns the text of a row between two columns.
    pub fn part(&self, row: u16, columns: std::ops::Range<u16>) -> String {
        columns.map(|column| self.0[(column, row)].symbol()).collect()
    }

    pub fn rows(&self) -> Vec<String> {
        let (width, height) = (self.0.area.width, self.0.area.height);
        (0..height).map(|row| self.part(row, 0..width).trim_end().to_owned()).collect()
    }

    /// Returns the values of a table of name-value pairs, keyed by name. A row without a name
    /// continues the previous one.
    pub fn values(&self) -> BTreeMap<String, String> {
        let mut all: BTreeMap<String, String> = BTreeMap::new();
        let mut name = String::new();
        for row in self.rows() {
            let (first, value) = match row.strip_prefix("  ") {
                // The rows of a project are indented.
                Some(row) if row.starts_with(|c: char| c != ' ') => {
                    row.split_once("  ").unwrap_or((row, ""))
                }
                Some(row) => ("", row),
                None => row.split_once("  ").unwrap_or((&row, "")),
            };
            if !first.is_empty() {
                first.trim().clone_into(&mut name);
            }
            let known = all.entry(name.clone()).or_default();
            known.push('\n');
            known.push_str(value.trim());
        }
        all.into_iter().map(|(name, value)| (name, value.trim().to_owned())).collect()
    }
}

/// Reads the terminal's list of runs.
pub fn runs_of_screen(screen: &Shown) -> Facts {
    const NAMES: [&str; 5] = ["RUN", "JOB", "STATE", "REQUESTED", "RESULT"];
    let rows = screen.rows();
    let header =
        u16::try_from(rows.iter().position(|row| row.starts_with("RUN  ")).unwrap()).unwrap();
    let titles = &rows[usize::from(header)];
    let mut starts = NAMES.map(|name| u16::try_from(titles.find(name).unwrap()).unwrap()).to_vec();
    starts.push(screen.0.area.width);
    let mut facts = Facts::new();
    for row in header + 1..screen.0.area.height {
        let cells: Vec<String> =
            starts.windows(2).map(|it| screen.part(row, it[0]..it[1]).trim().to_owned()).collect();
        if cells[0].len() != 26 {
            break;
        }
        let mut add =
            |field: &str, value: String| facts.insert(format!("{} {field}", cells[0]), value);
        add("job", plain(&cells[1]));
        add("state", cells[2].clone());
        add("requested", utc(&cells[3]));
        if cells[2] != "queued" {
            add("result", plain(&cells[4]));
        }
    }
    facts
}

/// Converts a time from the system's time zone to UTC.
fn utc(time: &str) -> String {
    let local: DateTime = format!("{}:00", time.replace(' ', "T")).parse().unwrap();
    let at = local.to_zoned(TimeZone::system()).unwrap().timestamp();
    at.strftime("%Y-%m-%d %H:%M").to_string()
}

pub fn run_of_json(run: &Value) -> Facts {
    let mut facts = Facts::new();
    let mut add = |field: &str, value: String| facts.insert(field.to_owned(), value);
    add("job", plain(text(run, "job")));
    add("state", state(run).to_owned());
    add("why", plain(text(run, "why")));
    add("attempt", run["attempt"].to_string());
    add("origin", text(run, "origin").to_owned());
    add("backend", plain(text(run, "backend")));
    add("sandbox", plain(text(run, "containment")));
    add("summary", plain(text(run, "headline")) + &joined(&run["lines"]));
    add("artifacts", joined(&run["artifacts"]));
    add("asked to end", plain(text(run, "asked_to_end")));
    for unit in ["calls", "tokens", "ideas"] {
        add(&format!("spent {unit}"), run["spent"][unit].to_string());
    }
    facts
}

pub fn run_of_page(page: &Page, id: &str) -> Facts {
    let mut facts = Facts::new();
    let mut add = |field: &str, value: String| facts.insert(field.to_owned(), value);
    let title = page.texts("title").concat();
    add("job", title.split_once(&id[..10]).unwrap().0.to_owned());
    let tag = &page.all("main > p .tag")[0];
    add("state", inner(*tag).trim().to_owned());
    let first = inner(page.all("main > p")[0]);
    let headline = first.split_once(inner(*tag).as_str()).unwrap().1.rsplit_once('·').unwrap().0;
    let headline = plain(headline);
    add("why", page.texts("main > .card.trouble, main > .card.notice").concat());
    let rows = page.texts("section.card tbody tr");
    let due = inner(page.all("section.card tbody tr td")[1]);
    add("origin", due.trim_start_matches("due (").trim_end_matches(')').to_owned());
    let requested = rows.iter().find_map(|row| row.split_once("requested")).unwrap().1;
    add("attempt", requested.strip_prefix("attempt").unwrap_or("1").to_owned());
    add("asked to end", page.texts("p.warn").concat().trim_start_matches("Askedtoend").to_owned());
    let listed = |title: &str| -> String {
        let card = page
            .all("section.card")
            .into_iter()
            .find(|card| within(*card, "h2").first().is_some_and(|it| plain(&inner(*it)) == title));
        let texts = card.map(|card| within(card, "li")).unwrap_or_default();
        texts.into_iter().map(|it| plain(&inner(it))).collect()
    };
    add("summary", headline + &listed("Evidence"));
    add("artifacts", listed("Publishedfiles"));
    let terms = page.terms();
    let term = |name: &str| terms.get(name).cloned().unwrap_or_default();
    add("backend", plain(&term("Backend")));
    add("sandbox", plain(&term("Sandbox")));
    for (unit, name) in [("calls", "Calls"), ("tokens", "Tokens"), ("ideas", "Ideas")] {
        add(&format!("spent {unit}"), term(name));
    }
    facts
}

/// Reads the details of one run on the terminal.
pub fn run_of_screen(screen: &Shown) -> Facts {
    let values = screen.values();
    let value = |name: &str| values.get(name).cloned().unwrap_or_default();
    let mut facts = Facts::new();
    let mut add = |field: &str, value: String| facts.insert(field.to_owned(), value);
    add("job", plain(value("job").split(" (").next().unwrap()));
    let state = value("state");
    let word = state.split([':', ' ']).next().unwrap().to_owned();
    add("why", plain(state.split_once(": ").map_or("", |(_, why)| why)));
    add("state", word);
    for name in ["attempt", "origin"] {
        add(name, value(name));
    }
    for name in ["backend", "sandbox"] {
        add(name, plain(&value(name)));
    }
    // The terminal shows the request to end only until the run has ended.
    if values.contains_key("asked to end") {
        add("asked to end", plain(&value("asked to end")));
    }
    add("artifacts", plain(&value("published")));
    add("summary", plain(&value("headline")));
    let spent = value("spent");
    for (unit, noun) in [("calls", "call"), ("tokens", "token"), ("ideas", "idea")] {
        let part = spent.split(", ").find_map(|part| {
            let (amount, what) = part.split_once(' ')?;
            (what.trim_end_matches('s') == noun).then(|| amount.to_owned())
        });
        add(&format!("spent {unit}"), part.unwrap_or_else(|| "0".to_owned()));
    }
    facts
}
