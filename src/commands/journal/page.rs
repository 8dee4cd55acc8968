//! Renders the journal as one HTML page, without scripts or network access, for light and dark mode
//! and for screens as narrow as a phone.
//!
//! All text on the page is untrusted and is escaped. The page's content security policy allows only
//! the page's style, and no other content, to be loaded or run. This module must never create a
//! link from such a text.

use runner_text::counted;
use std::fmt::Write as _;

use jiff::Timestamp;
use runner_engine::digest::Digest;

use super::model::{Commit, Gap, Journal, ShownEntry, TimelineItem};

const STYLE: &str = include_str!("page.css");

pub fn html(journal: &Journal) -> String {
    let mut out = String::new();
    let title = format!("{} · journal", esc(&journal.project));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        base64(&digest(STYLE))
    );
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n\
         <body>\n<header><h1>{title}</h1>\n<p>What was dreamt between the runs of an agent, newest first. \
         {}</p></header>\n<main>\n",
        legend()
    );
    if !journal.daydreams.is_empty() {
        out.push_str("<article><h2>Daydreams</h2>\n");
        for dream in journal.daydreams.iter().take(5) {
            let _ = writeln!(
                out,
                "<p class=\"day\">{} <span class=\"when\">{}</span></p>",
                esc(&dream.text),
                time(dream.ts)
            );
        }
        out.push_str("</article>\n");
    }
    if journal.items.is_empty() {
        out.push_str("<p>No dreams here yet.</p>\n");
    }
    for item in &journal.items {
        match item {
            TimelineItem::Entry(shown) => entry(&mut out, shown, journal),
            TimelineItem::Gap(it) => gap(&mut out, it),
            TimelineItem::Commit(it) => {
                let _ = writeln!(
                    out,
                    "<p class=\"row\">{} {} {} <span class=\"when\">{}</span></p>",
                    it.tag.map_or_else(String::new, tag),
                    esc(subject(it)),
                    link(it, journal),
                    time(it.at)
                );
            }
        }
    }
    let _ = write!(
        out,
        "</main>\n<footer>Made {}. The record of tool calls is not included.</footer>\n</body>\n</html>\n",
        time(journal.made)
    );
    out
}

fn legend() -> String {
    ["add", "blog", "audit", "rem"].map(tag).join(" ")
}

fn entry(out: &mut String, shown: &ShownEntry, journal: &Journal) {
    let agent = match shown.agent.as_str() {
        "" => String::new(),
        agent => format!(" · {}", esc(agent)),
    };
    let _ = writeln!(
        out,
        "<article id=\"{0}\"><h2>{1} {2}{agent}</h2>\n<p class=\"when\">{3}{4}</p>\n<p class=\"tale\">{5}</p>",
        esc(&format!("{}{}", shown.agent, shown.id)),
        tag("rem"),
        time(shown.at),
        esc(&shown.model),
        (shown.commit.as_ref()).map_or_else(String::new, |it| format!(" · {}", link(it, journal))),
        esc(&shown.tale)
    );
    for (name, lines) in
        [("goals", &shown.goals), ("blue sky", &shown.blue_sky), ("fears", &shown.fears)]
    {
        let items = lines.iter().map(|line| esc(line)).collect::<Vec<_>>();
        list(out, name, &items);
    }
    let verdicts = shown.verdicts.iter().map(|it| {
        let done = (it.resolved.as_ref()).map(|commit| format!(" → {}", link(commit, journal)));
        format!("{}{}", esc(&it.text), done.unwrap_or_default())
    });
    list(out, "verdicts", &verdicts.collect::<Vec<_>>());
    let carry: Vec<String> = shown.carry.iter().map(|line| esc(line)).collect();
    list(out, "carry", &carry);
    if let Some(audited) = shown.audited {
        let failed: Vec<String> = shown.failed_claims.iter().map(|it| esc(it)).collect();
        let what = match failed.len() {
            0 => format!(
                "<span class=\"tag audit\">audited</span> {}, none found false",
                counted(audited, "claim")
            ),
            many => format!(
                "<span class=\"tag bad\">audited</span> found false: {many} of {}",
                counted(audited, "claim")
            ),
        };
        let _ = writeln!(out, "<h3>audit</h3><p>{what}</p>");
        list(out, "", &failed);
    }
    out.push_str("</article>\n");
}

