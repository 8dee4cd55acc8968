//! Command jobs: what counts as done.

use crate::house::House;

fn job(script: &str, more: &str) -> House {
    House::with(&format!(
        "[jobs.tidy]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\nargs = [\"-c\", {script:?}]\n{more}"
    ))
}

const ARTIFACT: &str = "artifacts = [{ from = \"a.json\", to = \"out/a.json\" }]\n";

#[test]
fn a_declared_artifact_is_placed_and_told() {
    let house = job("echo '{\"n\": 1}' > \"$RUNNER_OUT/a.json\"", ARTIFACT);
    house
        .run(&["run", "tidy"])
        .ends(0)
        .says("tidy: succeeded")
        .says("out/a.json");
    assert_eq!(house.read("out/a.json"), "{\"n\": 1}\n");
    let runs = house.run(&["runs", "--json"]).ends(0).json();
    assert_eq!(runs[0]["outcome"], "succeeded");
    assert_confined(&runs[0]);
    assert!(
        !house
            .path(".runner/staging")
            .join(runs[0]["id"].as_str().unwrap())
            .exists()
    );
    assert!(house.survivors().is_empty());
}

#[test]
fn exit_0_without_the_artifact_is_a_failure() {
    let house = job("true", ARTIFACT);
    house
        .run(&["run", "tidy"])
        .ends(1)
        .says("artifact-missing")
        .says("a.json");
    let mark: serde_json::Value =
        serde_json::from_str(&house.read(".runner/failed/tidy.json")).unwrap();
    assert_eq!(mark["class"], "artifact-missing");
    house.run(&["status"]).ends(0).says("FAILED").says("tidy");
}

#[test]
fn a_failmark_goes_with_the_next_success() {
    let house = job("[ -e good ] && echo 1 > \"$RUNNER_OUT/a.json\"", ARTIFACT);
    house
        .run(&["run", "tidy"])
        .ends(1)
        .says("crash")
        .says("exit 1");
    assert!(house.path(".runner/failed/tidy.json").exists());
    house.write("good", "");
    house.run(&["run", "tidy"]).ends(0);
    assert!(!house.path(".runner/failed/tidy.json").exists());
}

#[test]
fn a_torn_artifact_replaces_nothing() {
    let house = job("printf '{\"n\": ' > \"$RUNNER_OUT/a.json\"", ARTIFACT);
    house.write("out/a.json", "{\"old\": true}\n");
    house
        .run(&["run", "tidy"])
        .ends(1)
        .says("malformed")
        .says("not JSON");
    assert_eq!(house.read("out/a.json"), "{\"old\": true}\n");
}

#[test]
fn a_program_that_is_not_there_is_not_installed() {
    let house =
        House::with("[jobs.tidy]\nkind = \"command\"\nprogram = \"no-such-program-at-all\"\n");
    house
        .run(&["run", "tidy"])
        .ends(69)
        .says("not-installed")
        .says("no-such-program-at-all");
}

#[test]
fn a_run_past_its_deadline_is_ended_with_its_tree() {
    let house = job("setsid sleep 1000 & sleep 1000", "timeout = \"300ms\"\n");
    house
        .run(&["run", "tidy"])
        .ends(1)
        .says("timed-out")
        .says("total deadline");
    assert_eq!(house.survivors(), Vec::<String>::new());
}

#[test]
fn the_environment_is_an_allowlist() {
    let house = job(
        "env | cut -d= -f1 | sort | tr '\\n' ' ' > \"$RUNNER_OUT/a.txt\"",
        "env = [\"WANTED\"]\nartifacts = [{ from = \"a.txt\", to = \"out/a.txt\" }]\n",
    );
    let output = house
        .runner(&["run", "tidy"])
        .env("WANTED", "1")
        .env("SECRET_KEY", "s3cr3t")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let names = house.read("out/a.txt");
    let names: Vec<&str> = names
        .split_whitespace()
        .filter(|name| !["_", "PWD", "SHLVL", "OLDPWD"].contains(name))
        .collect();
    assert_eq!(
        names,
        [
            "HOME",
            "PATH",
            "RUNNER_OUT",
            "RUNNER_RUN",
            "TMPDIR",
            "TZ",
            "WANTED"
        ]
    );
}

