//! The positions of everything in the picture: pure geometry, derived from the figures alone.
//!
//! The surface is the fitness of the committed iterations, with the best value at the top. Noise
//! must never look like a mountain, and there must never be ground where there is no figure.

use serde::Serialize;

use crate::report::dreamscape::{Dreamscape, Packet};

/// The size of the picture in its own units.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
/// The x coordinates of the left and right limits of the land.
const LEFT: f64 = 48.0;
const RIGHT: f64 = 700.0;
/// The x coordinate at which the iterations end if flags follow them.
const LOOP_END: f64 = 450.0;
/// The y coordinates of the highest and lowest points of the land.
const HIGH: f64 = 130.0;
const LOW: f64 = 232.0;
/// Minimum fitness range shown in the picture. A smaller range is drawn on this scale, so that
/// noise does not look like a mountain.
const RANGE: f64 = 0.05;
/// The y coordinate of the ground if there is no land.
pub(super) const NO_LAND: f64 = 240.0;
/// Maximum numbers of flags, clouds and raindrops to draw. The text lists every packet and every
/// degraded step.
const FLAGS: usize = 10;
const CLOUDS: usize = 6;
const DROPS: usize = 4;

/// The positions in the picture.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Ground {
    /// The points of the surface from left to right: one before the first iteration, then one for
    /// each iteration.
    pub(super) surface: Vec<(f64, f64)>,
    /// Measured points that were not kept: the index of the iteration in [`Dreamscape::land`], and
    /// the position.
    pub(super) lost: Vec<(usize, (f64, f64))>,
    /// The x coordinate at which the flat surface after the last iteration ends.
    pub(super) end: f64,
}

impl Ground {
    /// Creates the ground from the figures, or returns `None` if there are none.
    pub(super) fn of(scape: &Dreamscape) -> Option<Self> {
        let measured: Vec<f64> = scape
            .before
            .into_iter()
            .chain(scape.land.iter().filter_map(|point| point.fitness))
            .collect();
        let low = measured.iter().copied().reduce(f64::min)?;
        let high = measured.iter().copied().reduce(f64::max)?;
        let range = (high - low).max(RANGE);
        let (middle, half) = (f64::midpoint(low, high), range / 2.0);
        let y = |fitness: f64| {
            let part = ((fitness - middle) / half).clamp(-1.0, 1.0);
            f64::midpoint(HIGH, LOW) - part * (LOW - HIGH) / 2.0
        };
        let end = if scape.packets.is_empty() { RIGHT } else { LOOP_END };
        #[allow(clippy::cast_precision_loss, reason = "a few dozen at most")]
        let step = (end - LEFT) / scape.land.len().max(1) as f64;
        let mut x = LEFT;
        // If the initial fitness is unknown, the first measured fitness is used.
        let mut now = scape.before.unwrap_or(measured[0]);
        let mut surface = vec![(x, y(now))];
        let mut lost = Vec::new();
        for (at, point) in scape.land.iter().enumerate() {
            x += step;
            match point.fitness {
                Some(fitness) if point.kept => now = fitness,
                Some(fitness) => lost.push((at, (x, y(fitness)))),
                None => {}
            }
            surface.push((x, y(now)));
        }
        Some(Self { surface, lost, end: RIGHT })
    }

    pub(super) fn last(&self) -> (f64, f64) {
        *self.surface.last().expect("the surface has a first point")
    }

    /// Returns the points of the fault from top to bottom, to the left of the flags if there are
    /// any.
    pub(super) fn fault(&self, scape: &Dreamscape) -> Vec<(f64, f64)> {
        // If there are packets, the land is flat after the loop, at the height of the last point.
        let (x, top) = match scape.packets.is_empty() {
            true => (f64::midpoint(LEFT, RIGHT), LOW),
            false => (LOOP_END + 14.0, self.last().1),
        };
        let downwards = std::iter::successors(Some(top - 6.0), |y| Some(y + 14.0));
        let sides = [5.0, -5.0].into_iter().cycle();
        downwards.take_while(|y| *y < HEIGHT).zip(sides).map(|(y, side)| (x + side, y)).collect()
    }
}

