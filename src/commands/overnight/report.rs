//! `runner overnight report`: prints or checks the summary of a night.

use runner_text::counted;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use runner_engine::error_chain;
use runner_engine::files::read_no_link;
use runner_engine::outcome::Exit;
use runner_jobs::overnight::output::SUMMARY;
use runner_jobs::overnight::report::ReportForm;
use runner_jobs::overnight::{OvernightSpec, report, schema, summary_import};
use serde_json::Value;

use super::night_job;
use crate::cli::args::Listing;
use crate::cli::{Failure, safe, show};
use crate::env::Env;
use crate::project::LoadedProject;

/// Maximum size of a summary in bytes.
const LARGEST: u64 = 64 * 1024 * 1024;

/// Prints or checks the report of a night.
pub(super) fn run(
    home: &Env,
    here: &Path,
    from: Option<&Path>,
    markdown: bool,
    validate: bool,
    listing: Listing,
) -> Result<Exit, Failure> {
    // A relative path is resolved against the working directory of the command.
    let from = from.map(|path| home.here.join(path));
    let file = match from.as_deref() {
        Some(path) if path.is_dir() => path.join(SUMMARY[0]),
        Some(path) => path.to_owned(),
        None => last(home, here)?,
    };
    let folder = file.parent().unwrap_or(Path::new(".")).to_owned();
    let absent = |error: &io::Error| {
        let failure = Failure::data(format!(
            "there is no report of a night: {}: {}",
            file.display(),
            error_chain::error_chain(error)
        ));
        match &from {
            // Starting another night does not create the named report.
            Some(named) => failure.hint(format!("ls {}", there(named).display())),
            None => failure.hint("runner overnight start"),
        }
    };
    if let Some(named) = &from {
        fs::metadata(named).map_err(|error| absent(&error))?;
    }
    if validate {
        fs::metadata(&folder).map_err(|error| absent(&error))?;
        return check(&folder, listing);
    }
    let size = fs::metadata(&file).map_err(|error| absent(&error))?.len();
    if size > LARGEST {
        return Err(Failure::data(format!(
            "{} has {size} bytes; the limit is {LARGEST}",
            file.display()
        )));
    }
    let bytes = read_no_link(&file, LARGEST).map_err(|error| absent(&error))?;
    let bad = |why: String| {
        Failure::data(format!("{} is not a summary of a night: {why}", file.display()))
            .hint(format!("runner overnight report --validate --from {}", folder.display()))
    };
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
    // A summary may come from another program, in either version. Parts that do not match the
    // format are reported, but not refused.
    let (summary, missing) = summary_import::read(&value).map_err(bad)?;
    if listing.json {
        show::json(&value);
        return Ok(Exit::Done);
    }
    let form = match markdown {
        true => ReportForm::Markdown,
        false => ReportForm::Plain,
    };
    // Titles come from untrusted text, so control characters must not reach the terminal.
    show::out(&show::printable(&report::format_summary(&summary, &missing, form)));
    Ok(Exit::Done)
}

/// Returns the path of the last night's summary.
fn last(home: &Env, here: &Path) -> Result<PathBuf, Failure> {
    let project = LoadedProject::load(home, here)?;
    let output = match night_job(&project, None) {
        Ok((_, spec)) => spec.output_dir.clone(),
        Err(_) => OvernightSpec::default().output_dir,
    };
    Ok(project.root.join(output).join(SUMMARY[0]))
}

/// Returns the longest part of a path that exists.
fn there(path: &Path) -> &Path {
    let mut all = path.ancestors();
    all.find(|path| path.exists()).unwrap_or(path)
}

fn check(folder: &Path, listing: Listing) -> Result<Exit, Failure> {
    let checked = schema::check_folder(folder);
    if listing.json {
        show::json(&checked);
    } else {
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
    Ok(match checked.mistakes.is_empty() {
        true => Exit::Done,
        false => Exit::Data,
    })
}
