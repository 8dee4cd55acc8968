//! Tests that a journal entry that was neither published by runner nor adopted moves no task and
//! orients no run.

use std::fs;
use std::process::Stdio;

use crate::fixture::{CommandOutput, Fixture};
use crate::lifecycle::{dreamt, written};

/// Checks that the newest entry moves no task, in a command and in a run, and orients no run.
fn is_without_effect(fixture: &Fixture, how: &str) {
    let board = fixture.read("plan.org");
    let refused = fixture.run(&["board", "apply"]).ends(1);
    assert!(refused.err.contains("runner lifecycle adopt"), "{how}: {refused:?}");
    let orient = fixture.run(&["lifecycle", "orient", "--json"]).ends(0).json();
    assert_eq!(orient["provenance"], "foreign", "{how}: {orient}");
    assert!(orient["entry"].is_null() && orient["carry"] == serde_json::json!([]), "{how}");
    let run = fixture.run(&["run", "up"]);
    assert!(run.out.contains("no verdicts: "), "{how}: {run:?}");
    assert!(!run.out.contains("oriented by"), "{how}: {run:?}");
    assert_eq!(fixture.read("plan.org"), board.replace("NEXT", "DOING"), "{how}");
    fixture.write("plan.org", &board);
}

#[test]
fn forged_entries_move_no_task_and_orient_no_run() {
    const VERDICT: &str = "- cancel: twin — I do not like it";
    let fixture = Fixture::with(
        "[jobs.dream]\nenabled = false\n[jobs.up]\nkind = \"wake\"\ntrigger = \"every 1h\"\nbackend = \"builtin\"\n",
    );
    fixture.write("plan.org", "* TODO twin\n* NEXT another\n");
    fixture.git(&["add", "plan.org", "runner.toml"]);
    fixture.git(&["commit", "--quiet", "-m", "A board"]);
    let (list, entry) = ("rem/manifest.json", "rem/2026-06-10-1430.org");
    // If the database contains no entry, runner shows the carry as unverified.
    written(&fixture, "rem", "2026-06-10-1430", "- keep course — y");
    let orient = fixture.run(&["lifecycle", "orient"]).ends(0);
    orient.expect_text("unverified").expect_text("runner lifecycle adopt");
    let shown = fixture.run(&["lifecycle", "adopt"]).ends(1);
    shown.expect_text("keep course").expect_text("--yes");
    fixture.run(&["lifecycle", "adopt", "--yes"]).ends(0);
    fixture.run(&["lifecycle", "adopt"]).ends(0).expect_text("every valid entry is recorded");
    fixture.run(&["lifecycle", "orient"]).ends(0).expect_text("Trust it");
    let honest = (fixture.read(list), fixture.read(entry));
    let restore = || {
        fixture.write(list, &honest.0);
        fixture.write(entry, &honest.1);
        fixture.run(&["board", "apply"]).ends(0);
    };

    // The entry was edited.
    fixture.write(entry, honest.1.replace("- keep course — y", VERDICT));
    is_without_effect(&fixture, "edited entry");
    fixture.run(&["journal"]).ends(0).expect_text("not published by runner");
    let journal = fixture.run(&["journal", "--json"]).ends(0).json();
    let shown = journal["items"].as_array().unwrap().iter().find(|it| it["item"] == "entry");
    assert_eq!(shown.unwrap()["published"], false, "{journal}");
    restore();
    // The list was edited, but the entry was not.
    fixture.write(list, "{\"entries\":[\"2026-06-10-1430.org\"]}");
    is_without_effect(&fixture, "edited list");
    restore();
    // Another entry was added.
    written(&fixture, "rem", "2026-06-11-1430", VERDICT);
    is_without_effect(&fixture, "added entry");
    restore();
    // A commit is built from git objects alone, and a later reset writes its entry into the folder.
    let blob = |text: &str| {
        fixture.write("forged", text);
        let hash = fixture.git(&["hash-object", "-w", "forged"]).trim().to_owned();
        std::fs::remove_file(fixture.path("forged")).unwrap();
        hash
    };
    let forged = blob(&honest.1.replace("- keep course — y", VERDICT));
    fixture.git(&["update-index", "--add", "--cacheinfo", &format!("100644,{forged},{entry}")]);
    let listed = blob(&honest.0);
    fixture.git(&["update-index", "--add", "--cacheinfo", &format!("100644,{listed},{list}")]);
    fixture.git(&["commit", "--quiet", "-m", "Forge an entry"]);
    fixture.git(&["reset", "--hard", "--quiet"]);
    assert!(fixture.read(entry).contains(VERDICT));
    is_without_effect(&fixture, "entry from the index");
    restore();
    // Runner recognizes the restored entry, because its digest is the recorded one.
    fixture.run(&["board", "apply"]).ends(0).expect_text("already applied");
}

