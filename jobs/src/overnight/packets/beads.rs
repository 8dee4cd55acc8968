//! Creates one bead with `bd`, if `bd` is installed, for each packet that is written to the work
//! file.
//!
//! `bd` runs inside the run's sandbox with a short time limit, and its failures only degrade the
//! report. `bd` is never called for a packet that already has a bead. A bead's description contains
//! the id of its packet, so that a later run finds the bead even if the run that created it died.
//! If `bd` cannot list the beads, beads are created nevertheless, because a duplicate bead is
//! better than none.

use std::path::{Path, PathBuf};
use std::time::Duration;

use runner_engine::process::{self, ChildSpec, ExitStatus, Limits, OutputVerdict, Reason, Stdin};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Packet;
use crate::Context;

const PROGRAM: &str = "bd";
/// Time limit of one `bd` call.
const PATIENCE: Duration = Duration::from_secs(30);
/// The label of all beads that runner creates.
const LABEL: &str = "overnight";

#[derive(Deserialize)]
struct Bead {
    id: String,
    #[serde(default)]
    description: String,
}

/// The answer of `bd create`, whose form depends on its version.
#[derive(Deserialize)]
#[serde(untagged)]
enum CreatedBead {
    One(Bead),
    InList([Bead; 1]),
}

/// The reason why a call of `bd` had no usable answer.
enum BdError {
    /// `bd` exited with an error, such as an unknown option, or gave an unexpected answer.
    Exited(String),
    /// `bd` did not start, or was stopped. The next call would probably end in the same way.
    Stopped(String),
}

/// Returns the path of `bd`, if it is installed.
pub fn program(ctx: &Context<'_>) -> Option<PathBuf> {
    ctx.programs.find(Path::new(PROGRAM), ctx.files.root())
}

/// Assigns a bead to each packet that has none and is written to the work file: an existing bead of
/// the packet, or a new one. Stops at the first bead that cannot be created. Returns the number of
/// beads created, and the failures, if any.
pub fn sync(ctx: &Context<'_>, program: &Path, packets: &mut [Packet]) -> (usize, Option<String>) {
    let wanted =
        |packet: &&mut Packet| packet.bead_id.is_none() && packet.queue_backed != Some(false);
    let mut wanted = packets.iter_mut().filter(wanted).peekable();
    if wanted.peek().is_none() {
        return (0, None);
    }
    let (known, unlisted) = match list(ctx, program) {
        Ok(known) => (known, None),
        Err(BdError::Exited(why)) => (Vec::new(), Some(format!("beads were not listed: {why}"))),
        Err(BdError::Stopped(why)) => return (0, Some(why)),
    };
    let mut made = 0;
    for packet in wanted {
        let is_own = |bead: &&Bead| bead.description.lines().any(|line| line == packet.id);
        if let Some(bead) = known.iter().find(is_own) {
            packet.bead_id = Some(bead.id.clone());
            continue;
        }
        match create(ctx, program, packet) {
            Ok(id) => {
                packet.bead_id = Some(id);
                made += 1;
            }
            Err(BdError::Exited(why) | BdError::Stopped(why)) => {
                let all: Vec<String> = unlisted.into_iter().chain([why]).collect();
                return (made, Some(all.join("; ")));
            }
        }
    }
    (made, unlisted)
}

/// Returns all beads that runner created, including closed ones.
fn list(ctx: &Context<'_>, program: &Path) -> Result<Vec<Bead>, BdError> {
    let args = ["list", "--all", "--limit", "0", "--label", LABEL, "--json"];
    let known: Option<Vec<Bead>> = answer(ctx, program, &args)?;
    Ok(known.unwrap_or_default())
}

fn create(ctx: &Context<'_>, program: &Path, packet: &Packet) -> Result<String, BdError> {
    let priority = match packet.severity.as_str() {
        "critical" => "0",
        "high" | "significant" => "1",
        "low" => "3",
        _ => "2",
    };
    let about = format!("{}\n\n{}\n{}", packet.description, packet.why_now, packet.id);
    // A title that begins with a dash would be read as an option.
    let title = packet.title.trim_start_matches(|c: char| c == '-' || c.is_whitespace());
    let args = ["create", title, "-d", &about, "-p", priority, "-l", LABEL, "--json"];
    Ok(match answer(ctx, program, &args)? {
        CreatedBead::One(bead) | CreatedBead::InList([bead]) => bead.id,
    })
}

/// Calls `bd` and returns its answer.
fn answer<T: DeserializeOwned>(
    ctx: &Context<'_>,
    program: &Path,
    args: &[&str],
) -> Result<T, BdError> {
    let child = ChildSpec {
        program: program.to_owned(),
        args: args.iter().map(std::ffi::OsString::from).collect(),
        cwd: ctx.files.root().to_owned(),
        env: ctx.programs.env().clone(),
        stdin: Stdin::Null,
        limits: Limits { total: Some(PATIENCE.min(ctx.clock.left())), ..Limits::default() },
        marker: ctx.admitted.run().to_string(),
        sandbox: ctx.programs.sandbox(),
    };
    let ended = process::run(&child, &ctx.cancel, &mut |_, _| OutputVerdict::Continue)
        .map_err(|error| BdError::Stopped(format!("bd could not be started: {error}")))?;
    if !ended.is_success() {
        let words = String::from_utf8_lossy(&ended.stderr);
        let words = words.split_whitespace().take(30).collect::<Vec<_>>().join(" ");
        let why = format!("bd failed: {words}");
        return Err(match (ended.reason, ended.status) {
            (Reason::Exited, ExitStatus::Exit(_)) => BdError::Exited(why),
            _ => BdError::Stopped(why),
        });
    }
    serde_json::from_slice(&ended.stdout).map_err(|error| {
        BdError::Exited(format!("the answer of bd {} is not as expected: {error}", args[0]))
    })
}
