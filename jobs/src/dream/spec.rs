//! The settings of a dream pass: its folders and limits.

use runner_engine::digest::Digest;
use runner_engine::outcome::Class;
use runner_engine::publish::RelPath;
use runner_text::values::{Size, read_folder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::JobError;

/// The kinds of changes below the dream's paths that defer a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Dirty {
    /// Changes to tracked files defer a pass. Untracked ideas do not, because processing them is
    /// the purpose of a pass.
    #[default]
    Tracked,
    /// Every change that `git status` lists defers a pass.
    Strict,
}

/// The ideas that a pass considers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection<'a> {
    /// The ideas that changed.
    Changed,
    /// All ideas, changed or not.
    All,
    /// One idea, even if it is unchanged or set aside.
    Idea(&'a str),
}

/// The settings of a dream job. All paths are relative to the project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DreamSpec {
    /// The folder with the ideas. Every *.md file below it is an idea.
    #[serde(deserialize_with = "read_folder")]
    pub ideas: String,
    /// The folder with proposals, state and decisions.
    #[serde(deserialize_with = "read_folder")]
    pub dreams: String,
    /// The folder for archived ideas, which a pass does not examine.
    #[serde(deserialize_with = "read_folder")]
    pub done: String,
    /// The folder for promoted ideas.
    #[serde(deserialize_with = "read_folder")]
    pub specs: String,
    /// The maximum number of ideas shown in one pass.
    #[schemars(range(min = 1))]
    pub max_ideas: usize,
    /// The maximum size of an idea. Longer ideas are reported but not read.
    #[serde(deserialize_with = "Size::bytes")]
    #[schemars(with = "Size")]
    pub max_idea_bytes: u64,
    /// An idea that changed within this number of minutes defers a pass that was not started
    /// manually.
    pub quiet_minutes: u32,
    /// Files and folders that neither a pass nor an accepted proposal may write.
    pub canonical: Vec<String>,
    /// Whether the text of ideas must be kept out of git. Default: true if git ignores the ideas
    /// folder. Accepting a private idea requires --publish if its text would be written to a path
    /// that git does not ignore.
    pub private: Option<bool>,
    /// The uncommitted changes in the folders of ideas and dreams that defer a pass: "tracked" for
    /// changes to tracked files, "strict" for all changes that git lists.
    pub dirty: Dirty,
    /// The ideas that a pass examines: "changed", "all", or the path of one idea.
    pub select: String,
    /// A file that `runner dream submit` writes for one run. That run asks no backend.
    pub submission: Option<String>,
}

impl Default for DreamSpec {
    fn default() -> Self {
        Self {
            ideas: "ideas".to_owned(),
            dreams: "dreams".to_owned(),
            done: "ideas/done".to_owned(),
            specs: "specs".to_owned(),
            max_ideas: 50,
            max_idea_bytes: 1024 * 1024,
            quiet_minutes: 5,
            canonical: CANONICAL.map(str::to_owned).into(),
            private: None,
            dirty: Dirty::default(),
            select: CHANGED.to_owned(),
            submission: None,
        }
    }
}

/// The files of a project's memory, which dream jobs may not write by default.
const CANONICAL: [&str; 5] = [
    ".context/DECISIONS.md",
    ".context/LEARNINGS.md",
    ".context/CONVENTIONS.md",
    ".context/CONSTITUTION.md",
    ".context/TASKS.md",
];

/// The value of `select` for the ideas that changed.
const CHANGED: &str = "changed";
/// The value of `select` for all ideas.
pub const ALL: &str = "all";

