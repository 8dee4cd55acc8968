//! The features of an idea's own text: its form, not its meaning.
//!
//! The features are cues that a human reader would also use: headings, lists, check boxes, a
//! declared status, a named parent. The module is pure, and its running time is linear in the
//! length of the text. The module must never trust the text: a declared status is only one cue
//! among others.

use runner_text::{front_matter, markdown};

/// First characters of placeholders in the title of a template.
const PLACEHOLDERS: [char; 2] = ['{', '<'];

/// First words of headings in an idea that asks for something to be built.
const ASKING: &str = "\
    acceptance approach behavior behaviour design done goal goals how implementation interface \
    milestones motivation phase plan problem proposal proposed requirements scope solution \
    steps task tasks testing tests todo use what why";
/// Complete headings in an idea that is meant for publication.
const PUBLISHING: &str = "audience|call to action|cover|draft post|hook|outline|publishing|takeaway|\
    takeaways|target audience|title options|tone";
/// Verbs that can begin a task description.
const VERBS: &str = "\
    accept adapt add adjust align allow apply archive ask assign attach automate avoid await \
    bind bring build bump bundle cache cancel change check choose clean close collect combine \
    compare compress configure confirm connect continue convert copy create decide decouple \
    deduplicate define delay delete deliver deprecate describe detect disable display divide \
    document download drop edit emit enable encrypt enforce ensure escape exclude execute \
    explain explore export expose extend extract fetch fill find fix forbid format generate give \
    group handle harden hide highlight implement import improve include inform inject install \
    integrate introduce keep let limit list log lower make measure mention merge migrate monitor \
    move notify offer open optimise optimize order parse pause persist pin preserve prevent \
    print protect provide publish pull push raise read redact redirect reduce refactor register \
    reject reload remember remind remove rename render reorder repair repeat replace replay \
    report reset resolve restart restore restrict resume retry return reuse revert rewrite \
    rotate run sanitise sanitize save scan search select send serialize serve set show sign \
    simplify skip sort speed split squash standardise standardize start stop store strip submit \
    suggest summarise summarize support switch sync synchronise synchronize teach tell test \
    throttle toggle track translate trigger trim tune turn undo unify unlock update upgrade \
    upload use validate verify wait warn watch wire wrap write";
/// Words in a sentence that asks for something without beginning with a verb.
const WISHES: &str = "cannot can't could lack lacks missing must need needed needs ought please \
    should todo want wanted wants wish would";
/// Pairs of words that often introduce a requested feature, such as "way to" and "support for".
const FEATURES: &str = "ability to|command for|command to|flag for|flag to|instead of|mode for|\
    no way|option for|option to|support for|there's no|way to";
/// First-person words, which are typical of an author who describes past events.
const TELLING: &str = "i i'd i'm i've me my our us we we'd we've";

/// The status that an idea declares for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declared {
    /// The idea calls itself implemented, shipped or done.
    Done,
    /// The idea calls itself a draft, proposed, open or blocked.
    Open,
}

/// The formal features of an idea's text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Features {
    pub title: String,
    /// Number of words in prose, lists and headings, without code.
    pub words: usize,
    /// Number of headings that ask for something.
    pub asking: usize,
    /// Number of headings that mark an idea as meant for publication.
    pub publishing: usize,
    /// Number of headings that begin with "phase", "milestone" or "stage".
    pub phases: usize,
    /// Number of list items.
    pub items: usize,
    /// Numbers of ticked and of unticked check boxes.
    pub boxes: (usize, usize),
    /// Number of list items and sentences that begin with one of `VERBS`, plus one if the title
    /// does.
    pub verbs: usize,
    /// Number of lines other than headings that ask for something, plus one if the title does. Such
    /// a line begins with one of `VERBS`, or contains one of `WISHES` or `FEATURES`.
    pub requests: usize,
    /// Share of first-person words in the text, from 0 to 1.
    pub telling: f64,
    /// The status that the text declares.
    pub declared: Option<Declared>,
    /// The document that the idea declares itself a part of.
    pub parent: Option<String>,
    /// Whether the text calls itself a post, an essay or a talk.
    pub post: bool,
    /// Whether the text is a form to fill in.
    pub template: bool,
    /// Whether the text contains the mark left by an accepted `mark-blog`.
    pub marked: bool,
}

