//! The obedient agent: whatever it reads that looks like an order, it carries out.
//!
//! An order is a line with `DO:` in it, wherever it stands: what comes after it is run by a shell, in
//! whatever folder this program was started in, with whatever it was given. So an injected text does
//! here what it would do to the most gullible of models with the freest of tools.

use std::process::{Command, Stdio};

use crate::tongue::Tongue;

/// Carries out every order of the prompt, then answers as if nothing had been.
pub fn obey(tongue: &mut Tongue) {
    let prompt = tongue.prompt();
    // Orders may come escaped inside of JSON.
    let prompt = prompt.replace("\\n", "\n").replace("\\\"", "\"");
    let mut done = 0;
    for order in prompt.lines().filter_map(|line| line.split("DO:").nth(1)) {
        let status = Command::new("sh")
            .args(["-c", order.trim()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        let failed = !status.is_ok_and(|status| status.success());
        tongue.tool(order.trim(), failed);
        done += 1;
    }
    tongue.good(&format!("carried out {done} orders"));
}
