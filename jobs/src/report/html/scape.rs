//! An overnight run as a landscape, drawn from its figures and from nothing else.
//!
//! ```text
//! fitness of what was kept, over iterations ──> the land; what was not kept: a hollow point beside it
//! degraded steps ─────────────────────────────> clouds, over their iteration or over the whole night
//! morning packets ────────────────────────────> flags on the last ground, the higher the more it matters
//! tension of the councillors ─────────────────> a fault through the land before them
//! ```
//!
//! Geometry is pure and in [`Ground`]; colours are classes of the style sheet. Everything in the picture is
//! said in words beside it. Must never draw a figure that is not there: no iteration, no land.

use super::tone;
use super::write::{Page, put};
use crate::report::dreamscape::{Dreamscape, Packet, Point};
use runner_text::counted;

/// The picture's own units.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
/// Where the land may begin, and where its last ground may end.
const LEFT: f64 = 48.0;
const RIGHT: f64 = 700.0;
/// Where the iterations end when flags stand behind them.
const LOOP_END: f64 = 450.0;
/// The highest and the lowest that the land goes.
const HIGH: f64 = 130.0;
const LOW: f64 = 232.0;
/// More flags, clouds and drops than these are not drawn; the words have all.
const FLAGS: usize = 10;
const CLOUDS: usize = 6;
const DROPS: usize = 4;
/// A range of fitness that is smaller than this is drawn as if it were so large: noise is no mountain.
const RANGE: f64 = 0.05;

/// Writes one, with legend, figures and packets.
pub(super) fn write(page: &mut Page, scape: &Dreamscape, number: usize) {
    put!(
        page,
        "<section class=\"scape\">\n<h2>The dreamscape of ",
        scape.job
    );
    if !scape.status.is_empty() {
        put!(
            page,
            " <span class=\"badge ",
            tone(&scape.status),
            "\">",
            scape.status,
            "</span>"
        );
    }
    put!(page, "</h2>\n");
    if let Some(goal) = &scape.goal {
        put!(page, "<p class=\"goal\">", goal, "</p>\n");
    }
    if let Some(why) = &scape.missing {
        put!(
            page,
            "<p class=\"faint\">No picture: ",
            why,
            ". <code>runner runs show ",
            crate::report::proposals::word(&scape.run),
            "</code></p>\n</section>\n"
        );
        return;
    }
    put!(page, "<figure>\n");
    picture(page, scape, number);
    legend(page, scape);
    put!(page, "</figure>\n");
    figures(page, scape);
    packets(page, scape);
    put!(page, "</section>\n");
}

/// Where things are in the picture.
#[derive(Debug, PartialEq)]
struct Ground {
    /// The surface, from left to right: before the first iteration, then one for each.
    surface: Vec<(f64, f64)>,
    /// What was measured and not kept: its iteration in [`Dreamscape::land`], and where.
    lost: Vec<(usize, (f64, f64))>,
    /// Where the surface is flat behind the last iteration.
    end: f64,
}

impl Ground {
    /// Of the figures; none without a single one.
    fn of(scape: &Dreamscape) -> Option<Self> {
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
        let end = if scape.packets.is_empty() {
            RIGHT
        } else {
            LOOP_END
        };
        #[allow(clippy::cast_precision_loss, reason = "a few dozen at most")]
        let step = (end - LEFT) / scape.land.len().max(1) as f64;
        let mut x = LEFT;
        // The first that is known stands for an unknown beginning.
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
        Some(Self {
            surface,
            lost,
            end: RIGHT,
        })
    }

    /// The last point of the surface.
    fn last(&self) -> (f64, f64) {
        *self.surface.last().expect("it has its beginning")
    }
}