impl Features {
    /// Extracts the features of an idea's text. `stem` serves as the title if the text has none.
    pub fn of(text: &str, stem: &str) -> Self {
        let title = markdown::title(text, stem);
        let doc = front_matter::split(text);
        let mut found = Self {
            words: markdown::word_count(text),
            marked: text.contains("ctx-dream: blog-candidate"),
            ..Self::default()
        };
        found.declared = doc.get("status").and_then(declared);
        found.parent =
            ["spec", "parent", "plan_for"].iter().find_map(|key| doc.get(key)).and_then(a_document);
        let mut in_code = false;
        let mut first_person = 0;
        for (number, line) in doc.body().lines().enumerate() {
            let line = line.trim();
            if line.starts_with("```") || line.starts_with("~~~") {
                in_code = !in_code;
            }
            if in_code {
                continue;
            }
            if number < HEAD {
                found.head(line);
            }
            first_person += line
                .split(|c: char| !c.is_alphanumeric() && c != '\'')
                .filter(|word| is_in(TELLING, &word.to_lowercase()))
                .count();
            found.line(line);
        }
        found.telling = first_person as f64 / found.words.max(1) as f64;
        found.verbs += usize::from(begins_with_verb(&title));
        // A title that is also a line of the text has already been counted.
        if !doc.body().lines().any(|line| line.trim() == title) {
            found.requests += usize::from(is_request(&title));
        }
        let lower = title.to_lowercase();
        let kind = doc.get("type").or_else(|| doc.get("kind")).unwrap_or_default().to_lowercase();
        let first = lower.split(|c: char| !c.is_alphanumeric()).find(|word| !word.is_empty());
        found.post = matches!(first, Some("blog" | "post" | "essay" | "talk" | "article"))
            || matches!(kind.as_str(), "blog" | "post" | "essay" | "article" | "talk");
        found.template = title.contains(PLACEHOLDERS) || lower.ends_with("template");
        found.title = title;
        found
    }

    /// Reads a line near the top, where an idea may declare its status and its parent.
    fn head(&mut self, line: &str) {
        let bare: String = line.chars().filter(|c| !matches!(c, '*' | '_' | '`' | '>')).collect();
        let bare = bare.trim();
        let lower = bare.to_lowercase();
        if self.declared.is_none()
            && let Some(rest) = lower.strip_prefix("status:")
        {
            self.declared = declared(rest);
        }
        if self.parent.is_none() {
            let opening =
                ["spec:", "parent:", "parent spec:", "companion to", "part of", "plan for"];
            let rest = opening.iter().find_map(|opening| lower.strip_prefix(opening));
            // The document must follow immediately: "part of the plan in a.md" is prose.
            self.parent = rest.and_then(|rest| a_document(rest.split_whitespace().next()?));
        }
    }

    fn line(&mut self, line: &str) {
        if let Some(heading) = line.strip_prefix('#') {
            let heading = heading
                .trim_start_matches('#')
                .trim()
                .trim_end_matches([':', '#', ' '])
                .to_lowercase();
            let first = heading.split(|c: char| !c.is_alphanumeric()).find(|word| !word.is_empty());
            self.asking += usize::from(first.is_some_and(|word| is_in(ASKING, word)));
            self.publishing += usize::from(PUBLISHING.split('|').any(|it| it == heading));
            self.phases += usize::from(matches!(first, Some("phase" | "milestone" | "stage")));
            return;
        }
        self.requests += usize::from(is_request(item(line).unwrap_or(line)));
        match item(line) {
            Some(rest) => {
                self.items += 1;
                let rest = match rest.get(..3) {
                    Some("[x]" | "[X]") => {
                        self.boxes.0 += 1;
                        &rest[3..]
                    }
                    Some("[ ]") => {
                        self.boxes.1 += 1;
                        &rest[3..]
                    }
                    _ => rest,
                };
                self.verbs += usize::from(begins_with_verb(rest));
            }
            None => {
                self.verbs += line.split(". ").filter(|sentence| begins_with_verb(sentence)).count()
            }
        }
    }

    /// Returns whether the idea has both ticked and open check boxes. A list without ticked boxes
    /// proves nothing, because few authors come back to tick them.
    pub fn half_ticked(&self) -> bool {
        self.boxes.0 > 0 && self.boxes.1 > 0
    }

    /// Returns whether the idea describes work in at least three phases, which a single commit
    /// rarely completes.
    pub fn phased(&self) -> bool {
        self.phases >= 3
    }

    /// The maximum value of [`Features::actionable`].
    pub const POINTS: usize = 7;

    /// Returns a score for how actionable the text is. The score depends on what the text asks for
    /// and not on the length of the text.
    pub fn actionable(&self) -> usize {
        let asking = self.asking.min(3);
        let lists = usize::from(self.items >= 3);
        let boxes = usize::from(self.boxes.1 >= 1);
        let verbs = usize::from(self.verbs >= 1) + usize::from(self.verbs >= 4);
        asking + lists + boxes + verbs
    }
}

/// Number of lines at the top of the body in which an idea may declare its status and parent.
const HEAD: usize = 6;

/// Returns whether a list of words, separated by spaces, contains a word.
fn is_in(list: &str, word: &str) -> bool {
    list.split(' ').any(|it| it == word)
}

