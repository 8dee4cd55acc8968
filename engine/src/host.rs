//! Reads the host's load and battery state.
//!
//! This module must never list the host's processes or decide whether a run starts.

use std::fs;
use std::path::Path;

use crate::files::read_text_proc;
use sysinfo::{CpuRefreshKind, RefreshKind, System};

/// The folder in which Linux lists batteries. Other systems do not have this folder, so no battery
/// is found on them.
pub const POWER: &str = "/sys/class/power_supply";

/// The state of the host's battery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Battery {
    /// The charge level in percent, or the mean level if there are several batteries.
    pub percent: u8,
    /// Whether any battery is discharging, which means that the host is running on battery power.
    pub discharging: bool,
}

/// Returns the one-minute load average per core, in thousandths. Returns `None` if the system does
/// not report it.
pub fn load_per_core() -> Option<u32> {
    let one = System::load_average().ok()?.one;
    let asked = RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing());
    let cores = System::new_with_specifics(asked).ok()?.cpus().len();
    per_core(one, cores)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a load is small and positive; other values are clamped, and a cast saturates"
)]
fn per_core(load: f64, cores: usize) -> Option<u32> {
    let thousandths = load * 1000.0 / cores as f64;
    thousandths.is_finite().then(|| thousandths.clamp(0.0, f64::from(u32::MAX)).round() as u32)
}

/// Returns the combined state of the batteries listed in `folder` (see [`POWER`]), or `None` if no
/// battery can be read. Batteries of devices such as mice are ignored.
pub fn battery(folder: &Path) -> Option<Battery> {
    let mut levels: Vec<u32> = Vec::new();
    let mut discharging = false;
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let read = |name: &str| read_text_proc(entry.path().join(name)).unwrap_or_default();
        if read("type").trim() != "Battery" || read("scope").trim() == "Device" {
            continue;
        }
        let Ok(percent) = read("capacity").trim().parse::<u32>() else {
            continue;
        };
        levels.push(percent.min(100));
        discharging |= read("status").trim() == "Discharging";
    }
    let count = u32::try_from(levels.len()).ok()?;
    let mean = levels.iter().sum::<u32>().checked_div(count)?;
    Some(Battery { percent: u8::try_from(mean).ok()?, discharging })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn supply(folder: &Path, name: &str, files: &[(&str, &str)]) {
        let own = folder.join(name);
        fs::create_dir(&own).unwrap();
        for (file, text) in files {
            fs::write(own.join(file), format!("{text}\n")).unwrap();
        }
    }

    #[test]
    fn battery_levels_are_averaged() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(battery(folder.path()), None);
        supply(folder.path(), "AC", &[("type", "Mains"), ("status", "Discharging")]);
        let broken = [("type", "Battery"), ("capacity", "full")];
        supply(folder.path(), "BAT9", &broken);
        assert_eq!(battery(folder.path()), None);
        let bat =
            |percent, status| [("type", "Battery"), ("capacity", percent), ("status", status)];
        supply(folder.path(), "BAT0", &bat("80", "Full"));
        let found = Battery { percent: 80, discharging: false };
        assert_eq!(battery(folder.path()), Some(found));
        supply(folder.path(), "BAT1", &bat("30", "Discharging"));
        let mut mouse = bat("1", "Discharging").to_vec();
        mouse.push(("scope", "Device"));
        supply(folder.path(), "hid", &mouse);
        let found = Battery { percent: 55, discharging: true };
        assert_eq!(battery(folder.path()), Some(found));
    }

    #[test]
    fn missing_folder_reports_no_battery() {
        assert_eq!(battery(Path::new("/no/such/folder")), None);
    }

    #[test]
    fn load_is_divided_by_core_count() {
        assert_eq!(per_core(3.0, 2), Some(1500));
        assert_eq!(per_core(0.0, 2), Some(0));
        assert_eq!(per_core(-1.0, 2), Some(0));
        assert_eq!(per_core(1.0, 0), None);
        assert_eq!(per_core(f64::NAN, 4), None);
        assert_eq!(per_core(1e12, 1), Some(u32::MAX));
        assert!(load_per_core().is_some());
    }
}
