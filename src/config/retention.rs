//! How long things are kept: `[retention]`, one a user.

use runner_engine::store::Retention;

use super::sources::ConfigMistake;
use super::{Section, units};

/// The least retention in days: `status` shows a week, which is never pruned.
const LEAST_ROWS: i64 = 8;

/// Reads the table, whose every key the embedded default states.
pub(super) fn read(section: &mut Section<'_>) -> Result<Retention, ConfigMistake> {
    let missing =
        |section: &Section<'_>, key: &str| section.wrong(&section.full(key), "it is not set");
    let rows = section.parsed("rows", |text| units::age(text, LEAST_ROWS))?;
    let logs = section.parsed("logs", |text| units::age(text, 1))?;
    let reports = section.parsed("reports", |text| match text {
        "none" => Ok(None),
        text => units::age(text, 1).map(Some),
    })?;
    let recordings = section.parsed("recordings", |text| match text {
        "none" => Ok(None),
        text => units::age(text, 1).map(Some),
    })?;
    let backups = section.count("backups")?;
    if backups.is_some_and(|count| !(1..=1000).contains(&count)) {
        return Err(section.wrong(&section.full("backups"), "it must be from 1 to 1000"));
    }
    Ok(Retention {
        rows: rows.ok_or_else(|| missing(section, "rows"))?,
        logs: logs.ok_or_else(|| missing(section, "logs"))?,
        recordings: recordings.ok_or_else(|| missing(section, "recordings"))?,
        reports: reports.ok_or_else(|| missing(section, "reports"))?,
        backups: backups
            .and_then(|count| u32::try_from(count).ok())
            .ok_or_else(|| missing(section, "backups"))?,
    })
}
