//! The table of views. A view is a command that changes nothing: `runner` prints its result, the
//! API returns it, and the page renders it.
//!
//! A row must never name a command that changes or starts anything.

/// A view of the operator's data.
#[derive(Debug)]
pub struct View {
    /// The name of the page, and of the operation in the API's description.
    pub name: &'static str,
    /// The path of the page. The API has the same path below `/api/v1`.
    pub path: &'static str,
    pub summary: &'static str,
    pub template: &'static str,
    /// The command's arguments. `{NAME}` stands for the part of the path with that name.
    pub words: &'static [&'static str],
    /// The query parameters, which become flags of the command.
    pub query: &'static [QueryFlag],
}

/// A query parameter that becomes a flag of a command.
#[derive(Debug)]
pub struct QueryFlag {
    /// The parameter's name, which is also the name of the flag.
    pub name: &'static str,
    pub kind: QueryKind,
    pub summary: &'static str,
}

/// The values of a query parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryKind {
    Text,
    /// A number from 1 to this limit.
    Count(u32),
    /// Present or absent.
    Present,
}

const fn text(name: &'static str, summary: &'static str) -> QueryFlag {
    QueryFlag { name, kind: QueryKind::Text, summary }
}

const fn present(name: &'static str, summary: &'static str) -> QueryFlag {
    QueryFlag { name, kind: QueryKind::Present, summary }
}

const LIMIT: QueryFlag = QueryFlag {
    name: "limit",
    kind: QueryKind::Count(200),
    summary: "The maximum number of runs in one answer",
};
const RUNS: &[QueryFlag] = &[
    text("outcome", "Only the runs with this outcome or state"),
    text(
        "search",
        "Only finished runs whose job, headline or reason contains this text (at least 3 characters)",
    ),
    text("since", "Only the runs since this time: 7d, 12h or 2026-11-22"),
    text("before", "Only the runs recorded before this run, for the next page"),
    LIMIT,
];
const JOB_RUNS: &[QueryFlag] = &[
    text("job", "Only the runs of this job"),
    text("outcome", "Only the runs with this outcome or state"),
    text(
        "search",
        "Only finished runs whose job, headline or reason contains this text (at least 3 characters)",
    ),
    text("since", "Only the runs since this time: 7d, 12h or 2026-11-22"),
    text("before", "Only the runs recorded before this run, for the next page"),
    LIMIT,
];
const DECIDED: &[QueryFlag] = &[present("all", "Include decided proposals")];
const OVER: &[QueryFlag] = &[present("over", "Include ended alerts")];

const fn view(
    name: &'static str,
    path: &'static str,
    summary: &'static str,
    words: &'static [&'static str],
    query: &'static [QueryFlag],
) -> View {
    View { name, path, summary, template: "", words, query }
}

impl View {
    const fn on(mut self, template: &'static str) -> Self {
        self.template = template;
        self
    }
}

pub const VIEWS: &[View] = &[
    view("status", "/status", "The current state of all projects", &["status"], &[])
        .on("overview.html"),
    view("projects", "/projects", "The registered projects", &["projects", "list"], &[])
        .on("projects.html"),
    view("project", "/projects/{project}", "The current state of a project", &["status"], &[])
        .on("overview.html"),
    view("runs", "/runs", "The runs of all projects, most recent first", &["runs", "--all"], RUNS)
        .on("runs.html"),
    view("project-runs", "/projects/{project}/runs", "The runs of a project", &["runs"], JOB_RUNS)
        .on("runs.html"),
    view(
        "run",
        "/runs/{run}",
        "A run with its usage, its evidence and the end of its log",
        &["runs", "show", "--", "{run}"],
        &[],
    )
    .on("run.html"),
    view("jobs", "/projects/{project}/jobs", "The jobs of a project", &["jobs", "list"], &[])
        .on("jobs.html"),
    view(
        "nights",
        "/projects/{project}/nights",
        "The nights of a project, newest first",
        &["report", "--list"],
        &[],
    )
    .on("nights.html"),
    view(
        "night",
        "/projects/{project}/nights/last",
        "The report of the last night",
        &["report"],
        &[],
    )
    .on("night.html"),
    view(
        "a-night",
        "/projects/{project}/nights/{night}",
        "The report of a night",
        &["report", "--night={night}"],
        &[],
    )
    .on("night.html"),
    view(
        "proposals",
        "/projects/{project}/proposals",
        "The undecided proposals",
        &["dream", "list"],
        DECIDED,
    )
    .on("proposals.html"),
    view(
        "proposal",
        "/projects/{project}/proposals/{proposal}",
        "A proposal, with the effect of accepting it",
        &["dream", "show", "--", "{proposal}"],
        &[],
    )
    .on("proposal.html"),
    view(
        "alerts",
        "/alerts",
        "The open alerts of all projects",
        &["alerts", "list", "--all"],
        OVER,
    )
    .on("alerts.html"),
    #[cfg(feature = "fleet")]
    view(
        "fleet",
        "/fleet",
        "This host's fleets, and the hosts in each fleet",
        &["fleet", "list"],
        &[],
    )
    .on("fleet.html"),
    view(
        "budget",
        "/projects/{project}/budget",
        "The budgets of a project",
        &["budget", "show"],
        &[],
    )
    .on("budget.html"),
    view(
        "settings",
        "/projects/{project}/settings",
        "The settings, with the origin of each value",
        &["config", "show", "--origin"],
        &[],
    )
    .on("settings.html"),
    view("board", "/projects/{project}/board", "The tasks on the board", &["board", "show"], &[])
        .on("board.html"),
    view(
        "memory",
        "/projects/{project}/memory",
        "The notes from coding sessions",
        &["memory", "list"],
        &[],
    )
    .on("memory.html"),
    view(
        "sessions",
        "/projects/{project}/sessions",
        "The sessions of coding agents",
        &["sessions", "list"],
        &[],
    )
    .on("sessions.html"),
];

