//! Validated relative paths. Every name in a publication is a [`RelPath`].
//!
//! A [`RelPath`] is not absolute, contains no `..` and has only one spelling. Two different paths
//! therefore name different entries, except on file systems that fold case. The type makes no
//! guarantees about links. [`super::RealFs`] relies on the kernel's path resolution for them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Maximum length of a path in bytes, which is the kernel's limit.
const LONGEST: usize = 4095;
/// Maximum length of a path component in bytes.
const LONGEST_NAME: usize = 255;

/// A path relative to a root: non-empty components joined by single slashes. No component is `.` or
/// `..` or contains a control character.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RelPath(String);

/// The error for a string that is not a valid relative path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path:?} is not a valid relative path: {why}")]
pub struct BadPath {
    pub path: String,
    pub why: &'static str,
}

impl RelPath {
    /// Validates `text` as a path. The string is never normalized, so any other spelling of a path,
    /// such as `a//b` or `./a`, is refused.
    ///
    /// # Errors
    /// Returns an error if `text` is empty, absolute or too long, or contains a control character.
    /// Also returns an error if a component is empty, too long, `.` or `..`.
    pub fn new(text: &str) -> Result<Self, BadPath> {
        let refuse = |why| Err(BadPath { path: text.to_owned(), why });
        if text.is_empty() {
            return refuse("it is empty");
        }
        if text.starts_with('/') {
            return refuse("it is absolute");
        }
        if text.len() > LONGEST {
            return refuse("it is longer than 4095 bytes");
        }
        if text.chars().any(char::is_control) {
            return refuse("it contains a control character");
        }
        if text.ends_with('/') {
            return refuse("it ends with a slash");
        }
        for name in text.split('/') {
            match name {
                "" => return refuse("it has an empty component"),
                "." | ".." => return refuse("it has a `.` or `..` component"),
                _ if name.len() > LONGEST_NAME => {
                    return refuse("it has a name longer than 255 bytes");
                }
                _ => {}
            }
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the last component.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// Returns the parent folder, or `None` if the parent is the root.
    pub fn parent(&self) -> Option<Self> {
        self.0.rsplit_once('/').map(|(folder, _)| Self(folder.to_owned()))
    }

    /// Returns the folders above the path, outermost first. The root is not included.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> + '_ {
        self.0.match_indices('/').map(|(at, _)| Self(self.0[..at].to_owned()))
    }

    /// Returns the path of the entry `name` beneath this path.
    ///
    /// # Errors
    /// Returns an error if `name` is not a single valid component.
    pub fn join(&self, name: &str) -> Result<Self, BadPath> {
        if name.contains('/') {
            return Err(BadPath { path: name.to_owned(), why: "it has more than one component" });
        }
        Self::new(&format!("{}/{name}", self.0))
    }

    /// Returns whether the path is `folder` or beneath it, comparing whole components.
    pub fn is_within(&self, folder: &Self) -> bool {
        match self.0.strip_prefix(folder.as_str()) {
            Some(rest) => rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for RelPath {
    type Error = BadPath;
    fn try_from(text: String) -> Result<Self, BadPath> {
        Self::new(&text)
    }
}

impl From<RelPath> for String {
    fn from(path: RelPath) -> Self {
        path.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_paths_are_accepted() {
        for bad in [
            "",
            "/",
            "/etc/passwd",
            "..",
            ".",
            "../x",
            "a/../b",
            "a/..",
            "./a",
            "a/./b",
            "a//b",
            "a/",
            "//a",
            "a\0b",
            "a\nb",
            "a/\u{7f}",
            "\u{85}",
        ] {
            assert!(RelPath::new(bad).is_err(), "{bad:?}");
        }
        assert!(RelPath::new(&"x".repeat(256)).is_err());
        assert!(RelPath::new(&"x/".repeat(2048)).is_err());
        for good in ["a", "a/b", ".staging/x", "...", "a/..b", "mañana.md", "a b"] {
            assert_eq!(RelPath::new(good).unwrap().as_str(), good);
        }
        assert!(serde_json::from_str::<RelPath>("\"../x\"").is_err());
    }

    #[test]
    fn prefixes_match_whole_components() {
        let path = |text| RelPath::new(text).unwrap();
        assert!(path("dreams/a").is_within(&path("dreams")));
        assert!(path("dreams").is_within(&path("dreams")));
        assert!(!path("dreams-evil/a").is_within(&path("dreams")));
        assert!(!path("Dreams/a").is_within(&path("dreams")));
        let above: Vec<String> = path("a/b/c").ancestors().map(String::from).collect();
        assert_eq!(above, ["a", "a/b"]);
        assert_eq!(path("a/b/c").parent(), Some(path("a/b")));
        assert_eq!(path("a").parent(), None);
        assert_eq!(path("a/b").name(), "b");
        assert!(path("a").join("../b").is_err());
        assert_eq!(path("a").join("b").unwrap(), path("a/b"));
    }
}