impl DreamSpec {
    /// Checks that the settings are usable.
    ///
    /// # Errors
    /// Returns an error of class `environment` that names the invalid setting and the reason.
    pub fn check(&self) -> Result<(), JobError> {
        let wrong = |why: String| {
            JobError::failed(Class::Environment, format!("the dream's settings: {why}"))
        };
        let path = |key: &str, text: &str| {
            RelPath::new(text).map_err(|bad| wrong(format!("{key}: {bad}")))
        };
        let ideas = path("ideas", &self.ideas)?;
        let dreams = path("dreams", &self.dreams)?;
        path("done", &self.done)?;
        path("specs", &self.specs)?;
        for file in &self.canonical {
            path("canonical", file)?;
        }
        if ideas.is_within(&dreams) {
            return Err(wrong(format!(
                "the ideas folder ({ideas}) is inside the dreams folder ({dreams})"
            )));
        }
        if self.max_ideas == 0 {
            return Err(wrong("max_ideas is 0".to_owned()));
        }
        Ok(())
    }

    /// Returns the entry of `canonical` that names this path or a folder above it, or `None` if
    /// there is no such entry.
    pub fn canonical_over(&self, path: &str) -> Option<&str> {
        let over = |listed: &&String| {
            let rest = path.strip_prefix(listed.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.canonical.iter().find(over).map(String::as_str)
    }

    /// Returns the ideas that a pass considers.
    pub fn selection(&self) -> Selection<'_> {
        match self.select.as_str() {
            CHANGED => Selection::Changed,
            ALL => Selection::All,
            path => Selection::Idea(path.trim_start_matches("./")),
        }
    }

    /// Returns a digest that identifies the job's folders in the name of a cache file.
    pub(super) fn folders_digest(&self) -> String {
        Digest::of(format!("{}\0{}", self.ideas, self.dreams).as_bytes()).short()
    }

    /// Returns the path of `dreams/state.json`.
    pub fn state_path(&self) -> String {
        format!("{}/state.json", self.dreams)
    }

    /// Returns the path of `dreams/ledger.md`, the decisions.
    pub fn decisions_path(&self) -> String {
        format!("{}/ledger.md", self.dreams)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_match_the_contract() {
        let spec: DreamSpec = serde_json::from_str("{}").unwrap();
        assert_eq!(spec, DreamSpec::default());
        assert!(spec.check().is_ok());
        assert_eq!((spec.state_path().as_str(), spec.max_ideas), ("dreams/state.json", 50));
        for name in ["DECISIONS", "LEARNINGS", "CONVENTIONS", "CONSTITUTION", "TASKS"] {
            let path = format!(".context/{name}.md");
            assert_eq!(spec.canonical_over(&path), Some(path.as_str()));
        }
        assert!(serde_json::from_str::<DreamSpec>(r#"{"max_idea": 3}"#).is_err());
        let strict: DreamSpec = serde_json::from_str(r#"{"dirty": "strict"}"#).unwrap();
        assert_eq!(strict.dirty, Dirty::Strict);
    }

    #[test]
    fn canonical_folder_covers_its_contents() {
        let spec = DreamSpec {
            canonical: vec!["dreams/state.json".into(), "docs".into()],
            ..DreamSpec::default()
        };
        assert_eq!(spec.canonical_over("docs/a/b.md"), Some("docs"));
        assert_eq!(spec.canonical_over("docs"), Some("docs"));
        assert_eq!(spec.canonical_over(&spec.state_path()), Some("dreams/state.json"));
        assert_eq!(spec.canonical_over("docs.md"), None);
        assert_eq!(spec.canonical_over("dreams/state.json.bad"), None);
    }

    #[test]
    fn invalid_paths_and_limits_are_refused() {
        for spec in [
            DreamSpec { ideas: "../ideas".into(), ..DreamSpec::default() },
            DreamSpec { dreams: "/tmp/dreams".into(), ..DreamSpec::default() },
            DreamSpec { done: String::new(), ..DreamSpec::default() },
            DreamSpec { ideas: "dreams/ideas".into(), ..DreamSpec::default() },
            DreamSpec { canonical: vec!["a//b".into()], ..DreamSpec::default() },
            DreamSpec { max_ideas: 0, ..DreamSpec::default() },
        ] {
            let why = spec.check().unwrap_err().whole();
            assert!(why.contains("the dream's settings"), "{why}");
        }
    }
}
