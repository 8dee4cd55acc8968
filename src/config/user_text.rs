//! Reads the user's configuration file for the parts of the program that serve all projects.
//!
//! This module must never read a project's file.

use std::io;
use std::path::Path;

use runner_engine::files::{DOCUMENT, read_text_host};

use crate::ui::Failure;

/// Returns the contents of the user's file without its byte order mark, or an empty string if there
/// is no file.
///
/// # Errors
/// If the file cannot be read, returns the failure that `wrong` creates from the reason.
pub fn user_text(path: &Path, wrong: impl Fn(&str) -> Failure) -> Result<String, Failure> {
    match read_text_host(path, DOCUMENT) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(wrong(&error.to_string())),
    }
}