/// The parts of a request's path and query, decoded.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    pub path: Vec<(String, String)>,
    pub query: Vec<(String, String)>,
}

impl Parts {
    /// Returns the part of the path with this name, if the path has one.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.path.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the id of the project in the path, if the path has one.
    pub fn project(&self) -> Option<String> {
        self.get("project").map(str::to_owned)
    }

    /// Returns the arguments of a command, with the parts of the path filled in.
    pub fn fill(&self, words: &[&str]) -> Vec<String> {
        let fill = |word: &&str| {
            let mut word = (*word).to_owned();
            for (name, value) in &self.path {
                let place = format!("{{{name}}}");
                if word.contains(&place) {
                    word = word.replace(&place, value);
                    break;
                }
            }
            word
        };
        words.iter().map(fill).collect()
    }
}

impl View {
    /// Returns the arguments of the view's command.
    ///
    /// # Errors
    /// Returns the reason if the query has an unknown name, or a value that its flag does not
    /// accept.
    pub fn command(&self, parts: &Parts) -> Result<Vec<String>, String> {
        let mut flags = vec!["--json".to_owned()];
        for (name, value) in parts.query.iter().filter(|(_, value)| !value.is_empty()) {
            let Some(flag) = self.query.iter().find(|flag| flag.name == name) else {
                return Err(format!("unknown query parameter {name:?}"));
            };
            match flag.kind {
                QueryKind::Text => flags.push(format!("--{name}={value}")),
                QueryKind::Present => flags.push(format!("--{name}")),
                QueryKind::Count(most) => match value.parse::<u32>() {
                    Ok(count) if (1..=most).contains(&count) => {
                        flags.push(format!("--{name}={count}"))
                    }
                    _ => return Err(format!("{name} must be a number from 1 to {most}")),
                },
            }
        }
        let mut words = parts.fill(self.words);
        // Flags must come before `--`, because nothing after it is a flag.
        let at = words.iter().position(|word| word == "--").unwrap_or(words.len());
        words.splice(at..at, flags);
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(path: &[(&str, &str)], query: &[(&str, &str)]) -> Parts {
        let owned = |all: &[(&str, &str)]| {
            all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        Parts { path: owned(path), query: owned(query) }
    }

    #[test]
    fn values_cannot_become_flags() {
        let view = |name| VIEWS.iter().find(|view| view.name == name).unwrap();
        let words = view("run").command(&parts(&[("run", "--help")], &[])).unwrap();
        assert_eq!(words, ["runs", "show", "--json", "--", "--help"]);
        let query = [("job", "--all {run}"), ("outcome", ""), ("limit", "7")];
        let words = view("project-runs").command(&parts(&[("project", "x")], &query)).unwrap();
        assert_eq!(words, ["runs", "--json", "--job=--all {run}", "--limit=7"]);
        for wrong in
            [("limit", "0"), ("limit", "201"), ("limit", "-1"), ("token", "x"), ("job", "x")]
        {
            assert!(view("runs").command(&parts(&[], &[wrong])).is_err(), "{wrong:?}");
        }
    }
}