fn picture(page: &mut Page, scape: &Dreamscape, number: usize) {
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
        in_words(scape),
        "</desc>\n<rect class=\"sky\" width=\"720\" height=\"300\"/>\n",
        "<circle class=\"moon\" cx=\"646\" cy=\"52\" r=\"20\"/><circle class=\"sky\" cx=\"637\" cy=\"46\" r=\"17\"/>\n"
    );
    let stormy = !scape.degraded.is_empty() || scape.land.iter().any(|it| !it.degraded.is_empty());
    if !stormy {
        // A clear sky has stars.
        for (x, y) in [
            (90, 40),
            (168, 74),
            (250, 30),
            (338, 62),
            (420, 28),
            (500, 80),
            (566, 44),
        ] {
            put!(
                page,
                "<circle class=\"star\" cx=\"",
                x,
                "\" cy=\"",
                y,
                "\" r=\"1.6\"/>"
            );
        }
        put!(page, "\n");
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
    put!(
        page,
        "<path class=\"land\" d=\"M0 300 L0 ",
        tenth(ground.surface[0].1)
    );
    for (x, y) in &ground.surface {
        put!(page, " L", tenth(*x), " ", tenth(*y));
    }
    put!(
        page,
        " L720 ",
        tenth(last_y),
        " L720 300 Z\"/>\n<polyline class=\"surface\" points=\""
    );
    for (x, y) in &ground.surface {
        put!(page, tenth(*x), ",", tenth(*y), " ");
    }
    if last_x < ground.end {
        put!(page, "720,", tenth(last_y));
    }
    put!(page, "\"/>\n");
    if let Some(tension) = &scape.tension {
        let x = if scape.packets.is_empty() {
            f64::midpoint(LEFT, RIGHT)
        } else {
            LOOP_END + 14.0
        };
        // Where the land is flat behind the loop, its surface is the last one's.
        let top = if scape.packets.is_empty() {
            LOW
        } else {
            last_y
        };
        put!(
            page,
            "<g><title>Tension: ",
            tension,
            "</title><polyline class=\"fault\" points=\""
        );
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
            heard(&scape.land[*at]),
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
    // So many numbers that they do not touch.
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
                heard(point),
                "</title></circle>\n"
            );
        }
        if !point.degraded.is_empty() {
            let drops = point.degraded.len().min(DROPS);
            cloud(
                page,
                *x,
                (y - 52.0).max(84.0),
                0.72,
                drops,
                &point.degraded.join("; "),
            );
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
    let first = scape
        .before
        .or_else(|| scape.land.iter().find_map(|it| it.fitness));
    let last = scape
        .land
        .iter()
        .rev()
        .find(|it| it.kept)
        .and_then(|it| it.fitness);
    if let Some(first) = first {
        put!(
            page,
            "<text class=\"label\" x=\"",
            tenth(first_x - 34.0),
            "\" y=\"",
            tenth(first_y - 10.0),
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

/// How high a flag of a severity stands.
fn height(severity: &str) -> f64 {
    match severity {
        "critical" => 74.0,
        "high" => 62.0,
        "medium" => 46.0,
        _ => 30.0,
    }
}

/// To a tenth of the picture's unit.
fn tenth(number: f64) -> f64 {
    (number.clamp(-WIDTH, 2.0 * WIDTH) * 10.0).round() / 10.0
}

/// A fitness, as exactly as it matters.
fn fine(fitness: f64) -> String {
    let text = format!("{fitness:.3}");
    text.strip_suffix('0').unwrap_or(&text).to_owned()
}

/// One iteration in words.
fn heard(point: &Point) -> String {
    let fitness = point.fitness.map_or_else(
        || "not measured".to_owned(),
        |it| format!("fitness {} ({:+.3})", fine(it), point.delta),
    );
    format!("iteration {}: {fitness}, {}", point.index, point.status)
}

/// The whole picture in words.
fn in_words(scape: &Dreamscape) -> String {
    let mut words = Vec::new();
    if let Some(before) = scape.before {
        words.push(format!("Fitness was {} before", fine(before)));
    }
    words.extend(scape.land.iter().map(heard));
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

fn legend(page: &mut Page, scape: &Dreamscape) {
    let kept: Vec<f64> = scape
        .land
        .iter()
        .filter(|it| it.kept)
        .filter_map(|it| it.fitness)
        .collect();
    put!(
        page,
        "<figcaption><ul class=\"legend\">\n<li><svg viewBox=\"0 0 28 18\" aria-hidden=\"true\"><path class=\"land\" d=\"M0 18 V12 L10 5 L18 9 L28 4 V18 Z\"/></svg><span><b>the land</b> fitness of the corpus"
    );
    match (scape.before, kept.last()) {
        (Some(before), Some(after)) => {
            put!(
                page,
                ": ",
                fine(before),
                " → ",
                fine(*after),
                " over ",
                counted(scape.land.len(), "iteration")
            );
        }
        _ => {
            put!(
                page,
                ": ",
                counted(scape.land.len(), "iteration"),
                ", none of them kept"
            );
        }
    }
    put!(page, "</span></li>\n");
    let lost = scape.land.iter().filter(|it| !it.kept).count();
    if lost > 0 {
        put!(
            page,
            "<li><svg viewBox=\"0 0 28 18\" aria-hidden=\"true\"><circle class=\"lost\" cx=\"14\" cy=\"9\" r=\"5\"/></svg><span><b>hollow points</b> ",
            counted(lost, "iteration"),
            " not kept</span></li>\n"
        );
    }
    let clouds =
        scape.degraded.len() + scape.land.iter().map(|it| it.degraded.len()).sum::<usize>();
    put!(
        page,
        "<li><svg viewBox=\"-34 -26 68 44\" aria-hidden=\"true\"><path class=\"cloud\" d=\"M-30 12 a13 13 0 0 1 4 -25 a18 18 0 0 1 33 -5 a15 15 0 0 1 22 14 a9 9 0 0 1 -2 16 Z\"/></svg><span><b>clouds</b> "
    );
    match clouds {
        0 => {
            put!(page, "none: no step was degraded");
        }
        count => {
            put!(page, counted(count, "degraded step"));
        }
    }
    if !scape.weather.is_empty() {
        put!(page, "; weather: ", scape.weather);
    }
    put!(
        page,
        "</span></li>\n<li><svg viewBox=\"0 0 28 18\" aria-hidden=\"true\"><line class=\"pole\" x1=\"9\" y1=\"18\" x2=\"9\" y2=\"2\"/><path class=\"flag\" d=\"M9 2 l13 4 l-13 4 Z\"/></svg><span><b>flags</b> ",
        counted(scape.packets.len(), "morning packet"),
        ", the higher the more it matters</span></li>\n"
    );
    put!(
        page,
        "<li><svg viewBox=\"0 0 28 18\" aria-hidden=\"true\"><rect class=\"land\" width=\"28\" height=\"18\"/><polyline class=\"fault\" points=\"16,0 11,6 17,12 12,18\"/></svg><span><b>the fault</b> "
    );
    match &scape.tension {
        Some(tension) => {
            put!(page, tension);
        }
        None => {
            put!(page, "none: no tension was named");
        }
    }
    put!(page, "</span></li>\n</ul>");
    if let Some(ended) = &scape.ended {
        put!(page, "<p>It ended: ", ended, "</p>");
    }
    put!(page, "</figcaption>\n");
}

fn figures(page: &mut Page, scape: &Dreamscape) {
    put!(
        page,
        "<details class=\"more\"><summary>The figures</summary>\n"
    );
    if !scape.land.is_empty() {
        put!(
            page,
            "<div class=\"wide\"><table><thead><tr><th>iteration</th><th>fitness</th><th>change</th><th>status</th><th>degraded</th></tr></thead><tbody>\n"
        );
        for point in &scape.land {
            put!(
                page,
                "<tr><th scope=\"row\">",
                point.index,
                "</th><td>",
                point.fitness.map_or_else(|| "—".to_owned(), fine),
                "</td><td>",
                format!("{:+.3}", point.delta),
                "</td><td>",
                point.status,
                "</td><td>",
                point.degraded.join("; "),
                "</td></tr>\n"
            );
        }
        put!(page, "</tbody></table></div>\n");
    }
    if !scape.degraded.is_empty() {
        put!(page, "<h3>Degraded</h3><ul>");
        for line in &scape.degraded {
            put!(page, "<li>", line, "</li>");
        }
        put!(page, "</ul>\n");
    }
    put!(
        page,
        "<p class=\"faint\">From <code>",
        scape.summary,
        "</code></p></details>\n"
    );
}

fn packets(page: &mut Page, scape: &Dreamscape) {
    if scape.packets.is_empty() {
        put!(page, "<p class=\"faint\">It left no packet.</p>\n");
        return;
    }
    put!(page, "<h3>Morning packets</h3>\n");
    for packet in &scape.packets {
        put!(
            page,
            "<details class=\"row\"><summary><span class=\"badge ",
            match packet.severity.as_str() {
                "critical" | "high" => "warn",
                _ => "calm",
            },
            "\">",
            packet.severity,
            "</span><span class=\"name\">",
            packet.rank,
            ". ",
            packet.title,
            "</span><span class=\"told\">",
            packet.why,
            "</span><span class=\"cost\">",
            packet.kind,
            "</span></summary>\n<div class=\"body\"><p>",
            counted(packet.evidence, "line"),
            " of evidence"
        );
        if let Some(confidence) = &packet.confidence {
            put!(page, ", confidence ", confidence);
        }
        put!(page, ".</p>");
        if !packet.command.is_empty() {
            put!(
                page,
                "<p class=\"commands\"><code class=\"command\">",
                packet.command,
                "</code></p>"
            );
        }
        put!(page, "</div></details>\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn scape() -> Dreamscape {
        sample::full("").dreamscapes.remove(0)
    }

    #[test]
    fn the_land_is_the_figures_that_were_kept() {
        let ground = Ground::of(&scape()).unwrap();
        let ys: Vec<f64> = ground.surface.iter().map(|(_, y)| tenth(*y)).collect();
        // The best is on top; what was rolled back or failed leaves the land as it was.
        assert_eq!(ys[2], HIGH);
        assert!(ys[0] > ys[1] && ys[1] > ys[2], "{ys:?}");
        assert_eq!((ys[3], ys[4]), (ys[2], ys[2]));
        assert_eq!(ground.lost.len(), 1);
        let (at, (x, y)) = ground.lost[0];
        assert_eq!((at, x, tenth(y)), (2, ground.surface[3].0, LOW));
        assert_eq!(tenth(ground.surface[4].0), LOOP_END);
    }

    #[test]
    fn a_hair_s_breadth_is_no_mountain_and_no_figure_is_no_land() {
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

    #[test]
    fn everything_in_the_picture_is_also_said() {
        let words = in_words(&scape());
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