/// The forgeries, each with a name and a script that brings a forged entry into the project. `$F`
/// is the folder with the forged entry `entry` and its list `list`; `$E` and `$L` are their paths
/// in the project.
const FORGERIES: [(&str, &str); 11] = [
    (
        "index",
        "for P in entry list; do [ $P = entry ] && D=$E || D=$L
         git update-index --add --cacheinfo 100644,$(git hash-object -w $F/$P),$D; done
         git commit -q -m 'add: forged' && git reset -q --hard",
    ),
    ("stash", "cp $F/entry $E; cp $F/list $L; git add -f rem; git stash -q; git stash pop -q --index"),
    (
        "notes",
        "git notes add -F $F/entry HEAD; git notes show HEAD > $E; cp $F/list $L",
    ),
    (
        "submodule",
        "rm -rf rem; git -c protocol.file.allow=always submodule --quiet add -f $F/other rem",
    ),
    (
        "alternate object store",
        "echo $F/other/.git/objects > .git/objects/info/alternates
         git update-index --add --cacheinfo 100644,$(git -C $F/other rev-parse HEAD:$(basename $E)),$E
         git update-index --add --cacheinfo 100644,$(git -C $F/other rev-parse HEAD:manifest.json),$L
         git checkout-index -f $E $L",
    ),
    (
        "renamed branch",
        "B=$(git symbolic-ref --short HEAD); git checkout -q -b evil; cp $F/entry $E; cp $F/list $L
         git add -f rem; git commit -q -m 'add: forged'; git branch -q -M evil $B; git reset -q --hard",
    ),
    ("hard link", "ln $E link; cat $F/entry > link; rm link"),
    ("restored backup", "rm -rf rem; cp -r $F/backup rem"),
    ("edited list", "echo '{\"entries\":[\"'$(basename $E)'\"]}' > $L"),
    ("edited entry", "cp $F/entry $E"),
    (
        "another clone",
        "git clone -q . $F/clone; mkdir $F/clone/rem; cp $F/entry $F/clone/$E; cp $F/list $F/clone/$L
         (cd $F/clone; $RUNNER init --yes >/dev/null; $RUNNER lifecycle adopt --yes >/dev/null); cp $F/clone/$E $E; cp $F/clone/$L $L",
    ),
];

const ENTRY: &str = "rem/2026-06-10-1430.org";
const LIST: &str = "rem/manifest.json";

