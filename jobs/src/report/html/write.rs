//! The only way to write a page: literals are written unchanged, and every other value is escaped.
//!
//! ```text
//! put!(page, "<p>", value, "</p>")
//!             │      └── any value: escaped, character by character, as it is printed
//!             └── a literal of this source: markup
//! ```
//!
//! [`Page::raw`] accepts only text that is compiled in, so foreign text cannot become markup without
//! being noticed in a review. There must never be a second way to write to a page.

use std::fmt::{self, Display, Write};

/// A page, or a part of one, that is being written.
#[derive(Debug, Default)]
pub(super) struct Page {
    text: String,
}

impl Page {
    /// Writes markup, or text that is known to contain none.
    pub(super) fn raw(&mut self, literal: &'static str) {
        self.text.push_str(literal);
    }

    /// Writes any value as text. The result is also safe in an attribute value between double
    /// quotes.
    pub(super) fn text(&mut self, value: impl Display) {
        write!(Escaped(&mut self.text), "{value}").expect("writing into a string cannot fail");
    }

    pub(super) fn done(self) -> String {
        self.text
    }
}

/// A writer that escapes its input so that HTML treats it as text.
struct Escaped<'a>(&'a mut String);

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '`' => self.0.push_str("&#96;"),
                '\n' | '\t' => self.0.push(' '),
                // These characters would hide text or change its visible order.
                '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{2069}'
                | '\u{feff}' => self.0.push('\u{fffd}'),
                c if c.is_control() => self.0.push('\u{fffd}'),
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}

/// Writes literals as markup and all other values as text.
macro_rules! put {
    ($page:expr $(,)?) => {};
    ($page:expr, $literal:literal $(, $($rest:tt)*)?) => {
        $page.raw($literal);
        $($crate::report::html::write::put!($page, $($rest)*);)?
    };
    ($page:expr, $value:expr $(, $($rest:tt)*)?) => {
        $page.text(&$value);
        $($crate::report::html::write::put!($page, $($rest)*);)?
    };
}
pub(super) use put;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_literal_is_text() {
        let mut page = Page::default();
        let value = "<b class=\"x\" id='y'>`&amp;`</b>\n\u{1b}[1m\u{202e}\0";
        put!(page, "<p title=\"", value, "\">", 3 + 4, "</p>");
        assert_eq!(
            page.done(),
            "<p title=\"&lt;b class=&quot;x&quot; id=&#39;y&#39;&gt;&#96;&amp;amp;&#96;&lt;/b&gt; \
             \u{fffd}[1m\u{fffd}\u{fffd}\">7</p>"
        );
    }
}
