//! Checks the settings that the kinds of an agent's lifecycle share.

use runner_engine::publish::RelPath;

use crate::kind::BadSetting;
use crate::reserved::{self, NEVER, reserved};

/// Maximum length of an agent's name, in characters. The name becomes the name of a folder.
const LONGEST_NAME: usize = 40;

/// Checks the name of an agent, its board and the paths that it may write.
pub(super) fn check(agent: &str, board: &str, writes: Option<&[String]>) -> Result<(), BadSetting> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    if agent.len() > LONGEST_NAME || !agent.chars().all(good) {
        let why = format!(
            "{agent:?} is not a valid name of an agent (lowercase letters, digits, - and _, at most {LONGEST_NAME} characters)"
        );
        return Err(("agent", why));
    }
    RelPath::new(board).map_err(|error| ("board", error.to_string()))?;
    if let Some(never) = reserved(board, &NEVER) {
        return Err(("board", format!("{board:?}: a board cannot be in {never}")));
    }
    reserved::writes(writes).map_err(|why| ("writes", why))
}
