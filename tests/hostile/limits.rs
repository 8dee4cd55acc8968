//! Tests the ways around a child's limits with `runner run`, at the levels `full` and `files-only`.
//!
//! An ordinary test run tries about an eighth of the ways at each level, and `RUNNER_TEST_SCALE=1`
//! tries all.

use runner_engine::sandbox::bwrap;

use crate::fixture::{CommandOutput, Fixture, print_line, scaled_from, skip};
use crate::ways::{CPU_WAYS, DISK_WAYS, MEMORY_WAYS, NOT_SAMPLED, PROCESS_WAYS, Way};

/// The setting of each limit, the text with which a run reports that the limit is exceeded, and the
/// ways around it.
const LIMITS: [(&str, &str, &[Way]); 4] = [
    ("max_memory = \"200MB\"", "max_memory allows", MEMORY_WAYS),
    ("max_processes = 60", "max_processes allows", PROCESS_WAYS),
    ("max_cpu_time = \"1s\"", "max_cpu_time allows", CPU_WAYS),
    ("max_folder = \"30MB\"", "more data to its folder than its limit", DISK_WAYS),
];

/// The result of trying one way around a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Result {
    Ended,
    Refused,
    NotSeen,
    Through,
}

/// Runs a way as a job with this limit.
fn attempt(fixture: &Fixture, level: &str, (name, script): &Way, reported: &str) -> Result {
    fixture.write("way.sh", format!("export Q=$RUNNER_OUT\n{script}\n"));
    let mut command = fixture.runner(&["run", "way"]);
    if level == "files-only" {
        command.env("RUNNER_TEST_SANDBOX", "landlock");
    }
    let said = CommandOutput::of(command.output().unwrap());
    let runs = fixture.run(&["runs", "--limit", "1", "--json"]).ends(0).json();
    let id = runs[0]["id"].as_str().unwrap();
    let shown = fixture.run(&["runs", "show", id]).ends(0).out;
    let logs = fixture.run(&["runs", "logs", id]).out;
    fixture.run(&["jobs", "reset", "way"]);
    assert_eq!(fixture.survivors(), Vec::<String>::new(), "{name}");
    let sandbox = shown.lines().find(|line| line.starts_with("sandbox ")).unwrap_or_default();
    assert_eq!(sandbox.contains("bubblewrap"), level == "full", "{name}: {shown}");
    if shown.contains(reported) {
        assert!(said.code == 1 && runs[0]["outcome"] == "failed", "{name}: {shown}");
        return Result::Ended;
    }
    match () {
        () if logs.contains("refused") && !logs.contains("through") => Result::Refused,
        () if NOT_SAMPLED.contains(name) => Result::NotSeen,
        () => {
            print_line(&format!("{name}: {shown}\n{logs}"));
            Result::Through
        }
    }
}

#[test]
fn no_way_around_a_limit_succeeds() {
    let mut through = Vec::new();
    for level in ["full", "files-only"] {
        if level == "full" && bwrap::find().is_none() {
            skip("bwrap", "the level full: bubblewrap is not installed");
            continue;
        }
        for (setting, reported, ways) in LIMITS {
            let fixture = Fixture::with(&format!(
                "[jobs.way]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\nargs = [\"way.sh\"]\n\
                 retries = 0\ntimeout = \"60s\"\n{setting}\n"
            ));
            let count = scaled_from(ways.len(), 0.125).min(ways.len());
            let step = ways.len().div_ceil(count);
            let mut results = Vec::new();
            for way in ways.iter().step_by(step) {
                let result = attempt(&fixture, level, way, reported);
                results.push(result);
                if result == Result::Through {
                    through.push(format!("{level}, {setting}: {}", way.0));
                }
            }
            let count = |wanted| results.iter().filter(|result| **result == wanted).count();
            print_line(&format!(
                "{level}, {setting}: {} ways, {} ended and reported, {} refused, {} not seen",
                results.len(),
                count(Result::Ended),
                count(Result::Refused),
                count(Result::NotSeen)
            ));
        }
    }
    assert!(through.is_empty(), "{through:#?}");
}
