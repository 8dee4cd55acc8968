//! Reads the nights, alerts and budgets that one form of output shows.

use serde_json::Value;

use super::forms::{Facts, Page, Shown, inner, items, plain, text, within};

pub fn nights_of_json(nights: &Value) -> Facts {
    let mut facts = Facts::new();
    for night in items(nights) {
        let name = text(night, "night");
        facts.insert(format!("{name} worst"), text(night, "worst").to_owned());
        facts.insert(format!("{name} headline"), plain(text(night, "headline")));
    }
    facts
}

pub fn nights_of_page(page: &Page) -> Facts {
    let mut facts = Facts::new();
    for row in page.all("tbody tr") {
        let cells: Vec<String> = within(row, "td").into_iter().map(inner).collect();
        let worst = cells[1].trim();
        let worst = if worst == "no report yet" { "" } else { worst };
        facts.insert(format!("{} worst", cells[0]), worst.to_owned());
        facts.insert(format!("{} headline", cells[0]), plain(&cells[2]));
    }
    facts
}

pub fn report_of_json(report: &Value) -> Facts {
    let mut facts = Facts::new();
    let mut add = |field: String, value: String| facts.insert(field, value);
    add("worst".to_owned(), text(report, "worst").to_owned());
    add(
        "missed".to_owned(),
        items(&report["missed"]).iter().map(|it| plain(it.as_str().unwrap())).collect(),
    );
    add(
        "alerts".to_owned(),
        items(&report["alerts"]).iter().map(|it| plain(it.as_str().unwrap())).collect(),
    );
    for unit in ["calls", "tokens"] {
        add(format!("spent {unit}"), report["spent"][unit].to_string());
    }
    for run in items(&report["runs"]) {
        let (id, outcome) = (text(run, "run"), &run["outcome"]);
        let why = text(outcome, "why");
        let headline = text(run, "headline");
        add(format!("{id} job"), plain(text(run, "job")));
        let open = if run["started"].is_null() { "queued" } else { "running" };
        add(format!("{id} outcome"), outcome["outcome"].as_str().unwrap_or(open).to_owned());
        add(format!("{id} headline"), plain(headline));
        add(format!("{id} why"), plain(why));
        add(format!("{id} message"), plain(if headline.is_empty() { why } else { headline }));
        add(format!("{id} calls"), run["spent"]["calls"].to_string());
        add(
            format!("{id} lines"),
            items(&run["lines"]).iter().map(|it| plain(it.as_str().unwrap())).collect(),
        );
    }
    facts
}

/// Reads a night's page.
pub fn report_of_page(page: &Page) -> Facts {
    let mut facts = Facts::new();
    let head = inner(page.all("main > p .tag")[0]);
    // The page omits the worst outcome of an open night if it is a success.
    let worst = if head.trim() == "in progress" { "succeeded" } else { head.trim() };
    facts.insert("worst".to_owned(), worst.to_owned());
    let spent = inner(page.all("main > p")[1]);
    for (unit, noun) in [("calls", "call"), ("tokens", "token")] {
        facts.insert(format!("spent {unit}"), amount(&spent, noun));
    }
    for card in page.all("section.card") {
        let link = within(card, "h2 a")[0].value().attr("href").unwrap();
        let id = link.rsplit('/').next().unwrap();
        let mut add = |field: &str, value: String| facts.insert(format!("{id} {field}"), value);
        add("outcome", inner(within(card, "h2 .tag")[0]).trim().to_owned());
        let title = inner(within(card, "h2")[0]);
        add("job", plain(title.trim().split(' ').next().unwrap()));
        let mut texts = within(card, "p").into_iter().map(|it| plain(&inner(it)));
        let last = texts.next_back().unwrap();
        add("headline", last);
        add("why", texts.next().unwrap_or_default());
        add("lines", within(card, "li").into_iter().map(|it| plain(&inner(it))).collect());
    }
    facts
}

