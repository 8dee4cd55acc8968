//! The grammar of cron expressions: the items that each of the five fields accepts.
//!
//! This module parses a string into items, for error messages that quote the user's input and for
//! descriptions of schedules. It is stricter than croner. croner accepts a month's name as an hour,
//! a lone `L` as a weekday that never matches, and `?` or `+` from other dialects. This module must
//! never decide which times an expression matches.

/// One of the five fields of a cron expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub(super) enum FieldKind {
    Minute,
    Hour,
    #[strum(to_string = "day-of-month")]
    Day,
    Month,
    #[strum(to_string = "day-of-week")]
    Weekday,
}

/// One item of a field's comma-separated list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldItem {
    /// `*` for all values, or `*/15` for every `step`-th value.
    All { step: u16 },
    /// `9-17` for a range, or `9-17/2` for every `step`-th value of a range.
    Range { from: u16, to: u16, step: u16 },
    /// A single value: `5`.
    One(u16),
    /// `L`: the last day of the month.
    Last,
    /// `LW`: the last weekday (Monday to Friday) of the month.
    LastWorking,
    /// `15W`: the weekday (Monday to Friday) nearest to the 15th, in the same month.
    Near(u16),
    /// `5#3`: the third Friday of the month.
    Nth { day: u16, nth: u16 },
    /// `5L`: the last Friday of the month.
    LastOf(u16),
}

/// The five fields of a cron expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    pub minute: Vec<FieldItem>,
    pub hour: Vec<FieldItem>,
    pub day: Vec<FieldItem>,
    pub month: Vec<FieldItem>,
    pub weekday: Vec<FieldItem>,
}

const NICKNAMES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// Returns the expression's five fields in upper case, with a nickname expanded.
pub(super) fn spelled(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.starts_with('@') {
        let known = NICKNAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        return match known {
            Some((_, fields)) => Ok((*fields).to_owned()),
            None if text.eq_ignore_ascii_case("@reboot") => {
                Err("the start of the host is not a calendar time".to_owned())
            }
            None => Err(format!(
                "the nickname {text} is unknown; the known nicknames are {}",
                NICKNAMES.map(|(name, _)| name).join(", ")
            )),
        };
    }
    let text = text.to_ascii_uppercase();
    match text.split_whitespace().count() {
        5 => Ok(text),
        count @ (6 | 7) => Err(format!(
            "it has {count} fields; a cron expression has five (minute, hour, day of month, month, day of week), \
             none for seconds or years"
        )),
        count => Err(format!(
            "it needs five fields (minute, hour, day of month, month, day of week), but has {count}"
        )),
    }
}

impl Fields {
    /// Parses the string returned by [`spelled`].
    pub(super) fn read(spelled: &str) -> Result<Self, String> {
        let mut parts = spelled.split_whitespace();
        let mut next = |kind: FieldKind| read(kind, parts.next().unwrap_or_default());
        Ok(Self {
            minute: next(FieldKind::Minute)?,
            hour: next(FieldKind::Hour)?,
            day: next(FieldKind::Day)?,
            month: next(FieldKind::Month)?,
            weekday: next(FieldKind::Weekday)?,
        })
    }

    /// Returns whether a day must match both day fields, which is the case if either field begins
    /// with `*`. Otherwise, one matching field is enough. This is Debian's rule.
    pub(super) fn both_days(&self) -> bool {
        starred(&self.day) || starred(&self.weekday)
    }

    /// Returns whether the scheduled times follow elapsed time, which is the case if the minute or
    /// hour field begins with `*`.
    pub(super) fn elapsed(&self) -> bool {
        starred(&self.minute) || starred(&self.hour)
    }
}

fn starred(field: &[FieldItem]) -> bool {
    matches!(field.first(), Some(FieldItem::All { .. }))
}

/// Returns whether a field is `*` or its equivalent `*/1`.
pub(super) fn any(field: &[FieldItem]) -> bool {
    field == [FieldItem::All { step: 1 }]
}

