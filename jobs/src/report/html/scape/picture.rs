//! Draws the picture: sky and clouds, the land with its fault, and flags.
//!
//! Every drawn object has a title, and the description of the picture contains all figures. This
//! module must never contain a colour, because colours are classes of the style sheet.

use super::ground::{Ground, HEIGHT, LEFT, LOOP_END, LOW, RIGHT, tenth};
use super::text::{describe, describe_iteration, fine};
use crate::report::dreamscape::{Dreamscape, Packet};
use crate::report::html::write::{Page, put};
use runner_text::counted;

/// Maximum numbers of flags, clouds and drops that are drawn. The text contains all of them.
const FLAGS: usize = 10;
const CLOUDS: usize = 6;
const DROPS: usize = 4;

/// Draws the picture of one overnight run.
pub(super) fn picture(page: &mut Page, scape: &Dreamscape, number: usize) {
    put!(
        page,
        "<svg viewBox=\"0 0 720 300\" role=\"img\" aria-labelledby=\"scape-",
        number,
        "-title scape-",
        number,
        "-words\">\n<title id=\"scape-",
        number,
        "-title\">Fitness over ",
        counted(scape.land.len(), "iteration"),
        "</title>\n<desc id=\"scape-",
        number,
        "-words\">",
        describe(scape),
        "</desc>\n<rect class=\"sky\" width=\"720\" height=\"300\"/>\n",
        // The moon is on the left, because the flags are on the right.
        "<circle class=\"moon\" cx=\"40\" cy=\"46\" r=\"18\"/><circle class=\"sky\" cx=\"48\" cy=\"40\" r=\"15.5\"/>\n"
    );
    let failed = scape.status == "failed";
    let stormy =
        failed || !scape.degraded.is_empty() || scape.land.iter().any(|it| !it.degraded.is_empty());
    if !stormy {
        // A clear sky shows stars.
        for (x, y) in [(104, 36), (168, 74), (250, 30), (338, 62), (420, 28), (500, 80), (566, 44)]
        {
            put!(page, "<circle class=\"star\" cx=\"", x, "\" cy=\"", y, "\" r=\"1.6\"/>");
        }
        put!(page, "\n");
    }
    if failed {
        // The reason for the failure is drawn as the worst weather.
        let why = scape.ended.as_deref().unwrap_or("it failed");
        cloud(page, RIGHT - 62.0, 48.0, 1.5, DROPS, why);
    }
    for (at, what) in scape.degraded.iter().take(CLOUDS).enumerate() {
        #[allow(clippy::cast_precision_loss, reason = "a handful")]
        let x = LEFT + 52.0 + at as f64 * 88.0;
        cloud(page, x, 40.0, 1.0, 0, what);
    }
    match Ground::of(scape) {
        Some(ground) => land(page, scape, &ground),
        None => {
            put!(
                page,
                "<rect class=\"land none\" y=\"240\" width=\"720\" height=\"60\"/>\n",
                "<text class=\"label\" x=\"360\" y=\"276\" text-anchor=\"middle\">no iteration was measured</text>\n"
            );
            flags(page, &scape.packets, 240.0);
        }
    }
    put!(page, "</svg>\n");
}