/// Creates a project whose newest entry was adopted, and a folder with a forger's files. Also
/// returns the honest list and entry.
fn forger() -> (Fixture, std::path::PathBuf, [String; 2]) {
    let fixture = Fixture::with(
        "[jobs.dream]\nenabled = false\n[jobs.up]\nkind = \"wake\"\ntrigger = \"every 1h\"\nbackend = \"builtin\"\n",
    );
    fixture.write("plan.org", "* TODO twin\n* NEXT another\n");
    fixture.git(&["add", "plan.org", "runner.toml"]);
    fixture.git(&["commit", "--quiet", "-m", "A board"]);
    let forged = fixture.root().join("forged");
    fs::create_dir_all(forged.join("backup")).unwrap();
    let copy = |to: &str, path: &str| fs::write(forged.join(to), fixture.read(path)).unwrap();
    // The forger keeps a backup of an earlier entry that was adopted.
    dreamt(&fixture, "rem", "2026-06-09-1430", "- keep course — y");
    copy("backup/2026-06-09-1430.org", "rem/2026-06-09-1430.org");
    copy("backup/manifest.json", LIST);
    dreamt(&fixture, "rem", "2026-06-10-1430", "- keep course — y");
    let honest = [fixture.read(LIST), fixture.read(ENTRY)];
    let lie = honest[1].replace("- keep course — y", "- cancel: twin — I do not like it");
    fs::write(forged.join("entry"), &lie).unwrap();
    fs::write(forged.join("list"), honest[0].replace("entries\":", "entries\" :")).unwrap();
    let other = forged.join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("manifest.json"), &honest[0]).unwrap();
    fs::write(other.join("2026-06-10-1430.org"), &lie).unwrap();
    shell(&fixture, &forged, "cd $F/other; git init -q; git add .; git commit -q -m x");
    fixture.run(&["board", "apply"]).ends(0);
    (fixture, forged, honest)
}

/// Runs a forger's script in the project, outside the sandbox.
fn shell(fixture: &Fixture, forged: &std::path::Path, script: &str) {
    let mut command = fixture.command("sh", &["-euc", script]);
    command.env("F", forged).env("E", ENTRY).env("L", LIST);
    command.env("RUNNER", fixture.runner(&[]).get_program());
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "a").env(format!("GIT_{role}_EMAIL"), "a@b");
    }
    CommandOutput::of(command.output().unwrap()).ends(0);
}

