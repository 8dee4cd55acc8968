//! `runner demo`: creates a sample project with a git history and runs a night in it. The night
//! makes a dream pass over the ideas and completes one agent cycle.

use runner_text::{counted, shell_word};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use runner_engine::files::{DOCUMENT, open_with_no_link, read_text_in};
use runner_engine::outcome::Exit;
use runner_engine::process::{
    self, Cancel, ChildSandbox, ChildSpec, ExitStatus, Limits, OutputVerdict, Stdin,
};
use runner_engine::sandbox::available;
use runner_jobs::report;

use super::{Cli, init, night};
use crate::commands::run::AwakeFlags;
use crate::env::{self, Env};
use crate::project::{FILE, trust};
use crate::spawn::SpawnMode;
use crate::ui::{Failure, Ui, show};

/// Maximum number of report lines to print.
const SHOWN: usize = 120;

const HISTORY: &str = include_str!("../../config/demo/history.fast-import");
const IDEAS: &[(&str, &str)] = &[
    ("csv-export.md", include_str!("../../config/demo/ideas/csv-export.md")),
    ("storm-surge-alerts.md", include_str!("../../config/demo/ideas/storm-surge-alerts.md")),
    (
        "the-moon-and-the-tides.md",
        include_str!("../../config/demo/ideas/the-moon-and-the-tides.md"),
    ),
    ("moon-phase.md", include_str!("../../config/demo/ideas/moon-phase.md")),
    (
        "how-a-clock-change-cost-us-a-weekend.md",
        include_str!("../../config/demo/ideas/how-a-clock-change-cost-us-a-weekend.md"),
    ),
    ("urgent-from-the-admin.md", include_str!("../../config/demo/ideas/urgent-from-the-admin.md")),
];

const AGENT: &str = include_str!("../../config/demo/agent.sh");
/// The agent's folder inside the project, which git ignores.
const AGENT_FOLDER: &str = ".demo-agent";
/// The number of additional runs that complete a cycle after its first run.
const STEPS: u32 = 5;

