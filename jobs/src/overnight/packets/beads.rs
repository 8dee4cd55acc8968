//! Creates one bead with `bd`, if `bd` is installed, for each packet that is written to the work
//! file.
//!
//! `bd` runs inside the run's sandbox with a short time limit, and its failures only degrade the
//! report. `bd` is never called for a packet that already has a bead.

use std::path::{Path, PathBuf};
use std::time::Duration;

use runner_engine::process::{self, ChildSpec, Limits, OutputVerdict, Stdin};
use serde_json::Value;

use super::Packet;
use crate::Context;

const PROGRAM: &str = "bd";
/// Time limit of one `bd` call.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns the path of `bd`, if it is installed.
pub fn program(ctx: &Context<'_>) -> Option<PathBuf> {
    ctx.programs.find(Path::new(PROGRAM), ctx.files.root())
}

/// Creates a bead for each packet that has none and is written to the work file, and stops at the
/// first failure. Returns the number of beads created, and the failure, if any.
pub fn sync(ctx: &Context<'_>, program: &Path, packets: &mut [Packet]) -> (usize, Option<String>) {
    let mut made = 0;
    let wanted =
        |packet: &&mut Packet| packet.bead_id.is_none() && packet.queue_backed != Some(false);
    for packet in packets.iter_mut().filter(wanted) {
        match create(ctx, program, packet) {
            Ok(id) => {
                packet.bead_id = Some(id);
                made += 1;
            }
            Err(why) => return (made, Some(why)),
        }
    }
    (made, None)
}

fn create(ctx: &Context<'_>, program: &Path, packet: &Packet) -> Result<String, String> {
    let priority = match packet.severity.as_str() {
        "critical" => "0",
        "high" | "significant" => "1",
        "low" => "3",
        _ => "2",
    };
    let about = format!("{}\n\n{}\n{}", packet.description, packet.why_now, packet.id);
    // A title that begins with a dash would be read as an option.
    let title = packet.title.trim_start_matches(|c: char| c == '-' || c.is_whitespace());
    let args = ["create", title, "-d", &about, "-p", priority, "-l", "overnight", "--json"];
    let child = ChildSpec {
        program: program.to_owned(),
        args: args.iter().map(std::ffi::OsString::from).collect(),
        cwd: ctx.files.root().to_owned(),
        env: ctx.programs.env().clone(),
        stdin: Stdin::Null,
        limits: Limits {
            total: Some(PATIENCE.min(ctx.clock.left())),
            output_cap: 1024 * 1024,
            ..Limits::default()
        },
        marker: ctx.admitted.run().to_string(),
        sandbox: ctx.programs.sandbox(),
    };
    let ended = process::run(&child, &ctx.cancel, &mut |_, _| OutputVerdict::Continue)
        .map_err(|error| format!("bd could not be started: {error}"))?;
    if !ended.is_success() {
        let words = String::from_utf8_lossy(&ended.stderr);
        let words = words.split_whitespace().take(30).collect::<Vec<_>>().join(" ");
        return Err(format!("bd failed: {words}"));
    }
    let said: Value = serde_json::from_slice(&ended.stdout)
        .map_err(|error| format!("bd's answer is not JSON: {error}"))?;
    let one = said.as_array().and_then(|all| all.first()).unwrap_or(&said);
    let id = one.get("id").and_then(Value::as_str);
    id.map(str::to_owned).ok_or_else(|| "bd's answer has no id".to_owned())
}