/// Reads a night's morning page, which is a single file.
pub fn report_of_file(page: &Page) -> Facts {
    let mut facts = Facts::new();
    for row in page.all("#runs details.row") {
        let command = within(row, "dd code").pop().map(inner).unwrap();
        let id = command.rsplit(' ').next().unwrap().to_owned();
        let mut add = |field: &str, value: String| facts.insert(format!("{id} {field}"), value);
        add("outcome", inner(within(row, "summary .badge")[0]));
        let name = within(row, "summary .name")[0].text().next().unwrap().to_owned();
        add("job", plain(&name));
        add("message", plain(&inner(within(row, "summary .told")[0])));
        add("lines", within(row, ".body li").into_iter().map(|it| plain(&inner(it))).collect());
        let cost = inner(within(row, "summary .cost")[0]);
        add(
            "calls",
            cost.split(" · ")
                .map(|part| amount(part, "call"))
                .find(|it| it != "0")
                .unwrap_or("0".to_owned()),
        );
    }
    facts
}

/// Reads the run table, the missed times and the alerts of the Markdown report. The rows of the
/// table are in the order of `ids`.
pub fn report_of_markdown(text: &str, ids: &[String]) -> Facts {
    let mut facts = Facts::new();
    let table = text.lines().skip_while(|line| !line.starts_with("| job | outcome |")).skip(2);
    for (line, id) in table.take_while(|line| line.starts_with('|')).zip(ids) {
        let escaped = line.replace("\\|", "\u{1}");
        let cells: Vec<&str> = escaped.trim_matches('|').split('|').map(str::trim).collect();
        let mut add = |field: &str, value: String| facts.insert(format!("{id} {field}"), value);
        add("job", plain(cells[0]));
        add("outcome", cells[1].to_owned());
        add("calls", cells[3].to_owned());
        add("message", plain(cells[4]));
    }
    let section = |title: &str| -> String {
        let lines = text.lines().skip_while(|line| *line != format!("## {title}")).skip(2);
        lines.take_while(|line| !line.is_empty()).map(plain).collect()
    };
    facts.insert("missed".to_owned(), section("Missed"));
    facts.insert("alerts".to_owned(), section("Alerts"));
    facts
}

/// Returns the amount before a noun in a list such as "2 calls, 1 token", or "0" if the list lacks
/// the noun.
fn amount(text: &str, noun: &str) -> String {
    let found = text.split(", ").find_map(|part| {
        let (amount, what) = part.trim().split_once(' ')?;
        (what.trim().trim_end_matches('s') == noun).then(|| amount.to_owned())
    });
    found.unwrap_or_else(|| "0".to_owned())
}

pub fn alerts_of_json(alerts: &Value) -> Facts {
    let mut facts = Facts::new();
    for alert in items(alerts) {
        let name = format!("{} {}", text(alert, "job"), text(alert, "kind"));
        let mut add = |field: &str, value: String| facts.insert(format!("{name} {field}"), value);
        let state = match (&alert["ended"], &alert["silenced"]) {
            (Value::Null, Value::Null) => "open",
            (Value::Null, _) => "silenced",
            _ => "over",
        };
        add("state", state.to_owned());
        add("why", plain(text(alert, "why")));
        add("count", alert["count"].to_string());
        let messages = items(&alert["messages"]).iter().map(|it| {
            format!(
                "{}{}{}",
                plain(text(it, "what")),
                plain(text(it, "state")),
                plain(text(it, "said"))
            )
        });
        add("messages", messages.collect());
    }
    facts
}

pub fn alerts_of_page(page: &Page) -> Facts {
    let mut facts = Facts::new();
    for card in page.all("section.card") {
        let title = inner(within(card, "h2")[0]);
        let (job, rest) = title.split_once(": ").unwrap();
        let (kind, state) = rest.trim().rsplit_once(' ').unwrap();
        let name = format!("{job} {kind}");
        let mut add = |field: &str, value: String| facts.insert(format!("{name} {field}"), value);
        add("state", state.to_owned());
        add("why", plain(&inner(within(card, "p")[0])));
        let names: Vec<String> = within(card, "dt").into_iter().map(inner).collect();
        let values: Vec<String> = within(card, "dd").into_iter().map(inner).collect();
        let last = names.iter().position(|name| name == "Last").unwrap();
        add("count", amount(&values[last], "time"));
        let messages = names.iter().zip(&values).filter(|(name, _)| *name == "phone");
        add("messages", messages.map(|(_, value)| plain(value)).collect());
    }
    facts
}

