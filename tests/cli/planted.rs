//! Tests that runner's commands start no program that an agent injected into the project.
//!
//! The agent works in the sandbox. The test itself writes the files that the sandbox protects, such
//! as git's configuration. The injected program appends a line to a file when it is started.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::fixture::Fixture;

/// The agent's script; `$1` is the injected program.
const AGENT: &str = r#"
set -e
mkdir -p docs/lib
cd docs/lib
git init -q
echo text >a.txt
echo '* filter=x' >.gitattributes
git config filter.x.clean "$1"
git config filter.x.process "$1"
git config core.fsmonitor "$1"
cd ../..
git -c user.name=a -c user.email=a@b -C docs/lib commit -q --allow-empty -m one
git add docs/lib 2>/dev/null || true
echo texs >docs/lib/a.txt
echo '* filter=x diff=x merge=x' >.gitattributes
mkdir -p bin
for name in git ssh crontab systemctl systemd-inhibit loginctl xdg-open notify-send id; do
    cp "$1" bin/$name
done
echo changed >README.md
"#;

/// Git settings that start the injected program.
const CONFIG: &str = r#"
[filter "x"]
	clean = {}
	smudge = {}
	process = {}
[diff]
	external = {}
[diff "x"]
	textconv = {}
[core]
	fsmonitor = {}
	pager = {}
	editor = {}
	sshCommand = {}
	askPass = {}
	alternateRefsCommand = {}
[log]
	showSignature = true
[gpg]
	program = {}
[commit]
	gpgSign = true
[credential]
	helper = {}
[alias]
	rev-parse = !{}
"#;

/// Commands that call git.
const COMMANDS: [&[&str]; 17] = [
    &["status"],
    &["run", "dream"],
    &["night"],
    &["night", "--dry-run"],
    &["journal"],
    &["journal", "export", "page"],
    &["dream", "list"],
    &["run", "up"],
    &["run", "rem"],
    &["overnight", "start", "--max-iterations", "1"],
    &["corpus", "health"],
    &["guard", "check", "dreams/x"],
    &["doctor"],
    &["setup", "--scheduler", "cron"],
    &["report", "--open"],
    &["demo", "sample"],
    &["init"],
];

fn gits() -> Vec<PathBuf> {
    let all = ["/usr/local/bin", "/usr/bin"].map(PathBuf::from);
    all.into_iter().filter(|folder| folder.join("git").is_file()).collect()
}

#[test]
fn no_command_starts_an_injected_program() {
    let mut chains = 0;
    for git in gits() {
        let fixture = Fixture::with(
            "[jobs.plant]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\nargs = [\"agent.sh\", \"CANARY\"]\n\
             [jobs.up]\nkind = \"wake\"\ntrigger = \"manual\"\nbackend = \"builtin\"\n\
             [jobs.rem]\nkind = \"rem\"\ntrigger = \"manual\"\nbackend = \"builtin\"\n",
        );
        let canary = fixture.root().join("canary.sh");
        let effect = fixture.root().join("effect");
        let text = format!("#!/bin/sh\necho \"$0 $*\" >>{}\nexit 0\n", effect.display());
        fs::write(&canary, text).unwrap();
        fs::set_permissions(&canary, fs::Permissions::from_mode(0o755)).unwrap();
        let canary = canary.to_str().unwrap();
        fixture.write("agent.sh", AGENT);
        // At sandbox levels below `full`, a job cannot create files in the project's top folder.
        for file in ["docs/index.md", "bin/README", ".gitattributes"] {
            fixture.write(file, "");
        }
        fixture.write("ideas/a.md", "# Share the cache\n\nBetween workers.\n");
        fixture.write("plan.org", "* Plan\n** TODO Share the cache\n");
        fixture.write(".agents/learnings/a.md", "---\nid: a\n---\n# A\n\nPin versions.\n");
        let toml = fixture.read("runner.toml").replace("CANARY", canary);
        fixture.write("runner.toml", toml);
        let planted = fixture.run(&["run", "plant"]);
        assert!(fixture.path("docs/lib/.git").exists(), "the agent did nothing: {planted:?}");
        let config = fixture.path(".git/config");
        let text = fs::read_to_string(&config).unwrap() + &CONFIG.replace("{}", canary);
        fs::write(&config, text).unwrap();
        for hook in ["post-index-change", "reference-transaction", "post-commit"] {
            let _ = fs::copy(canary, fixture.path(".git/hooks").join(hook));
        }
        // The file may exist already, because the agent ran git inside the sandbox.
        let _ = fs::remove_file(&effect);
        for args in COMMANDS {
            fixture.write("README.md", format!("touched before {args:?}\n"));
            let path =
                format!("{}/bin:bin:{}:/usr/bin:/bin", fixture.project().display(), git.display());
            let _ = fixture.runner(args).env("PATH", path).output().unwrap();
            let said = fs::read_to_string(&effect).unwrap_or_default();
            assert_eq!(said, "", "{args:?} with {}", git.display());
            chains += 1;
        }
        // Plain git starts the injected programs, so the test can detect them.
        let _ = fixture.command("git", &["status"]).output();
        assert!(Path::new(&effect).exists(), "git did not start the injected program");
    }
    assert!(chains > 0, "git is in neither of the folders");
    crate::fixture::print_line(&format!(
        "{chains} commands were run after an agent injected programs"
    ));
}
