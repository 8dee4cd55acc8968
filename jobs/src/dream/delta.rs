//! Selects the ideas that a pass shows: by default, those whose content has changed since it was
//! last triaged, least recently shown first. The module is pure.

use std::collections::BTreeSet;

use super::inventory::Idea;
use super::quarantine::Quarantine;
use super::spec::Selection;
use super::state::DreamState;

/// The ideas that are selected for a pass, and counts of the other ideas.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// Indices of the selected ideas, in the order in which they are shown.
    pub selected: Vec<usize>,
    /// Number of ideas that exceed the limit and are left for the next pass.
    pub waiting: usize,
    /// Number of unchanged ideas.
    pub unchanged: usize,
    /// Indices of the ideas that are not selected because they are set aside.
    pub parked: Vec<usize>,
    /// Number of unchanged ideas that are selected because their evidence changed. They come last
    /// among the selected ideas.
    pub moved: usize,
    /// Number of unchanged ideas that are not selected although their evidence changed, because
    /// they are set aside or exceed the limit.
    pub deferred: usize,
}

impl Delta {
    /// Appends these unchanged ideas to the selection, up to `max` ideas in total. An idea for
    /// which `is_parked` returns true is not selected.
    pub fn add(&mut self, unchanged: Vec<usize>, is_parked: impl Fn(usize) -> bool, max: usize) {
        let (parked, unchanged): (Vec<usize>, Vec<usize>) =
            unchanged.into_iter().partition(|at| is_parked(*at));
        let free = max.saturating_sub(self.selected.len());
        let taken = unchanged.len().min(free);
        self.waiting += unchanged.len() - taken;
        self.deferred = unchanged.len() - taken + parked.len();
        self.parked.extend(parked);
        self.unchanged -= taken;
        self.moved = taken;
        self.selected.extend(unchanged.into_iter().take(free));
    }

    /// Returns the indices of all changed ideas, including those that wait or are set aside.
    pub fn changed(&self, ideas: &[Idea], state: &DreamState<'_>) -> BTreeSet<usize> {
        let mut next = 0;
        let mut changed =
            |at: &usize| state.triaged(&ideas[*at].path, &mut next) != Some(ideas[*at].digest);
        (0..ideas.len()).filter(|at| changed(at)).collect()
    }
}

/// Selects at most `max` of `ideas`, least recently shown first. Ideas that were shown at the same
/// time, or never, are ordered by path. An idea that is set aside is selected only if `selection`
/// names it.
pub fn select(
    ideas: &[Idea],
    state: &DreamState<'_>,
    parked: &Quarantine,
    selection: Selection<'_>,
    max: usize,
) -> Delta {
    let mut next = 0;
    let mut chosen = |idea: &Idea| match selection {
        Selection::Changed => state.triaged(&idea.path, &mut next) != Some(idea.digest),
        Selection::All => true,
        Selection::Idea(path) => &*idea.path == path,
    };
    let selected: Vec<usize> = (0..ideas.len()).filter(|at| chosen(&ideas[*at])).collect();
    let unchanged = ideas.len() - selected.len();
    let one = matches!(selection, Selection::Idea(_));
    let aside = |at: &usize| !one && parked.holds(&ideas[*at].path, &ideas[*at].digest);
    let (parked_ideas, mut selected): (Vec<usize>, Vec<usize>) =
        selected.into_iter().partition(aside);
    // `None` (never shown) sorts before any time. The sort is stable, and the ideas are already in
    // path order.
    selected.sort_by_cached_key(|at| {
        let path = &ideas[*at].path;
        state.surfaced(path).max(parked.surfaced(path))
    });
    let waiting = selected.len().saturating_sub(max);
    selected.truncate(max);
    Delta { selected, waiting, unchanged, parked: parked_ideas, moved: 0, deferred: 0 }
}

#[cfg(test)]
mod tests {
    use runner_engine::digest::Digest;

    use super::*;
    use crate::dream::walk::Stat;

    fn idea(path: &str, content: &str) -> Idea {
        let stat = Stat { size: 0, mtime: 0, ctime: 0, inode: 0 };
        Idea { path: path.into(), stat, digest: Digest::of(content.as_bytes()) }
    }

    fn entry(path: &str, content: &str, surfaced: &str) -> String {
        let hash = Digest::of(content.as_bytes());
        format!(r#"{{"path":"{path}","hash":"{hash}","last_surfaced":"{surfaced}"}}"#)
    }

    #[test]
    fn changed_ideas_are_least_recently_shown_first() {
        let ideas = ["a", "b", "c", "d", "e"].map(|name| idea(&format!("{name}.md"), name));
        let file = [
            entry("a.md", "a", "2026-01-01T00:00:00Z"),
            entry("b.md", "old", "2026-03-01T00:00:00Z"),
            entry("c.md", "old", "2026-02-01T00:00:00Z"),
            entry("d.md", "old", "no time at all"),
        ];
        let file = format!("[{}]", file.join(","));
        let state = DreamState::parse(file.as_bytes()).unwrap();
        let names = |max| -> Vec<&str> {
            select(&ideas, &state, &Quarantine::default(), Selection::Changed, max)
                .selected
                .iter()
                .map(|at| &*ideas[*at].path)
                .collect()
        };
        assert_eq!(names(9), ["d.md", "e.md", "c.md", "b.md"]);
        assert_eq!(names(2), ["d.md", "e.md"]);
        let delta = select(&ideas, &state, &Quarantine::default(), Selection::Changed, 2);
        assert_eq!((delta.waiting, delta.unchanged), (2, 1));
        assert_eq!(
            select(&[], &state, &Quarantine::default(), Selection::Changed, 2),
            Delta::default()
        );
    }

    #[test]
    fn reverted_content_counts_as_a_change() {
        let file = format!("[{}]", entry("a.md", "new", "2026-01-01T00:00:00Z"));
        let state = DreamState::parse(file.as_bytes()).unwrap();
        assert_eq!(
            select(&[idea("a.md", "old")], &state, &Quarantine::default(), Selection::Changed, 9)
                .selected,
            [0]
        );
        assert_eq!(
            select(&[idea("a.md", "new")], &state, &Quarantine::default(), Selection::Changed, 9)
                .selected,
            [0; 0]
        );
    }
}
