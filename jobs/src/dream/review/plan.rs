//! The changes that an action makes to files. The module is pure: it accepts file contents and
//! returns changes.

use jiff::Timestamp;
use runner_engine::digest::Digest;
use runner_engine::scope::FileLook;
use runner_text::front_matter;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::super::proposal::Action;
use super::super::spec::DreamSpec;
use super::super::state::Mark;
use super::passages;

/// The line that marks an idea as meant for publication.
pub const MARKER: &str = "<!-- ctx-dream: blog-candidate -->";
/// Exclusive upper limit of the number in a moved file's name.
const NAMES: u32 = 10_000;

/// A file as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The path of the file, relative to the project.
    pub path: String,
    pub bytes: Vec<u8>,
    /// The file's permission bits and modification time.
    pub looks: FileLook,
}

impl Source {
    /// Returns the digest of the content.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.bytes)
    }
}

/// One change to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// Write new content to an existing file or to a new file.
    Put {
        path: String,
        /// The new content.
        bytes: Vec<u8>,
        /// The file that is replaced, if there is one.
        over: Option<Source>,
        /// The permission bits and the modification time to set, if the file is moved or restored.
        looks: Option<FileLook>,
    },
    /// Remove the file.
    Remove(Source),
}

impl FileChange {
    /// Returns the path of the changed file.
    pub fn path(&self) -> &str {
        match self {
            Self::Put { path, .. } => path,
            Self::Remove(source) => &source.path,
        }
    }
}

/// The kind of a preview line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LineKind {
    /// The path of a changed file.
    File,
    /// A line that the action adds.
    Added,
    /// A line that does not change.
    Kept,
}

/// A preview line.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct PreviewLine {
    /// The kind of line.
    pub kind: LineKind,
    /// The line of the file, or the path. The text is not yet safe for a terminal.
    pub text: String,
}

/// The changes that carry out an action.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ActionPlan {
    /// The changes to files, in the order in which they are made.
    pub changes: Vec<FileChange>,
    /// The changes to `state.json`, by path.
    pub marks: Vec<(String, Mark)>,
    /// A short description of the action.
    pub says: String,
    /// A preview of the changes for the user.
    pub preview: Vec<PreviewLine>,
}

/// The origin of an act, recorded in the text that the act writes.
#[derive(Clone, Copy, Debug)]
pub struct Stamp<'a> {
    /// The id of the proposal.
    pub id: &'a str,
    /// The decision, as written in the decisions file.
    pub decision: &'a str,
    pub at: Timestamp,
}

/// Plans `action` on `source`; `into` is the destination of a merge. `taken` reports whether a path
/// is in use.
///
/// # Errors
/// Returns a user-facing message if the action cannot be carried out.
pub fn plan(
    action: Action,
    source: &Source,
    into: Option<&Source>,
    stamp: Stamp<'_>,
    (spec, taken): (&DreamSpec, impl Fn(&str) -> bool),
) -> Result<ActionPlan, String> {
    let mut plan = ActionPlan::default();
    match action {
        Action::Keep => plan.says = format!("{} stays as it is", source.path),
        Action::Archive => {
            let to = free(&spec.done, source, spec, taken)?;
            plan.says = format!("{} moves to {to}", source.path);
            plan.moves(source, to.clone(), source.bytes.clone());
            plan.mark(source, "archived", action, stamp, Marked::Moved(&to));
        }
        Action::Merge => {
            let into = into.ok_or("a merge needs an idea to merge into")?;
            let merged = merged(source, into, stamp)?;
            let to = free(&spec.done, source, spec, taken)?;
            let (from, path) = (&source.path, &into.path);
            plan.says = match merged {
                Some(bytes) => {
                    plan.grows(into, bytes);
                    format!("{from} is appended to {path} and moves to {to}")
                }
                None => format!("{from} moves to {to}; {path} already contains its text"),
            };
            plan.moves(source, to.clone(), source.bytes.clone());
            plan.mark(source, "merged", action, stamp, Marked::Moved(&into.path));
        }
        Action::Promote => {
            let bytes = promoted(source, stamp)?;
            let to = free(&spec.specs, source, spec, taken)?;
            plan.says = format!("{} moves to {to} with its provenance", source.path);
            plan.moves(source, to.clone(), bytes);
            plan.mark(source, "promoted", action, stamp, Marked::Moved(&to));
        }
        Action::MarkBlog => {
            let text = text(source)?;
            if text.lines().any(|line| line.trim() == MARKER) {
                plan.says = format!("{} is already marked", source.path);
            } else {
                let end = newline(text);
                let mut bytes = ended(&source.bytes, end);
                bytes.extend_from_slice(format!("{MARKER}{end}").as_bytes());
                plan.says = format!("{} is marked as a blog candidate", source.path);
                // Runner added this line, so the idea need not be triaged again because of it.
                let hash = Digest::of(&bytes);
                plan.grows(source, bytes);
                plan.mark(source, "active", action, stamp, Marked::Triaged(hash));
            }
        }
    }
    Ok(plan)
}

