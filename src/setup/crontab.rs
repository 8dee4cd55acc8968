//! Reads and writes a user's crontab, and runner's block in it.
//!
//! The text outside the block is preserved byte for byte, except that a missing line break before
//! the block or at the end of the crontab may be added. `crontab` has no lock, so the crontab is
//! written only if it still has the contents on which the plan was based. It is then read back to
//! verify the result.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Stdio;

use crate::env;
use crate::ui::Failure;

const BEGIN: &str = "# >>> runner setup ";
const END: &str = "# <<< runner setup ";
/// The ending of the block's first line if the text before the block did not end with a line break.
const JOINED: &str = " (on a new line) >>>";
const ALONE: &str = " >>>";

/// Returns the crontab's contents with the block for `owner` in its old position if there is one,
/// and otherwise at the end.
///
/// # Errors
/// Returns an error if an earlier block is incomplete or occurs twice.
pub fn with_block(text: &[u8], owner: &str, body: &str) -> Result<Vec<u8>, String> {
    let (mut before, joined, after) = match find(text, owner)? {
        Some(found) => found,
        None => (text.to_owned(), !text.is_empty() && !text.ends_with(b"\n"), Vec::new()),
    };
    if joined && !before.ends_with(b"\n") {
        before.push(b'\n');
    }
    let ending = if joined { JOINED } else { ALONE };
    let block = format!("{BEGIN}{owner}{ending}\n{body}{END}{owner} <<<\n");
    Ok([before, block.into_bytes(), after].concat())
}

/// Returns the crontab's contents without the block, as they were before it was added.
///
/// # Errors
/// Returns an error if the block is incomplete or occurs twice.
pub fn without_block(text: &[u8], owner: &str) -> Result<Vec<u8>, String> {
    let Some((mut before, joined, after)) = find(text, owner)? else { return Ok(text.to_owned()) };
    if joined && after.is_empty() {
        before.pop();
    }
    Ok([before, after].concat())
}

/// Returns the lines of the block, if there is one.
pub fn body(text: &[u8], owner: &str) -> Option<String> {
    let (before, _, after) = find(text, owner).ok()??;
    let block = &text[before.len()..text.len() - after.len()];
    let block = String::from_utf8_lossy(block);
    let lines: Vec<&str> = block.lines().collect();
    let inner = lines.get(1..lines.len().saturating_sub(1))?;
    Some(inner.iter().map(|line| format!("{line}\n")).collect())
}

/// Returns whether a line outside the block calls `runner tick`.
pub fn ticks_otherwise(text: &[u8], owner: &str) -> bool {
    let rest = without_block(text, owner).unwrap_or_else(|_| text.to_owned());
    String::from_utf8_lossy(&rest).lines().any(|line| {
        !line.trim_start().starts_with('#') && line.contains("runner") && line.contains(" tick")
    })
}

type Around = (Vec<u8>, bool, Vec<u8>);

/// Returns the text before and after the block, if there is one, and whether the block added the
/// line break before it.
fn find(text: &[u8], owner: &str) -> Result<Option<Around>, String> {
    let begins: Vec<Vec<u8>> =
        [ALONE, JOINED].map(|ending| format!("{BEGIN}{owner}{ending}").into_bytes()).into();
    let end = format!("{END}{owner} <<<").into_bytes();
    let (mut first, mut last) = (None, None);
    let mut at = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let plain = line.strip_suffix(b"\n").unwrap_or(line);
        if let Some(which) = begins.iter().position(|begin| begin == plain) {
            if first.replace((at, which == 1)).is_some() {
                return Err("the crontab contains runner's block twice".to_owned());
            }
        } else if plain == end && (first.is_none() || last.replace(at + line.len()).is_some()) {
            return Err(
                "the crontab contains the end of runner's block without its beginning".to_owned()
            );
        }
        at += line.len();
    }
    match (first, last) {
        (None, None) => Ok(None),
        (Some((first, joined)), Some(last)) => {
            Ok(Some((text[..first].to_owned(), joined, text[last..].to_owned())))
        }
        _ => Err("the crontab contains the beginning of runner's block without its end".to_owned()),
    }
}

/// Returns the user's crontab, or `None` if the user has none.
///
/// # Errors
/// Returns an error if `crontab` cannot be run or fails for another reason.
pub fn read() -> Result<Option<Vec<u8>>, Failure> {
    let cannot = |error: io::Error| unusable(format!("cannot run crontab: {error}"));
    let done = env::host_command("crontab")
        .map_err(cannot)?
        .arg("-l")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(cannot)?;
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    match done.status.code() {
        Some(0) => Ok(Some(done.stdout)),
        Some(1) if said.contains("no crontab") => Ok(None),
        _ => Err(unusable(format!("crontab -l: {} {said}", done.status))),
    }
}

