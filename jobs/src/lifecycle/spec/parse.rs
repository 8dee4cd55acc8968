//! Parses a cycle's declaration into states.

use std::time::Duration;

use jiff::SignedDuration;
use runner_engine::store::Budget;
use runner_text::nearest::nearest;
use runner_text::org::{BoardForm, Line, headings, lines};

use super::{CycleState, Spec, SpecError, StateKind, graph};

/// Maximum size of a declaration, in bytes.
pub const LARGEST: usize = 1 << 18;
/// Maximum length of a state's name, which becomes part of a file name.
const LONGEST_NAME: usize = 64;
/// Maximum value of `REPEAT`.
const MOST_REPEATS: u32 = 1000;

/// The default minimum interval of a rem state.
const REM_INTERVAL: SignedDuration = SignedDuration::from_mins(50);
/// The value of `MIN-INTERVAL` that disables the minimum interval.
const NO_INTERVAL: &str = "0m";

const KEYS: [&str; 8] =
    ["KIND", "NEXT", "REPEAT", "MIN-INTERVAL", "PROMPT", "BACKEND", "BUDGET", "TIMEOUT"];

/// Parses a declaration.
///
/// # Errors
/// Returns the mistakes in line order. The list is never empty.
pub fn parse(text: &str, form: BoardForm) -> Result<Spec, Vec<SpecError>> {
    if text.len() > LARGEST {
        let why = format!("the file has {} bytes; the limit is {LARGEST}", text.len());
        return Err(vec![SpecError { line: 1, why }]);
    }
    let mut mistakes = Vec::new();
    let all: Vec<Line<'_>> = lines(text).collect();
    let heads = headings(text, form);
    let mut states = Vec::new();
    for (at, head) in heads.iter().enumerate() {
        let end = heads.get(at + 1).map_or(all.len(), |next| next.line - 1);
        let body = &all[head.line..end.max(head.line)];
        let found = match form {
            BoardForm::Org => drawer(body, &mut mistakes),
            BoardForm::Markdown => items(body, &mut mistakes),
        };
        let Some((properties, rest)) = found else {
            continue;
        };
        let about = rest.iter().map(|line| line.text.trim_end());
        let about = about.collect::<Vec<_>>().join("\n").trim().to_owned();
        states.push(state(&head.text, head.line, &properties, about, &mut mistakes));
    }
    if states.is_empty() {
        let example = match form {
            BoardForm::Org => "a heading with a drawer that contains :NEXT:",
            BoardForm::Markdown => "a heading with a list that contains - NEXT:",
        };
        let why = format!("the file declares no state (expected {example})");
        mistakes.push(SpecError { line: 1, why });
    }
    let spec = Spec { states };
    if mistakes.is_empty() {
        graph::check(&spec, &mut mistakes);
    }
    if mistakes.is_empty() {
        return Ok(spec);
    }
    mistakes.sort_by_key(|mistake| mistake.line);
    Err(mistakes)
}

struct Property<'t> {
    line: usize,
    key: &'t str,
    value: &'t str,
}

type DrawerParts<'a, 't> = (Vec<Property<'t>>, &'a [Line<'t>]);

/// Returns the properties in the drawer directly below an org heading and the lines after the
/// drawer, or `None` if there is no drawer. Adds invalid lines and a missing `:END:` to `mistakes`.
fn drawer<'a, 't>(
    body: &'a [Line<'t>],
    mistakes: &mut Vec<SpecError>,
) -> Option<DrawerParts<'a, 't>> {
    let first = body.first()?;
    if !first.text.trim().eq_ignore_ascii_case(":PROPERTIES:") {
        return None;
    }
    let mut out = Vec::new();
    for (at, line) in body.iter().enumerate().skip(1) {
        let text = line.text.trim();
        if text.eq_ignore_ascii_case(":END:") {
            return Some((out, &body[at + 1..]));
        }
        let property = text.strip_prefix(':').and_then(|rest| rest.split_once(':'));
        match property {
            Some((key, value)) => {
                out.push(Property { line: line.number, key: key.trim(), value: value.trim() })
            }
            None if text.is_empty() => {}
            None => mistakes.push(SpecError {
                line: line.number,
                why: format!("{text:?} is not a property (like :NEXT: rem)"),
            }),
        }
    }
    mistakes.push(SpecError { line: first.number, why: "this drawer has no :END:".to_owned() });
    Some((out, &[]))
}

/// Returns the properties at the start of the list below a Markdown heading and the lines after
/// them, or `None` if the list does not begin with a property.
fn items<'a, 't>(
    body: &'a [Line<'t>],
    mistakes: &mut Vec<SpecError>,
) -> Option<DrawerParts<'a, 't>> {
    let mut out = Vec::new();
    let (mut end, mut blank) = (0, false);
    for (at, line) in body.iter().enumerate() {
        match property(line) {
            // Below a blank line, an unknown name is part of the instructions.
            Some(property) if !blank || is_known(&property) => {
                out.push(property);
                end = at + 1;
            }
            None if line.text.trim().is_empty() => blank = true,
            _ => break,
        }
    }
    let rest = &body[end..];
    if !out.is_empty() {
        let late = rest.iter().filter_map(property).filter(is_known);
        mistakes.extend(late.map(|it| SpecError {
            line: it.line,
            why: format!(
                "{} follows other text; move it into the list below the heading, or write it in lower case if it is not a property",
                it.key
            ),
        }));
    }
    (!out.is_empty()).then_some((out, rest))
}

/// Returns the name of a property as in [`KEYS`].
fn name_of(property: &Property<'_>) -> String {
    property.key.to_ascii_uppercase().replace('_', "-")
}

fn is_known(property: &Property<'_>) -> bool {
    KEYS.contains(&name_of(property).as_str())
}

