//! The restrictions on a job's children: the keys that `[defaults]` and each job share.
//!
//! An omitted key must never weaken the sandbox: it is on by default.

use super::section::Section;
use super::sources::ConfigMistake;
use super::units;

/// How a job's children are confined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxSettings {
    /// `sandbox = "off"`.
    pub off: bool,
    /// Whether they may use the network; without a word, as their kind needs it.
    pub network: Option<bool>,
    /// The largest file that one can write, in bytes.
    pub max_file: u64,
    /// The most that may lie in a run's folder while they run, in bytes.
    pub max_folder: u64,
}

impl Default for SandboxSettings {
    fn default() -> Self {
        Self { off: false, network: None, max_file: 1_000_000_000, max_folder: 4_000_000_000 }
    }
}

/// Applies the settings of this table to `sandbox`.
pub(super) fn lay_over(
    sandbox: &mut SandboxSettings,
    section: &mut Section<'_>,
) -> Result<(), ConfigMistake> {
    let off = section.parsed("sandbox", |text| match text {
        "on" => Ok(false),
        "off" => Ok(true),
        _ => Err(format!("it must be \"on\" or \"off\", it is {text:?}")),
    })?;
    sandbox.off = off.unwrap_or(sandbox.off);
    sandbox.network = section.flag("network")?.or(sandbox.network);
    if let Some(size) = size(section, "max_file")? {
        sandbox.max_file = size;
    }
    if let Some(size) = size(section, "max_folder")? {
        sandbox.max_folder = size;
    }
    Ok(())
}

fn size(section: &mut Section<'_>, key: &'static str) -> Result<Option<u64>, ConfigMistake> {
    let read = |value: &toml::Value| match value {
        toml::Value::String(text) => units::size(text),
        toml::Value::Integer(bytes) => {
            u64::try_from(*bytes).map_err(|_| "it must be 0 at least".to_owned())
        }
        other => Err(format!("it must be a size like \"1GB\", it is {other}")),
    };
    match section.value(key).map(|value| read(&value)) {
        None => Ok(None),
        Some(Ok(bytes)) => Ok(Some(bytes)),
        Some(Err(why)) => Err(section.wrong(&section.full(key), &why)),
    }
}
