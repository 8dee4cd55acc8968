//! The forms of configuration values, and their descriptions for people. A shape describes and
//! never checks: the code that reads a value checks it.

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum Shape {
    /// Text.
    Text,
    /// true or false.
    Flag,
    /// A whole number between these limits, inclusive.
    Whole(i64, i64),
    /// A number from 0 to this.
    Number(u32),
    /// A whole number of at least 0, or "unlimited".
    CountCap,
    /// A number of at least 0, or "unlimited".
    MoneyCap,
    /// A duration, or "unlimited".
    TimeCap,
    /// A list of texts.
    Texts,
    /// "8h"; more than nothing.
    Duration,
    /// The same, or "0s".
    Wait,
    /// A duration, or "none".
    Limit,
    /// "90d".
    Age,
    /// The same, or "none".
    AgeLimit,
    /// A list of waits.
    Waits,
    /// "02:30".
    Time,
    /// "22:00-06:00", or "none".
    Hours,
    /// An IANA zone or "system".
    Zone,
    /// "512KB".
    Size,
    Trigger,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// `[{ from, to }]`.
    Artifacts,
    /// A ULID.
    Id,
}

impl Shape {
    /// Describes a value of this shape, as in "it must be …".
    pub(in crate::config) fn describe(self) -> String {
        let fixed = match self {
            Self::Whole(least, most) if most >= i64::from(u32::MAX) => {
                return format!("a whole number of at least {least}");
            }
            Self::Whole(least, most) => return format!("a whole number from {least} to {most}"),
            Self::OneOf(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
                return format!("one of {}", words.join(", "));
            }
            Self::Text | Self::Id => "text in quotes",
            Self::Flag => "true or false",
            Self::Number(_) => "a number of at least 0",
            Self::CountCap => "a whole number of at least 0, or \"unlimited\"",
            Self::MoneyCap => "a number of at least 0, or \"unlimited\"",
            Self::TimeCap => "a duration, like \"8h\", or \"unlimited\"",
            Self::Age => "an age, like \"90d\"",
            Self::AgeLimit => "an age, like \"90d\", or \"none\"",
            Self::Texts => "a list of texts, like [\"a\", \"b\"]",
            Self::Duration | Self::Wait => "a duration, like \"8h\"",
            Self::Limit => "a duration, like \"8h\", or \"none\"",
            Self::Waits => "a list of durations, like [\"1m\", \"5m\"]",
            Self::Time => "a time of day, like \"02:30\"",
            Self::Hours => "hours, like \"22:00-06:00\", or \"none\"",
            Self::Zone => "a time zone, like \"Europe/Berlin\"",
            Self::Size => "a size, like \"512KB\"",
            Self::Trigger => "a trigger, like \"daily 02:30\"",
            Self::Artifacts => "a list like [{ from = \"a.txt\", to = \"notes/a.txt\" }]",
        };
        fixed.to_owned()
    }
}
