//! The text beside the picture: its figures, its legend, and the packets with their commands.

use crate::report::dreamscape::{Dreamscape, Point};
use crate::report::html::write::{Page, put};
use runner_text::counted;

/// Formats a fitness with two or three decimal places.
pub(super) fn fine(fitness: f64) -> String {
    let text = format!("{fitness:.3}");
    text.strip_suffix('0').unwrap_or(&text).to_owned()
}

pub(super) fn describe_iteration(point: &Point) -> String {
    let fitness = point.fitness.map_or_else(
        || "not measured".to_owned(),
        |it| format!("fitness {} ({:+.3})", fine(it), point.delta),
    );
    format!("iteration {}: {fitness}, {}", point.index, point.status)
}

pub(super) fn describe(scape: &Dreamscape) -> String {
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

pub(super) fn legend(page: &mut Page, scape: &Dreamscape) {
    let kept: Vec<f64> =
        scape.land.iter().filter(|it| it.kept).filter_map(|it| it.fitness).collect();
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
            put!(page, ": ", counted(scape.land.len(), "iteration"), ", none of them kept");
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
        0 if scape.status == "failed" => {
            put!(page, "the night failed before it ended");
        }
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
        "; a higher flag is more important</span></li>\n"
    );
    put!(
        page,
        "<li class=\"long\"><svg viewBox=\"0 0 28 18\" aria-hidden=\"true\"><rect class=\"land\" width=\"28\" height=\"18\"/><polyline class=\"fault\" points=\"16,0 11,6 17,12 12,18\"/></svg><span><b>the fault</b> "
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

pub(super) fn figures(page: &mut Page, scape: &Dreamscape) {
    put!(page, "<details class=\"more\"><summary>The figures</summary>\n");
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
    put!(page, "<p class=\"faint\">From <code>", scape.summary, "</code></p></details>\n");
}

pub(super) fn packets(page: &mut Page, scape: &Dreamscape, number: usize) {
    if scape.packets.is_empty() {
        put!(page, "<p class=\"faint\">The night left no packet.</p>\n");
        return;
    }
    put!(
        page,
        "<h3 id=\"packets-",
        number,
        "\">Morning packets</h3>\n<p class=\"faint\">What to begin with, the most important first. Open a packet for its evidence and its command.</p>\n"
    );
    for packet in &scape.packets {
        put!(
            page,
            "<details class=\"row packet\"><summary><span class=\"badge ",
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
        if !packet.voices.is_empty() {
            put!(page, "; spoken for by ", packet.voices.join(", "));
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
    use crate::report::sample_tests as sample;

    #[test]
    fn everything_in_the_picture_is_also_said() {
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
