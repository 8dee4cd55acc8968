//! Ids for projects, occurrences, runs, alerts and messages.
//!
//! Each id is a ULID, which sorts by creation time and is unique without a counter. A [`Fence`] is
//! a per-job counter that distinguishes the process in charge of a run from earlier processes.

use std::cell::Cell;
use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::digest::Digest;

/// The error for a string that is not a ULID.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is not an id (26 letters and digits, as `runner runs` prints them)")]
pub struct BadId {
    text: String,
}

thread_local! {
    static DRAWN: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Makes this thread derive the random part of all later ids from `seed`, which makes a simulation
/// reproducible. `None` restores random ids. A seed has an effect only with the feature
/// `fault-injection`. Never use a seed for real ids, because two processes with the same seed would
/// create the same ids.
pub fn draw_from(seed: Option<u64>) {
    DRAWN.set(seed);
}

fn random() -> u128 {
    let Some(state) = DRAWN.get().filter(|_| cfg!(feature = "fault-injection")) else {
        return ulid::Ulid::new().random();
    };
    DRAWN.set(Some(state.wrapping_add(1)));
    let digest = Digest::of(&state.to_le_bytes()).short();
    u128::from_str_radix(&digest, 16).expect("a short digest is 16 hex digits") << 16
}

macro_rules! ulid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Creates a new id whose creation time is `now`.
            pub fn new(now: Timestamp) -> Self {
                let millis = u64::try_from(now.as_millisecond()).unwrap_or(0);
                Self(ulid::Ulid::from_parts(millis, random()).to_string())
            }

            /// Creates a new id that sorts after `last` if both are created in the same
            /// millisecond.
            pub fn new_after(last: Option<&Self>, now: Timestamp) -> Self {
                let fresh = Self::new(now);
                let Some(last) = last.filter(|last| last.0[..10] == fresh.0[..10] && **last > fresh)
                else {
                    return fresh;
                };
                let next = ulid::Ulid::from_string(&last.0).ok().and_then(|id| id.increment());
                next.map_or(fresh, |next| Self(next.to_string()))
            }

            /// Returns the 26 characters of the id.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Returns the wall-clock time at which the id was created, or `None` if that time is
            /// too late for a [`Timestamp`].
            pub fn at(&self) -> Option<Timestamp> {
                let id = ulid::Ulid::from_string(self.as_str()).ok()?;
                Timestamp::from_millisecond(i64::try_from(id.timestamp_ms()).ok()?).ok()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                match ulid::Ulid::from_string(text) {
                    Ok(id) => Ok(Self(id.to_string())),
                    Err(_) => Err(BadId { text: text.to_owned() }),
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                String::deserialize(from)?.parse().map_err(D::Error::custom)
            }
        }
    };
}

ulid_id!(
    /// The id of a repository that runner manages. `runner init` assigns it.
    ProjectId
);
ulid_id!(
    /// The id of one scheduled time, event or request for which a job is due.
    OccurrenceId
);
ulid_id!(
    /// The id of one attempt at an occurrence.
    RunId
);
ulid_id!(
    /// The id of an alert about a job.
    AlertId
);
ulid_id!(
    /// The id of one message to one channel. All attempts to deliver the message have the same id.
    MessageId
);

/// A number that increases whenever a run of the job is admitted or taken over. A commit with an
/// older number is refused, because its run has been taken over.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Fence(pub i64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time_and_parse_back() {
        let early = RunId::new(Timestamp::from_second(1_000).unwrap());
        let late = RunId::new(Timestamp::from_second(2_000).unwrap());
        assert!(early < late);
        assert_eq!(early.as_str().parse::<RunId>().unwrap(), early);
        let mut last = late;
        for _ in 0..100 {
            let next = RunId::new_after(Some(&last), Timestamp::from_second(2_000).unwrap());
            assert!(next > last);
            last = next;
        }
        let earlier = RunId::new_after(Some(&last), Timestamp::from_second(1_999).unwrap());
        assert!(earlier < last, "ids follow a clock that was set back");
        assert!("nonsense".parse::<RunId>().is_err());
    }
}
