//! Draws an overnight run as a landscape, entirely from its figures.
//!
//! ```text
//! fitness of kept iterations ────────────────> the land; other iterations: hollow points beside it
//! degraded steps ─────────────────────────────> clouds, over their iteration or over the whole night
//! morning packets ────────────────────────────> flags on the last ground, taller for a higher severity
//! tension of the councillors ─────────────────> a fault through the land before them
//! ```
//!
//! `ground` computes the positions, and the template draws the picture. Everything in the picture
//! also appears in the text beside it. The picture must never show a figure that does not exist:
//! without a measured fitness there is no land.

mod ground;

use serde::Serialize;

use self::ground::{Cloud, Flag, Ground};
use super::Tone;
use crate::report::dreamscape::{Dreamscape, Point};

pub(super) use ground::tenth;

/// The data for the section on one overnight run.
#[derive(Serialize)]
pub(super) struct DreamscapeView<'a> {
    scape: &'a Dreamscape,
    tone: Tone,
    has_failed: bool,
    /// Number of degraded steps of the night and of its iterations.
    degraded_steps: usize,
    /// The whole picture in words.
    description: String,
    /// The iterations in words.
    iterations: Vec<String>,
    first_fitness: Option<f64>,
    /// The fitness of the last iteration that was kept.
    last_kept: Option<f64>,
    ground: Option<Ground>,
    fault: Vec<(f64, f64)>,
    clouds: Vec<Cloud<'a>>,
    flags: Vec<Flag<'a>>,
}

impl<'a> DreamscapeView<'a> {
    pub(super) fn of(scape: &'a Dreamscape) -> Self {
        let of_iterations = scape.land.iter().map(|it| it.degraded.len()).sum::<usize>();
        let ground = Ground::of(scape);
        let foot = ground.as_ref().map_or(ground::NO_LAND, |ground| ground.last().1);
        let mut kept = scape.land.iter().rev().filter(|it| it.kept);
        Self {
            scape,
            tone: tone(&scape.status),
            has_failed: scape.has_failed(),
            degraded_steps: scape.degraded.len() + of_iterations,
            description: describe(scape),
            iterations: scape.land.iter().map(describe_iteration).collect(),
            first_fitness: scape.before.or_else(|| scape.land.iter().find_map(|it| it.fitness)),
            last_kept: kept.find_map(|it| it.fitness),
            fault: ground.as_ref().map_or_else(Vec::new, |ground| ground.fault(scape)),
            clouds: ground::clouds(scape),
            flags: ground::flags(scape, foot),
            ground,
        }
    }
}

/// Returns the colour for a status written by an overnight run.
fn tone(status: &str) -> Tone {
    match status {
        "done" => Tone::Good,
        "degraded" | "running" | "queued" => Tone::Warn,
        "failed" => Tone::Bad,
        _ => Tone::Calm,
    }
}

/// Formats a fitness with two or three decimal places.
pub(super) fn fine(fitness: f64) -> String {
    let text = format!("{fitness:.3}");
    text.strip_suffix('0').unwrap_or(&text).to_owned()
}

fn describe_iteration(point: &Point) -> String {
    let fitness = point.fitness.map_or_else(
        || "not measured".to_owned(),
        |it| format!("fitness {} ({:+.3})", fine(it), point.delta),
    );
    format!("iteration {}: {fitness}, {}", point.index, point.status)
}

fn describe(scape: &Dreamscape) -> String {
    let mut words = Vec::new();
    if let Some(before) = scape.before {
        words.push(format!("Fitness was {} before", fine(before)));
    }
    words.extend(scape.land.iter().map(describe_iteration));
    if !scape.degraded.is_empty() {
        words.push(format!("degraded: {}", scape.degraded.join("; ")));
    }
    if let Some(tension) = &scape.tension {
        words.push(format!("tension: {tension}"));
    }
    let packets = scape.packets.iter();
    words.extend(packets.map(|it| format!("packet {}: {} ({})", it.rank, it.title, it.severity)));
    words.join(". ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_tests as sample;

    #[test]
    fn picture_is_also_described_in_text() {
        let words = describe(&sample::full("").dreamscapes[0]);
        for part in [
            "Fitness was 0.61 before",
            "iteration 2: fitness 0.71 (+0.050)",
            "iteration 4: not measured",
            "packet 1",
            "tension: ",
        ] {
            assert!(words.contains(part), "{part} in {words}");
        }
    }
}