pub fn budgets_of_json(budgets: &Value) -> Facts {
    let mut facts = Facts::new();
    for budget in items(&budgets["budgets"]) {
        for unit in ["calls", "tokens", "money", "time", "ideas"] {
            for amount in ["used", "reserved", "cap", "left"] {
                let value = &budget[amount][unit];
                let value = if value.is_null() { String::new() } else { value.to_string() };
                facts.insert(format!("{} {unit} {amount}", text(budget, "level")), value);
            }
            // The page shows a granted amount only beside a limit.
            let granted = &budget["granted"][unit];
            let is_shown = !budget["cap"][unit].is_null() && granted.as_f64() > Some(0.0);
            let granted = if is_shown { granted.to_string() } else { String::new() };
            facts.insert(format!("{} {unit} granted", text(budget, "level")), granted);
        }
    }
    facts
}

pub fn budgets_of_page(page: &Page) -> Facts {
    let mut facts = Facts::new();
    for card in page.all("section.card") {
        let title = inner(within(card, "h2")[0]);
        let level = title.split(' ').next().unwrap().to_owned();
        for row in within(card, "tbody tr") {
            let cells: Vec<String> = within(row, "td").into_iter().map(inner).collect();
            let unit = cells[0].split(' ').next().unwrap();
            for (amount, cell) in ["used", "reserved", "cap", "left"].into_iter().zip(&cells[1..]) {
                let cell = if cell == "unlimited" { "" } else { cell.trim() };
                let (cell, granted) = cell.split_once(" + ").unwrap_or((cell, ""));
                facts.insert(format!("{level} {unit} {amount}"), cell.to_owned());
                if amount == "cap" {
                    let granted = granted.strip_suffix(" granted").unwrap_or_default();
                    facts.insert(format!("{level} {unit} granted"), granted.to_owned());
                }
            }
        }
    }
    facts
}

/// Reads the terminal's overview of a project: the last night's headline, the number of open alerts
/// and the remaining calls.
pub fn overview_of_screen(screen: &Shown) -> Facts {
    let values = screen.values();
    let value = |name: &str| values.get(name).cloned().unwrap_or_default();
    let mut facts = Facts::new();
    let night = value("last night");
    let (name, headline) = night.split_once(": ").unwrap();
    let headline = headline.strip_prefix("in progress; ").unwrap_or(headline);
    facts.insert(format!("{name} headline"), plain(headline));
    let alerts = value("alerts");
    facts.insert("alerts".to_owned(), alerts.split(' ').next().unwrap_or("0").to_owned());
    for level in ["day", "night"] {
        let left = value(&format!("{level} left"));
        facts.insert(format!("{level} calls left"), left.split(" of ").next().unwrap().to_owned());
    }
    facts
}

/// Reads a project's overview page.
pub fn overview_of_page(page: &Page) -> Facts {
    let terms = page.terms();
    let mut facts = Facts::new();
    let night = page.all("section.card dd")[0];
    let name = inner(within(night, "a")[0]);
    let last = inner(*within(night, ".tag").last().unwrap()).trim().to_owned();
    let all = inner(night);
    let headline = all.split_once(last.as_str()).unwrap().1;
    facts.insert(format!("{name} headline"), plain(headline));
    let calls = &terms["Calls today"];
    let (used, limit) = calls.trim().split_once(" of ").unwrap();
    let left = limit.trim().parse::<u64>().unwrap().saturating_sub(used.parse().unwrap());
    facts.insert("day calls left".to_owned(), left.to_string());
    let alerts = terms.get("Alerts").map_or("0", |it| it.split(' ').next().unwrap());
    facts.insert("alerts".to_owned(), alerts.to_owned());
    facts
}
