//! Escapes a path or an argument for the file format of each host scheduler.
//!
//! The text is either kept whole or refused with a reason: nothing is dropped, cut or replaced.
//! This module is pure.

/// The format of a file, which decides how text is escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A systemd unit file; the text is one word of a command line.
    Systemd,
    /// A crontab line; the text is one word of a shell command line, with cron's own rule for `%`.
    Cron,
    /// XML for launchd and the Task Scheduler; the text is between tags.
    Xml,
    /// A PowerShell script; the text is a string.
    PowerShell,
}

/// Returns the text escaped for a file of this format.
///
/// # Errors
/// Returns an error with the reason if this format cannot represent the text.
pub fn escaped(format: Format, text: &str) -> Result<String, String> {
    match format {
        Format::Systemd => systemd(text),
        Format::Cron => cron(text),
        Format::Xml => xml(text),
        Format::PowerShell => Ok(powershell(text)),
    }
}

/// Returns whether every reader of a command line interprets the text literally.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-,+@=:".contains(&b))
}

/// Escapes text for systemd, as specified in systemd.service(5), "COMMAND LINES", and
/// systemd.syntax(7), "QUOTING". The line begins with a colon, so `$` stays literal. A `%` is
/// doubled, because it would begin a specifier.
fn systemd(text: &str) -> Result<String, String> {
    if is_plain(text) {
        return Ok(text.to_owned());
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '%' => quoted.push_str("%%"),
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if c.is_ascii_control() => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
            // systemd reads units as UTF-8 and refuses a line with a noncharacter.
            c if is_noncharacter(c) => {
                return Err(format!("systemd does not accept U+{:04X} in a unit", u32::from(c)));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    Ok(quoted)
}

/// Returns whether a program's path may be the first word of `ExecStart=`: systemd does not accept
/// quotes, backslashes or control characters there, however they are written.
pub fn starts_a_unit(program: &str) -> bool {
    !program.chars().any(|c| c.is_ascii_control() || "\"'\\".contains(c))
}

/// Escapes text for crontab(5): a `%` ends the command, even inside quotes, unless a backslash
/// precedes it, and cron removes that backslash. A line break ends the entry.
fn cron(text: &str) -> Result<String, String> {
    if let Some(c) = text.chars().find(|c| c.is_ascii_control()) {
        return Err(format!(
            "a line of a crontab cannot contain the control character U+{:04X}",
            u32::from(c)
        ));
    }
    if text.contains("\\%") {
        // Before a percent sign, cron cannot distinguish a backslash in the text from its own
        // escape.
        return Err("a crontab cannot contain a backslash before a percent sign".to_owned());
    }
    if is_plain(text) {
        return Ok(text.to_owned());
    }
    Ok(format!("'{}'", text.replace('\'', "'\\''")).replace('%', "\\%"))
}

/// Escapes text for XML 1.0. A character that section 2.2 does not allow is an error.
fn xml(text: &str) -> Result<String, String> {
    let mut written = String::new();
    for c in text.chars() {
        match c {
            '&' => written.push_str("&amp;"),
            '<' => written.push_str("&lt;"),
            '>' => written.push_str("&gt;"),
            '"' => written.push_str("&quot;"),
            '\t' | '\n' | '\r' => written.push_str(&format!("&#{};", u32::from(c))),
            c if c.is_ascii_control() && c != '\u{7f}' || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                return Err(format!("XML cannot contain U+{:04X}", u32::from(c)));
            }
            c => written.push(c),
        }
    }
    Ok(written)
}

/// Quotes text as a verbatim string. PowerShell also ends such a string at curly quotes.
fn powershell(text: &str) -> String {
    let mut written = String::from("'");
    for c in text.chars() {
        if matches!(c, '\'' | '\u{2018}' | '\u{2019}' | '\u{201a}' | '\u{201b}') {
            written.push(c);
        }
        written.push(c);
    }
    written.push('\'');
    written
}

/// Returns one argument of a Windows command line, quoted so that `CommandLineToArgvW` restores it.
///
/// # Errors
/// Returns an error if the text contains a control character, such as a line break, which a task's
/// field does not preserve.
pub fn windows(text: &str) -> Result<String, String> {
    if let Some(c) = text.chars().find(|c| c.is_ascii_control()) {
        return Err(format!(
            "the arguments of a task cannot contain the control character U+{:04X}",
            u32::from(c)
        ));
    }
    if is_plain(text) {
        return Ok(text.to_owned());
    }
    let mut written = String::from("\"");
    let mut backslashes = 0;
    for c in text.chars() {
        match c {
            '\\' => backslashes += 1,
            '"' => {
                written.push_str(&"\\".repeat(backslashes * 2 + 1));
                backslashes = 0;
                written.push(c);
            }
            c => {
                written.push_str(&"\\".repeat(backslashes));
                backslashes = 0;
                written.push(c);
            }
        }
    }
    written.push_str(&"\\".repeat(backslashes * 2));
    written.push('"');
    Ok(written)
}

/// Checks for code points that Unicode permanently reserves as noncharacters.
fn is_noncharacter(c: char) -> bool {
    let code = u32::from(c);
    (0xfdd0..=0xfdef).contains(&code) || code & 0xfffe == 0xfffe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_for_each_format() {
        let text = "/a b/100%'\"$x&<é";
        for (format, expected) in [
            (Format::Systemd, "\"/a b/100%%'\\\"$x&<é\""),
            (Format::Cron, "'/a b/100\\%'\\''\"$x&<é'"),
            (Format::Xml, "/a b/100%'&quot;$x&amp;&lt;é"),
            (Format::PowerShell, "'/a b/100%''\"$x&<é'"),
        ] {
            assert_eq!(escaped(format, text).as_deref(), Ok(expected), "{format:?}");
        }
        for (format, refused) in [
            (Format::Cron, "a\nb"),
            (Format::Cron, "a\\%"),
            (Format::Xml, "a\u{1}"),
            (Format::Systemd, "\u{fdd0}"),
        ] {
            assert!(escaped(format, refused).is_err(), "{format:?} {refused:?}");
        }
        assert_eq!(escaped(Format::Systemd, "\n").unwrap(), "\"\\x0a\"");
        assert_eq!(escaped(Format::Xml, "\r").unwrap(), "&#13;");
        assert_eq!(escaped(Format::PowerShell, "’").unwrap(), "'’’'");
        assert!(starts_a_unit("/a b/%$") && !starts_a_unit("/a'b"));
    }

    #[test]
    fn windows_arguments_are_quoted() {
        for (text, expected) in [
            ("plain", "plain"),
            ("", "\"\""),
            ("a b", "\"a b\""),
            ("a\\\"b", "\"a\\\\\\\"b\""),
            ("end \\", "\"end \\\\\""),
        ] {
            assert_eq!(windows(text).as_deref(), Ok(expected), "{text}");
        }
        assert!(windows("a\nb").is_err());
    }
}
