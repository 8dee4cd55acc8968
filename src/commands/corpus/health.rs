//! `runner corpus health`: shows the fitness and the hygiene of the corpus.

use runner_engine::outcome::Exit;
use runner_jobs::overnight::corpus::health::{Health, measure};
use runner_text::counted;

use super::CorpusFolder;
use crate::ui::{Failure, Ui, View, safe, show};

/// Shows the fitness and the hygiene of the corpus. The exit code is 1 if a hygiene metric is below
/// its minimum.
pub fn run(folder: &CorpusFolder<'_>) -> Result<Exit, Failure> {
    let corpus = folder.corpus()?;
    let mut facts = folder.facts(&corpus, &folder.history())?;
    let health = measure(&corpus, facts.known_uses(), folder.date()?).health;
    folder.cli.ui.show(&health);
    let below = health.metrics.iter().any(|it| it.below_floor);
    Ok(if below { Exit::Failed } else { Exit::Done })
}

impl View for Health {
    fn print(&self, _ui: Ui) {
        let mut rows = vec![show::row(["measure of use", "value"])];
        for measure in &self.fitness {
            let value = measure.value.map_or_else(|| "unknown".to_owned(), |it| format!("{it:.3}"));
            rows.push(show::row([measure.name, &value]));
        }
        let mut text = show::table(&rows);
        match self.composite {
            Some(fitness) => {
                text.push_str(&format!(
                    "fitness {fitness:.3} from {}\n\n",
                    counted(self.uses, "use")
                ));
            }
            None => text.push_str("fitness unknown: no use of any node is known\n\n"),
        }
        let mut rows = vec![show::row(["hygiene", "value", "minimum", ""])];
        for metric in &self.metrics {
            let value = metric.value.map_or_else(|| "-".to_owned(), |it| format!("{it:.3}"));
            let mark = if metric.below_floor { "below the minimum" } else { "" };
            rows.push(show::row([metric.name, &value, &metric.floor.to_string(), mark]));
        }
        text.push_str(&show::table(&rows));
        text.push_str(&format!("hygiene {:.3}", self.hygiene));
        let nodes: Vec<String> =
            self.nodes.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        text.push_str(&format!(
            " · {} · {} inactive · {}\n",
            nodes.join(", "),
            self.inactive,
            counted(self.open_items, "open item")
        ));
        for trouble in &self.troubles {
            text.push_str(&format!(
                "{}: {}\n",
                safe::line(&trouble.path),
                safe::line(&trouble.what)
            ));
        }
        show::out(&text);
    }
}
