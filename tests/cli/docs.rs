//! Runs the marked blocks of the documentation, and checks the manual pages and completions.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::fixture::{CommandOutput, Fixture, print_line, skip};

/// The line before a block that this test runs.
const MARK: &str = "<!-- run -->";

/// The sample note of `runner init` on a terminal.
const NOTE: &str = "# Try runner for a week\n\nMaybe write each idea into its own file?\n";

/// A fake `crontab` that uses the test's home folder.
const CRONTAB: &str = r#"#!/bin/sh
case "$1" in
-l) cat "$HOME/tab" 2>/dev/null || { echo "no crontab for me" >&2; exit 1; } ;;
-r) rm "$HOME/tab" ;;
*) cat "$1" > "$HOME/tab" ;;
esac
"#;

/// Returns the marked blocks of a document, and whether its first block of any kind is one of them.
fn marked(text: &str) -> (Vec<String>, bool) {
    let mut found = Vec::new();
    let mut first_is_marked = None;
    let mut lines = text.lines();
    let mut before = "";
    while let Some(line) = lines.next() {
        if line.starts_with("```") {
            let body: Vec<&str> =
                lines.by_ref().take_while(|line| !line.starts_with("```")).collect();
            let is_marked = before == MARK && line == "```sh";
            first_is_marked.get_or_insert(is_marked);
            if is_marked {
                found.push(body.join("\n"));
            }
        }
        before = line;
    }
    (found, first_is_marked.unwrap_or(false))
}

/// Runs a script in `~/my-repository` as a person who has never used runner. None of the fixture's
/// settings for runner apply, so the script must accept changed settings.
fn stranger(fixture: &Fixture, script: &str) -> CommandOutput {
    let bin = fixture.root().join("bin");
    fs::create_dir_all(&bin).unwrap();
    for (name, text) in [
        // The real commands would build or install programs, or change the host.
        ("cargo", "#!/bin/sh\n[ \"$1\" = install ]\n"),
        ("crontab", CRONTAB),
        ("systemctl", "#!/bin/sh\nexit 1\n"),
    ] {
        fs::write(bin.join(name), text).unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    if !bin.join("runner").exists() {
        symlink(env!("CARGO_BIN_EXE_runner"), bin.join("runner")).unwrap();
        fs::rename(fixture.project(), fixture.root().join("my-repository")).unwrap();
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-eu", "-c", script]).current_dir(fixture.root().join("my-repository"));
    shell.env_clear().env("PATH", path).env("HOME", fixture.root()).env("USER", "me");
    shell.env("TZ", "UTC").stdin(Stdio::null());
    CommandOutput::of(shell.output().unwrap())
}

#[test]
fn marked_documentation_blocks_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut documents = vec![root.join("README.md")];
    let guide = fs::read_dir(root.join("docs/guide")).unwrap();
    documents.extend(guide.map(|entry| entry.unwrap().path()));
    documents.sort();
    let mut count = 0;
    for document in documents {
        let name = document.display();
        let (blocks, first_is_marked) = marked(&fs::read_to_string(&document).unwrap());
        let is_readme = document.ends_with("README.md");
        assert!(first_is_marked || is_readme, "{name} does not begin with a marked example");
        for block in blocks {
            let fixture = Fixture::new();
            if !is_readme {
                stranger(&fixture, "runner init --yes").ends(0);
                let note = fixture.root().join("my-repository/ideas/try-runner.md");
                fs::write(note, NOTE).unwrap();
            }
            let said = stranger(&fixture, &block);
            assert_eq!(said.code, 0, "{name}\n{block}\n{said:?}");
            count += 1;
        }
    }
    assert!(count >= 24, "only {count} blocks were run");
    print_line(&format!("documentation: {count} blocks were run"));
}

/// The start of a settings block that this test loads.
const SETTINGS: &str = "<!-- settings -->\n```toml\n";

#[test]
fn guide_configures_every_backend_kind() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide/backends.md");
    let guide = fs::read_to_string(guide).unwrap();
    let (_, block) = guide.split_once(SETTINGS).unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let fixture = Fixture::with(block);
    fixture.run(&["config", "check"]).ends(0);
    let shown: toml::Table = block.parse().unwrap();
    let shown = shown["backends"].as_table().unwrap();
    let of = |backend: &toml::Value| backend["type"].as_str().unwrap().to_owned();
    let mut types: Vec<String> = shown.values().map(of).collect();
    types.push("builtin".to_owned());
    types.sort_unstable();
    let mut known = runner_backends::spec::KINDS.map(str::to_owned);
    known.sort_unstable();
    assert_eq!(types, known);
    let listed = fixture.run(&["backends", "list"]).ends(0);
    for name in shown.keys() {
        assert!(listed.out.contains(name.as_str()), "{name}: {listed:?}");
    }

    // No model in the fallback chain is available, so the built-in rules answer.
    fixture.write("ideas/note.md", "# Note\n\nMaybe a shorter name?\n");
    fixture.run(&["dream", "run"]).ends(0);
    let id = fixture.run(&["runs", "--json"]).json()[0]["id"].clone();
    let run = fixture.run(&["runs", "show", id.as_str().unwrap(), "--json"]);
    let run = run.json();
    assert_eq!(run["outcome"], "degraded", "{run:#}");
    assert_eq!(run["backend"], "builtin", "{run:#}");
    let lines = run["lines"].to_string();
    for name in ["night", "codex", "sonnet", "router", "local", "mine"] {
        let said = lines.contains(&format!("was not asked: {name}: "))
            || lines.contains(&format!("did not answer: {name}: "));
        assert!(said, "{name}: {run:#}");
    }
}