fn declared(words: &str) -> Option<Declared> {
    let lower = words.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let first = words.next()?;
    // "accepted (impl 2026-05-30)" means done; "accepted" and "ready" alone only permit the work.
    if lower.contains("(impl") {
        return Some(Declared::Done);
    }
    match first {
        "implemented" | "shipped" | "released" | "done" | "complete" | "completed" | "landed"
        | "merged" => Some(Declared::Done),
        "draft" | "open" | "proposed" | "planned" | "blocked" | "deferred" | "idea" | "wip"
        | "todo" | "future" | "not" | "unimplemented" => Some(Declared::Open),
        _ => None,
    }
}

fn a_document(words: &str) -> Option<String> {
    let cut = words.trim().trim_matches(|c: char| !c.is_alphanumeric());
    let path = cut.rsplit_once('(').map_or(cut, |(_, path)| path);
    let plain = path.chars().all(|c| c.is_alphanumeric() || matches!(c, '/' | '.' | '-' | '_'));
    (path.ends_with(".md") && plain).then(|| path.to_owned())
}

fn item(line: &str) -> Option<&str> {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let rest = if digits > 0 {
        line[digits..].strip_prefix(['.', ')'])?
    } else {
        line.strip_prefix(['-', '*', '+'])?
    };
    rest.strip_prefix(' ').map(str::trim_start)
}

/// Returns whether a line asks for something.
fn is_request(line: &str) -> bool {
    let lower = line.to_lowercase().replace('’', "'");
    let words: Vec<&str> = lower
        .split(|c: char| !c.is_alphanumeric() && c != '\'')
        .filter(|word| !word.is_empty())
        .collect();
    let two = |pair: &[&str]| FEATURES.split('|').any(|known| known == pair.join(" "));
    begins_with_verb(line)
        || words.iter().any(|word| is_in(WISHES, word))
        || words.windows(2).any(two)
}

fn begins_with_verb(text: &str) -> bool {
    let first = text.split(|c: char| !c.is_alphanumeric()).find(|word| !word.is_empty());
    first.is_some_and(|word| is_in(VERBS, &word.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str = "\
# Add a retry policy

**Status:** proposed

## Problem

Calls fail. Retry them.

## Proposal

- [ ] Add jitter
- [ ] Cap the wait
- [x] Write it down

```
- [ ] not this
# nor this
```
";

    #[test]
    fn spec_features_are_detected() {
        let found = Features::of(SPEC, "x");
        assert_eq!((found.asking, found.items, found.boxes), (2, 3, (1, 2)));
        assert_eq!(found.declared, Some(Declared::Open));
        assert!(found.verbs >= 4 && found.actionable() >= 6, "{found:?}");
        assert!(found.half_ticked() && !found.post && !found.template);
    }

    #[test]
    fn status_and_parent_are_read_from_header() {
        let of = |text: &str| Features::of(text, "x");
        assert_eq!(of("---\nstatus: done\n---\n# T").declared, Some(Declared::Done));
        assert_eq!(
            of("# T\n\n**Status:** accepted (impl 2026-05-30)").declared,
            Some(Declared::Done)
        );
        assert_eq!(of("# T\n\nStatus: accepted").declared, None);
        assert_eq!(of("# T\n\nstatus: not implemented").declared, Some(Declared::Open));
        assert_eq!(
            of("# T\n\n**Spec:** `specs/a.md` · **Status:** Ready").parent.as_deref(),
            Some("specs/a.md")
        );
        assert_eq!(
            of("# T\n\n*Companion to `specs/b.md`. It*").parent.as_deref(),
            Some("specs/b.md")
        );
        assert_eq!(of("# T\n\nCompanion to [c.md](c.md).").parent.as_deref(), Some("c.md"));
        assert_eq!(of("# T\n\nPart of the plan in a.md").parent, None);
        assert_eq!(of("# T\n\nSpec: to be written").parent, None);
        assert_eq!(of("# T\n\nSpec: specs/<name>.md").parent, None);
    }

    #[test]
    fn posts_templates_and_phases_are_detected() {
        let post = "# Blog post: what we learned\n\n## Hook\n\nI was sure that we had it. We had not.\n\n## Takeaways\n";
        let found = Features::of(post, "x");
        assert!(found.post && found.publishing == 2 && found.telling > 0.1, "{found:?}");
        assert!(Features::of("# {Feature name}\n", "x").template);
        assert!(Features::of("# Spec Template\n", "x").template);
        assert!(Features::of("x <!-- ctx-dream: blog-candidate -->\n", "x").marked);
        assert_eq!(Features::of("", "").actionable(), 0);
        assert!(Features::of("# T\n## Phase 1\n## Phase 2: more\n## Milestone 3\n", "x").phased());
    }
}
