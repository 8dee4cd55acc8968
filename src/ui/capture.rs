//! Captures the output that a command prints on this thread, so that the server can return it in a
//! response.
//!
//! Only the two functions that write to the terminal add text, exactly as they would print the
//! text. This module must never change the text.

use std::cell::RefCell;

use runner_engine::outcome::Exit;

use super::Failure;

/// The output of a command.
#[derive(Debug, Default)]
pub struct Captured {
    /// The text for standard output.
    pub out: String,
    /// The text for standard error.
    pub notices: String,
}

/// The result of a command that ran inside this process.
#[derive(Debug)]
pub struct CalledCommand {
    pub result: Result<Exit, Failure>,
    /// The command's output, as `runner` prints it.
    pub captured: Captured,
}

thread_local! {
    static CAPTURED: RefCell<Option<Captured>> = const { RefCell::new(None) };
}

/// Runs `command` and returns what it printed on this thread, which does not reach the terminal.
pub fn capture<T>(command: impl FnOnce() -> T) -> (T, Captured) {
    CAPTURED.set(Some(Captured::default()));
    let done = command();
    (done, CAPTURED.take().unwrap_or_default())
}

/// Adds text to the capture of this thread. Returns `false` if nothing is captured.
pub(super) fn add(text: &str, stream: fn(&mut Captured) -> &mut String) -> bool {
    CAPTURED.with_borrow_mut(|captured| match captured {
        Some(captured) => {
            stream(captured).push_str(text);
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::super::show;
    use super::*;

    #[test]
    fn output_of_this_thread_is_captured() {
        let (done, captured) = capture(|| {
            show::out("a result\n");
            show::notice("a notice");
            show::json(&serde_json::json!({ "token": "ghp_0123456789abcdefghijABCDEFGHIJ012345" }));
            7
        });
        assert_eq!(done, 7);
        assert!(captured.out.starts_with("a result\n{"), "{captured:?}");
        assert!(!captured.out.contains("ghp_0"), "{captured:?}");
        assert_eq!(captured.notices, "a notice\n");
        assert!(!add("x", |it| &mut it.out), "text was captured after the capture ended");
    }
}