fn read(kind: FieldKind, text: &str) -> Result<Vec<FieldItem>, String> {
    let items: Vec<FieldItem> = text
        .split(',')
        .map(|part| {
            item(kind, part)
                .map_err(|why| format!("{part:?} in the {} field: {why}", kind.into_str()))
        })
        .collect::<Result<_, _>>()?;
    if items.contains(&FieldItem::Last) && items.contains(&FieldItem::LastWorking) {
        return Err(format!(
            "{text:?} in the {} field: L and LW cannot be combined",
            kind.into_str()
        ));
    }
    Ok(items)
}

fn item(kind: FieldKind, part: &str) -> Result<FieldItem, String> {
    if part.is_empty() {
        return Err("an item of the list is empty".to_owned());
    }
    if let Some((values, step)) = part.split_once('/') {
        let step = number(step).filter(|step| *step > 0);
        let step = step.ok_or("a step is a whole number of at least 1")?;
        return match (values, values.split_once('-')) {
            ("*", _) => Ok(FieldItem::All { step }),
            (_, Some((from, to))) => range(kind, from, to, step),
            _ => Err(format!(
                "a step needs * or a range before it, like {values}-{}/{step}",
                kind.limits().1
            )),
        };
    }
    match (kind, part) {
        (_, "*") => return Ok(FieldItem::All { step: 1 }),
        (FieldKind::Day, "L") => return Ok(FieldItem::Last),
        (FieldKind::Day, "LW") => return Ok(FieldItem::LastWorking),
        (FieldKind::Weekday, "L") => {
            return Err("L needs a weekday before it, like 5L for the last Friday".to_owned());
        }
        _ => {}
    }
    if kind == FieldKind::Day
        && let Some(day) = part.strip_suffix('W')
    {
        return value(kind, day).map(FieldItem::Near);
    }
    if kind == FieldKind::Weekday {
        if let Some((day, nth)) = part.split_once('#') {
            let nth = number(nth).filter(|nth| (1..=5).contains(nth));
            let nth = nth.ok_or("# needs a number from 1 to 5 after it")?;
            let day = value(kind, day)? % 7;
            return Ok(FieldItem::Nth { day, nth });
        }
        if let Some(day) = part.strip_suffix('L') {
            return value(kind, day).map(|day| FieldItem::LastOf(day % 7));
        }
    }
    match part.split_once('-') {
        Some((from, to)) => range(kind, from, to, 1),
        None => value(kind, part).map(FieldItem::One),
    }
}

fn range(kind: FieldKind, from: &str, to: &str, step: u16) -> Result<FieldItem, String> {
    let sunday_last = kind == FieldKind::Weekday && to == "SUN";
    let from = value(kind, from)?;
    let to = if sunday_last { 7 } else { value(kind, to)? };
    if from > to {
        return Err(
            "the range runs backwards; write it as two ranges, separated by a comma".to_owned()
        );
    }
    Ok(FieldItem::Range { from, to, step })
}

fn value(kind: FieldKind, text: &str) -> Result<u16, String> {
    let (low, high) = kind.limits();
    let named = |names: &[&str]| {
        let at = names.iter().position(|name| *name == text)?;
        u16::try_from(at).ok().map(|at| at + low)
    };
    let value = match kind {
        FieldKind::Month => named(&MONTHS),
        FieldKind::Weekday => named(&WEEKDAYS),
        _ => None,
    };
    let value = value.or_else(|| number(text));
    value.filter(|value| (low..=high).contains(value)).ok_or_else(|| match kind {
        FieldKind::Month => "a month is 1 to 12 or JAN to DEC".to_owned(),
        FieldKind::Weekday => "a weekday is 0 to 7 (0 and 7 are Sunday) or SUN to SAT".to_owned(),
        _ => format!("{text:?} is not a number from {low} to {high}"),
    })
}

/// Parses a number of one to three digits, without a sign or spaces.
fn number(text: &str) -> Option<u16> {
    let digits = !text.is_empty() && text.len() <= 3 && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

impl FieldKind {
    pub(super) fn limits(self) -> (u16, u16) {
        match self {
            Self::Minute => (0, 59),
            Self::Hour => (0, 23),
            Self::Day => (1, 31),
            Self::Month => (1, 12),
            Self::Weekday => (0, 7),
        }
    }
}
