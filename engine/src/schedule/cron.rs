//! Cron expressions: five fields, names, `@daily` and its like, `L W #`, read as Debian's cron does.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

/// A cron expression.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cron {
    text: String,
}

/// The expression means nothing.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is no cron expression: {why}")]
pub struct BadCron {
    text: String,
    why: String,
}

impl Cron {
    /// The first moment strictly after `after` in `zone`.
    pub fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let parsed = croner::Cron::from_str(&self.text).ok()?;
        let next = parsed.find_next_occurrence(&after.to_zoned(zone.clone()), false);
        next.ok().map(|next| next.timestamp())
    }
}

impl FromStr for Cron {
    type Err = BadCron;
    fn from_str(text: &str) -> Result<Self, BadCron> {
        match croner::Cron::from_str(text) {
            Ok(_) => Ok(Self {
                text: text.to_owned(),
            }),
            Err(error) => Err(BadCron {
                text: text.to_owned(),
                why: error.to_string(),
            }),
        }
    }
}

impl TryFrom<String> for Cron {
    type Error = BadCron;
    fn try_from(text: String) -> Result<Self, BadCron> {
        text.parse()
    }
}

impl From<Cron> for String {
    fn from(cron: Cron) -> Self {
        cron.text
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