/// The effect of an action on the idea that it marks.
enum Marked<'a> {
    /// The idea moved to this path, or was merged into the file there.
    Moved(&'a str),
    /// The idea keeps its path, and the content with this digest is recorded as triaged.
    Triaged(Digest),
}

impl ActionPlan {
    /// Plans to move a file to `to` with the content `bytes`, which may have more lines in the
    /// front matter.
    fn moves(&mut self, source: &Source, to: String, bytes: Vec<u8>) {
        self.preview
            .push(PreviewLine { kind: LineKind::File, text: format!("{} → {to}", source.path) });
        if bytes != source.bytes {
            self.compare(&source.bytes, &bytes);
        }
        self.changes.push(FileChange::Put {
            path: to,
            bytes,
            over: None,
            looks: Some(source.looks),
        });
        self.changes.push(FileChange::Remove(source.clone()));
    }

    /// Plans to replace a file with a longer version of itself.
    fn grows(&mut self, source: &Source, bytes: Vec<u8>) {
        self.preview.push(PreviewLine { kind: LineKind::File, text: source.path.clone() });
        self.compare(&source.bytes, &bytes);
        self.changes.push(FileChange::Put {
            path: source.path.clone(),
            bytes,
            over: Some(source.clone()),
            looks: None,
        });
    }

    /// Adds the new lines to the preview, with a few lines of context. An act only ever adds one
    /// block of lines.
    fn compare(&mut self, old: &[u8], new: &[u8]) {
        const AROUND: usize = 2;
        let (old, new) = (String::from_utf8_lossy(old), String::from_utf8_lossy(new));
        let old: Vec<&str> = old.lines().collect();
        let new: Vec<&str> = new.lines().collect();
        let same = |(a, b): &(&&str, &&str)| a == b;
        let head = old.iter().zip(&new).take_while(same).count();
        let rest = old.iter().rev().zip(new.iter().rev());
        let tail = rest.take_while(same).count().min(old.len() - head);
        let end = new.len() - tail;
        let kept = |text: &&str| PreviewLine { kind: LineKind::Kept, text: (*text).to_owned() };
        self.preview.extend(new[head.saturating_sub(AROUND)..head].iter().map(kept));
        self.preview.extend(
            new[head..end]
                .iter()
                .map(|text| PreviewLine { kind: LineKind::Added, text: (*text).to_owned() }),
        );
        self.preview.extend(new[end..].iter().take(AROUND).map(kept));
    }

    fn mark(
        &mut self,
        source: &Source,
        status: &str,
        action: Action,
        stamp: Stamp<'_>,
        outcome: Marked<'_>,
    ) {
        let mut happened = json!({
            "at": stamp.at.to_string(), "proposal_id": stamp.id,
            "decision": stamp.decision, "action": action.as_str(),
        });
        let hash = match outcome {
            Marked::Moved(to) => {
                happened["to"] = to.into();
                None
            }
            Marked::Triaged(hash) => Some(hash.to_string()),
        };
        let mark = Mark { status: status.to_owned(), hash, happened };
        self.marks.push((source.path.clone(), mark));
    }
}

