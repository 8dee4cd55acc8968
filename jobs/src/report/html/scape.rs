//! An overnight run as a landscape that is drawn from its figures alone.
//!
//! ```text
//! fitness of what was kept, over iterations ──> the land; what was not kept: a hollow point beside it
//! degraded steps ─────────────────────────────> clouds, over their iteration or over the whole night
//! morning packets ────────────────────────────> flags on the last ground, the higher the more it matters
//! tension of the councillors ─────────────────> a fault through the land before them
//! ```
//!
//! The geometry is pure and in `ground`; colours are classes of the style sheet. Everything in the
//! picture is also stated in the text beside it. The picture must never show a figure that does not
//! exist: without an iteration there is no land.

mod council;
mod ground;
mod picture;
mod text;

use super::tone;
use super::write::{Page, put};
use crate::report::dreamscape::Dreamscape;

/// Writes the section of one overnight run, with legend, figures and packets.
pub(super) fn write(page: &mut Page, scape: &Dreamscape, number: usize) {
    put!(page, "<section class=\"scape\">\n<h2>The dreamscape of ", scape.job);
    if !scape.status.is_empty() {
        put!(page, " <span class=\"badge ", tone(&scape.status), "\">", scape.status, "</span>");
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
            crate::report::proposals::shell_word(&scape.run),
            "</code></p>\n</section>\n"
        );
        return;
    }
    put!(page, "<figure>\n");
    picture::picture(page, scape, number);
    text::legend(page, scape);
    put!(page, "</figure>\n");
    text::packets(page, scape, number);
    council::write(page, scape);
    text::figures(page, scape);
    put!(page, "</section>\n");
}
