//! Reads the `[serve]` table of the configuration. One server serves all of a user's projects, so
//! this module must never read a project's file.

use std::path::Path;

use serde::Deserialize;

use super::address::ServeSettings;
use crate::config::{ServeTable, user_text};
use crate::ui::Failure;

const DEFAULT: &str = include_str!("../../config/default.toml");

/// The part of a configuration file that the server uses.
#[derive(Deserialize)]
struct File {
    serve: ServeTable,
}

/// The server settings.
pub struct ServeConfig {
    /// Whether the daemon runs the server.
    pub enabled: bool,
    pub addresses: ServeSettings,
}

/// Reads the server settings from the user's file, on top of the defaults.
///
/// # Errors
/// Returns an error if the file cannot be read, or if the table contains an error.
pub fn settings(user_config: &Path) -> Result<ServeConfig, Failure> {
    let wrong = |why: &str| {
        Failure::configuration(format!("{}: {why}", user_config.display()))
            .hint("runner config check")
    };
    let text = user_text(user_config, wrong)?;
    let mut table: toml::Table = toml::from_str(DEFAULT).expect("the embedded default parses");
    let own: toml::Table = toml::from_str(&text).map_err(|error| wrong(error.message()))?;
    if let (Some(toml::Value::Table(all)), Some(toml::Value::Table(own))) =
        (table.get_mut("serve"), own.get("serve"))
    {
        all.extend(own.clone());
    }
    let File { serve } =
        table.try_into().map_err(|error: toml::de::Error| wrong(error.message()))?;
    let addresses = ServeSettings { listen: serve.listen.0, allowed_hosts: serve.allowed_hosts };
    addresses.check()?;
    Ok(ServeConfig { enabled: serve.enabled, addresses })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn user_file_overrides_the_default() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        let none = settings(&path).unwrap();
        assert!(!none.enabled && none.addresses == ServeSettings::default());
        fs::write(&path, "[serve]\nenabled = true\nlisten = \"[::1]:9\"\n").unwrap();
        let own = settings(&path).unwrap();
        assert!(own.enabled && own.addresses.listen.unwrap().0.port() == 9);
        for bad in [
            "listen = 3",
            "listen = \"localhost:1\"",
            "enabled = 1",
            "liste = \"x\"",
            "listen = \"0.0.0.0:1\"",
        ] {
            fs::write(&path, format!("[serve]\n{bad}\n")).unwrap();
            assert!(settings(&path).is_err(), "{bad}");
        }
    }
}