/// Returns whether a program is installed, and records a skipped check if it is not.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        skip(program, &format!("{program} is not installed"));
    }
    found
}

#[test]
fn each_shell_parses_its_completions() {
    let fixture = Fixture::new();
    for (shell, how) in [
        ("bash", Some(["bash", "-n"])),
        ("zsh", Some(["zsh", "-n"])),
        ("fish", Some(["fish", "-n"])),
        ("elvish", Some(["elvish", "-compileonly"])),
        ("powershell", None),
    ] {
        let script = fixture.run(&["completions", shell]).ends(0).out;
        assert!(script.contains("dry-run") && script.contains("simulate"), "{shell}");
        let file = fixture.root().join(format!("script.{shell}"));
        // Elvish defines its editor's names only in a terminal.
        let editor = match shell {
            "elvish" => {
                "var edit: = (ns [&complex-candidate~={|@a| } &completion:=(ns [&arg-completer=[&]])])\n"
            }
            _ => "",
        };
        fs::write(&file, format!("{editor}{script}")).unwrap();
        if let Some([program, flag]) = how
            && is_installed(program)
        {
            let read = Command::new(program).arg(flag).arg(&file).output().unwrap();
            assert!(read.status.success() && read.stderr.is_empty(), "{shell}: {read:?}");
        }
    }
    assert!(!fixture.state().exists());
    if is_installed("bash") {
        let script = fixture.root().join("script.bash");
        let ask = "source \"$1\"; COMP_WORDS=(runner sched); COMP_CWORD=1; _runner runner sched runner; echo \"${COMPREPLY[@]}\"";
        let said = Command::new("bash").args(["-c", ask, "bash"]).arg(script).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout), "schedule\n", "{said:?}");
    }
    fixture.run(&["completions", "tcsh"]).ends(2);
}

#[test]
fn man_replaces_only_its_own_pages() {
    let fixture = Fixture::new();
    let folder = fixture.root().join("man/man1");
    let into = folder.display().to_string();
    let said = fixture.run(&["man", &into]).ends(0);
    let written = fs::read_dir(&folder).unwrap().count();
    assert_eq!(said.out.lines().count(), written);
    assert!(written > 25 && !fixture.state().exists());
    fixture.run(&["man", &into]).ends(0).expect_text("nothing was written");
    let page = folder.join("runner-config-show.1");
    let good = fs::read(&page).unwrap();
    let first = good.split(|byte| *byte == b'\n').next().unwrap();
    fs::write(&page, [first, b"\nan older one"].concat()).unwrap();
    let said = fixture.run(&["man", &into]).ends(0);
    assert_eq!(said.out, format!("{}\n", page.display()), "an unchanged page was written");
    assert_eq!(fs::read(&page).unwrap(), good);
    fs::remove_file(folder.join("runner-man.1")).unwrap();
    fs::write(&page, "mine").unwrap();
    fixture.run(&["man", &into]).ends(73).expect_text("runner-config-show.1");
    assert_eq!(fs::read(&page).unwrap(), b"mine");
    assert!(!folder.join("runner-man.1").exists(), "a refused run wrote a page");
    fs::remove_file(&page).unwrap();
    symlink("/dev/null", &page).unwrap();
    fixture.run(&["man", &into]).ends(73);
    fs::remove_file(&page).unwrap();
    fixture.run(&["man", &into]).ends(0);
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(".SH NAME") && text.contains("Example"), "{}", path.display());
    }
    let all = |program: &str, flags: &[&str]| {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let read = Command::new(program)
                .args(flags)
                .arg(&path)
                .env("MANROFFSEQ", "")
                .output()
                .unwrap();
            assert!(read.status.success(), "{}: {read:?}", path.display());
            assert!(read.stderr.is_empty(), "{}: {read:?}", path.display());
        }
    };
    if is_installed("mandoc") {
        all("mandoc", &["-Tlint", "-Werror"]);
    }
    if is_installed("groff") && is_installed("man") {
        all("man", &["--warnings", "-E", "UTF-8", "-l", "-Tutf8"]);
    }
}
