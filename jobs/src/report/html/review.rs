//! The proposals for a person, each with the commands that decide it.

use super::write::{Page, put};
use crate::dream::proposal::Confidence;
use crate::report::model::NightReport;
use crate::report::proposals::ReportedProposal;
use runner_text::counted;

/// Number of proposals of one sort that are shown; the rest is folded.
const UNFOLDED: usize = 10;

/// Writes the proposals, or nothing if no dream ran and nothing was proposed.
pub(super) fn write(page: &mut Page, report: &NightReport) {
    put!(page, "<section id=\"proposals\">\n<h2>Proposals to review</h2>\n");
    let (waiting, rest): (Vec<&ReportedProposal>, Vec<&ReportedProposal>) =
        report.proposals.iter().partition(|it| it.waits());
    if waiting.is_empty() {
        put!(page, "<p class=\"faint\">No proposal is waiting for you.</p>\n");
    } else {
        let flag = waiting.first().map_or("", |it| it.flag.as_str());
        put!(
            page,
            "<p>",
            counted(waiting.len(), "proposal"),
            ": nothing is done before you decide. Review them one after another, with one key each: <code class=\"command\">",
            "runner dream review",
            flag,
            "</code></p>\n"
        );
    }
    if report.more_proposals > 0 {
        put!(
            page,
            "<p>",
            counted(report.more_proposals, "more proposal"),
            ": <code>runner dream list</code></p>\n"
        );
    }
    let (shown, folded) = waiting.split_at(waiting.len().min(UNFOLDED));
    shown.iter().for_each(|it| one(page, it));
    fold(page, folded, "more to review");
    let (kept, decided): (Vec<&ReportedProposal>, Vec<&ReportedProposal>) =
        rest.into_iter().partition(|it| it.decided.is_none());
    fold(page, &kept, "examined, and best left as they are");
    fold(page, &decided, "decided");
    others(page, report);
    put!(page, "</section>\n");
}

/// Writes everything else that a person should look at.
fn others(page: &mut Page, report: &NightReport) {
    if report.waiting.is_empty() {
        return;
    }
    put!(page, "<h3>Also for you</h3>\n");
    for it in &report.waiting {
        put!(
            page,
            "<details class=\"row\"><summary><span class=\"badge calm\">",
            it.sort,
            "</span><span class=\"name\">",
            it.what,
            "</span><span class=\"told\">",
            it.why,
            "</span><span class=\"cost\">",
            it.job,
            "</span></summary>\n<div class=\"body\"><p class=\"commands\"><code class=\"command\">",
            it.command,
            "</code></p></div></details>\n"
        );
    }
}

fn fold(page: &mut Page, these: &[&ReportedProposal], title: &'static str) {
    if these.is_empty() {
        return;
    }
    put!(page, "<details class=\"more\"><summary>", these.len(), " ", title, "</summary>\n");
    these.iter().for_each(|it| one(page, it));
    put!(page, "</details>\n");
}

fn one(page: &mut Page, it: &ReportedProposal) {
    let sure = match it.confidence {
        Confidence::High => "sure",
        Confidence::Med => "fairly sure",
        Confidence::Low => "worth a look",
    };
    put!(
        page,
        "<details class=\"row\"><summary><span class=\"badge calm\">",
        it.action.as_str(),
        "</span><span class=\"name\">",
        it.targets.first().map_or("", String::as_str)
    );
    if let Some(into) = it.targets.get(1) {
        put!(page, " into ", into);
    }
    put!(
        page,
        "</span><span class=\"told\">",
        it.status.as_str(),
        " — ",
        it.evidence,
        "</span><span class=\"cost\">"
    );
    match &it.decided {
        Some(decided) => {
            put!(page, decided);
        }
        None => {
            put!(page, sure);
        }
    }
    put!(page, "</span></summary>\n<div class=\"body\">");
    if !it.rationale.is_empty() {
        put!(page, "<p>", it.rationale, "</p>");
    }
    let verbs: &[&'static str] = match (&it.decided, it.waits()) {
        (Some(_), _) => &["show", "undo"],
        (None, true) => &["accept", "reject", "show"],
        (None, false) => &["show"],
    };
    put!(page, "<p class=\"commands\">");
    for verb in verbs {
        put!(page, "<code class=\"command\">", it.command(verb), "</code> ");
    }
    put!(page, "</p></div></details>\n");
}