/// Make a sample project and run a night in it
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner demo && cat runner-demo/.runner/reports/*/report.md")]
pub struct DemoArgs {
    /// The sample project's folder, which must not exist yet
    #[arg(default_value = "runner-demo")]
    dir: PathBuf,
    /// The agent that works in the cycle
    #[arg(long, value_enum, default_value = "scripted")]
    agent: DemoAgent,
}

/// The agent that works in the demo's cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum DemoAgent {
    /// A script that replaces a model
    Scripted,
    /// No agent: the built-in backend answers by rule
    Builtin,
}

impl DemoArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let dir = create(&cli.here.join(&self.dir))?;
        // The user's own database must never contain the sample project.
        let home = cli.env.for_demo(&dir)?;
        let cli = &Cli { env: &home, ..*cli };
        let root = self.make(cli, &dir)?;
        // The night's output would repeat the report.
        let hushed = SpawnMode { ui: Ui { quiet: true, ..Ui::default() }, ..cli.spawn_mode() };
        let steps = [("lifecycle", STEPS)];
        // The night takes only seconds, so the machine need not be kept awake.
        let awake = AwakeFlags { no_keep_awake: true, ..AwakeFlags::default() };
        let exit = night::with_steps(cli.env, &root, &steps, hushed, awake)?;
        print_report(&root)?;
        print_next_steps(&called(&home)?, &self.dir);
        Ok(exit)
    }

    /// Creates the project in the empty folder `dir` and returns its root.
    fn make(&self, cli: &Cli<'_>, dir: &Path) -> Result<PathBuf, Failure> {
        cli.ui.info(&format!("created a sample project in {}", dir.display()));
        git(dir, &["init", "--quiet", "--initial-branch=main"], Stdin::Null)?;
        git(dir, &["fast-import", "--quiet"], Stdin::Bytes(HISTORY.into()))?;
        git(dir, &["reset", "--quiet", "--hard"], Stdin::Null)?;
        let ideas = dir.join("ideas");
        fs::create_dir(&ideas).map_err(|error| Failure::not_written(&ideas, error))?;
        for (name, text) in IDEAS {
            let path = ideas.join(name);
            fs::write(&path, text).map_err(|error| Failure::not_written(&path, error))?;
        }
        let root = init::make(cli.env, dir, init::IdChoice::Known, init::Notes::AsTheyAre)?.0.root;
        let mut agent = self.agent;
        if agent == DemoAgent::Scripted && available().level.is_none() {
            agent = DemoAgent::Builtin;
            cli.ui.info(
                "this system has no sandbox, so the demo uses the built-in backend instead of an \
                 agent; to get a sandbox: apt-get install bubblewrap",
            );
        }
        cycle(cli, &root, agent)?;
        Ok(root)
    }
}

/// Creates the sample project's folder, which must not exist yet, and returns its real path.
fn create(dir: &Path) -> Result<PathBuf, Failure> {
    if dir.symlink_metadata().is_ok() {
        return Err(Failure::data(format!("{} already exists", dir.display())).hint(format!(
            "runner demo {}   (or remove the folder)",
            shell_word(format!("{}-2", dir.display()))
        )));
    }
    fs::create_dir_all(dir).map_err(|error| Failure::not_written(dir, error))?;
    fs::canonicalize(dir).map_err(|error| Failure::not_written(dir, error))
}

/// Returns the shell command that starts this program: `runner` if `PATH` resolves that name to
/// this program, or else the program's path.
fn called(home: &Env) -> Result<String, Failure> {
    let program = home.program()?;
    let path = env::setting("PATH").unwrap_or_default();
    let is_named = env::find_program("runner", &path).is_some_and(|named| named == program);
    Ok(if is_named { "runner".to_owned() } else { shell_word(program.display()) })
}

/// Prints the commands to try next. `runner` is the shell command that starts this program.
fn print_next_steps(runner: &str, dir: &Path) {
    let dir = shell_word(dir.display());
    show::out(&format!(
        "\nDo this first:\n\n  \
         {runner} -C {dir} dream review  # decide on the proposals, one key each\n  \
         {runner} -C {dir} report --open  # read this report in a browser\n  \
         cd ~/my-repository && {runner} init  # begin with your own notes\n\n\
         `rm -r {dir}` removes the sample project; your own database contains nothing about it.\n"
    ));
}

/// Prints the beginning of the newest report.
fn print_report(root: &Path) -> Result<(), Failure> {
    let reports = root.join(report::FOLDER);
    let newest = fs::read_dir(&reports)
        .ok()
        .and_then(|entries| entries.filter_map(Result::ok).map(|entry| entry.path()).max());
    let Some(path) = newest.map(|folder| folder.join("report.md")) else {
        let what = format!("the night wrote no report to {}", reports.display());
        return Err(Failure::internal(what));
    };
    let text = read_text_in(root, &path, DOCUMENT)
        .map_err(|error| Failure::internal(format!("the report {}: {error}", path.display())))?;
    let lines: Vec<&str> = text.lines().collect();
    show::out(&format!("\n{}\n\n", path.display()));
    for line in lines.iter().take(SHOWN) {
        show::out(&format!("{line}\n"));
    }
    if lines.len() > SHOWN {
        show::out(&format!("… and {}\n", counted(lines.len() - SHOWN, "more line")));
    }
    Ok(())
}

/// Adds the demo's jobs to the project's settings. For the scripted agent, also adds a backend and
/// its files.
fn cycle(cli: &Cli<'_>, root: &Path, agent: DemoAgent) -> Result<(), Failure> {
    let settings = root.join(FILE);
    let mut text = read_text_in(root, &settings, DOCUMENT)
        .map_err(|error| Failure::not_written(&settings, error))?;
    // Git ignores the sample project's notes. Without this setting, accepting a proposal would
    // require --publish.
    text.push_str("\n[jobs.dream]\nprivate = false\n");
    // The scripted agent has no answer for daydreams.
    text.push_str("\n[jobs.lifecycle-daydream]\nkind = \"daydream\"\nenabled = false\n");
    text.push_str("\n[jobs.lifecycle]\nkind = \"lifecycle\"\ntrigger = \"every 10m\"\n");
    if agent == DemoAgent::Scripted {
        let folder = root.join(AGENT_FOLDER);
        let write = |name: &str, text: &str, mode: u32| {
            let path = folder.join(name);
            fs::write(&path, text)
                .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)))
                .map_err(|error| Failure::not_written(&path, error))
        };
        let state = folder.join("state");
        fs::create_dir_all(&state).map_err(|error| Failure::not_written(&state, error))?;
        write("agent.sh", AGENT, 0o755)?;
        write("key.env", "ANTHROPIC_API_KEY=the-script-needs-none\n", 0o600)?;
        let exclude = root.join(".git/info/exclude");
        open_with_no_link(fs::File::options().append(true).create(true), &exclude)
            .and_then(|mut file| writeln!(file, "/{AGENT_FOLDER}/"))
            .map_err(|error| Failure::not_written(&exclude, error))?;
        let mut backend = toml::Table::new();
        let text_of = |path: PathBuf| toml::Value::String(path.display().to_string());
        backend.insert("type".to_owned(), toml::Value::String("claude".to_owned()));
        backend.insert("program".to_owned(), text_of(folder.join("agent.sh")));
        backend.insert("env_file".to_owned(), text_of(folder.join("key.env")));
        backend.insert("state".to_owned(), text_of(state));
        let tools = ["Bash", "Read", "Write", "Edit"].map(|tool| tool.to_owned().into());
        backend.insert("tools".to_owned(), toml::Value::Array(tools.into()));
        text.push_str("backend = \"scripted\"\n\n[backends.scripted]\n");
        text.push_str(&backend.to_string());
    }
    trust::accepted_change(cli.env, root, || {
        fs::write(&settings, &text).map_err(|error| Failure::not_written(&settings, error))?;
        Ok(((), text))
    })
}

/// Runs a git command in the sample project, without the user's git configuration.
fn git(dir: &Path, args: &[&str], stdin: Stdin) -> Result<(), Failure> {
    let mut env = env::child_environment();
    for (name, value) in [
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_TERMINAL_PROMPT", "0"),
    ] {
        env.insert(name.to_owned(), value.to_owned());
    }
    let spec = ChildSpec {
        program: env::host_program("git").ok_or_else(|| {
            Failure::unavailable("git was not found in PATH".to_owned())
                .hint("apt-get install git   (or your system's package manager)")
        })?,
        args: args.iter().map(Into::into).collect(),
        cwd: dir.to_owned(),
        env,
        stdin,
        limits: Limits { total: Some(std::time::Duration::from_secs(60)), ..Limits::default() },
        marker: env::marker()?,
        sandbox: ChildSandbox::Off,
    };
    let fail = |why: String| Failure::environment(format!("git {}: {why}", args.join(" ")));
    let cancel = Cancel::new().map_err(|error| fail(error.to_string()))?;
    let ended =
        process::run(&spec, &cancel, &mut |_, _| OutputVerdict::Continue).map_err(|error| {
            fail(format!("{error}"))
                .hint("apt-get install git   (or your system's package manager)")
        })?;
    match ended.status {
        ExitStatus::Exit(0) => Ok(()),
        status => Err(fail(format!("{status}: {}", String::from_utf8_lossy(&ended.stderr).trim()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_contains_all_commits() {
        let stream = HISTORY;
        assert_eq!(stream.matches("commit refs/heads/main\n").count(), 11);
        assert!(
            stream.contains("committer Mara Tide <mara@example.org> 1772442720 +0000\n"),
            "{stream}"
        );
        assert!(stream.contains("CSV with a download button\n\nAdds `GET"), "{stream}");
    }
}
