//! Formats errors and their causes for the database and the terminal.

use std::error::Error;
use std::io;

/// Joins the error and its causes with colons. A cause whose text is already included is omitted.
pub fn whole(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// Removes the operating system's error numbers, because they do not help the reader.
pub fn plain(text: &str) -> String {
    const NUMBER: &str = " (os error ";
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(NUMBER) {
        let behind = &rest[at + NUMBER.len()..];
        let digits = behind.trim_start_matches(|it: char| it.is_ascii_digit());
        let Some(after) = digits.strip_prefix(')') else {
            plain.push_str(&rest[..at + NUMBER.len()]);
            rest = behind;
            continue;
        };
        plain.push_str(&rest[..at]);
        rest = after;
    }
    plain.push_str(rest);
    plain
}

/// Describes why a file or folder could not be used. Callers append the text to the path and a
/// colon.
pub fn error_chain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it does not exist".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::NotADirectory => "a part of its path is not a folder".to_owned(),
        io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
        io::ErrorKind::StorageFull => "the disk is full".to_owned(),
        io::ErrorKind::ReadOnlyFilesystem => "its file system is read-only".to_owned(),
        _ => plain(&error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read the map")]
    struct OuterError(#[source] std::io::Error);

    #[test]
    fn causes_follow_the_error() {
        let error = OuterError(std::io::Error::other("wet paper"));
        assert_eq!(whole(&error), "cannot read the map: wet paper");
    }

    #[test]
    fn error_numbers_are_removed() {
        for (text, expected) in [
            ("a: No such file (os error 2)", "a: No such file"),
            ("No (os error 2); yes (os error 13)!", "No; yes!"),
            ("as it is (os error x)", "as it is (os error x)"),
            (" (os error ", " (os error "),
            ("", ""),
        ] {
            assert_eq!(plain(text), expected);
        }
        let refused = io::Error::from_raw_os_error(111);
        assert!(!error_chain(&refused).contains("os error"), "{}", error_chain(&refused));
        let absent = std::fs::read("/nowhere/at/all").unwrap_err();
        assert_eq!(error_chain(&absent), "it does not exist");
    }
}