#[test]
fn secrets_in_a_programs_words_do_not_reach_the_report() {
    let key = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    let house = job(&format!("echo token {key} >&2; exit 3"), "");
    let said = house.run(&["run", "tidy"]).ends(1).says("exit 3");
    let id = house.run(&["runs", "--json"]).json()[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let logs = house.run(&["runs", "logs", &id]).ends(0);
    for text in [&said.err, &said.out, &logs.out] {
        assert!(!text.contains(&key), "{text}");
    }
    assert!(logs.out.contains("[redacted"), "{}", logs.out);
}

#[test]
fn what_was_handed_to_a_program_is_hidden_everywhere() {
    let house = job("echo $MY_TOKEN >&2; exit 3", "env = [\"MY_TOKEN\"]\n");
    let output = house
        .runner(&["run", "tidy"])
        .env("MY_TOKEN", "correct-horse-battery")
        .output()
        .unwrap();
    let id = house.run(&["runs", "--json"]).json()[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let logs = house.run(&["runs", "logs", &id]).ends(0);
    let sinks = [
        String::from_utf8_lossy(&output.stderr).into_owned(),
        house.read(".runner/failed/tidy.json"),
        house.run(&["runs", "--json"]).out,
        logs.out,
    ];
    for sink in sinks {
        assert!(!sink.contains("correct-horse"), "{sink}");
    }
}

#[test]
fn a_killed_run_leaves_its_failmark() {
    let house = job(
        // The launcher's parent: without walls it can be reached.
        "read _ _ _ run _ < /proc/$PPID/stat; kill -9 $run; sleep 1000",
        "sandbox = \"off\"\n",
    );
    house.run(&["run", "tidy"]).ends(1).says("lost");
    assert!(house.read(".runner/failed/tidy.json").contains("lost"));
    assert!(house.survivors().is_empty());
}

#[test]
fn the_same_key_runs_once() {
    let house = job("echo x >> times", "");
    house.run(&["run", "tidy", "--key", "monday"]).ends(0);
    house
        .run(&["run", "tidy", "--key", "monday"])
        .ends(0)
        .says("asked for with this key before");
    assert_eq!(house.read("times"), "x\n");
    house.run(&["run", "tidy", "--key", "tuesday"]).ends(0);
    assert_eq!(house.read("times"), "x\nx\n");
}

#[test]
fn term_cancels_a_run_that_settles_itself() {
    let house = job("echo ready > ready.fifo; exec sleep 1000", "");
    house.command("mkfifo", &["ready.fifo"]).status().unwrap();
    let mut child = house.runner(&["run", "tidy", "--json"]).spawn().unwrap();
    assert_eq!(
        std::fs::read_to_string(house.path("ready.fifo")).unwrap(),
        "ready\n"
    );
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130), "{status:?}");
    assert_eq!(
        house.run(&["runs", "--json"]).json()[0]["outcome"],
        "cancelled"
    );
    assert!(house.survivors().is_empty());
}

#[test]
fn a_prompt_without_a_model_leaves_an_honest_index() {
    let house = House::with(
        "[jobs.digest]\nkind = \"prompt\"\nprompt = \"What is new?\"\nsources = [\"README.md\", \"gone.md\"]\nto = \"notes/digest.md\"\n",
    );
    house
        .run(&["run", "digest"])
        .ends(0)
        .says("degraded")
        .says("gone.md");
    let text = house.read("notes/digest.md");
    assert!(
        text.contains("No model was asked") && text.contains("README.md: a project"),
        "{text}"
    );
}

#[test]
fn a_command_backend_answers_a_prompt() {
    let house = House::with(
        "[backends.mine]\ntype = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", \"cat > seen.json; echo '\\\"the answer\\\"'\"]\n\
         [jobs.digest]\nkind = \"prompt\"\nprompt = \"What?\"\nsources = [\"README.md\"]\nto = \"d.md\"\nbackend = \"mine\"\n",
    );
    house
        .run(&["run", "digest"])
        .ends(0)
        .says("mine wrote d.md");
    assert_eq!(house.read("d.md"), "the answer\n");
    let row = &house.run(&["runs", "--json"]).json()[0];
    assert_eq!(
        (row["backend"].as_str(), row["model_calls"].as_i64()),
        (Some("mine"), Some(1))
    );
    assert_confined(row);
}

/// The guide's smallest backend, word for word, as both kinds of job would use it.
#[test]
fn the_guides_backend_works() {
    let guide = include_str!("../../docs/guide/command-backend.md");
    let script = guide
        .split("```python\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let house = House::with("");
    house.write("echo.py", script);
    let path = house.path("echo.py").display().to_string();
    house.configure(&format!(
        "[backends.mine]\ntype = \"command\"\nprogram = \"python3\"\nargs = [{path:?}]\nquiet = true\n\
         [jobs.dream]\nbackend = \"mine\"\n\
         [jobs.digest]\nkind = \"prompt\"\nprompt = \"What?\"\nsources = [\"README.md\"]\nto = \"d.md\"\nbackend = \"mine\"\n"
    ));
    house.write("ideas/note.md", "Maybe use a shorter name?\n");
    let night = house.run(&["night", "--json"]).ends(0).json();
    assert_eq!(night["worst"], "succeeded", "{night:#}");
    assert!(house.read("d.md").contains("README.md: a project"));
    assert_eq!(night["runs"][1]["unstated_calls"], 1);
}

/// Its walls and what they are made of are told, and they are not off.
fn assert_confined(run: &serde_json::Value) {
    let told = run["containment"].as_str().unwrap();
    assert!(
        told.starts_with("walls full (") || told.starts_with("walls files-only ("),
        "{told}"
    );
    assert!(
        told.contains("seccomp") && told.contains(", tree "),
        "{told}"
    );
}
