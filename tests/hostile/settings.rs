//! Tests that an agent or a program with write access to the tree cannot change files that
//! determine later runs.

use std::fs;

use crate::fixture::{Fixture, print_line};
use crate::testbed::link;

/// A cycle whose states name one prompt that exists and one that does not.
const CYCLE: &str = "* add\n:PROPERTIES:\n:KIND: wake\n:NEXT: rem\n:PROMPT: prompts/wake.md\n:END:\n\
                     * rem\n:PROPERTIES:\n:KIND: rem\n:NEXT: plan\n:MIN-INTERVAL: 0m\n:END:\n\
                     * plan\n:PROPERTIES:\n:KIND: plan\n:NEXT: add\n:PROMPT: prompts/plan.md\n:END:\n";

/// Files of the project that no child may change.
const KEPT: [&str; 6] = [
    ".ctxrc",
    "lifecycle.org",
    "prompts/wake.md",
    "prompts/plan.md",
    "prompts/own.md",
    "other/new.md",
];

/// Orders for the file `$P`.
const ORDERS: [&str; 9] = [
    "echo evil > $P",
    "echo evil >> $P",
    "rm -rf $P",
    "mv $P $P.gone",
    "echo evil > free/x; mv -f free/x $P",
    "ln -s free/y $P",
    "mkdir -p $(dirname $P); echo evil > $P",
    "D=$(dirname $P); [ $D = . ] || { mv $D free/folder; mkdir -p $D; echo evil > $P; }",
    "ln $P free/hard && echo evil > free/hard",
];

/// Creates a project with `job` and files that determine runs. If `absent` is set, `.ctxrc` is
/// omitted.
fn fixture(job: &str, absent: bool) -> Fixture {
    let fixture = Fixture::new();
    fixture.run(&["init"]).ends(0);
    fixture.write("free/file", "free\n");
    fixture.write("lifecycle.org", CYCLE);
    fixture.write("prompts/wake.md", "Wake.\n");
    fixture.write("prompts/own.md", "Work.\n");
    if !absent {
        fixture.write(".ctxrc", "dream:\n  enabled: false\n");
    }
    fixture.configure(&format!(
        "[backends.it]\ntype = \"command\"\nprogram = \"{}\"\n[jobs.dream]\nenabled = false\n\
         [jobs.cycle]\nkind = \"lifecycle\"\nagent = \"slow\"\ntrigger = \"manual\"\ncycle = \"lifecycle.org\"\n\
         [jobs.other]\nkind = \"wake\"\nagent = \"a\"\ntrigger = \"manual\"\nprompt = \"prompts/own.md\"\n\
         [jobs.next]\nkind = \"plan\"\nagent = \"a\"\ntrigger = \"manual\"\nprompt = \"other/new.md\"\n{job}",
        link(&fixture, "command", "obeys"),
    ));
    fixture.git(&["add", "-A"]);
    fixture.git(&["commit", "--quiet", "-m", "Begin"]);
    fixture
}

/// Returns the content of each file in `KEPT`, or `None` if the file does not exist.
fn contents(fixture: &Fixture) -> Vec<(String, Option<Vec<u8>>)> {
    let one = |name: &str| {
        let path = fixture.path(name);
        let held = fs::symlink_metadata(&path).is_ok().then(|| fs::read(&path).unwrap_or_default());
        (name.to_owned(), held)
    };
    KEPT.map(one).into()
}

/// Returns two jobs with the same orders, one as a program's script and one as an agent's prompt.
fn jobs(sandbox: &str) -> [String; 2] {
    let orders = KEPT.iter().flat_map(|name| ORDERS.map(|order| format!("P={name}; {order}")));
    let orders: Vec<String> = orders.collect();
    let script = orders.join("\n");
    let prompt = orders.iter().map(|order| format!("DO: {order}")).collect::<Vec<_>>().join("\n");
    [
        format!(
            "[jobs.evil]\nkind = \"command\"\ntrigger = \"manual\"\nsandbox = {sandbox:?}\nprogram = \"sh\"\nargs = [\"-c\", {:?}]\n",
            format!("{script}\ntrue")
        ),
        format!(
            "[jobs.evil]\nkind = \"wake\"\nagent = \"b\"\ntrigger = \"manual\"\nsandbox = {sandbox:?}\nretries = 0\nbackend = \"it\"\nprompt = {prompt:?}\n",
        ),
    ]
}

#[test]
fn sandboxed_jobs_cannot_change_later_runs() {
    for job in jobs("on") {
        for absent in [false, true] {
            let fixture = fixture(&job, absent);
            let before = contents(&fixture);
            let said = fixture.run(&["run", "evil"]);
            assert_eq!(contents(&fixture), before, "{said:?}");
            // The unprotected file shows that the orders were executed.
            assert_eq!(fixture.read("free/x"), "evil\n", "{said:?}");
            let runs = fixture.run(&["runs", "--json"]).ends(0).json();
            let mut runs = runs.as_array().unwrap().iter();
            let run = runs.find(|run| run["job"] == "evil").unwrap();
            print_line(&format!("settings: {} in {}", run["kind"], run["containment"]));
            let shown = fixture.run(&["config", "show", "--origin"]).ends(0).out;
            assert!(!shown.contains("backends.ctxrc"), "{shown}");
        }
    }
}

#[test]
fn unsandboxed_orders_change_every_file() {
    for job in jobs("off") {
        let fixture = fixture(&job, true);
        let before = contents(&fixture);
        let said = fixture.run(&["run", "evil"]);
        let after = contents(&fixture);
        for (was, is) in before.iter().zip(&after) {
            assert_ne!(was, is, "{said:?}");
        }
    }
}

#[test]
fn artifacts_cannot_replace_prompts() {
    let fixture = fixture(
        "[jobs.evil]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\nargs = [\"-c\", \"echo evil > $RUNNER_OUT/x\"]\n\
         artifacts = [{ from = \"x\", to = \"prompts/plan.md\" }]\n\
         [jobs.ask]\nkind = \"prompt\"\ntrigger = \"manual\"\nprompt = \"Why?\"\nto = \"lifecycle.org\"\n",
        true,
    );
    let before = contents(&fixture);
    for job in ["evil", "ask"] {
        let said = fixture.run(&["run", job]);
        assert_ne!(said.code, 0, "{said:?}");
        let all = format!("{}{}", said.out, said.err);
        assert!(all.contains("decides what the jobs of this project do"), "{all}");
    }
    assert_eq!(contents(&fixture), before);
}
