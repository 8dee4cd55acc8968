//! Converts civil times to timestamps across a zone's transitions.
//!
//! There are two rules, as in Debian's cron. A *fixed* time is due once, when the local clock first
//! reaches or passes it. If a gap skips the time, it is due at the end of the gap. If a fold
//! repeats the time, it is due in the first pass. A time that follows *elapsed* time is due
//! whenever the local clock shows it. A gap adds no scheduled time, and the times in both passes of
//! a fold are due. This module must never depend on the kind of a trigger.

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{SignedDuration, Timestamp, ToSpan as _};

/// A set of civil times in whole seconds, without a zone.
pub(super) trait Calendar {
    /// Returns the calendar's first civil time strictly after `after`.
    fn next(&self, after: DateTime) -> Option<DateTime>;
    /// Counts the calendar's civil times after `after`, up to and including `until`.
    fn count(&self, after: DateTime, until: DateTime) -> u64;
}

/// Maximum age of a transition that can still affect the latest civil time that the clock has
/// shown.
const REACH: SignedDuration = SignedDuration::from_hours(52);

/// Returns the first scheduled time strictly after `after`, according to the rule for fixed times.
pub(super) fn next_fixed(
    calendar: &impl Calendar,
    zone: &TimeZone,
    after: Timestamp,
) -> Option<Timestamp> {
    let mut local = furthest(zone, after);
    loop {
        local = calendar.next(local)?;
        // The condition is false only if two transitions are so close that the civil time is not
        // well defined.
        if let Some(at) = reached(zone, local).filter(|at| *at > after) {
            return Some(at);
        }
    }
}

/// Counts the scheduled times in `(after, until]`, according to the rule for fixed times.
pub(super) fn count_fixed(
    calendar: &impl Calendar,
    zone: &TimeZone,
    after: Timestamp,
    until: Timestamp,
) -> u64 {
    let mut count = calendar.count(furthest(zone, after), furthest(zone, until));
    for edge in zone.following(after) {
        let at = edge.timestamp();
        if at > until {
            break;
        }
        // All times skipped by this transition are due at the transition and count as one.
        let before = at.saturating_sub(1.nanosecond()).map_or(after, |t| t.max(after));
        let (low, high) = (furthest(zone, before), furthest(zone, at));
        count = count.saturating_sub(calendar.count(low, high).saturating_sub(1));
    }
    count
}

/// Returns the first scheduled time strictly after `after`, according to the rule for elapsed time.
pub(super) fn next_elapsed(
    calendar: &impl Calendar,
    zone: &TimeZone,
    after: Timestamp,
) -> Option<Timestamp> {
    let mut offset = zone.to_offset(after);
    let mut local = offset.to_datetime(after);
    let mut edges = zone.following(after);
    let mut edge = edges.next();
    loop {
        let found = calendar.next(local)?;
        let at = offset.to_timestamp(found).ok()?;
        let Some(passed) = edge.as_ref().filter(|edge| edge.timestamp() <= at) else {
            return Some(at);
        };
        // The clock changes before this time. The search therefore restarts from the civil time
        // after the change, which may itself be due. A fold repeats only times that were shown
        // shortly before it. If the time that was found is far away, the search therefore skips
        // the transitions until shortly before that time.
        let passed = passed.timestamp();
        let far = passed.duration_since(after) > REACH && at.duration_since(passed) > REACH + REACH;
        let from = if far { at.checked_sub(REACH).ok()? } else { passed };
        offset = zone.to_offset(from);
        local = offset.to_datetime(from).checked_sub(1.nanosecond()).ok()?;
        if far {
            edges = zone.following(from);
        }
        edge = edges.next();
    }
}

/// Counts the scheduled times in `(after, until]`, according to the rule for elapsed time.
pub(super) fn count_elapsed(
    calendar: &impl Calendar,
    zone: &TimeZone,
    after: Timestamp,
    until: Timestamp,
) -> u64 {
    let shown = |at: Timestamp, offset: Offset| offset.to_datetime(at);
    let before = |at: DateTime| at.checked_sub(1.nanosecond()).unwrap_or(at);
    let mut offset = zone.to_offset(after);
    let mut from = shown(after, offset);
    let mut count = 0;
    for edge in zone.following(after) {
        let at = edge.timestamp();
        if at > until {
            break;
        }
        count += calendar.count(from, before(shown(at, offset)));
        offset = edge.offset();
        from = before(shown(at, offset));
    }
    count + calendar.count(from, shown(until, offset))
}

/// Returns the latest civil time that the local clock has shown up to and including `at`.
fn furthest(zone: &TimeZone, at: Timestamp) -> DateTime {
    let mut furthest = zone.to_datetime(at);
    let from = at.saturating_add(1.nanosecond()).unwrap_or(at);
    for edge in zone.preceding(from) {
        let edge = edge.timestamp();
        if at.duration_since(edge) > REACH {
            break;
        }
        if let Ok(before) = edge.checked_sub(1.nanosecond()) {
            furthest = furthest.max(zone.to_datetime(before));
        }
    }
    furthest
}

/// Returns the time at which the local clock first reaches or passes a civil time.
fn reached(zone: &TimeZone, civil: DateTime) -> Option<Timestamp> {
    let ambiguous = zone.to_ambiguous_timestamp(civil);
    match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { .. } => ambiguous.unambiguous().ok(),
        AmbiguousOffset::Fold { .. } => ambiguous.earlier().ok(),
        AmbiguousOffset::Gap { .. } => {
            let inside = ambiguous.later().ok()?;
            zone.preceding(inside.checked_add(1.nanosecond()).ok()?)
                .next()
                .map(|edge| edge.timestamp())
        }
    }
}
