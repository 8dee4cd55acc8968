"""Commands: `runner ledger` -> `runner db`, `runner perform` -> `runner execute`, `runner ack` -> `runner jobs reset`."""
import os
import re

JOBS_ARGS = '''//! `runner jobs`: its commands and flags.

use clap::Subcommand;

use super::Listing;

/// Manages the jobs of a project.
#[derive(Debug, Subcommand)]
pub enum JobsCommand {
    /// List the jobs of the project
    #[command(after_help = "Example: runner jobs list --json | jq -r '.[].job'")]
    List {
        #[command(flatten)]
        listing: Listing,
    },
    /// Show one job: its kind, its schedule and its failures
    #[command(after_help = "Example: runner jobs show dream")]
    Show {
        /// The job's name in runner.toml
        job: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Reset the failures of a job, so that its schedule starts it again
    ///
    /// The failure marker is removed, the circuit breaker is closed and open alerts of the job end. The
    /// database records who did so.
    #[command(after_help = "Example: runner jobs reset dream")]
    Reset {
        /// The job's name in runner.toml
        #[arg(required_unless_present = "all")]
        job: Option<String>,
        /// All jobs of the project
        #[arg(long, conflicts_with = "job")]
        all: bool,
        #[command(flatten)]
        listing: Listing,
    },
}
'''

JOBS_VARIANT = '''    /// List jobs, show one, or reset one whose cause of failure is fixed [default: list]
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Example: runner jobs --json | jq -r '.[] | select(.failures > 0) | .job'"
    )]
    Jobs {
        /// What to do
        #[command(subcommand)]
        command: Option<JobsCommand>,
        #[command(flatten)]
        listing: Listing,
    },
'''

JOBS_CODE = '''
/// A job for scripts.
#[derive(Debug, Serialize)]
struct JobJson {
    job: String,
    kind: String,
    /// Whether clocks and nights start it.
    enabled: bool,
    schedule: String,
    next_due: Option<Timestamp>,
    paused_until: Option<Timestamp>,
    /// How many failures in a row count.
    failures: u32,
    /// Whether the circuit breaker keeps clocks from starting it.
    stopped: bool,
}

/// Carries out one of the `jobs` commands.
pub fn run(
    home: &Env,
    here: &Path,
    command: Option<&JobsCommand>,
    quiet: bool,
    listing: Listing,
) -> Result<Exit, Failure> {
    match command {
        None => list(home, here, listing),
        Some(JobsCommand::List { listing }) => list(home, here, *listing),
        Some(JobsCommand::Show { job, listing }) => show_job(home, here, job, *listing),
        Some(JobsCommand::Reset { job, listing, .. }) => {
            reset(home, here, job.as_deref(), quiet, *listing)
        }
    }
}

fn jobs(home: &Env, project: &LoadedProject) -> Result<Vec<JobJson>, Failure> {
    let store = home.ledger_to_read()?;
    let mut jobs = Vec::new();
    for row in project.config.job_rows()? {
        if !project.config.jobs.contains_key(&row.name) {
            continue;
        }
        let known = match &store {
            Some(store) => store
                .jobs(&project.id)?
                .into_iter()
                .find(|known| known.name == row.name),
            None => None,
        };
        let streak = match (&store, &known) {
            (Some(store), Some(known)) => store.streak(known.id)?,
            _ => Streak::default(),
        };
        jobs.push(JobJson {
            job: row.name,
            kind: row.kind,
            enabled: row.enabled,
            schedule: row.schedule.words(),
            next_due: known.as_ref().and_then(|known| known.next_due),
            paused_until: known.as_ref().and_then(|known| known.paused_until),
            failures: streak.failures,
            stopped: stopped(streak),
        });
    }
    Ok(jobs)
}

fn list(home: &Env, here: &Path, listing: Listing) -> Result<Exit, Failure> {
    let jobs = jobs(home, &LoadedProject::load(home, here)?)?;
    if listing.json {
        show::json(&jobs);
        return Ok(Exit::Done);
    }
    let mut rows = vec![
        ["job", "kind", "enabled", "failures", "next due", "schedule"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for job in jobs {
        rows.push(vec![
            job.job,
            job.kind,
            if job.enabled { "yes" } else { "no" }.to_owned(),
            job.failures.to_string(),
            job.next_due.map_or_else(|| "-".to_owned(), show::moment),
            job.schedule,
        ]);
    }
    show::out(&show::table(&rows));
    Ok(Exit::Done)
}

fn show_job(home: &Env, here: &Path, name: &str, listing: Listing) -> Result<Exit, Failure> {
    let project = LoadedProject::load(home, here)?;
    project.config.job(name)?;
    let found = jobs(home, &project)?.into_iter().find(|job| job.job == name);
    let Some(job) = found else {
        return Ok(Exit::Done);
    };
    if listing.json {
        show::json(&job);
        return Ok(Exit::Done);
    }
    let date = |at: Option<Timestamp>| at.map_or_else(|| "-".to_owned(), show::moment);
    let rows = [
        ("job", job.job),
        ("kind", job.kind),
        ("enabled", if job.enabled { "yes" } else { "no" }.to_owned()),
        ("schedule", job.schedule),
        ("next due", date(job.next_due)),
        ("paused until", date(job.paused_until)),
        ("failures", job.failures.to_string()),
        ("stopped", if job.stopped { "yes" } else { "no" }.to_owned()),
    ];
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|(name, value)| vec![name.to_owned(), value])
        .collect();
    show::out(&show::table(&rows));
    Ok(Exit::Done)
}
'''