/// Returns an unused path below `folder`: the idea's path within the ideas folder, if necessary
/// with a number.
fn free(
    folder: &str,
    source: &Source,
    spec: &DreamSpec,
    taken: impl Fn(&str) -> bool,
) -> Result<String, String> {
    let below = source.path.strip_prefix(&format!("{}/", spec.ideas));
    let below = below.unwrap_or(&source.path);
    let (stem, ending) = match below.rsplit_once('.') {
        Some((stem, ending)) if !ending.contains('/') && !stem.is_empty() => {
            (stem, format!(".{ending}"))
        }
        _ => (below, String::new()),
    };
    (1..NAMES)
        .map(|number| match number {
            1 => format!("{folder}/{below}"),
            number => format!("{folder}/{stem}-{number}{ending}"),
        })
        .find(|path| !taken(path))
        .ok_or_else(|| format!("{folder} has no unused name left for {below}"))
}

fn text(source: &Source) -> Result<&str, String> {
    std::str::from_utf8(&source.bytes).map_err(|_| format!("{} is not UTF-8", source.path))
}

/// Returns CR LF if the text contains it, and otherwise LF.
fn newline(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// Returns the bytes, with `end` appended if the last line has no line ending.
fn ended(bytes: &[u8], end: &str) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.last().is_some_and(|last| *last != b'\n') {
        bytes.extend_from_slice(end.as_bytes());
    }
    bytes
}

/// Appends to the destination the passages of the source's body that it does not contain. Returns
/// the destination's new content, or `None` if no passage is missing. The source's front matter is
/// left out, because it would not be at the start of the destination; the archived source keeps it.
fn merged(source: &Source, into: &Source, stamp: Stamp<'_>) -> Result<Option<Vec<u8>>, String> {
    let (from, to) = (text(source)?, text(into)?);
    let body = front_matter::split(from).body().trim_start_matches(['\r', '\n']);
    let missing = passages::missing(body, to);
    if missing.is_empty() {
        return Ok(None);
    }
    let end = newline(to);
    let mut bytes = ended(&into.bytes, end);
    // `--` in a path would end the comment.
    let path = source.path.replace("--", "- -");
    let (day, id) = (stamp.at.strftime("%Y-%m-%d"), stamp.id);
    let head = format!("{end}<!-- ctx-dream: merged from {path} on {day} ({id}) -->{end}{end}");
    bytes.extend_from_slice(head.as_bytes());
    bytes.extend_from_slice(&ended(missing.as_bytes(), end));
    Ok(Some(bytes))
}

