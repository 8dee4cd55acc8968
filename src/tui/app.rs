//! The state of the application, and how keys change it.
//!
//! ```text
//!   Overview ──tab──> Runs ──tab──> Proposals ──tab──> Overview
//!                     List ──enter──> Details ──l──> Log
//!                       <─────────q──────┴─────q──────┘
//! ```
//!
//! The module is pure: it uses no terminal, no disk and no clock. `q` leaves the current view or,
//! in the first view of a tab, the application. Cancelling a run and pausing everything require a
//! confirmation.

use super::proposals::{Effect, Review};
use super::viewer::{Search, Viewer};
use crate::ui::keys::Input;
use crate::ui::show::Tone;

/// A tab of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tab {
    Overview,
    Runs,
    Proposals,
}

impl Tab {
    pub const ALL: [Self; 3] = [Self::Overview, Self::Runs, Self::Proposals];

    /// Returns the tab's title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Overview => "1 Overview",
            Self::Runs => "2 Runs",
            Self::Proposals => "3 Proposals",
        }
    }

    fn beside(self, steps: usize) -> Self {
        let at = Self::ALL.iter().position(|tab| *tab == self).unwrap_or_default();
        Self::ALL[(at + steps) % Self::ALL.len()]
    }
}

/// The rows of `runner runs`, with the run's id in the first cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunTable {
    pub header: Vec<String>,
    /// The index of the column containing the run's state.
    pub toned: usize,
    pub rows: Vec<(Tone, Vec<String>)>,
    /// The text to show if there are no runs.
    pub nothing: String,
}

/// The current view of the runs tab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunsView {
    List,
    /// One run.
    Details(Viewer),
    /// The log of a run.
    Log(Viewer),
}

/// A request that the caller carries out after a key press.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Leaves the application.
    Quit,
    /// Loads and shows the current tab's data.
    Load,
    /// Shows one run.
    Details(String),
    /// Follows the log of a run.
    Log(String),
    /// Carries out an action on a run, a job or everything.
    Act(Action),
    /// Carries out a decision on a proposal.
    Proposal(Effect),
}

/// An action on a run, a job or everything. The string is a run id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Stops the run, or removes it from the queue.
    Cancel(String),
    /// Queues another attempt at the run.
    Retry(String),
    /// Pauses or resumes the run's job.
    SwitchJob(String),
    /// Resumes everything, or asks whether to pause everything.
    SwitchAll,
    /// Pauses everything.
    PauseAll,
}

impl Action {
    /// Returns the question that the user must answer before the action.
    pub fn question(&self) -> String {
        match self {
            Self::Cancel(run) => format!("Cancel run {run}? It will not be retried."),
            Self::PauseAll => "Pause everything, in all projects? Live runs continue.".to_owned(),
            Self::Retry(run) => format!("Queue another attempt at run {run}?"),
            Self::SwitchJob(run) => format!("Pause or resume the job of run {run}?"),
            Self::SwitchAll => "Resume everything?".to_owned(),
        }
    }
}

/// The application state.
#[derive(Clone, Debug)]
pub struct App {
    pub tab: Tab,
    pub overview: Viewer,
    table: RunTable,
    /// The index of the current run among the visible runs.
    at: usize,
    pub search: Search,
    pub runs: RunsView,
    /// The proposals, or the reason why there are none to review.
    pub proposals: Result<Review, String>,
    pub help: bool,
    /// The action that is carried out if the next key press confirms it.
    asked: Option<Action>,
    /// The last error, until the next key press.
    pub trouble: Option<String>,
    /// The result of the last action, until the next key press.
    pub news: Option<String>,
}

impl App {
    /// Creates the application without data.
    pub fn new(tab: Tab) -> Self {
        Self {
            tab,
            overview: Viewer::new(String::new(), None),
            table: RunTable::default(),
            at: 0,
            search: Search::default(),
            runs: RunsView::List,
            proposals: Err("The proposals are not loaded.".to_owned()),
            help: false,
            asked: None,
            trouble: None,
            news: None,
        }
    }

    /// Replaces the list of runs, and keeps the current run selected.
    pub fn set_runs(&mut self, table: RunTable) {
        let current = self.current_run().map(str::to_owned);
        self.table = table;
        let place = self.visible().iter().position(|(_, row)| row.first() == current.as_ref());
        self.at = place.unwrap_or(self.at.min(self.visible().len().saturating_sub(1)));
    }

    /// Returns the table of all runs, including those that do not match the search.
    pub fn table(&self) -> &RunTable {
        &self.table
    }

    /// Returns the runs that match the search.
    pub fn visible(&self) -> Vec<&(Tone, Vec<String>)> {
        let accepts = |(_, row): &&(Tone, Vec<String>)| self.search.accepts(&row.join(" "));
        self.table.rows.iter().filter(accepts).collect()
    }

    /// Returns the index of the current run among the visible runs, if there is one.
    pub fn selected(&self) -> Option<usize> {
        (self.at < self.visible().len()).then_some(self.at)
    }

    fn current_run(&self) -> Option<&str> {
        let visible = self.visible();
        visible.get(self.at).and_then(|(_, row)| row.first()).map(String::as_str)
    }

    /// Returns the current view's search, but only while its text is being typed.
    pub fn typed_search(&self) -> Option<&Search> {
        let search = match (self.tab, &self.runs) {
            (Tab::Overview, _) => &self.overview.search,
            (Tab::Runs, RunsView::List) => &self.search,
            (Tab::Runs, RunsView::Details(viewer) | RunsView::Log(viewer)) => &viewer.search,
            (Tab::Proposals, _) => return None,
        };
        search.typing.then_some(search)
    }

