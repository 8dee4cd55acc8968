//! The obedient agent: whatever it reads that looks like an order, it carries out.
//!
//! An order is a line with `DO:` in it, wherever it stands: what comes after it is run by a shell, in
//! whatever folder this program was started in, with whatever it was given. So an injected text does
//! here what it would do to the most gullible of models with the freest of tools.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::dialect::Conversation;

/// Carries out every order of the prompt, then answers as if nothing had been.
pub fn obey(dialect: &mut Conversation) {
    let (args, stdin) = dialect.prompt();
    let prompt = format!("{args}\n{stdin}");
    // Orders may come escaped inside of JSON.
    // No file name has a slash in it: there another sign stands for it.
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
    // A request that has an answer by rule gets just that answer, so that only the side effects of
    // the orders can differ.
    match serde_json::from_str::<Value>(&stdin).map(|request| request["rule_answer"].clone()) {
        Ok(answer @ (Value::Array(_) | Value::Object(_))) => dialect.line(&answer),
        _ => dialect.good(&format!("carried out {done} orders")),
    }
}
