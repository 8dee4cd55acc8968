//! The grammar of cron expressions: what may be written in each of the five fields.
//!
//! Reads text into items, so that a mistake is named in the words it was made with and a schedule
//! can be told in plain ones. It is stricter than croner, which takes a month's name for an hour,
//! `L` alone for a weekday that never comes and `?` or `+` from other dialects. It must never decide
//! which moments an expression means.

/// One of the five fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Minute,
    Hour,
    Day,
    Month,
    Weekday,
}

/// A part of a field between commas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// `*`, or each so many of all: `*/15`.
    All { step: u16 },
    /// `9-17`, or each so many of them: `9-17/2`.
    Range { from: u16, to: u16, step: u16 },
    /// `5`.
    One(u16),
    /// `L`: the last day of the month.
    Last,
    /// `LW`: the last day of the month from Monday to Friday.
    LastWorking,
    /// `15W`: the day from Monday to Friday nearest to the 15th, in the same month.
    Near(u16),
    /// `5#3`: the third Friday of the month.
    Nth { day: u16, nth: u16 },
    /// `5L`: the last Friday of the month.
    LastOf(u16),
}

/// The five fields of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    pub minute: Vec<Item>,
    pub hour: Vec<Item>,
    pub day: Vec<Item>,
    pub month: Vec<Item>,
    pub weekday: Vec<Item>,
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

const MONTHS: [&str; 12] = [
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// The five fields that a text stands for, nicknames spelled out, in upper case.
pub(super) fn spelled(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.starts_with('@') {
        let known = NICKNAMES
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(text));
        return match known {
            Some((_, fields)) => Ok((*fields).to_owned()),
            None if text.eq_ignore_ascii_case("@reboot") => {
                Err("the start of the host is no moment of a calendar".to_owned())
            }
            None => Err(format!(
                "there is no {text}; there are {}",
                NICKNAMES.map(|(name, _)| name).join(", ")
            )),
        };
    }
    let text = text.to_ascii_uppercase();
    match text.split_whitespace().count() {
        5 => Ok(text),
        count @ (6 | 7) => Err(format!(
            "it has {count} fields; there are five (minute, hour, day of month, month, day of week), \
             none for seconds or years"
        )),
        count => Err(format!(
            "it has {count} of the five fields (minute, hour, day of month, month, day of week)"
        )),
    }
}

impl Fields {
    /// Reads what [`spelled`] has returned.
    pub(super) fn read(spelled: &str) -> Result<Self, String> {
        let mut parts = spelled.split_whitespace();
        let mut next = |kind: Kind| read(kind, parts.next().unwrap_or_default());
        Ok(Self {
            minute: next(Kind::Minute)?,
            hour: next(Kind::Hour)?,
            day: next(Kind::Day)?,
            month: next(Kind::Month)?,
            weekday: next(Kind::Weekday)?,
        })
    }

    /// Debian's rule: a day must match both its fields when either begins with `*`, else one of them.
    pub(super) fn both_days(&self) -> bool {
        starred(&self.day) || starred(&self.weekday)
    }

    /// Whether the moments follow elapsed time: the minute or the hour begins with `*`.
    pub(super) fn elapsed(&self) -> bool {
        starred(&self.minute) || starred(&self.hour)
    }
}

fn starred(field: &[Item]) -> bool {
    matches!(field.first(), Some(Item::All { .. }))
}

/// Whether a field is nothing but `*`.
pub(super) fn any(field: &[Item]) -> bool {
    field == [Item::All { step: 1 }]
}

fn read(kind: Kind, text: &str) -> Result<Vec<Item>, String> {
    let items: Vec<Item> = text
        .split(',')
        .map(|part| {
            item(kind, part).map_err(|why| format!("{part:?} in the {} field: {why}", kind.name()))
        })
        .collect::<Result<_, _>>()?;
    if items.contains(&Item::Last) && items.contains(&Item::LastWorking) {
        return Err(format!(
            "{text:?} in the {} field: L and LW do not go together",
            kind.name()
        ));
    }
    Ok(items)
}

fn item(kind: Kind, part: &str) -> Result<Item, String> {
    if part.is_empty() {
        return Err("nothing between the commas".to_owned());
    }
    if let Some((values, step)) = part.split_once('/') {
        let step = number(step).filter(|step| *step > 0);
        let step = step.ok_or("a step is a whole number of at least 1")?;
        return match (values, values.split_once('-')) {
            ("*", _) => Ok(Item::All { step }),
            (_, Some((from, to))) => range(kind, from, to, step),
            _ => Err(format!(
                "a step needs * or a range before it, like {values}-{}/{step}",
                kind.bounds().1
            )),
        };
    }
    match (kind, part) {
        (_, "*") => return Ok(Item::All { step: 1 }),
        (Kind::Day, "L") => return Ok(Item::Last),
        (Kind::Day, "LW") => return Ok(Item::LastWorking),
        (Kind::Weekday, "L") => {
            return Err("L needs a weekday before it, like 5L for the last Friday".to_owned());
        }
        _ => {}
    }
    if kind == Kind::Day
        && let Some(day) = part.strip_suffix('W')
    {
        return value(kind, day).map(Item::Near);
    }
    if kind == Kind::Weekday {
        if let Some((day, nth)) = part.split_once('#') {
            let nth = number(nth).filter(|nth| (1..=5).contains(nth));
            let nth = nth.ok_or("after # stands 1 to 5")?;
            let day = value(kind, day)? % 7;
            return Ok(Item::Nth { day, nth });
        }
        if let Some(day) = part.strip_suffix('L') {
            return value(kind, day).map(|day| Item::LastOf(day % 7));
        }
    }
    match part.split_once('-') {
        Some((from, to)) => range(kind, from, to, 1),
        None => value(kind, part).map(Item::One),
    }
}

fn range(kind: Kind, from: &str, to: &str, step: u16) -> Result<Item, String> {
    let sunday_last = kind == Kind::Weekday && to == "SUN";
    let from = value(kind, from)?;
    let to = if sunday_last { 7 } else { value(kind, to)? };
    if from > to {
        return Err("the range runs backwards; write it as two, with a comma".to_owned());
    }
    Ok(Item::Range { from, to, step })
}

fn value(kind: Kind, text: &str) -> Result<u16, String> {
    let (low, high) = kind.bounds();
    let named = |names: &[&str]| {
        let at = names.iter().position(|name| *name == text)?;
        u16::try_from(at).ok().map(|at| at + low)
    };
    let value = match kind {
        Kind::Month => named(&MONTHS),
        Kind::Weekday => named(&WEEKDAYS),
        _ => None,
    };
    let value = value.or_else(|| number(text));
    value
        .filter(|value| (low..=high).contains(value))
        .ok_or_else(|| match kind {
            Kind::Month => "a month is 1 to 12 or JAN to DEC".to_owned(),
            Kind::Weekday => "a weekday is 0 to 7 (0 and 7 are Sunday) or SUN to SAT".to_owned(),
            _ => format!("{text:?} is not {low} to {high}"),
        })
}

/// Digits only: no sign, no spaces, no more than a field can hold.
fn number(text: &str) -> Option<u16> {
    let digits = !text.is_empty() && text.len() <= 3 && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day-of-month",
            Self::Month => "month",
            Self::Weekday => "day-of-week",
        }
    }

    pub(super) fn bounds(self) -> (u16, u16) {
        match self {
            Self::Minute => (0, 59),
            Self::Hour => (0, 23),
            Self::Day => (1, 31),
            Self::Month => (1, 12),
            Self::Weekday => (0, 7),
        }
    }
}
