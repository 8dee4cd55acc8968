//! `runner corpus bench`: measures how well the corpus answers a fixed set of questions.

use std::io;
use std::path::{Path, PathBuf};

use runner_engine::files::{DOCUMENT, read_in};
use runner_engine::outcome::Exit;
use runner_jobs::overnight::corpus::bench::{Bench, JudgedQuestion, bench};
use runner_jobs::overnight::corpus::{Corpus, FOLDER, read};
use runner_text::counted;

use super::{CorpusFolder, unreadable};
use crate::ui::{Failure, Ui, View, safe, show};

/// Measure how well the corpus answers a fixed set of questions: precision of the first three,
/// and mean reciprocal rank
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner corpus bench --live --json")]
pub struct BenchArgs {
    /// Use the learnings of this project (the default)
    #[arg(long, conflicts_with_all = ["corpus", "global"])]
    live: bool,
    /// Use another corpus: a folder with `learnings/`, and optionally a `bench.json` of questions
    /// with the ids that answer them
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
    /// Use the learnings in the home folder's .agents
    #[arg(long, conflicts_with = "corpus")]
    global: bool,
}

impl BenchArgs {
    pub fn run(&self, context: &CorpusFolder<'_>) -> Result<Exit, Failure> {
        let (corpus, judged) = match (&self.corpus, self.global) {
            (Some(folder), _) => {
                let nested = folder.join(FOLDER);
                let folder = if nested.is_dir() { nested } else { folder.to_owned() };
                let judged = folder.join("bench.json");
                let judged: Option<Vec<JudgedQuestion>> = match read_in(&folder, &judged, DOCUMENT)
                {
                    Ok(bytes) => Some(serde_json::from_slice(&bytes).map_err(|error| {
                        Failure::data(format!("{}: {error}", judged.display()))
                    })?),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                    Err(error) => {
                        return Err(Failure::data(format!("{}: {error}", judged.display())));
                    }
                };
                (elsewhere(&folder)?, judged)
            }
            (None, true) => (elsewhere(&context.cli.env.folder()?.join(FOLDER))?, None),
            (None, false) => (context.corpus()?, None),
        };
        let bench = bench(&corpus, context.date()?, judged.as_deref());
        context.cli.ui.show(&bench);
        Ok(Exit::Done)
    }
}

fn elsewhere(folder: &Path) -> Result<Corpus, Failure> {
    if !folder.is_dir() {
        return Err(Failure::data(format!("there is no corpus in {}", folder.display())));
    }
    read(folder).map_err(unreadable)
}

impl View for Bench {
    fn print(&self, _ui: Ui) {
        let value = |it: Option<f64>| it.map_or_else(|| "-".to_owned(), |it| format!("{it:.3}"));
        let mut text = format!(
            "precision of the first three {} · mean reciprocal rank {} · {}, {} without an answer, {}\n",
            value(self.precision_at_3),
            value(self.mrr),
            counted(self.questions, "question"),
            self.unanswerable,
            counted(self.nodes, "node")
        );
        for one in &self.results {
            text.push_str(&format!(
                "  {:.2} {:.2}  {}\n",
                one.precision_at_3,
                one.reciprocal_rank,
                safe::line(&one.query)
            ));
        }
        show::out(&text);
    }
}
