//! Provides the application's data: the output of `runner status`, `runner runs`, `runner logs` and
//! `runner dream`, read again when it may have changed. This module must never format data that a
//! command formats.

use std::path::Path;

use runner_jobs::dream::review::PastDecisions;

use super::act::{self, ActionEnd};
use super::decide;
use super::log::LogReader;
use crate::commands::dream::{DreamJobArg, ReviewContext, Tools};
use crate::commands::{Cli, runs, status};
use crate::tui::app::RunTable;
use crate::tui::proposals::{ProposalFilter, Review};
use crate::tui::{App, Request, RunsView, Tab, Viewer};
use crate::ui::Failure;

/// Number of runs to list.
const RUNS: u32 = 200;

/// The application's data.
pub(in crate::commands) struct Source<'h> {
    cli: Cli<'h>,
    filter: ProposalFilter,
    job: DreamJobArg,
    /// The review of a project, opened when its proposals are first shown.
    review: Option<OpenReview<'h>>,
    log: Option<LogReader>,
}

/// A review, with the resources that its decisions need.
struct OpenReview<'h> {
    context: ReviewContext<'h>,
    tools: Tools,
    past: PastDecisions,
}

impl<'h> Source<'h> {
    /// Creates the source for all proposals of the project's dream job.
    pub(in crate::commands) fn new(cli: Cli<'h>) -> Self {
        Self::with(cli, ProposalFilter::default(), DreamJobArg::default())
    }

    /// Creates the source for the proposals of a job that pass the filter.
    pub(in crate::commands) fn with(
        cli: Cli<'h>,
        filter: ProposalFilter,
        job: DreamJobArg,
    ) -> Self {
        Self { cli, filter, job, review: None, log: None }
    }

    /// Returns the folder to watch for changes to the data.
    pub(super) fn state(&self) -> &Path {
        &self.cli.env.state
    }

    /// Reads the data for the current tab.
    pub(in crate::commands) fn load(&mut self, app: &mut App) -> Result<(), Failure> {
        match app.tab {
            Tab::Proposals => return self.load_proposals(app),
            Tab::Overview => app.overview.set(status::lines(&self.cli)?),
            Tab::Runs => {}
        }
        let runs = runs::latest(&self.cli, RUNS)?;
        app.set_runs(RunTable {
            header: runs.list.header.iter().map(|cell| (*cell).to_owned()).collect(),
            toned: runs.list.toned,
            rows: runs.list.rows,
            nothing: runs.nothing.trim_end().to_owned(),
        });
        if let RunsView::Details(viewer) = &mut app.runs
            && let Some(run) = viewer.run.clone()
        {
            viewer.set_text(&runs::details(&self.cli, &run)?);
        }
        Ok(())
    }

    /// Reads the data for the current tab again, unless the user is deciding on a proposal.
    pub(super) fn refresh(&mut self, app: &mut App) -> Result<(), Failure> {
        match (app.tab, &app.proposals) {
            (Tab::Proposals, Ok(review)) if !review.is_listing() => Ok(()),
            _ => self.load(app),
        }
    }

    /// Reads the proposals, and keeps the review's position.
    fn load_proposals(&mut self, app: &mut App) -> Result<(), Failure> {
        if self.review.is_none() {
            // Outside a project, or without a dream job, the other tabs still work.
            match self.open_review() {
                Ok(opened) => self.review = Some(opened),
                Err(failure) => {
                    app.proposals = Err(failure.to_string());
                    return Ok(());
                }
            }
        }
        let Some(open) = &mut self.review else { return Ok(()) };
        let proposals = open.context.read()?;
        open.past = open.context.past(&proposals)?;
        match &mut app.proposals {
            Ok(review) => review.reload(proposals.items),
            Err(_) => app.proposals = Ok(Review::new(proposals.items, self.filter.clone())),
        }
        Ok(())
    }

    fn open_review(&self) -> Result<OpenReview<'h>, Failure> {
        let context = ReviewContext::open(&self.cli, &self.job)?;
        let past = context.past(&context.read()?)?;
        let tools = context.tools()?;
        Ok(OpenReview { context, tools, past })
    }

    /// Loads the details of the current proposal, if they are visible but not yet loaded.
    pub(super) fn load_detail(&mut self, app: &mut App) {
        if app.tab == Tab::Proposals
            && let (Ok(review), Some(open)) = (&mut app.proposals, &mut self.review)
            && let Some(item) = review.wants_detail()
        {
            let decider = open.context.decider(&mut open.tools);
            review.detail = Some(decide::detail(&decider, item, &open.past));
        }
    }

    /// Adds the new lines of the visible log. Returns whether the screen has changed.
    pub(super) fn read_log(&mut self, app: &mut App) -> bool {
        let (RunsView::Log(viewer), Some(log)) = (&mut app.runs, &mut self.log) else {
            return false;
        };
        match log.read() {
            Ok(new) if new.is_empty() => return false,
            Ok(new) => viewer.append(&new),
            Err(why) => app.trouble = Some(why),
        }
        true
    }

    /// Carries out a request. Returns an error only for a request about a proposal; such an error
    /// ends the application.
    pub(in crate::commands) fn carry_out(
        &mut self,
        app: &mut App,
        request: Request,
    ) -> Result<(), Failure> {
        match request {
            Request::Load => {
                if let Err(failure) = self.load(app) {
                    app.trouble = Some(failure.to_string());
                }
                Ok(())
            }
            Request::Details(run) => {
                match runs::details(&self.cli, &run) {
                    Ok(text) => {
                        let mut viewer = Viewer::new(format!("run {run}"), Some(run));
                        viewer.set_text(&text);
                        app.runs = RunsView::Details(viewer);
                    }
                    Err(failure) => app.trouble = Some(failure.to_string()),
                }
                Ok(())
            }
            Request::Log(run) => {
                self.log = Some(LogReader::new(&self.cli.env.run_folder(&run)));
                app.runs = RunsView::Log(Viewer::following(format!("log of run {run}"), run));
                self.read_log(app);
                Ok(())
            }
            Request::Act(action) => {
                match act::carry_out(self.cli.env, &action) {
                    Ok(ActionEnd::Done(text)) => app.news = Some(text),
                    Ok(ActionEnd::Ask(action)) => app.ask(action),
                    Err(failure) => app.trouble = Some(failure.to_string()),
                }
                if let Err(failure) = self.load(app) {
                    app.trouble = Some(failure.to_string());
                }
                Ok(())
            }
            Request::Proposal(effect) => {
                let Some(open) = &mut self.review else { return Ok(()) };
                let news = decide::carry_out(&open.context, &mut open.tools, effect)?;
                // Other processes may have made decisions, or a pass may have added proposals.
                self.load_proposals(app)?;
                if let Ok(review) = &mut app.proposals {
                    review.handle_result(news);
                }
                Ok(())
            }
            Request::Quit => Ok(()),
        }
    }
}
