//! The folders in which the agents' programs keep their transcripts and settings.

use std::collections::BTreeMap;
use std::path::PathBuf;

use runner_backends::credentials::home_in;

/// The variables that determine the folders.
pub const VARIABLES: [&str; 3] = ["HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"];

/// The folder of each agent's program, or `None` if it is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentFolders {
    pub claude: Option<PathBuf>,
    pub codex: Option<PathBuf>,
}

impl AgentFolders {
    /// Returns the folders that the agents' programs use in an environment.
    pub fn of(env: &BTreeMap<String, String>) -> Self {
        Self { claude: home_in("claude", env), codex: home_in("codex", env) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_take_precedence_over_home() {
        let of = |env: &[(&str, &str)]| {
            let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let AgentFolders { claude, codex } = AgentFolders::of(&env.collect());
            [claude, codex].map(|it| it.map(|it| it.display().to_string()).unwrap_or_default())
        };
        assert_eq!(of(&[("HOME", "/h")]), ["/h/.claude", "/h/.codex"]);
        let both = [("HOME", "/h"), ("CLAUDE_CONFIG_DIR", "/c"), ("CODEX_HOME", "x")];
        assert_eq!(of(&both), ["/c", "/h/.codex"]);
        assert_eq!(of(&[("CODEX_HOME", "/x")]), ["", "/x"]);
    }
}
