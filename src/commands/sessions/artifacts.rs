//! `runner sessions artifacts`: lists artifacts, and records the user's decisions about them.

use clap::builder::NonEmptyStringValueParser;
use runner_engine::files::{DOCUMENT, read_text_host};
use runner_engine::outcome::Exit;
use runner_jobs::sessions::artifact::Artifact;
use runner_jobs::sessions::{SessionFolder, fold};
use serde::Serialize;

use crate::commands::Cli;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, safe, show};

/// List artifacts, show one, or edit, pin and forget one [default: the list]
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Example: runner sessions artifacts --json | jq -r '.[].id'"
)]
pub struct ArtifactsArgs {
    #[command(subcommand)]
    command: Option<ArtifactsCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum ArtifactsCommand {
    /// Show one artifact with its evidence
    #[command(after_help = "Example: runner sessions artifacts show 0123abcd")]
    Show(Wanted),
    /// Replace the text of an artifact with the contents of a file; the artifact's counts are kept
    #[command(after_help = "Example: runner sessions artifacts edit 0123abcd new.json")]
    Edit {
        #[command(flatten)]
        wanted: Wanted,
        /// A JSON file with the same type and trigger, in the format printed by `show --json`
        file: std::path::PathBuf,
    },
    /// Keep an artifact regardless of the limits
    #[command(after_help = "Example: runner sessions artifacts pin 0123abcd")]
    Pin(Wanted),
    /// Apply the limits to an artifact again
    #[command(after_help = "Example: runner sessions artifacts unpin 0123abcd")]
    Unpin(Wanted),
    /// Remove an artifact, and never derive it again
    #[command(after_help = "Example: runner sessions artifacts forget 0123abcd")]
    Forget(Wanted),
    /// Split a merged artifact into the original ones, and never merge them again
    #[command(after_help = "Example: runner sessions artifacts split 0123abcd")]
    Split(Wanted),
    /// Undo the last decision about an artifact
    #[command(after_help = "Example: runner sessions artifacts undo 0123abcd")]
    Undo(Wanted),
}

#[derive(Debug, clap::Args)]
struct Wanted {
    /// The artifact's id, or an unambiguous prefix of it
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    id: String,
}

/// An artifact, and whether runner wrote it.
#[derive(Clone, Debug, Serialize)]
struct ListedArtifact {
    #[serde(flatten)]
    artifact: Artifact,
    /// False if another program wrote or changed the file. Such an artifact is never used.
    known: bool,
}

impl View for ListedArtifact {
    fn print(&self, _ui: Ui) {
        let Self { artifact, known } = self;
        let mut page = row(self);
        let mut add = |name: &str, value: String| {
            page.push_str(&format!("  {name:<10} {}\n", safe::line(&value)));
        };
        add("rule", artifact.rule.clone());
        add("counts", format!("{} successes, {} failures", artifact.successes, artifact.failures));
        if let Some(last) = artifact.last_used {
            add("last used", show::format_time(last));
        }
        for cited in &artifact.evidence {
            add("evidence", format!("{} line {}", cited.session, cited.line));
        }
        for part in &artifact.merged {
            add("merged", format!("{}  {}", part.id, part.content.describe()));
        }
        for other in &artifact.conflicts {
            add("conflicts", format!("with {other}; neither is used"));
        }
        if !known {
            add("unknown", "another program wrote this file, so it is never used".to_owned());
        }
        show::out(&page);
    }
}

#[derive(Serialize)]
#[serde(transparent)]
struct ArtifactList(Vec<ListedArtifact>);

impl View for ArtifactList {
    fn print(&self, ui: Ui) {
        if self.0.is_empty() {
            return ui.info("no artifact has been found yet: runner sessions analyze");
        }
        let known: Vec<&Artifact> =
            self.0.iter().filter(|it| it.known).map(|it| &it.artifact).collect();
        let size: usize = known.iter().map(|artifact| fold::bytes(artifact).len()).sum();
        show::out(&self.0.iter().map(row).collect::<String>());
        ui.info(&format!(
            "{} of {}, {size} of {} bytes",
            known.len(),
            show::count(fold::MOST as u64, "artifact"),
            fold::TOTAL
        ));
    }
}

fn row(listed: &ListedArtifact) -> String {
    let ListedArtifact { artifact, known } = listed;
    let mut marks = String::new();
    for (is, mark) in [
        (artifact.pinned, " pinned"),
        (artifact.edited, " edited"),
        (!artifact.merged.is_empty(), " merged"),
        (!artifact.conflicts.is_empty(), " conflict"),
        (!known, " unknown"),
    ] {
        marks.push_str(if is { mark } else { "" });
    }
    let kind = artifact.content.kind();
    let text = safe::line(&artifact.content.describe());
    format!("{}  {kind:<18}  {:.2}{marks}  {text}\n", artifact.id, artifact.content.confidence())
}

impl ArtifactsArgs {
    pub fn run(&self, cli: &Cli<'_>, project: LoadedProject) -> Result<Exit, Failure> {
        let (spec, _) = super::settings(&project);
        let folder = super::load(cli, &project, &spec);
        let (verb, wanted) = match &self.command {
            None => {
                cli.ui.show(&ArtifactList(all(&folder)));
                return Ok(Exit::Done);
            }
            Some(ArtifactsCommand::Show(wanted)) => {
                cli.ui.show(&named(&folder, &wanted.id)?);
                return Ok(Exit::Done);
            }
            Some(ArtifactsCommand::Edit { wanted, file }) => {
                let id = named(&folder, &wanted.id)?.artifact.id;
                let text = read_text_host(cli.env.here.join(file), DOCUMENT)
                    .map_err(|error| Failure::data(format!("{}: {error}", file.display())))?;
                if text.len() > fold::LARGEST {
                    return Err(Failure::data(format!(
                        "{} has more than {} bytes",
                        file.display(),
                        fold::LARGEST
                    )));
                }
                return decide(cli, project, &format!("edit {id} {text}"));
            }
            Some(ArtifactsCommand::Pin(wanted)) => ("pin", wanted),
            Some(ArtifactsCommand::Unpin(wanted)) => ("unpin", wanted),
            Some(ArtifactsCommand::Forget(wanted)) => ("forget", wanted),
            Some(ArtifactsCommand::Split(wanted)) => ("split", wanted),
            // A forgotten artifact is not in `folder`, so only the run can find it.
            Some(ArtifactsCommand::Undo(wanted)) => {
                return decide(cli, project, &format!("undo {}", wanted.id));
            }
        };
        let id = named(&folder, &wanted.id)?.artifact.id;
        decide(cli, project, &format!("{verb} {id}"))
    }
}

fn decide(cli: &Cli<'_>, project: LoadedProject, change: &str) -> Result<Exit, Failure> {
    super::work(cli, project, vec![("change".to_owned(), super::quoted(change))])
}

fn all(folder: &SessionFolder) -> Vec<ListedArtifact> {
    let known = folder.artifacts.iter().map(|artifact| (artifact, true));
    let unknown = folder.unknown.iter().map(|artifact| (artifact, false));
    let listed = known.chain(unknown);
    listed.map(|(artifact, known)| ListedArtifact { artifact: artifact.clone(), known }).collect()
}

fn named(folder: &SessionFolder, id: &str) -> Result<ListedArtifact, Failure> {
    let mut found = all(folder);
    found.retain(|it| it.artifact.id.starts_with(id));
    let count = found.len();
    match (found.pop(), count) {
        (Some(one), 1) => Ok(one),
        (None, _) => {
            Err(Failure::data(format!("there is no artifact {id:?}"))
                .hint("runner sessions artifacts"))
        }
        _ => Err(Failure::usage(format!("{id:?} matches {count} artifacts"))
            .hint("runner sessions artifacts")),
    }
}
