//! `runner report`: rebuilds a night's report from the database and the night's artifacts. Also
//! lists, searches and exports the reports of all nights.
//!
//! ```text
//! night ──> report::whole ──> markdown | page | JSON on standard output
//!                        └──> --open: the page in a file ──> the host's opener
//! ```

pub(super) mod all;
mod export;
pub(super) mod index;
mod search;

use std::path::{Path, PathBuf};
use std::process::Command;

use runner_engine::files::{DOCUMENT, read_text_in, write_atomic};
use runner_engine::ids::ProjectId;
use runner_engine::outcome::Exit;
use runner_jobs::report::{self, NightReport};
use schemars::JsonSchema;
use serde::Serialize;

use super::Cli;
use crate::env::{self, Env};
use crate::project::{self, LoadedProject};
use crate::ui::{Failure, Ui, View, show};

/// The program that opens a page on this host.
const OPENER: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };

/// Print the report of a night, or open its page
///
/// The command rebuilds the report, in any format, from the database and the night's artifacts. Outside a project, it
/// lists the last night of every project.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Example: runner report --night 2026-11-21 --open"
)]
pub struct ReportArgs {
    /// The subcommand [default: the report of a night]
    #[command(subcommand)]
    command: Option<ReportCommand>,
    /// The night's name [default: the last one]
    #[arg(long, value_name = "DATE")]
    night: Option<String>,
    /// List all nights with their summaries
    #[arg(long, conflicts_with_all = ["night", "open", "html", "md"])]
    list: bool,
    /// Write the pages of all nights and an index into this folder, and replace an earlier export
    #[arg(long, value_name = "DIR", conflicts_with_all = ["night", "list", "open", "html", "md"])]
    export: Option<PathBuf>,
    #[command(flatten)]
    form: ReportFormat,
}

#[derive(Debug, clap::Subcommand)]
enum ReportCommand {
    Search(search::SearchArgs),
}

/// The output format, which is markdown by default.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(multiple = false)]
struct ReportFormat {
    /// Open the page with the host's default program
    #[arg(long)]
    open: bool,
    /// Print the page as one self-contained file
    #[arg(long)]
    html: bool,
    /// Print markdown (the default)
    #[arg(long)]
    md: bool,
    /// Print JSON on standard output
    #[arg(long)]
    json: bool,
}

/// The project whose reports a command reads.
struct ReportedProject {
    id: ProjectId,
    root: PathBuf,
}

impl ReportedProject {
    /// Returns the current project. Its files may be invalid, because its nights are in the
    /// database.
    fn at(cli: &Cli<'_>) -> Result<Self, Failure> {
        let failure = match LoadedProject::load(cli.env, cli.here) {
            Ok(LoadedProject { id, root, .. }) => return Ok(Self { id, root }),
            Err(failure) => failure,
        };
        let store = cli.env.store_to_read()?;
        let Some(kept) = store.and_then(|store| project::kept(cli.env, &store, cli.here).ok())
        else {
            return Err(failure);
        };
        show::complain(&failure.message());
        Ok(Self { id: kept.row.id, root: kept.row.path })
    }
}

/// A night's report, as a page or as Markdown.
#[derive(Debug, JsonSchema, Serialize)]
#[serde(transparent)]
pub(in crate::commands) struct ReportView {
    report: NightReport,
    #[serde(skip)]
    form: ReportFormat,
}

impl View for ReportView {
    fn print(&self, _ui: Ui) {
        show::out(&match self.form.html {
            true => report::html(&self.report),
            false => report::markdown(&self.report),
        });
    }
}

impl ReportArgs {
    /// Prints, opens, lists, searches or exports reports, according to the arguments.
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let may_be_all = self.command.is_none() && !self.list && self.export.is_none();
        let may_be_all = may_be_all && !self.form.open && !self.form.html;
        if may_be_all && !cli.folder_is_named && project::find(cli.here).is_err() {
            return all::run(cli, self.night.as_deref());
        }
        let project = ReportedProject::at(cli)?;
        if let Some(ReportCommand::Search(args)) = &self.command {
            return args.run(cli, &project);
        }
        if self.list {
            return index::run(cli, &project);
        }
        if let Some(folder) = &self.export {
            return export::run(cli, &project, folder);
        }
        let none = || Failure::data("this project has had no night yet").hint("runner night");
        let store = cli.env.store_to_read()?.ok_or_else(none)?;
        let nights = store.nights(&project.id, 400)?;
        let night = match &self.night {
            None => nights.first().ok_or_else(none)?,
            Some(name) => nights.iter().find(|night| night.name == *name).ok_or_else(|| {
                let known: Vec<&str> =
                    nights.iter().take(5).map(|night| night.name.as_str()).collect();
                let known = known.join(", ");
                let what = format!("there is no night {name:?}; the latest nights: {known}");
                match nights.first() {
                    Some(last) => {
                        Failure::data(what).hint(format!("runner report --night {}", last.name))
                    }
                    None => none(),
                }
            })?,
        };
        let report = report::whole(&store, night.id, &project.root, cli.env.wall()?)?;
        if self.form.open {
            let page = report::html(&report);
            let folder = store.report_folder(night.id)?.unwrap_or_else(|| night.name.clone());
            let published = project.root.join(report::FOLDER).join(folder).join(report::PAGE);
            let own = format!("{}-{}.html", project.id, night.name);
            let is_same = read_text_in(&project.root, &published, DOCUMENT)
                .is_ok_and(|content| content == page);
            // Viewing must not overwrite a published report, which is the night's record.
            let path = if is_same { published } else { write_page(cli.env, &own, &page)? };
            return open(&path, cli.ui);
        }
        cli.ui.show(&ReportView { report, form: self.form });
        Ok(Exit::Done)
    }
}

/// Opens a page with the host's default program.
pub(super) fn open(path: &Path, ui: Ui) -> Result<Exit, Failure> {
    let manually = format!("open it manually: {}", path.display());
    show::out(&format!("{}\n", path.display()));
    let Some(opener) = env::host_program(OPENER) else {
        return Err(Failure::unavailable(format!(
            "{OPENER} was not found, so the page cannot be opened; {manually}"
        ))
        .hint("apt-get install xdg-utils   (or your system's package manager)"));
    };
    ui.info(&format!("opening the page with {}", opener.display()));
    let ended = Command::new(&opener).arg(path).status();
    match ended {
        Ok(status) if status.success() => Ok(Exit::Done),
        Ok(status) => Err(Failure::unavailable(format!(
            "{} could not open the page ({status}); {manually}",
            opener.display()
        ))),
        Err(error) => {
            Err(Failure::unavailable(format!("{}: {error}; {manually}", opener.display())))
        }
    }
}

/// Writes the page to a file in runner's state folder.
fn write_page(home: &Env, name: &str, page: &str) -> Result<PathBuf, Failure> {
    let folder = home.state.join("pages");
    let path = folder.join(name);
    std::fs::create_dir_all(&folder)
        .map_err(|error| error.to_string())
        .and_then(|()| {
            write_atomic(&path, page.as_bytes(), 0o600).map_err(|error| error.to_string())
        })
        .map_err(|error| Failure::not_written(&path, error))?;
    Ok(path)
}
