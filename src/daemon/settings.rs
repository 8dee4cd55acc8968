//! Reads the `[daemon]` table of the configuration. One daemon serves all projects of a user, so
//! this module must never read a project's file.

use std::path::Path;
use std::time::Duration;

use jiff::SignedDuration;
use serde::Deserialize;

use crate::config::user_text;
use crate::ui::Failure;

const DEFAULT: &str = include_str!("../../config/default.toml");

/// The part of a configuration file that the daemon uses.
#[derive(Deserialize)]
struct File {
    daemon: Option<Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    drain: Option<String>,
}

/// Returns how long live runs may continue after the daemon is asked to stop.
pub fn drain(user_config: &Path) -> Result<Duration, Failure> {
    let wrong = |why: &str| {
        Failure::configuration(format!("{}: {why}", user_config.display()))
            .hint("write drain = \"30s\" below [daemon]")
    };
    let text = user_text(user_config, wrong)?;
    let stated: File = toml::from_str(DEFAULT).expect("the embedded default parses");
    let file: File = toml::from_str(&text).map_err(|error| wrong(error.message()))?;
    let drain = [file, stated]
        .into_iter()
        .find_map(|file| file.daemon?.drain)
        .expect("the embedded default sets the drain time");
    duration(&drain).map_err(|why| wrong(&format!("daemon.drain: {why}")))
}

/// Parses a duration such as "30s", "5m" or "0s".
pub fn duration(text: &str) -> Result<Duration, String> {
    text.parse::<SignedDuration>()
        .ok()
        .and_then(|duration| Duration::try_from(duration).ok())
        .ok_or_else(|| format!("{text:?} is not a duration (like \"30s\" or \"5m\")"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn user_file_overrides_the_default() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        assert_eq!(drain(&path).unwrap(), Duration::from_secs(30));
        fs::write(&path, "[night]\nat = \"03:00\"\n").unwrap();
        assert_eq!(drain(&path).unwrap(), Duration::from_secs(30));
        fs::write(&path, "[daemon]\ndrain = \"0s\"\n").unwrap();
        assert_eq!(drain(&path).unwrap(), Duration::ZERO);
        for bad in ["drain = 3", "drain = \"-1s\"", "drain = \"soon\"", "dran = \"1s\""] {
            fs::write(&path, format!("[daemon]\n{bad}\n")).unwrap();
            let failure = drain(&path).unwrap_err().to_string();
            assert!(failure.contains("config.toml"), "{failure}");
        }
    }
}