fn land(page: &mut Page, scape: &Dreamscape, ground: &Ground) {
    let (last_x, last_y) = ground.last();
    put!(page, "<path class=\"land\" d=\"M0 300 L0 ", tenth(ground.surface[0].1));
    for (x, y) in &ground.surface {
        put!(page, " L", tenth(*x), " ", tenth(*y));
    }
    put!(page, " L720 ", tenth(last_y), " L720 300 Z\"/>\n<polyline class=\"surface\" points=\"");
    for (x, y) in &ground.surface {
        put!(page, tenth(*x), ",", tenth(*y), " ");
    }
    if last_x < ground.end {
        put!(page, "720,", tenth(last_y));
    }
    put!(page, "\"/>\n");
    if let Some(tension) = &scape.tension {
        let x = if scape.packets.is_empty() { f64::midpoint(LEFT, RIGHT) } else { LOOP_END + 14.0 };
        // If there are packets, the land is flat behind the loop, at the height of the last point.
        let top = if scape.packets.is_empty() { LOW } else { last_y };
        put!(page, "<g><title>Tension: ", tension, "</title><polyline class=\"fault\" points=\"");
        let mut at = top - 6.0;
        let mut side = 5.0;
        while at < HEIGHT {
            put!(page, tenth(x + side), ",", tenth(at), " ");
            at += 14.0;
            side = -side;
        }
        put!(page, "\"/></g>\n");
    }
    for (at, (x, y)) in &ground.lost {
        let (_, from) = ground.surface[*at];
        put!(
            page,
            "<g><title>",
            describe_iteration(&scape.land[*at]),
            "</title><line class=\"slip\" x1=\"",
            tenth(*x),
            "\" y1=\"",
            tenth(from),
            "\" x2=\"",
            tenth(*x),
            "\" y2=\"",
            tenth(*y),
            "\"/><circle class=\"lost\" cx=\"",
            tenth(*x),
            "\" cy=\"",
            tenth(*y),
            "\" r=\"5\"/></g>\n"
        );
    }
    // Only so many numbers are drawn that they do not overlap.
    let every = scape.land.len().div_ceil(12).max(1);
    for (point, (x, y)) in scape.land.iter().zip(&ground.surface[1..]) {
        let class = if point.kept { "kept" } else { "lost" };
        if point.kept || point.fitness.is_none() {
            put!(
                page,
                "<circle class=\"",
                class,
                "\" cx=\"",
                tenth(*x),
                "\" cy=\"",
                tenth(*y),
                "\" r=\"5\"><title>",
                describe_iteration(point),
                "</title></circle>\n"
            );
        }
        if !point.degraded.is_empty() {
            let drops = point.degraded.len().min(DROPS);
            cloud(page, *x, (y - 52.0).max(84.0), 0.72, drops, &point.degraded.join("; "));
        }
        if point.index.is_multiple_of(every as u64) {
            put!(
                page,
                "<text class=\"tick\" x=\"",
                tenth(*x),
                "\" y=\"290\" text-anchor=\"middle\">",
                point.index,
                "</text>\n"
            );
        }
    }
    let (first_x, first_y) = ground.surface[0];
    let first = scape.before.or_else(|| scape.land.iter().find_map(|it| it.fitness));
    let last = scape.land.iter().rev().find(|it| it.kept).and_then(|it| it.fitness);
    if let Some(first) = first {
        put!(
            page,
            // The label is below the surface, because the slope would cross a label above it.
            "<text class=\"height\" x=\"",
            tenth(first_x - 40.0),
            "\" y=\"",
            tenth(first_y + 22.0),
            "\">",
            fine(first),
            "</text>\n"
        );
    }
    if let Some(last) = last {
        put!(
            page,
            "<text class=\"height\" x=\"",
            tenth(last_x - 8.0),
            "\" y=\"",
            tenth(last_y + 36.0),
            "\" text-anchor=\"end\">",
            fine(last),
            "</text>\n"
        );
    }
    flags(page, &scape.packets, last_y);
}

fn cloud(page: &mut Page, x: f64, y: f64, scale: f64, drops: usize, what: &str) {
    put!(
        page,
        "<g transform=\"translate(",
        tenth(x),
        " ",
        tenth(y),
        ") scale(",
        scale,
        ")\"><title>",
        what,
        "</title><path class=\"cloud\" d=\"M-30 12 a13 13 0 0 1 4 -25 a18 18 0 0 1 33 -5 a15 15 0 0 1 22 14 a9 9 0 0 1 -2 16 Z\"/>"
    );
    for (_, drop) in (0..drops).zip([-16, -2, 12, 24]) {
        put!(
            page,
            "<line class=\"rain\" x1=\"",
            drop,
            "\" y1=\"17\" x2=\"",
            drop - 4,
            "\" y2=\"28\"/>"
        );
    }
    put!(page, "</g>\n");
}

fn flags(page: &mut Page, packets: &[Packet], ground: f64) {
    let shown = packets.len().min(FLAGS);
    #[allow(clippy::cast_precision_loss, reason = "ten at most")]
    let step = (RIGHT - LOOP_END - 40.0) / shown.max(1) as f64;
    let mut x = LOOP_END + 34.0 + step / 4.0;
    for packet in &packets[..shown] {
        let high = height(&packet.severity);
        let top = ground - high;
        put!(
            page,
            "<g><title>",
            packet.rank,
            ". ",
            packet.title,
            " (",
            packet.severity,
            ")</title><line class=\"pole\" x1=\"",
            tenth(x),
            "\" y1=\"",
            tenth(ground),
            "\" x2=\"",
            tenth(x),
            "\" y2=\"",
            tenth(top),
            "\"/><path class=\"flag\" d=\"M",
            tenth(x),
            " ",
            tenth(top),
            " l15 6 l-15 6 Z\"/><text class=\"rank\" x=\"",
            tenth(x),
            "\" y=\"",
            tenth(top - 5.0),
            "\" text-anchor=\"middle\">",
            packet.rank,
            "</text></g>\n"
        );
        x += step;
    }
}

/// Returns the height of a flag for a severity.
fn height(severity: &str) -> f64 {
    match severity {
        "critical" => 74.0,
        "high" => 62.0,
        "medium" => 46.0,
        _ => 30.0,
    }
}
