//! The councillors' answers, each in its own words; unsolicited ideas come last.

use crate::report::dreamscape::Dreamscape;
use crate::report::html::write::{Page, put};

/// Writes the councillors' answers, or nothing if no councillor was asked.
pub(super) fn write(page: &mut Page, scape: &Dreamscape) {
    let Some(council) = &scape.council else {
        return;
    };
    put!(page, "<h3>The council</h3>\n<p>", council.words);
    if let Some(tension) = &scape.tension {
        put!(page, ". <b>Tension:</b> ", tension);
    }
    put!(page, ".</p>\n<ul class=\"voices\">\n");
    for voice in &council.voices {
        put!(
            page,
            "<li><b>",
            voice.runner,
            "</b> <span class=\"badge calm\">",
            voice.kind,
            "</span> ",
            voice.action,
            " <span class=\"faint\">(confidence ",
            voice.confidence,
            ")</span></li>\n"
        );
    }
    for one in &council.unheard {
        put!(
            page,
            "<li><b>",
            one.runner,
            "</b> <span class=\"badge warn\">not heard</span> ",
            one.action,
            "</li>\n"
        );
    }
    for one in &council.wildcards {
        put!(
            page,
            "<li><b>",
            one.runner,
            "</b> <span class=\"badge wild\">wildcard</span> ",
            one.action,
            " <span class=\"faint\">(nobody asked for it; not counted)</span></li>\n"
        );
    }
    put!(page, "</ul>\n");
}
