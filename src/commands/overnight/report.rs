//! `runner overnight report`: prints a night's summary, or checks the night's artifacts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use runner_engine::error_chain;
use runner_engine::files::read_no_link;
use runner_engine::outcome::Exit;
use runner_engine::store::RunFilter;
use runner_jobs::overnight::output::SUMMARY;
use runner_jobs::overnight::report::ReportForm;
use runner_jobs::overnight::summary::Summary;
use runner_jobs::overnight::{OvernightSpec, report, schema, summary_import};
use runner_text::{counted, shell_word};
use serde::Serialize;
use serde_json::Value;

use super::night_job;
use crate::commands::Cli;
use crate::config;
use crate::project::{FILE, LoadedProject};
use crate::ui::{Failure, Ui, View, safe, show};

/// Maximum size of a summary in bytes.
const LARGEST: u64 = 64 * 1024 * 1024;

/// Print the report of the last night, or of another night
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner overnight report --validate")]
pub(super) struct NightReportArgs {
    /// A night's output folder, or its summary.json [default: the output folder of the job's last
    /// run]
    #[arg(long, value_name = "DIR|FILE")]
    from: Option<PathBuf>,
    /// Print the report as markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Check every artifact of the night against the published schemas instead; exit code 65 if one does not match
    #[arg(long, conflicts_with = "markdown")]
    validate: bool,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct NightReportView {
    /// The parsed summary file.
    value: Value,
    #[serde(skip)]
    summary: Summary,
    /// The parts of the file that do not match the format.
    #[serde(skip)]
    missing: Vec<String>,
    #[serde(skip)]
    form: ReportForm,
}

impl View for NightReportView {
    fn print(&self, _ui: Ui) {
        let text = report::format_summary(&self.summary, &self.missing, self.form);
        // Titles are untrusted text, so control characters must not reach the terminal.
        show::out(&show::printable(&text));
    }
}

impl NightReportArgs {
    pub(super) fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        // A relative path is relative to the working directory, even with `-C`.
        let from = self.from.as_ref().map(|path| cli.env.here.join(path));
        let file = match from.as_deref() {
            Some(path) if path.is_dir() => path.join(SUMMARY[0]),
            Some(path) => path.to_owned(),
            None => last(cli)?,
        };
        let folder = file.parent().unwrap_or(Path::new(".")).to_owned();
        let absent = |error: &io::Error| {
            let failure = Failure::data(format!(
                "there is no night report: {}: {}",
                file.display(),
                error_chain::error_chain(error)
            ));
            match &from {
                // Running another night would not create the named report.
                Some(named) => failure.hint(format!("ls {}", shell_word(there(named).display()))),
                None => failure.hint("runner overnight start"),
            }
        };
        if let Some(named) = &from {
            fs::metadata(named).map_err(|error| absent(&error))?;
        }
        if self.validate {
            fs::metadata(&folder).map_err(|error| absent(&error))?;
            return Ok(check(cli, &folder));
        }
        let size = fs::metadata(&file).map_err(|error| absent(&error))?.len();
        if size > LARGEST {
            let what = format!("{} has {size} bytes; the limit is {LARGEST}", file.display());
            return Err(Failure::data(what));
        }
        let bytes = read_no_link(&file, LARGEST).map_err(|error| absent(&error))?;
        let bad = |why: String| {
            Failure::data(format!("{} is not a night summary: {why}", file.display())).hint(
                format!(
                    "runner overnight report --validate --from {}",
                    shell_word(folder.display())
                ),
            )
        };
        let value: Value =
            serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
        // A summary may come from another program, and may be in either version of the format.
        // Parts that do not match the format are reported rather than refused.
        let (summary, missing) = summary_import::read(&value).map_err(bad)?;
        cli.ui.show(&NightReportView {
            value,
            summary,
            missing,
            form: if self.markdown { ReportForm::Markdown } else { ReportForm::Plain },
        });
        Ok(Exit::Done)
    }
}

/// Returns the path of the last night's summary.
fn last(cli: &Cli<'_>) -> Result<PathBuf, Failure> {
    let project = LoadedProject::load(cli.env, cli.here)?;
    let output = match night_job(&project, None) {
        Ok((job, spec)) => used(cli, &project, job)?.unwrap_or_else(|| spec.output_dir.clone()),
        Err(_) => OvernightSpec::default().output_dir,
    };
    Ok(project.root.join(output).join(SUMMARY[0]))
}

/// Returns the output folder of the job's last started run, according to that run's settings. A
/// failed run also leaves its summary there. Returns `None` if none of the newest 20 runs started.
fn used(cli: &Cli<'_>, project: &LoadedProject, job: &str) -> Result<Option<String>, Failure> {
    let Some(store) = cli.env.store_to_read()? else { return Ok(None) };
    let Ok(row) = store.job(&project.id, job) else { return Ok(None) };
    let filter = RunFilter { job: Some(row.id), limit: 20, ..RunFilter::default() };
    let last = store.runs(&filter)?.into_iter().find(|run| run.started().is_some());
    let Some(last) = last else { return Ok(None) };
    let file = project.root.join(FILE);
    let config = config::load_with(&cli.env.stack(Some(&file)), job, &last.settings)?;
    let spec = config.job(job)?.spec.kind.of::<OvernightSpec>();
    Ok(spec.map(|spec| spec.output_dir.clone()))
}

/// Returns the path if it exists, and otherwise its nearest existing ancestor.
fn there(path: &Path) -> &Path {
    let mut all = path.ancestors();
    all.find(|path| path.exists()).unwrap_or(path)
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct CheckView(schema::CheckedArtifacts);

impl View for CheckView {
    fn print(&self, _ui: Ui) {
        let Self(checked) = self;
        for mistake in &checked.mistakes {
            show::out(&format!(
                "{}{}: {}\n",
                safe::line(&mistake.artifact),
                safe::line(&mistake.at),
                safe::line(&mistake.why)
            ));
        }
        let count = counted(checked.artifacts.len(), "artifact");
        show::out(&match checked.mistakes.len() {
            0 => format!("{count}, all valid against their schemas\n"),
            wrong => format!("{} in {count}\n", counted(wrong, "mistake")),
        });
    }
}

fn check(cli: &Cli<'_>, folder: &Path) -> Exit {
    let view = CheckView(schema::check_folder(folder));
    cli.ui.show(&view);
    if view.0.mistakes.is_empty() { Exit::Done } else { Exit::Data }
}