/// Returns the source with its origin added to the front matter. Every byte of the source is kept.
fn promoted(source: &Source, stamp: Stamp<'_>) -> Result<Vec<u8>, String> {
    let text = text(source)?;
    let end = newline(text);
    let quoted = |text: &str| serde_json::to_string(text).expect("strings serialize to JSON");
    let lines = format!(
        "promoted_from: {}{end}promoted_at: {}{end}proposal_id: {}{end}source_sha256: {}{end}",
        quoted(&source.path),
        quoted(&stamp.at.to_string()),
        quoted(stamp.id),
        quoted(&source.digest().to_string())
    );
    let document = front_matter::split(text);
    let (at, lines) = match document.front_range() {
        Some(range) => (range.end, lines),
        None => {
            // The front matter goes to the start of the text, after a byte order mark if there is
            // one.
            let at = if text.starts_with('\u{feff}') { 3 } else { 0 };
            (at, format!("---{end}{lines}---{end}{end}"))
        }
    };
    let mut bytes = text.as_bytes()[..at].to_vec();
    bytes.extend_from_slice(lines.as_bytes());
    bytes.extend_from_slice(&text.as_bytes()[at..]);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        let looks = FileLook { mode: 0o640, modified: 7 };
        Source { path: path.into(), bytes: text.into(), looks }
    }

    const STAMP: Stamp<'_> = Stamp { id: "00ff", decision: "accepted", at: Timestamp::UNIX_EPOCH };

    fn made(action: Action, one: &Source, into: Option<&Source>, taken: &[&str]) -> ActionPlan {
        let taken = |path: &str| taken.contains(&path);
        plan(action, one, into, STAMP, (&DreamSpec::default(), taken)).unwrap()
    }

    fn put(plan: &ActionPlan, at: usize) -> (&str, &str) {
        match &plan.changes[at] {
            FileChange::Put { path, bytes, .. } => (path, std::str::from_utf8(bytes).unwrap()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn archive_picks_a_free_name() {
        let one = source("ideas/sub/a.b.md", "text");
        let plan = made(Action::Archive, &one, None, &[]);
        assert_eq!(put(&plan, 0), ("ideas/done/sub/a.b.md", "text"));
        assert_eq!(plan.changes[1], FileChange::Remove(one.clone()));
        assert_eq!(plan.marks[0].1.status, "archived");
        assert!(
            matches!(&plan.changes[0], FileChange::Put { looks: Some(looks), .. } if *looks == one.looks)
        );
        let taken = ["ideas/done/sub/a.b.md", "ideas/done/sub/a.b-2.md"];
        let plan = made(Action::Archive, &one, None, &taken);
        assert_eq!(put(&plan, 0).0, "ideas/done/sub/a.b-3.md");
        let bare = made(Action::Archive, &source("ideas/.a/b", "x"), None, &["ideas/done/.a/b"]);
        assert_eq!(put(&bare, 0).0, "ideas/done/.a/b-2");
        let all = plan_of_all_taken(&one);
        assert!(all.unwrap_err().contains("ideas/done"));
    }

    fn plan_of_all_taken(one: &Source) -> Result<ActionPlan, String> {
        plan(Action::Archive, one, None, STAMP, (&DreamSpec::default(), |_: &str| true))
    }

    #[test]
    fn merge_appends_body_and_archives_whole_idea() {
        let one = source("ideas/a--b.md", "---\nt: 1\n---\n\n# A\nlast");
        let into = source("ideas/b.md", "# B\r\nno end");
        let plan = made(Action::Merge, &one, Some(&into), &[]);
        let (path, text) = put(&plan, 0);
        assert_eq!(path, "ideas/b.md");
        assert_eq!(
            text,
            "# B\r\nno end\r\n\r\n<!-- ctx-dream: merged from ideas/a- -b.md on 1970-01-01 (00ff) -->\r\n\r\n# A\nlast\r\n"
        );
        assert_eq!(put(&plan, 1), ("ideas/done/a--b.md", "---\nt: 1\n---\n\n# A\nlast"));
        assert_eq!(plan.changes.len(), 3);
        let added = plan.preview.iter().filter(|line| line.kind == LineKind::Added);
        assert_eq!(added.count(), 5);
        let nowhere =
            super::plan(Action::Merge, &one, None, STAMP, (&DreamSpec::default(), |_: &str| false));
        assert!(nowhere.is_err());
    }

    #[test]
    fn promotion_records_origin_and_preserves_content() {
        let plain = made(Action::Promote, &source("ideas/a.md", "# A\n"), None, &[]);
        let (path, text) = put(&plain, 0);
        assert_eq!(path, "specs/a.md");
        assert!(text.starts_with("---\npromoted_from: \"ideas/a.md\"\npromoted_at: \"1970-01-01T00:00:00Z\"\nproposal_id: \"00ff\"\nsource_sha256: \""), "{text}");
        assert!(text.ends_with("\"\n---\n\n# A\n"), "{text}");
        let fronted = source("ideas/a.md", "\u{feff}---\r\ntitle: x\r\n---\r\nbody");
        let fronted = made(Action::Promote, &fronted, None, &[]);
        let text = put(&fronted, 0).1;
        assert!(text.starts_with("\u{feff}---\r\ntitle: x\r\npromoted_from: "), "{text}");
        assert!(text.ends_with("\"\r\n---\r\nbody"), "{text}");
        assert_eq!(front_matter::split(text).get("promoted_from"), Some("ideas/a.md"));
    }

    #[test]
    fn blog_mark_is_added_once() {
        let one = source("ideas/a.md", "# A");
        let plan = made(Action::MarkBlog, &one, None, &[]);
        let (_, text) = put(&plan, 0);
        assert_eq!(text, format!("# A\n{MARKER}\n"));
        let hash = Digest::of(text.as_bytes()).to_string();
        assert_eq!(plan.marks[0].1.hash, Some(hash));
        let again = made(Action::MarkBlog, &source("ideas/a.md", text), None, &[]);
        assert_eq!((again.changes.len(), again.marks.len()), (0, 0));
        let keep = made(Action::Keep, &one, None, &[]);
        assert_eq!((keep.changes.len(), keep.marks.len()), (0, 0));
    }
}
