//! `runner corpus health`.

use runner_engine::outcome::Exit;
use runner_jobs::overnight::corpus::health::{Health, measure};
use runner_text::counted;

use super::{CorpusFolder, inside};
use crate::ui::{Failure, Ui, View, safe, show};

/// Shows the metrics of the corpus. The exit code is 1 if one is below its minimum.
pub fn run(folder: &CorpusFolder<'_>) -> Result<Exit, Failure> {
    let health = measure(&folder.corpus()?, folder.date()?).map_err(inside)?.health;
    folder.cli.ui.show(&health);
    let below = health.metrics.iter().any(|it| it.below_floor);
    Ok(if below { Exit::Failed } else { Exit::Done })
}

impl View for Health {
    fn print(&self, _ui: Ui) {
        let mut rows = vec![show::row(["metric", "value", "minimum", ""])];
        for metric in &self.metrics {
            let value = metric.value.map_or_else(|| "-".to_owned(), |it| format!("{it:.3}"));
            let mark = if metric.below_floor { "below the minimum" } else { "" };
            rows.push(show::row([metric.name, &value, &metric.floor.to_string(), mark]));
        }
        let mut text = show::table(&rows);
        text.push_str(&format!("\nfitness {:.3}", self.composite));
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
