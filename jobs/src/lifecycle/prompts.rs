//! Reads the instructions for a run: a project file, the text of a setting, or the built-in text
//! below `config/prompts/`.
//!
//! This module must never read a file outside the project.

use runner_engine::outcome::Class;

use crate::{Context, JobError};

/// The built-in instructions for a dream.
pub const REM: &str = include_str!("../../../config/prompts/rem.md");
/// The built-in instructions for a daydream.
pub const DAYDREAM: &str = include_str!("../../../config/prompts/daydream.md");

/// Maximum size of a prompt file, in bytes.
const LONGEST: u64 = 64 * 1024;

/// Returns the file that a `prompt` setting refers to, or `None` if the setting is the text itself.
pub fn prompt_file(prompt: &str) -> Option<&str> {
    let names_a_file = !prompt.contains(char::is_whitespace) && prompt.contains(['.', '/']);
    names_a_file.then_some(prompt)
}

/// Returns the content of the file that a `prompt` setting refers to, or the setting's own text, or
/// `built_in` if there is no setting.
///
/// # Errors
/// Returns an error if the file cannot be read or is not UTF-8.
pub fn read(ctx: &Context<'_>, own: Option<&str>, built_in: &str) -> Result<String, JobError> {
    let Some(own) = own else {
        return Ok(built_in.to_owned());
    };
    let Some(own) = prompt_file(own) else {
        return Ok(format!("{own}\n"));
    };
    let bytes = ctx.files.read(own, LONGEST).map_err(|error| {
        JobError::failed(Class::Environment, format!("cannot read the prompt file {own}: {error}"))
    })?;
    String::from_utf8(bytes).map_err(|_| {
        JobError::failed(Class::Environment, format!("the prompt file {own} is not valid UTF-8"))
    })
}