DB = "path|check|backup|restore|vacuum|prune"

# In every text: pattern, replacement.
TEXTS = [
    (rf"\brunner ledger(?= (?:{DB})\b)", "runner db"),
    (r"(?<=`)runner ledger(?=[`\s])", "runner db"),
    (r"\brunner perform\b", "runner execute"),
    (r"(?<!alerts )(?<!events )\brunner ack\b", "runner jobs reset"),
]

# In code: lists of arguments and matches on them.
CODE = [
    (rf'(\[\s*)"ledger"(,\s*(?:"(?:{DB})"|[a-z&]))', r'\1"db"\2'),
    (r'(\[\s*)"perform"(,)', r'\1"execute"\2'),
    (r'(\.arg\()"perform"(\))', r'\1"execute"\2'),
    (r'(contains\()"perform"(\))', r'\1"execute"\2'),
    (r'b"perform"(?= in)', 'b"execute"'),
    (r'(\(&house, (?:"[^"]*", )?&\[|\.run\(&\[)"ack"(,)', r'\1"jobs", "reset"\2'),
    (r"\bCommand::Ledger\b", "Command::Db"),
    (r"\bCommand::Perform\b", "Command::Execute"),
]


def apply(tree, texts_of, read, write, dry):
    count = 0
    for f in texts_of(tree):
        if f.startswith("tests/snapshots/"):
            continue
        text = read(tree, f)
        new = text
        for pattern, to in TEXTS:
            new, k = re.subn(pattern, to, new)
            count += k
        if f.endswith((".rs", ".py", ".sh")):
            for pattern, to in CODE:
                new, k = re.subn(pattern, to, new)
                count += k
        if f == "src/cli/args.rs":
            new = re.sub(r"(\n    )Ledger( \{)", r"\1Db\2", new)
            new = re.sub(r"(\n    )Perform( \{)", r"\1Execute\2", new)
            lines = new.split("\n")
            if "    Ack {" in lines:
                at = first = lines.index("    Ack {")
                while lines[first - 1].startswith(("    ///", "    #[")):
                    first -= 1
                last = lines.index("    },", at)
                lines[first : last + 1] = JOBS_VARIANT.rstrip("\n").split("\n")
                new = "\n".join(lines)
            if "mod jobs;" not in new:
                new = new.replace("mod guard;\n", "mod guard;\nmod jobs;\n")
                new = new.replace("pub use guard::GuardCommand;\n", "pub use guard::GuardCommand;\npub use jobs::JobsCommand;\n")
                if not dry:
                    write(tree, "src/cli/args/jobs.rs", JOBS_ARGS)
        if f == "src/commands/mod.rs":
            new = re.sub(
                r"Command::Ack \{ job, listing, \.\. \} => \{\s*jobs::run\(home, here, job\.as_deref\(\), args\.quiet, \*listing\)\s*\}",
                "Command::Jobs { command, listing } => {\n            jobs::run(home, here, command.as_ref(), args.quiet, *listing)\n        }",
                new,
            )
            new = new.replace("Command::Ack { .. }", "Command::Jobs { .. }")
        if f == "src/commands/jobs.rs" and "fn run(" in new and "JobsCommand" not in new:
            new = re.sub(r"\A//! `ack`[^\n]*\n", "//! `runner jobs`: lists jobs, shows one, resets the failures of one.\n", new)
            new = new.replace("pub fn run(", "fn reset(")
            new = new.replace("use crate::cli::args::Listing;", "use crate::cli::args::{JobsCommand, Listing};")
            new = new.replace("use std::path::Path;\n\n", "use std::path::Path;\n\nuse jiff::Timestamp;\n")
            new = new.replace("use runner_engine::outcome::Exit;\n", "use runner_engine::outcome::Exit;\nuse runner_engine::store::Streak;\n")
            at = new.index("\n#[derive(Debug, Serialize)]")
            new = new[:at] + JOBS_CODE + new[at:]
        if f == "tests/cli/bad_input.rs":
            new = new.replace('for command in ["run", "enqueue", "pause", "ack"] {', 'for command in [&["run"][..], &["enqueue"], &["pause"], &["jobs", "reset"]] {')
            new = re.sub(r'(\.run\(&)\[command, "nobody"\]\)', r'\1[command, &["nobody"]].concat())', new)
        if new != text and not dry:
            write(tree, f, new)
    return count
