//! Tests the legitimate work of children (commits, branches, stashes, rebases, hooks and
//! submodules), and commits that are refused.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::fixture::{Fixture, skip};
use crate::{Level, levels, project, run};

/// Returns the subjects of a branch's commits, newest first.
fn subjects(fixture: &Fixture, name: &str) -> Vec<String> {
    let text = fixture.git(&["log", "--format=%s", name]);
    text.lines().map(str::to_owned).collect()
}

/// Returns the references that runner kept, without `refs/runner/` and the run's id.
fn kept(fixture: &Fixture) -> Vec<String> {
    let text = fixture.git(&["for-each-ref", "--format=%(refname)", "refs/runner"]);
    text.lines().map(|name| name.splitn(4, '/').last().unwrap().to_owned()).collect()
}

fn id(fixture: &Fixture) -> String {
    let runs = fixture.run(&["runs", "--json"]).json();
    runs[0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn commit_arrives_in_the_repository() {
    for level in levels() {
        let fixture = project(
            "echo more >> src/a.txt; git rm -q src/b.txt; echo new > src/c.txt; git add src
             git commit -q -m 'Add more'",
        );
        let output = run(&fixture, level).ends(0);
        assert_eq!(subjects(&fixture, "main")[0], "Add more", "{level:?} {output:?}");
        assert_eq!(fixture.git(&["status", "--porcelain"]), "", "{level:?} {output:?}");
        assert!(output.out.contains("committed "), "{}", output.out);
        let wanted = if level == Level::Full { "full" } else { "files-only" };
        assert!(output.json().to_string().contains(&format!("\"{wanted} (")), "{}", output.out);
        fixture.git(&["fsck", "--strict"]);
        assert_eq!(kept(&fixture), Vec::<String>::new());
        // The run's folder keeps no copy of the imported objects.
        assert!(!fixture.state().join("runs").join(id(&fixture)).join("git").exists());
    }
}

#[test]
fn file_names_need_not_be_utf8() {
    for level in levels() {
        let fixture = project(
            r"name=$(printf 'src/\377.txt'); echo new > $name; git add $name
              old=$(printf 'src/\376.txt'); echo more >> $old; git commit -q -m Names $name $old",
        );
        let old = fixture.path("src").join(OsStr::from_bytes(b"\xfe.txt"));
        fs::write(&old, "old\n").unwrap();
        fixture.git(&["add", "src"]);
        fixture.git(&["commit", "--quiet", "-m", "Old"]);
        run(&fixture, level).ends(0);
        assert_eq!(subjects(&fixture, "main")[0], "Names");
        assert_eq!(fixture.git(&["status", "--porcelain"]), "", "{level:?}");
        assert_eq!(fs::read_to_string(old).unwrap(), "old\nmore\n");
    }
}

#[test]
fn branches_stashes_and_rebases_are_kept() {
    for level in levels() {
        let fixture = project(
            "git checkout -q -b topic; echo t >> src/b.txt; git commit -q -am Topic
             git checkout -q main; echo m >> src/a.txt; git commit -q -am Main
             git checkout -q topic; git rebase -q main; git checkout -q main; git merge -q topic
             git tag mark; git notes add -m note; git checkout -q -b other
             echo o >> src/a.txt; git commit -q -am Other; git checkout -q main
             echo s >> src/a.txt; git stash -q; echo s2 >> src/a.txt; git stash -q
             git config user.name evil; git remote add x /nowhere; git branch -D topic",
        );
        fixture.write("src/b.txt", "b\nmine\n");
        fixture.git(&["stash", "--quiet"]);
        let before = (fixture.git(&["stash", "list"]), fixture.git(&["config", "--list"]));
        run(&fixture, level).ends(0);
        assert_eq!(subjects(&fixture, "main")[..2], ["Topic", "Main"]);
        assert_eq!(fixture.git(&["branch", "--format=%(refname:short)"]), "main\n");
        let names = ["heads/other", "notes/commits", "stash/1", "stash/2", "tags/mark"];
        assert_eq!(kept(&fixture), names, "{level:?}");
        let id = id(&fixture);
        assert_eq!(subjects(&fixture, &format!("refs/runner/{id}/heads/other"))[0], "Other");
        let stash = fixture.git(&["show", &format!("refs/runner/{id}/stash/2:src/a.txt")]);
        assert!(stash.ends_with("s2\n"), "{stash}");
        let after = (fixture.git(&["stash", "list"]), fixture.git(&["config", "--list"]));
        assert_eq!(before, after);
        assert_eq!(fixture.git(&["status", "--porcelain"]), "");
    }
}

#[test]
fn commits_of_the_person_are_not_removed() {
    for level in levels() {
        for script in ["git reset -q --hard HEAD~1", "git commit -q --amend -m Amended"] {
            let fixture = project(script);
            fixture.write("src/a.txt", "person\n");
            fixture.git(&["commit", "--quiet", "-am", "Person"]);
            let before = fixture.git(&["rev-parse", "HEAD"]);
            let output = run(&fixture, level).ends(0);
            assert_eq!(output.json()["outcome"], "degraded", "{level:?} {output:?}");
            assert!(output.out.contains("refs/heads/main would lose commits"), "{output:?}");
            assert_eq!(fixture.git(&["rev-parse", "HEAD"]), before);
            assert_eq!(kept(&fixture), ["heads/main"], "{level:?}");
        }
    }
}

#[test]
fn work_of_the_person_during_the_run_is_kept() {
    for level in levels() {
        // The script waits for the person, who commits on the same branch.
        let fixture = project(
            "echo agent >> src/a.txt; git commit -q -am Agent; echo up > src/up; cat src/go",
        );
        for name in ["src/up", "src/go"] {
            assert!(fixture.command("mkfifo", &[name]).status().unwrap().success());
        }
        // Commits made before the run are allowed to change a protected path.
        fixture.configure("# later");
        fixture.git(&["commit", "--quiet", "-m", "Later", "runner.toml"]);
        std::thread::scope(|scope| {
            let running = scope.spawn(|| run(&fixture, level));
            assert_eq!(fixture.read("src/up"), "up\n");
            fixture.write("README.md", "# mine\n");
            fixture.git(&["commit", "--quiet", "-m", "Person", "README.md"]);
            fixture.write("src/b.txt", "staged\n");
            fixture.git(&["add", "src/b.txt"]);
            fs::write(fixture.path("src/go"), "go\n").unwrap();
            let output = running.join().unwrap();
            assert!(
                output.out.contains("refs/heads/main has changed since the run started"),
                "{output:?}"
            );
            assert!(output.out.contains("\"outcome\": \"degraded\""), "{output:?}");
        });
        assert_eq!(subjects(&fixture, "main")[0], "Person");
        assert_eq!(fixture.git(&["diff", "--cached", "--name-only"]), "src/b.txt\n");
        assert_eq!(kept(&fixture), ["heads/main"]);
        let name = format!("refs/runner/{}/heads/main", id(&fixture));
        fixture.git(&["commit", "--quiet", "-m", "Staged"]);
        fixture.git(&["checkout", "--quiet", "--", "src/a.txt"]);
        fixture.git(&["merge", "--quiet", "-m", "Merge", &name]);
        assert_eq!(fixture.read("src/a.txt"), "a\nagent\n");
    }
}

#[test]
fn commits_arrive_while_another_branch_is_checked_out() {
    for level in levels() {
        let fixture = project(
            "echo agent >> src/a.txt; git commit -q -am Agent; echo up > src/up; cat src/go",
        );
        for name in ["src/up", "src/go"] {
            assert!(fixture.command("mkfifo", &[name]).status().unwrap().success());
        }
        std::thread::scope(|scope| {
            let running = scope.spawn(|| run(&fixture, level));
            assert_eq!(fixture.read("src/up"), "up\n");
            fixture.git(&["checkout", "--quiet", "-b", "side"]);
            fixture.write("src/b.txt", "person\n");
            fixture.git(&["commit", "--quiet", "-m", "Person", "src/b.txt"]);
            fs::write(fixture.path("src/go"), "go\n").unwrap();
            running.join().unwrap().ends(0);
        });
        assert_eq!(subjects(&fixture, "main")[..2], ["Agent", "Configure"], "{level:?}");
        assert_eq!(subjects(&fixture, "side")[..2], ["Person", "Configure"], "{level:?}");
        // The index matches the branch that the person has checked out.
        assert_eq!(fixture.git(&["diff", "--cached", "--name-only"]), "", "{level:?}");
        assert_eq!(kept(&fixture), Vec::<String>::new());
    }
}

#[test]
fn staged_changes_of_a_person_are_kept() {
    let fixture = project(
        "echo agent >> src/a.txt; echo agent >> src/b.txt; git commit -q -m Agent src/a.txt src/b.txt
         echo up > src/up; cat src/go",
    );
    for name in ["src/up", "src/go"] {
        assert!(fixture.command("mkfifo", &[name]).status().unwrap().success());
    }
    std::thread::scope(|scope| {
        let running = scope.spawn(|| run(&fixture, levels()[0]));
        fixture.read("src/up");
        fixture.write("src/b.txt", "person\n");
        fixture.git(&["add", "src/b.txt"]);
        fs::write(fixture.path("src/go"), "go\n").unwrap();
        let output = running.join().unwrap();
        assert!(output.out.contains("src/b.txt was not changed in the index"), "{output:?}");
    });
    assert_eq!(subjects(&fixture, "main")[0], "Agent");
    assert_eq!(fixture.git(&["show", ":src/b.txt"]), "person\n");
    assert_eq!(
        fixture.git(&["status", "--porcelain", "--", "src/a.txt", "src/b.txt"]),
        "M  src/b.txt\n"
    );
}

#[test]
fn commit_of_a_protected_path_fails_the_run() {
    for level in levels() {
        for (path, script) in [
            (
                "runner.toml",
                "blob=$(echo evil | git hash-object -w --stdin); git update-index --cacheinfo 100644,$blob,runner.toml",
            ),
            (
                "rem/x.org",
                "blob=$(echo evil | git hash-object -w --stdin); git update-index --add --cacheinfo 100644,$blob,rem/x.org",
            ),
            (
                ".Claude/settings.json",
                "blob=$(echo evil | git hash-object -w --stdin); git update-index --add --cacheinfo 100644,$blob,.Claude/settings.json",
            ),
            ("runner.toml", "git update-index --force-remove runner.toml"),
        ] {
            // A later commit that reverts the change does not hide it.
            let fixture = project(&format!(
                "{script}; git commit -q -m Evil; git revert --no-edit HEAD >/dev/null 2>&1 || true"
            ));
            let before = fixture.git(&["rev-parse", "HEAD"]);
            let output = run(&fixture, level);
            assert_eq!(output.json()["class"], "guard", "{path} {level:?} {output:?}");
            assert!(output.out.contains(path) && output.out.contains("commit "), "{output:?}");
            assert_eq!(fixture.git(&["rev-parse", "HEAD"]), before);
            assert_eq!(fixture.git(&["status", "--porcelain"]), "", "{path}");
            assert_eq!(kept(&fixture), ["heads/main"]);
        }
    }
}

#[test]
fn invalid_objects_are_refused() {
    for level in levels() {
        for script in [
            // This tree has an entry named `.git`, which git itself would not create.
            "blob=$(echo evil | git hash-object -w --stdin)
             tree=$(printf '100644 .git\\0%b' \"$(echo $blob | sed 's/../\\\\x&/g')\" | git hash-object -w -t tree --literally --stdin)
             git update-ref refs/heads/main $(git commit-tree -m Evil -p HEAD $tree)",
            // Git detects this object only after it has stored the pack.
            "printf '[submodule \"x\"]\\n\\tpath = x\\n\\turl = -u./evil\\n' > src/m
             git update-index --add --cacheinfo 100644,$(git hash-object -w src/m),.gitmodules
             git commit -q -m Evil",
        ] {
            let fixture = project(script);
            let before = (fixture.git(&["rev-parse", "HEAD"]), fixture.git(&["count-objects", "-v"]));
            let output = run(&fixture, level);
            assert_eq!(output.json()["class"], "guard", "{level:?} {output:?}");
            let after = (fixture.git(&["rev-parse", "HEAD"]), fixture.git(&["count-objects", "-v"]));
            assert_eq!(before, after);
            assert_eq!(kept(&fixture), Vec::<String>::new());
            fixture.git(&["fsck", "--strict", "--full"]);
        }
    }
}

#[test]
fn commits_of_an_agent_are_reported() {
    for level in levels() {
        let fixture =
            project("echo agent >> src/a.txt; git commit -q -am 'By an agent'; echo done");
        let script = fixture.root().join("work.sh");
        fixture.configure(&format!(
            "[backends.it]\ntype = \"command\"\nprogram = \"sh\"\nargs = [\"-e\", {script:?}]\n\
             [jobs.up]\nkind = \"wake\"\ntrigger = \"manual\"\nbackend = \"it\"\nagent = \"a\"\nprompt = \"Work on it\"\nwrites = [\"src\"]\n"
        ));
        fixture.git(&["commit", "--quiet", "-am", "Add an agent"]);
        let mut command = fixture.runner(&["run", "up", "--json"]);
        if level == Level::FilesOnly {
            command.env("RUNNER_TEST_SANDBOX", "landlock");
        }
        let output = crate::CommandOutput::of(command.output().unwrap());
        assert_eq!(output.code, 0, "{level:?} {output:?}");
        assert_eq!(subjects(&fixture, "main")[0], "By an agent");
        assert!(output.out.contains("no open task; 1 commit"), "{output:?}");
        assert!(output.out.contains("By an agent"), "{output:?}");
    }
}

#[test]
fn hooks_of_the_person_run_in_the_sandbox() {
    for level in levels() {
        let fixture = project("echo x >> src/a.txt; git commit -q -am Hooked; cat src/hooked");
        let hook = fixture.path(".git/hooks/prepare-commit-msg");
        fs::create_dir_all(hook.parent().unwrap()).unwrap();
        fs::write(&hook, "#!/bin/sh\necho 'From a hook' >> \"$1\"; echo ran > src/hooked\n")
            .unwrap();
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
        run(&fixture, level).ends(0);
        assert!(fixture.git(&["log", "-1", "--format=%B"]).contains("From a hook"), "{level:?}");
    }
}

#[test]
fn commits_in_submodules_arrive() {
    for level in levels() {
        let script = match level {
            // Without a mount view, only the outermost repository has a private directory.
            Level::FilesOnly | Level::Off => "echo s >> src/a.txt; git commit -q -am Outer",
            Level::Full => {
                "for sub in src/libs/one src/libs/one/deep; do
                   (cd $sub; echo s >> f; git commit -q -am Inner)
                 done
                 (cd src/libs/one; git add deep; git commit -q -m Pointer)
                 test -z \"$(git -C src/libs/one status --porcelain)\"
                 git add src/libs/one; git commit -q -m Outer"
            }
        };
        let fixture = project(script);
        let origin = |name: &str| {
            let path = fixture.root().join(name);
            let git = |args: &[&str]| {
                let mut command = fixture.command("git", args);
                assert!(command.current_dir(&path).status().unwrap().success(), "{args:?}");
            };
            fs::create_dir(&path).unwrap();
            git(&["init", "--quiet", "--initial-branch=main"]);
            fs::write(path.join("f"), "f\n").unwrap();
            git(&["add", "f"]);
            git(&["commit", "--quiet", "-m", "Origin"]);
            path.display().to_string()
        };
        let (inner, outer) = (origin("inner"), origin("outer"));
        let allow = "protocol.file.allow=always";
        let add = |folder: &str, from: &str, to: &str| {
            let mut command = Command::new("git");
            command.args(["-c", allow, "submodule", "--quiet", "add", from, to]);
            command.current_dir(folder).env("HOME", fixture.root());
            assert!(command.status().unwrap().success());
        };
        add(&outer, &inner, "deep");
        fixture
            .command("git", &["commit", "--quiet", "-m", "Sub"])
            .current_dir(&outer)
            .status()
            .unwrap();
        add(fixture.project().to_str().unwrap(), &outer, "src/libs/one");
        fixture.git(&["-c", allow, "submodule", "--quiet", "update", "--init", "--recursive"]);
        fixture.git(&["commit", "--quiet", "-m", "Add a submodule"]);
        run(&fixture, level).ends(0);
        assert_eq!(subjects(&fixture, "main")[0], "Outer");
        if level == Level::Full {
            for sub in ["src/libs/one", "src/libs/one/deep"] {
                let kept = fixture.git(&["-C", sub, "log", "--all", "--format=%s"]);
                assert!(kept.contains("Inner"), "{sub}: {kept}");
            }
            // The commits recorded in the outer repositories exist and are checked out.
            assert_eq!(fixture.git(&["status", "--porcelain"]), "");
            let status = fixture.git(&["submodule", "status", "--recursive"]);
            assert!(status.lines().all(|line| line.starts_with(' ')), "{status}");
            fixture.git(&["submodule", "--quiet", "update", "--recursive"]);
            assert_eq!(fixture.read("src/libs/one/deep/f"), "f\ns\n");
        }
    }
}

#[test]
fn linked_work_tree_receives_commits() {
    for level in levels() {
        let fixture = project("true");
        fixture.git(&["worktree", "add", "--quiet", "-b", "linked", "../linked"]);
        let at = fixture.root().join("linked");
        let mut init = fixture.runner(&["init"]);
        assert!(init.current_dir(&at).output().unwrap().status.success());
        fs::write(fixture.root().join("work.sh"), "echo l >> src/a.txt; git commit -q -am Linked")
            .unwrap();
        let mut command = fixture.runner(&["run", "work", "--json"]);
        command.current_dir(&at);
        if level == Level::FilesOnly {
            command.env("RUNNER_TEST_SANDBOX", "landlock");
        }
        let output = crate::CommandOutput::of(command.output().unwrap());
        assert_eq!(output.code, 0, "{level:?} {output:?}");
        assert_eq!(subjects(&fixture, "linked")[0], "Linked");
        assert_ne!(subjects(&fixture, "main")[0], "Linked");
        let mut status = fixture.command("git", &["status", "--porcelain"]);
        assert_eq!(status.current_dir(&at).output().unwrap().stdout, b"");
    }
}

#[test]
fn git_lfs_files_arrive() {
    let fixture = project("echo large >> src/x.bin; git add src/x.bin; git commit -q -m Large");
    if Command::new("git").args(["lfs", "version"]).output().is_ok_and(|it| !it.status.success()) {
        skip("git-lfs", "1: Git LFS is not installed");
        return;
    }
    for level in levels() {
        let fixture = project(
            "cat src/x.bin; echo large >> src/x.bin; git add src/x.bin; git commit -q -m Large; git lfs ls-files",
        );
        fixture.git(&["lfs", "install"]);
        fixture.write("src/.gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
        fixture.write("src/x.bin", "first\n");
        fixture.git(&["add", "."]);
        fixture.git(&["commit", "--quiet", "-m", "Track"]);
        run(&fixture, level).ends(0);
        assert_eq!(subjects(&fixture, "main")[0], "Large");
        assert_eq!(fixture.git(&["status", "--porcelain"]), "", "{level:?}");
        fs::remove_file(fixture.path("src/x.bin")).unwrap();
        fixture.git(&["checkout", "--", "src/x.bin"]);
        assert_eq!(fixture.read("src/x.bin"), "first\nlarge\n");
        fixture.git(&["lfs", "fsck"]);
    }
    drop(fixture);
}

#[test]
fn unborn_branch_and_detached_head_work() {
    for level in levels() {
        let fixture = project("echo d >> src/a.txt; git commit -q -am Detached");
        fixture.git(&["checkout", "--quiet", "--detach"]);
        run(&fixture, level).ends(0);
        assert_eq!(subjects(&fixture, "HEAD")[0], "Detached");
        assert_eq!(subjects(&fixture, "main")[0], "Configure");
        assert_eq!(fixture.git(&["status", "--porcelain"]), "");

        let fixture = project("git add src; git commit -q -m First");
        fixture.git(&["checkout", "--quiet", "--orphan", "fresh"]);
        fixture.git(&["rm", "--quiet", "-r", "--cached", "."]);
        run(&fixture, level).ends(0);
        assert_eq!(subjects(&fixture, "fresh"), ["First"], "{level:?}");
        assert_eq!(fixture.git(&["ls-files"]), "src/a.txt\nsrc/b.txt\n");
    }
}

#[test]
fn sha256_and_a_persons_settings_change_are_accepted() {
    for level in levels() {
        // A commit that only records a person's change to a protected file is not a violation.
        let fixture = project("echo a >> src/a.txt; git commit -q -am All");
        fs::remove_dir_all(fixture.path(".git")).unwrap();
        fixture.git(&["init", "--quiet", "--object-format=sha256"]);
        fixture.run(&["init"]);
        fixture.git(&["add", "."]);
        fixture.git(&["commit", "--quiet", "-m", "Again"]);
        fixture.configure("# a comment of the person\n");
        let output = run(&fixture, level).ends(0);
        assert_eq!(subjects(&fixture, "main")[0], "All", "{output:?}");
        assert!(fixture.git(&["show", "--stat"]).contains("runner.toml"));
        assert_eq!(fixture.git(&["status", "--porcelain"]), "");
    }
}

#[test]
fn git_folders_without_work_tree_are_refused() {
    let fixture = project("true");
    let bare = fixture.root().join("bare");
    fixture.git(&["clone", "--quiet", "--bare", ".", bare.to_str().unwrap()]);
    fs::copy(fixture.path("runner.toml"), bare.join("runner.toml")).unwrap();
    let mut command = fixture.runner(&["run", "work", "--json"]);
    let output = crate::CommandOutput::of(command.current_dir(&bare).output().unwrap());
    assert_ne!(output.code, 0);
    assert!(output.err.contains("in a git repository"), "{output:?}");
}