    /// Asks whether to carry out an action. The next key press is the answer.
    pub fn ask(&mut self, action: Action) {
        self.asked = Some(action);
    }

    /// Returns the action awaiting confirmation, if there is one.
    pub fn asked(&self) -> Option<&Action> {
        self.asked.as_ref()
    }

    /// Returns whether keys are input for a search or a review instead of choosing a view.
    fn is_asking(&self) -> bool {
        let reviews = self.tab == Tab::Proposals;
        self.typed_search().is_some()
            || (reviews && self.proposals.as_ref().is_ok_and(|review| !review.is_idle()))
    }

    /// Handles a key. Returns the new state and the request to carry out.
    #[must_use]
    pub fn update(mut self, key: Input) -> (Self, Option<Request>) {
        match key {
            Input::Stop => return (self, Some(Request::Quit)),
            Input::Resized => return (self, None),
            _ => {}
        }
        self.trouble = None;
        self.news = None;
        if let Some(action) = self.asked.take() {
            let is_confirmed = matches!(key, Input::Char('y' | 'Y'));
            return (self, is_confirmed.then_some(Request::Act(action)));
        }
        if std::mem::take(&mut self.help) {
            return (self, None);
        }
        let request = if self.is_asking() {
            self.pass(key)
        } else {
            match key {
                Input::Tab => self.go(self.tab.beside(1)),
                Input::BackTab => self.go(self.tab.beside(Tab::ALL.len() - 1)),
                Input::Char(digit @ '1'..='3') => self.go(Tab::ALL[digit as usize - '1' as usize]),
                Input::Char('?') if self.tab != Tab::Proposals || self.proposals.is_err() => {
                    self.help = true;
                    None
                }
                _ => self.pass(key),
            }
        };
        (self, request)
    }

    fn go(&mut self, tab: Tab) -> Option<Request> {
        self.tab = tab;
        Some(Request::Load)
    }

    /// Passes a key to the current view.
    fn pass(&mut self, key: Input) -> Option<Request> {
        match self.tab {
            Tab::Overview => match key {
                Input::Char('q') | Input::Escape if !self.overview.search.typing => {
                    return Some(Request::Quit);
                }
                Input::Enter if !self.overview.search.typing => return self.go(Tab::Runs),
                Input::Char('p') if !self.overview.search.typing => {
                    return Some(Request::Act(Action::SwitchAll));
                }
                _ => self.overview.update(key),
            },
            Tab::Runs => return self.pass_to_runs(key),
            Tab::Proposals => {
                let effect = match &mut self.proposals {
                    Ok(review) => review.update(key),
                    Err(_) => {
                        matches!(key, Input::Char('q') | Input::Escape).then_some(Effect::Quit)
                    }
                };
                return effect.map(|effect| match effect {
                    Effect::Quit => Request::Quit,
                    effect => Request::Proposal(effect),
                });
            }
        }
        None
    }

    fn pass_to_runs(&mut self, key: Input) -> Option<Request> {
        if self.typed_search().is_none()
            && let Input::Char(letter @ ('c' | 'r' | 'p')) = key
        {
            return self.act(letter);
        }
        let leaves = matches!(key, Input::Char('q') | Input::Escape);
        match &mut self.runs {
            RunsView::List => return self.choose(key),
            RunsView::Details(viewer) if !viewer.search.typing => match key {
                _ if leaves => self.runs = RunsView::List,
                Input::Char('l') | Input::Enter => return viewer.run.clone().map(Request::Log),
                _ => viewer.update(key),
            },
            RunsView::Log(viewer) if !viewer.search.typing && leaves => {
                return viewer.run.clone().map(Request::Details);
            }
            RunsView::Details(viewer) | RunsView::Log(viewer) => viewer.update(key),
        }
        (leaves && self.runs == RunsView::List).then_some(Request::Load)
    }

    /// Handles a key that acts on the current run.
    fn act(&mut self, letter: char) -> Option<Request> {
        let run = match &self.runs {
            RunsView::List => self.current_run().map(str::to_owned),
            RunsView::Details(viewer) | RunsView::Log(viewer) => viewer.run.clone(),
        };
        let action = match letter {
            'c' => {
                self.asked = run.map(Action::Cancel);
                return None;
            }
            'r' => Action::Retry,
            _ => Action::SwitchJob,
        };
        run.map(|run| Request::Act(action(run)))
    }

    /// Handles a key in the list of runs.
    fn choose(&mut self, key: Input) -> Option<Request> {
        if self.search.typing {
            self.search.typed(key);
            self.at = 0;
            return None;
        }
        let last = self.visible().len().saturating_sub(1);
        match key {
            Input::Char('q') => return Some(Request::Quit),
            Input::Escape if self.search.text.is_empty() => return Some(Request::Quit),
            Input::Escape => self.search = Search::default(),
            Input::Char('/') => self.search.typing = true,
            Input::Down | Input::Char('j') => self.at = (self.at + 1).min(last),
            Input::Up | Input::Char('k') => self.at = self.at.saturating_sub(1),
            Input::PageDown | Input::Char(' ') => self.at = (self.at + 10).min(last),
            Input::PageUp => self.at = self.at.saturating_sub(10),
            Input::Home | Input::Char('g') => self.at = 0,
            Input::End | Input::Char('G') => self.at = last,
            Input::Enter => return self.current_run().map(|run| Request::Details(run.to_owned())),
            Input::Char('l') => return self.current_run().map(|run| Request::Log(run.to_owned())),
            _ => {}
        }
        None
    }
}

#[cfg(test)]
#[path = "app_tests.rs"]
pub(super) mod tests;
