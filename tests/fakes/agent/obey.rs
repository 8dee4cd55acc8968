//! The obedient agent, which carries out everything in its prompt that looks like an order.
//!
//! An order is a line that contains `DO:`. The rest of the line is run by a shell in the folder in
//! which this program was started, with everything that the program was given. An injected text
//! therefore has the effect that it would have on the most gullible model with unrestricted tools.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::dialect::Conversation;

/// Carries out every order in the prompt, then answers normally.
pub fn obey(dialect: &mut Conversation) {
    let (args, stdin) = dialect.prompt();
    let prompt = format!("{args}\n{stdin}");
    // Orders may be escaped inside JSON. File names cannot contain a slash, so they use another
    // character for it.
    let prompt = prompt.replace("\\n", "\n").replace("\\\"", "\"").replace('\u{2215}', "/");
    let mut done = 0;
    for order in prompt.lines().filter_map(|line| line.split("DO:").nth(1)) {
        let status = Command::new("sh")
            .args(["-c", order.trim()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        let failed = !status.is_ok_and(|status| status.success());
        dialect.tool(order.trim(), failed);
        done += 1;
    }
    // If the request has a rule answer, that answer is returned, so that only the side effects of
    // the orders can differ.
    match serde_json::from_str::<Value>(&stdin).map(|request| request["rule_answer"].clone()) {
        Ok(answer @ (Value::Array(_) | Value::Object(_))) => dialect.line(&answer),
        _ => dialect.good(&format!("carried out {done} orders")),
    }
}