/// Parses a list item such as `- NEXT: rem`. Only an upper-case name is a key; any other item is
/// prose.
fn property<'t>(line: &Line<'t>) -> Option<Property<'t>> {
    let (key, value) = line.text.trim().strip_prefix(['-', '*', '+'])?.split_once(':')?;
    let key = key.trim().trim_matches('`');
    let is_key =
        !key.is_empty() && key.bytes().all(|b| b.is_ascii_uppercase() || b"-_".contains(&b));
    is_key.then(|| Property { line: line.number, key, value: value.trim() })
}

fn state(
    name: &str,
    line: usize,
    properties: &[Property<'_>],
    about: String,
    mistakes: &mut Vec<SpecError>,
) -> CycleState {
    let mut state = CycleState {
        name: name.to_owned(),
        kind: StateKind::default(),
        next: String::new(),
        repeat: 1,
        min_interval: None,
        prompt: None,
        backend: None,
        budget: Budget::default(),
        timeout: None,
        about,
        line,
    };
    let mut wrong = |line: usize, why: String| mistakes.push(SpecError { line, why });
    let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(letters) {
        wrong(
            line,
            format!(
                "{name:?} is not a valid state name (letters, digits, _ and -, at most {LONGEST_NAME} characters)"
            ),
        );
    }
    let mut seen: Vec<String> = Vec::new();
    for property in properties {
        let key = name_of(property);
        if seen.contains(&key) {
            wrong(property.line, format!("{key} is given twice in {name}"));
            continue;
        }
        let value = property.value;
        let done = if value.is_empty() && KEYS.contains(&key.as_str()) {
            Err(format!("{key} is empty"))
        } else {
            put(&mut state, &key, value)
        };
        if let Err(why) = done {
            wrong(property.line, why);
        }
        seen.push(key);
    }
    if state.kind == StateKind::Rem {
        state.min_interval.get_or_insert(REM_INTERVAL);
    }
    if state.next.is_empty() && !seen.iter().any(|key| key == "NEXT") {
        wrong(line, format!("{name} has no NEXT: no state follows it"));
    }
    state
}

fn put(state: &mut CycleState, key: &str, value: &str) -> Result<(), String> {
    match key {
        "KIND" => {
            let known = StateKind::ALL.into_iter().find(|kind| kind.as_str() == value);
            state.kind = known.ok_or_else(|| {
                let words = StateKind::ALL.map(StateKind::as_str);
                let near = near(value, &words);
                format!("there is no kind {value:?} ({}){near}", words.join(", "))
            })?;
        }
        "NEXT" => state.next = value.to_owned(),
        "REPEAT" => {
            let number = value.parse().ok().filter(|n| (1..=MOST_REPEATS).contains(n));
            state.repeat = number.ok_or_else(|| {
                format!("REPEAT must be from 1 to {MOST_REPEATS}, but it is {value:?}")
            })?;
        }
        "MIN-INTERVAL" if value == NO_INTERVAL => state.min_interval = Some(SignedDuration::ZERO),
        "MIN-INTERVAL" => state.min_interval = Some(duration(value)?),
        "PROMPT" => state.prompt = Some(value.to_owned()),
        "BACKEND" => state.backend = Some(value.to_owned()),
        "BUDGET" => state.budget = budget(value)?,
        "TIMEOUT" => {
            let span = duration(value)?;
            if span < SignedDuration::from_secs(1) || span > SignedDuration::from_hours(24) {
                return Err(format!("TIMEOUT must be from 1s to 24h, but it is {value:?}"));
            }
            state.timeout = Duration::try_from(span).ok();
        }
        other => {
            let near = near(other, &KEYS);
            return Err(format!("there is no property {other:?} ({}){near}", KEYS.join(", ")));
        }
    }
    Ok(())
}

fn near(word: &str, known: &[&str]) -> String {
    nearest(word, known.iter().copied())
        .map_or_else(String::new, |near| format!("; did you mean {near:?}?"))
}

/// Parses a positive duration of at most ten years, such as "10m" or "1h30m".
fn duration(value: &str) -> Result<SignedDuration, String> {
    let known: Option<SignedDuration> = value.parse().ok();
    let fits = |span: &SignedDuration| {
        *span > SignedDuration::ZERO && *span <= SignedDuration::from_hours(10 * 366 * 24)
    };
    known
        .filter(fits)
        .ok_or_else(|| format!("{value:?} is not a duration (like 10m, 50m or 1h30m)"))
}

/// Parses a budget such as "calls=3 money=0.50".
fn budget(value: &str) -> Result<Budget, String> {
    let mut budget = Budget::default();
    for pair in value.split([' ', ',', '\t']).filter(|it| !it.is_empty()) {
        let wrong = || {
            format!(
                "{pair:?} is not part of a budget (such as calls=3, tokens=200000, money=0.50 or time=10m)"
            )
        };
        let (unit, amount) = pair.split_once('=').ok_or_else(wrong)?;
        let whole = || amount.parse::<u64>().map_err(|_| wrong());
        match unit {
            "calls" => budget.calls = Some(whole()?),
            "tokens" => budget.tokens = Some(whole()?),
            "ideas" => budget.ideas = Some(whole()?),
            "time" => budget.seconds = Some(duration(amount)?.as_secs().unsigned_abs()),
            "money" => {
                let dollars: f64 = amount.parse().map_err(|_| wrong())?;
                if !(0.0..=1e6).contains(&dollars) {
                    return Err(wrong());
                }
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "checked to be between 0 and 1,000,000"
                )]
                let micros = (dollars * 1e6).round() as u64;
                budget.micros = Some(micros);
            }
            _ => return Err(wrong()),
        }
    }
    Ok(budget)
}