fn unusable(what: String) -> Failure {
    Failure::unavailable(what).hint("apt-get install cron, or runner setup --scheduler manual")
}

/// Replaces `before` with `after`, through a file at `draft`. Returns a note if a line break was
/// added at the end.
///
/// # Errors
/// Returns an error if another process changed the crontab before or during the write, if `crontab`
/// cannot be run or refuses the new contents, or if the draft cannot be written.
pub fn write(
    before: Option<&[u8]>,
    after: Option<&[u8]>,
    draft: &Path,
) -> Result<Option<String>, Failure> {
    let changed = |when: &str| {
        Failure::later(format!("another process changed the crontab {when}"))
            .hint("crontab -l, then run the command again")
    };
    let there = read()?;
    if there.as_deref() == after {
        return Ok(None);
    }
    if there.as_deref() != before {
        return Err(changed("in the meantime; nothing was written"));
    }
    let mut after = after.map(<[u8]>::to_vec);
    let mut note = None;
    if let Err(why) = put(after.as_deref(), draft)? {
        match &mut after {
            // Most versions of `crontab` refuse a last line without a line break, even if they had
            // stored such a line before.
            Some(text) if text.last().is_some_and(|last| *last != b'\n') => text.push(b'\n'),
            _ => return Err(Failure::cannot_write(why)),
        }
        put(after.as_deref(), draft)?.map_err(Failure::cannot_write)?;
        note = Some(
            "a line break was added to the last line of the crontab, because crontab requires one"
                .to_owned(),
        );
    }
    if read()? == after { Ok(note) } else { Err(changed("while it was being written")) }
}

/// Passes new contents to `crontab`, or has it remove the crontab. The inner error is `crontab`'s
/// refusal.
fn put(text: Option<&[u8]>, draft: &Path) -> Result<Result<(), String>, Failure> {
    let mut command = env::host_command("crontab")
        .map_err(|error| unusable(format!("cannot run crontab: {error}")))?;
    match text {
        Some(text) => {
            runner_engine::files::write_atomic(draft, text, 0o600)
                .map_err(|error| Failure::cannot_write(error.to_string()))?;
            command.arg(draft);
        }
        None => {
            command.arg("-r");
        }
    }
    let done = command.env("LC_ALL", "C").stdin(Stdio::null()).output();
    let _only_a_draft = fs::remove_file(draft);
    let done = done.map_err(|error| unusable(format!("cannot run crontab: {error}")))?;
    Ok(match done.status.success() {
        true => Ok(()),
        false => Err(format!(
            "crontab: {} {}",
            done.status,
            String::from_utf8_lossy(&done.stderr).trim()
        )),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = "0 * * * * x\n";

    #[test]
    fn removed_block_leaves_no_trace() {
        for text in [
            "",
            "\n",
            "a",
            "a\n",
            "a\n\n",
            "# >>> runner setup /other >>>\nx\n# <<< runner setup /other <<<\n",
        ] {
            let with = with_block(text.as_bytes(), "/s", BODY).unwrap();
            assert_eq!(body(&with, "/s").as_deref(), Some(BODY));
            assert_eq!(
                with_block(&with, "/s", BODY).unwrap(),
                with,
                "adding the block again changed the text"
            );
            let without = without_block(&with, "/s").unwrap();
            assert_eq!(String::from_utf8(without).unwrap(), text);
        }
    }

    #[test]
    fn lines_below_the_block_are_kept() {
        let mut with = with_block(b"a", "/s", BODY).unwrap();
        with.extend(b"theirs\n");
        let again = with_block(&with, "/s", "1 * * * * y\n").unwrap();
        assert!(String::from_utf8_lossy(&again).ends_with("<<<\ntheirs\n"));
        assert_eq!(without_block(&again, "/s").unwrap(), b"a\ntheirs\n");
    }

    #[test]
    fn damaged_block_is_refused() {
        let whole = String::from_utf8(with_block(b"", "/s", BODY).unwrap()).unwrap();
        let (head, _) = whole.rsplit_once("# <<<").unwrap();
        for text in [head.to_owned(), whole.repeat(2), whole.replace("# >>>", "# >>")] {
            assert!(without_block(text.as_bytes(), "/s").is_err(), "{text}");
        }
    }

    #[test]
    fn other_tick_lines_are_detected() {
        let with = with_block(b"", "/s", "0 * * * * runner tick\n").unwrap();
        assert!(!ticks_otherwise(&with, "/s"));
        assert!(ticks_otherwise(b"*/15 * * * * /bin/runner tick --quiet\n", "/s"));
        assert!(!ticks_otherwise(b"# */15 * * * * runner tick\n", "/s"));
    }
}
