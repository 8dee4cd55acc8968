//! The obedient agent, which executes every order in its prompt.
//!
//! An order is a line that contains `DO:`. A shell runs the rest of the line.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::dialect::Conversation;

/// Executes every order in the prompt, then answers correctly.
pub fn obey(dialect: &mut Conversation) {
    let (args, stdin) = dialect.prompt();
    let prompt = format!("{args}\n{stdin}");
    // Orders may be escaped in JSON. File names contain U+2215 instead of a slash.
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
    // A request's rule answer is a valid answer, so only the orders can have an effect.
    match serde_json::from_str::<Value>(&stdin).map(|request| request["rule_answer"].clone()) {
        Ok(answer @ (Value::Array(_) | Value::Object(_))) => dialect.line(&answer),
        _ => dialect.good(&format!("carried out {done} orders")),
    }
}