fn gap(out: &mut String, gap: &Gap) {
    let times = match gap.count {
        1 => time(gap.last),
        many => format!("{many} times, {} to {}", time(gap.first), time(gap.last)),
    };
    let _ = writeln!(
        out,
        "<p class=\"row gap\"><b>no entry</b> {} <span class=\"when\">{} · {times}</span></p>",
        esc(reason(&gap.why)),
        esc(&gap.job)
    );
}

/// Returns the reason for a missing entry without quoted text of a model or program, which stays in
/// the run's log.
fn reason(why: &str) -> &str {
    let end = why.find(": \"").unwrap_or(why.len());
    &why[..why.floor_char_boundary(end.min(200))]
}

fn list(out: &mut String, name: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    if !name.is_empty() {
        let _ = write!(out, "<h3>{name}</h3>");
    }
    let _ = writeln!(out, "<ul><li>{}</li></ul>", items.join("</li><li>"));
}

fn tag(name: &str) -> String {
    format!("<span class=\"tag {name}\">{name}</span>")
}

/// Returns the commit's subject without the tag, which is shown as a badge.
fn subject(commit: &Commit) -> &str {
    let rest = commit.tag.and_then(|tag| commit.subject.strip_prefix(tag)?.strip_prefix(':'));
    rest.unwrap_or(&commit.subject).trim()
}

fn link(commit: &Commit, journal: &Journal) -> String {
    let short = esc(&commit.short);
    match &journal.commits_at {
        Some(page) => {
            format!("<a href=\"{}{}\"><code>{short}</code></a>", esc(page), esc(&commit.hash))
        }
        None => format!("<code>{short}</code>"),
    }
}

fn time(at: Timestamp) -> String {
    format!(
        "<time datetime=\"{}\">{}</time>",
        at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        at.strftime("%Y-%m-%d %H:%M UTC")
    )
}

/// Escapes text for HTML, and replaces characters that change the text direction.
fn esc(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' => out.push('\n'),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

fn digest(text: &str) -> Vec<u8> {
    let hex = Digest::of(text.as_bytes()).to_string();
    let pairs = hex.as_bytes().chunks_exact(2);
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or(0) as u8;
    pairs.map(|pair| digit(pair[0]) * 16 + digit(pair[1])).collect()
}

/// Encodes bytes in base64 with the standard alphabet and padding.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let value = chunk.iter().fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let place = (value >> (18 - 6 * at)) & 63;
            out.push(if at <= chunk.len() { ALPHABET[place as usize] as char } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use runner_jobs::lifecycle::daydream::Daydream;

    #[test]
    fn bytes_are_written_as_the_rfc_writes_them() {
        for (plain, coded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn no_text_becomes_markup_wherever_it_stands() {
        let evil = "<script>alert(1)</script>\"'&\u{202e}\u{0}<img src=x onerror=y>";
        let commit = Commit {
            hash: evil.into(),
            short: evil.into(),
            at: Timestamp::UNIX_EPOCH,
            subject: evil.into(),
            tag: None,
        };
        let shown = ShownEntry {
            id: evil.into(),
            agent: evil.into(),
            at: Timestamp::UNIX_EPOCH,
            title: evil.into(),
            model: evil.into(),
            tale: evil.into(),
            goals: vec![evil.into()],
            blue_sky: vec![evil.into()],
            fears: vec![evil.into()],
            verdicts: vec![super::super::model::AppliedVerdict {
                text: evil.into(),
                resolved: Some(commit.clone()),
            }],
            carry: vec![evil.into()],
            failed_claims: vec![evil.into()],
            audited: Some(1),
            commit: Some(commit.clone()),
        };
        let journal = Journal {
            project: evil.into(),
            made: Timestamp::UNIX_EPOCH,
            items: vec![
                TimelineItem::Entry(Box::new(shown)),
                TimelineItem::Gap(Gap {
                    first: Timestamp::UNIX_EPOCH,
                    last: Timestamp::UNIX_EPOCH,
                    count: 2,
                    job: evil.into(),
                    why: evil.into(),
                }),
                TimelineItem::Commit(commit),
            ],
            daydreams: vec![Daydream { ts: Timestamp::UNIX_EPOCH, text: evil.into() }],
            commits_at: Some("https://example.org/a/commit/".into()),
        };
        let page = html(&journal);
        for bad in ["<script", "<img", "\u{202e}", "\u{0}", "onerror=y>\""] {
            assert!(!page.contains(bad), "{bad}");
        }
        assert!(page.matches("&lt;script&gt;").count() >= 18, "{page}");
        assert!(page.contains("default-src 'none'"));
    }
}