/// A cloud for the whole night. The clouds of an iteration are drawn over its point.
#[derive(Serialize)]
pub(super) struct Cloud<'a> {
    x: f64,
    y: f64,
    scale: f64,
    /// Number of raindrops.
    drops: usize,
    title: &'a str,
}

/// Returns the clouds for the whole night. A failure adds a storm cloud with the reason as its
/// title.
pub(super) fn clouds(scape: &Dreamscape) -> Vec<Cloud<'_>> {
    let why = scape.ended.as_deref().unwrap_or("it failed");
    let storm = Cloud { x: RIGHT - 62.0, y: 48.0, scale: 1.5, drops: DROPS, title: why };
    let degraded = (0_u32..).zip(scape.degraded.iter().take(CLOUDS)).map(|(at, title)| {
        let x = LEFT + 52.0 + f64::from(at) * 88.0;
        Cloud { x, y: 40.0, scale: 1.0, drops: 0, title }
    });
    scape.has_failed().then_some(storm).into_iter().chain(degraded).collect()
}

/// The flag of a packet.
#[derive(Serialize)]
pub(super) struct Flag<'a> {
    packet: &'a Packet,
    x: f64,
    /// The y coordinates of the bottom and top of its pole.
    foot: f64,
    top: f64,
}

/// Returns the flags, which stand on the ground at `foot`.
pub(super) fn flags(scape: &Dreamscape, foot: f64) -> Vec<Flag<'_>> {
    let shown = &scape.packets[..scape.packets.len().min(FLAGS)];
    #[allow(clippy::cast_precision_loss, reason = "ten at most")]
    let step = (RIGHT - LOOP_END - 40.0) / shown.len().max(1) as f64;
    let flag = |(at, packet)| {
        let x = LOOP_END + 34.0 + step * (0.25 + f64::from(at));
        Flag { packet, x, foot, top: foot - height(&packet.severity) }
    };
    (0_u32..).zip(shown).map(flag).collect()
}

/// Returns the flag height for the given severity.
fn height(severity: &str) -> f64 {
    match severity {
        "critical" => 74.0,
        "high" => 62.0,
        "medium" => 46.0,
        _ => 30.0,
    }
}

/// Rounds a number to the nearest tenth of a unit in the picture.
pub(in crate::report::html) fn tenth(number: f64) -> f64 {
    (number.clamp(-WIDTH, 2.0 * WIDTH) * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_tests as sample;

    fn scape() -> Dreamscape {
        sample::full("").dreamscapes.remove(0)
    }

    #[test]
    fn land_follows_the_kept_fitness() {
        let ground = Ground::of(&scape()).unwrap();
        let ys: Vec<f64> = ground.surface.iter().map(|(_, y)| tenth(*y)).collect();
        // The best value is at the top. An iteration that was rolled back or failed does not change
        // the land.
        assert_eq!(ys[2], HIGH);
        assert!(ys[0] > ys[1] && ys[1] > ys[2], "{ys:?}");
        assert_eq!((ys[3], ys[4]), (ys[2], ys[2]));
        assert_eq!(ground.lost.len(), 1);
        let (at, (x, y)) = ground.lost[0];
        assert_eq!((at, x, tenth(y)), (2, ground.surface[3].0, LOW));
        assert_eq!(tenth(ground.surface[4].0), LOOP_END);
    }

    #[test]
    fn small_changes_are_flat_and_ground_needs_figures() {
        let mut flat = scape();
        flat.before = Some(0.7);
        flat.land.truncate(1);
        flat.land[0].fitness = Some(0.7001);
        let ground = Ground::of(&flat).unwrap();
        assert!((ground.surface[0].1 - ground.surface[1].1).abs() < 1.0);
        flat.before = None;
        flat.land.clear();
        assert_eq!(Ground::of(&flat), None);
    }
}
