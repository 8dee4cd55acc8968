//! Looks up time zones by name.
//!
//! `jiff` lists the host's whole time zone database before its first lookup, which takes longer
//! than the rest of a short command. This module reads only the zone's file. It must never
//! interpret a name: `jiff` looks up every zone that this module cannot read.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use jiff::tz::TimeZone;

use crate::files;
use crate::time::boot_time;

/// The folder that contains the host's zones. `jiff` also searches other folders.
const FOLDER: &str = "/usr/share/zoneinfo";
/// Maximum size of a zone file, in bytes. The largest are under 4 KB.
const LARGEST: u64 = 64 * 1024;
/// The time after which a zone is read again, because the host may have been updated.
const FRESH: Duration = Duration::from_mins(5);

/// The zones that were looked up, each with the boot time of the lookup.
static KNOWN: LazyLock<Mutex<BTreeMap<String, (TimeZone, Duration)>>> =
    LazyLock::new(Mutex::default);

/// Returns the zone with the given IANA name, such as `Europe/Berlin`.
///
/// # Errors
/// Returns an error if there is no such zone on this host.
pub fn get(name: &str) -> Result<TimeZone, jiff::Error> {
    if name == "UTC" {
        return Ok(TimeZone::UTC);
    }
    let zone = known(name, |name| read(name).or_else(|| TimeZone::get(name).ok()));
    zone.map_or_else(|| TimeZone::get(name), Ok)
}

/// Returns a zone that was looked up recently, or looks it up.
fn known(name: &str, look_up: impl FnOnce(&str) -> Option<TimeZone>) -> Option<TimeZone> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let now = boot_time();
    if let Some((zone, at)) = known.get(name)
        && now.saturating_sub(*at) < FRESH
    {
        return Some(zone.clone());
    }
    let zone = look_up(name)?;
    known.insert(name.to_owned(), (zone.clone(), now));
    Some(zone)
}

/// Returns the host's local time zone, from the variable `TZ` or else from `/etc/localtime`.
#[allow(clippy::disallowed_methods, reason = "`TZ` is part of the lookup, as in `jiff`")]
pub fn system() -> TimeZone {
    let name = match std::env::var_os("TZ") {
        // Other values may be rules or paths.
        Some(value) => value.into_string().ok().filter(|it| it == "UTC" || it.contains('/')),
        None => std::fs::read_link("/etc/localtime").ok().and_then(|target| of_link(&target)),
    };
    name.and_then(|name| if name == "UTC" { Some(TimeZone::UTC) } else { known(&name, read) })
        .unwrap_or_else(TimeZone::system)
}

/// Returns the time zone of the host's own services, which do not know the user's variable `TZ`.
/// Without `/etc/localtime`, it is UTC.
pub fn host() -> TimeZone {
    let bytes = files::read_host(Path::new("/etc/localtime"), LARGEST).ok();
    let zone = bytes.and_then(|bytes| TimeZone::tzif("localtime", &bytes).ok());
    zone.unwrap_or(TimeZone::UTC)
}

/// Returns the name of [`system`], or `UTC` if the host does not name its zone.
pub fn system_name() -> String {
    system().iana_name().unwrap_or("UTC").to_owned()
}

/// Returns the name of the zone to which the host's local-time link points, or `None` if the target
/// is not a zone file.
fn of_link(target: &Path) -> Option<String> {
    let (_, name) = target.to_str()?.split_once("/zoneinfo/")?;
    is_plain(name).then(|| name.to_owned())
}

fn read(name: &str) -> Option<TimeZone> {
    if !is_plain(name) {
        return None;
    }
    let bytes = files::read_host(Path::new(FOLDER).join(name), LARGEST).ok()?;
    TimeZone::tzif(name, &bytes).ok()
}

/// Returns whether each part of the name is non-empty and contains only characters allowed in zone
/// names. The path of such a name is inside the folder.
fn is_plain(name: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_+-".contains(&byte))
    };
    name.split('/').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_match_those_of_jiff() {
        let instants = [-2_000_000_000, 0, 1_775_000_000, 1_793_500_000, 4_000_000_000];
        for name in
            ["Europe/Berlin", "America/New_York", "Etc/UTC", "Etc/GMT+5", "US/Eastern", "EST"]
        {
            let (ours, theirs) = (get(name), TimeZone::get(name));
            let (Ok(ours), Ok(theirs)) = (ours, theirs) else {
                panic!("{name} is unknown on this host");
            };
            assert_eq!(ours.iana_name(), theirs.iana_name(), "{name}");
            for second in instants {
                let at = jiff::Timestamp::from_second(second).unwrap();
                assert_eq!(ours.to_offset(at), theirs.to_offset(at), "{name} at {at}");
            }
        }
        assert!(read("Europe/Berlin").is_some());
    }

    #[test]
    fn unknown_zone_names_are_refused() {
        for name in [
            "",
            "Mars/Olympus",
            "../../../etc/passwd",
            "/etc/localtime",
            "America",
            "a//b",
            "zone.tab",
            "leapseconds",
        ] {
            assert!(get(name).is_err(), "{name}");
        }
        // Case does not matter, as in `jiff`.
        assert_eq!(get("europe/berlin").unwrap().iana_name(), Some("Europe/Berlin"));
    }

    #[test]
    fn local_time_link_names_a_zone() {
        let name = |target: &str| of_link(Path::new(target));
        assert_eq!(name("/usr/share/zoneinfo/Etc/UTC").as_deref(), Some("Etc/UTC"));
        assert_eq!(name("../var/db/timezone/zoneinfo/Asia/Tokyo").as_deref(), Some("Asia/Tokyo"));
        assert_eq!(name("/usr/share/zoneinfo/../../../etc/passwd"), None);
        assert_eq!(name("/etc/my-zone"), None);
    }
}