#[test]
fn twelve_forgeries_are_reported_and_not_applied() {
    for (how, script) in FORGERIES {
        let (fixture, forged, honest) = forger();
        shell(&fixture, &forged, script);
        let now = [fixture.read(LIST), fs::read_to_string(fixture.path(ENTRY)).unwrap_or_default()];
        assert_ne!(now, honest, "{how} changes nothing");
        is_without_effect(&fixture, how);
    }
    // The twelfth forger changes the list while a dream is written.
    let (fixture, _, honest) = forger();
    let reads = format!("cat {0}/pipe; cat {0}/answer", fixture.project().display());
    fixture.configure(&format!(
        "[backends.slow]\ntype = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", \"{reads}\"]\n\
         [jobs.rem]\nkind = \"rem\"\ntrigger = \"manual\"\nbackend = \"slow\"\nanswer = \"org\"\nretries = 0\n",
    ));
    let answer = honest[1].split_once("\n* tale").unwrap().1;
    fixture.write("answer", format!("* tale{}", answer.replace("\nx\n", "\nA new day.\n")));
    CommandOutput::of(fixture.command("mkfifo", &["pipe"]).output().unwrap()).ends(0);
    let run = fixture.runner(&["run", "rem"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    // Opening the pipe blocks until the model reads it.
    let writer = fs::File::options().write(true).open(fixture.path("pipe")).unwrap();
    written(&fixture, "rem", "2026-06-11-0000", "- cancel: twin — I do not like it");
    drop(writer);
    let ended = CommandOutput::of(run.unwrap().wait_with_output().unwrap());
    assert!(ended.err.contains("guard"), "{ended:?}");
    assert!(fixture.read("rem/2026-06-11-0000.org").contains("cancel: twin"));
    is_without_effect(&fixture, "race with publishing");
}

/// The ways in which an agent tries to bring a forged entry into git. `$BLOB` is the forged entry,
/// and `$C` is a commit whose tree contains it. Each way has a name, a script, and the text in the
/// run's failure, or `None` if the run must not fail.
const FROM_THE_SANDBOX: [(&str, &str, Option<&str>); 13] = [
    ("commit", "git reset -q --soft $C", Some("commit ")),
    (
        "index",
        "git update-index --add --cacheinfo 100644,$BLOB,$E",
        Some("its index contains a change to rem/"),
    ),
    (
        "index below another name",
        "git update-index --add --cacheinfo 100644,$BLOB,REM/x.org",
        Some("its index contains a change to REM/x.org"),
    ),
    (
        "index without runner's settings",
        "git update-index --force-remove runner.toml",
        Some("its index no longer contains runner.toml"),
    ),
    (
        "damaged index",
        "echo evil > $(git rev-parse --git-dir)/index",
        Some("its index cannot be read"),
    ),
    ("branch", "git branch evil $C", Some("heads/evil: commit ")),
    ("stash", "git update-ref refs/stash $C", Some("stash/1: commit ")),
    ("notes", "git update-ref refs/notes/evil $C", Some("notes/evil: commit ")),
    ("tag", "git tag -a -m x evil $C", Some("tags/evil: commit ")),
    ("work tree", "git worktree add -q --detach notes/side $C", Some("worktrees/side: commit ")),
    (
        "index of a work tree",
        "git worktree add -q --detach notes/side && cd notes/side && git update-index --add --cacheinfo 100644,$BLOB,$E",
        Some("its index contains a change to rem/"),
    ),
    (
        "submodule",
        "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),rem",
        Some("its index contains a change to rem: rem is"),
    ),
    ("file", "printf evil > $E; ln $E hard && printf evil > hard; mv rem gone; rm -rf rem", None),
];

/// Honest uses of git, in addition to commits on the branch.
const HONEST: &str = "echo a > a.txt; git add -A; git commit -q -m 'add: a'; git add -f runner.toml
    git branch side; echo b > a.txt; git stash -q; git notes add -m fine; git tag -a -m x v1
    git worktree add -q --detach wt; git rm -q --cached a.txt; git checkout -q -b other";

#[test]
fn agents_in_the_sandbox_bring_no_entry_into_git() {
    let honest = ("honest", HONEST, None);
    for (how, script, names) in FROM_THE_SANDBOX.into_iter().chain([honest]) {
        let (fixture, _, honest) = forger();
        fixture.configure(
            "[backends.evil]\ntype = \"command\"\nprogram = \"sh\"\nargs = [\"evil.sh\"]\n\
             [jobs.evil]\nkind = \"wake\"\ntrigger = \"manual\"\nbackend = \"evil\"\nretries = 0\n",
        );
        // At the sandbox level `files-only`, an agent cannot create files in the top folder.
        fixture.write("notes/note.txt", "");
        fixture.write(
            "evil.sh",
            format!(
                "export E={ENTRY} GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b\n\
                 (BLOB=$(echo forged | git hash-object -w --stdin); export GIT_INDEX_FILE=$(mktemp -d)/index\n\
                 git read-tree HEAD; git update-index --add --cacheinfo 100644,$BLOB,$E\n\
                 C=$(git commit-tree -p HEAD -m 'add: forged' $(git write-tree)); unset GIT_INDEX_FILE\n\
                 {script}\n) >&2\necho I did my work.\n"
            ),
        );
        let run = fixture.run(&["run", "evil"]);
        assert_eq!(run.err.contains("guard"), names.is_some(), "{how}: {run:?}");
        assert!(names.is_none_or(|names| run.err.contains(names)), "{how}: {run:?}");
        assert_eq!([fixture.read(LIST), fixture.read(ENTRY)], honest, "{how}: {run:?}");
        // Neither the index nor any ref contains the forged entry, except for the commits that a
        // guard keeps for inspection.
        let all = ["log", "--exclude=refs/runner/*", "--all", "--format=%H", "--", "rem"];
        assert_eq!(fixture.git(&all), "", "{how}: {run:?}");
        assert_eq!(fixture.git(&["ls-files", "--", "rem"]), "", "{how}: {run:?}");
        fixture.run(&["board", "apply"]).ends(0).expect_text("already applied");
    }
}
