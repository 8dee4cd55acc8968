//! The attempts of a malicious child, as shell scripts generated from targets and techniques.
//!
//! A script gets the variables `W` (the project), `R` (the folder around it), `P` (the target), `D`
//! (the target's folder), `X` (a file with the content to write) and `N` (the attempt's number).
//! Everything that it writes contains `EVIL`.

/// The kind of a target, which determines the content that an attempt writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// Git settings that start a program.
    Config,
    /// A program that git starts.
    Program,
    /// Any other text.
    Text,
}

use Content::{Config, Program, Text};

/// Paths that a child must not change, relative to the folder around the project.
const TARGETS: &[(&str, Content)] = &[
    ("project/.git/config", Config),
    ("project/.git/config.worktree", Config),
    ("project/.git/commondir", Text),
    ("project/.git/hooks/pre-commit", Program),
    ("project/.git/hooks/post-checkout", Program),
    ("project/.git/hooks/reference-transaction", Program),
    ("project/.git/info/attributes", Text),
    ("project/.git/info/exclude", Text),
    ("project/.git/info/grafts", Text),
    ("project/.git/info/sparse-checkout", Text),
    ("project/.git/objects/info/alternates", Text),
    ("project/.git/objects/pack/pack-evil.idx", Text),
    ("project/.git/HEAD", Text),
    ("project/.git/index", Text),
    ("project/.git/packed-refs", Text),
    ("project/.git/refs/heads/main", Text),
    ("project/.git/refs/heads/evil", Text),
    ("project/.git/refs/tags/evil", Text),
    ("project/.git/refs/stash", Text),
    ("project/.git/logs/HEAD", Text),
    ("project/.git/shallow", Text),
    ("project/.git/MERGE_HEAD", Text),
    ("project/.git/rebase-merge/git-rebase-todo", Text),
    ("project/.git/sequencer/todo", Text),
    ("project/.git/description", Text),
    ("project/.git/runner-id", Text),
    ("project/.git/lfs/config", Config),
    ("project/.git/modules/top/config", Config),
    ("project/.git/modules/libs/a/b/config", Config),
    ("project/.git/modules/libs/a/b/config.worktree", Config),
    ("project/.git/modules/libs/a/b/commondir", Text),
    ("project/.git/modules/libs/a/b/hooks/post-checkout", Program),
    ("project/.git/modules/libs/a/b/info/attributes", Text),
    ("project/.git/modules/new/name/config", Config),
    ("project/.git/worktrees/linked/commondir", Text),
    ("project/.git/worktrees/linked/config.worktree", Config),
    ("project/.git/worktrees/linked/gitdir", Text),
    ("project/.git/worktrees/linked/HEAD", Text),
    ("project/.git/worktrees/new/commondir", Text),
    ("project/libs/a/b/.git", Text),
    ("project/.git", Text),
    ("project/runner.toml", Text),
    ("project/.ctxrc", Text),
    ("project/.claude/settings.json", Text),
    ("project/.claude/settings.local.json", Text),
    ("project/.codex/config.toml", Text),
    ("project/.mcp.json", Text),
    ("project/dreams/ledger.md", Text),
    ("project/rem/2026-01-01-0000.org", Text),
    ("project/_steps.jsonl", Text),
    ("config/runner/config.toml", Text),
    (".gitconfig", Config),
    ("outside/file", Text),
    ("state/runner/evil", Text),
];

/// Ways to change or create the target, and whether only a mount view refuses the change.
const WAYS: &[(&str, bool, &str)] = &[
    ("write", false, "mkdir -p $D; cat $X > $P"),
    ("append", false, "cat $X >> $P"),
    ("truncate", false, ": > $P; truncate -s 0 $P"),
    ("unlink", false, "rm -rf $P"),
    ("rename over", false, "cp $X src/over$N; mv -f -T src/over$N $P"),
    ("rename away", false, "mv -T $P src/stolen$N && cp $X $P"),
    ("lock and rename", false, "cat $X > $P.lock && mv -f $P.lock $P; rm -f $P.lock"),
    ("link over", false, "rm -f $P; ln $X $P"),
    ("symlink over", false, "ln -sfn $X $P"),
    ("copy into the folder", false, "cp $X src/$(basename $P); cp -f -t $D src/$(basename $P)"),
    ("edit in place", false, "sed -i s/^/EVIL/ $P"),
    ("write through proc", false, "cat $X > /proc/self/root$P || cat $X > /proc/$PPID/root$P"),
    ("swap the folder", false, "mv -T $D $D.old && mkdir -p $D && cp $X $P"),
    (
        "exchange",
        false,
        "cp $X src/ex$N; perl -e 'syscall(316, -100, $ARGV[0], -100, $ARGV[1], 2)' src/ex$N $P",
    ),
    ("git config", false, "git config -f $P core.fsmonitor EVIL"),
    ("change the mode", true, "chmod 0777 $P"),
];

/// Other attempts, most of which use git or the private git directory.
const SINGLE: &[(&str, &str)] = &[
    ("configure a monitor", "git config core.fsmonitor $W/src/evil.sh"),
    ("configure hooks", "git config core.hooksPath $W/src/EVIL"),
    ("configure with GIT_DIR", "GIT_DIR=$W/.git git config core.fsmonitor $W/src/evil.sh"),
    ("configure by --git-dir", "git --git-dir=$W/.git config core.pager $W/src/evil.sh"),
    ("configure globally", "git config --global core.fsmonitor $W/src/evil.sh"),
    ("move the branch", "git update-ref refs/heads/side $(git commit-tree -m EVIL HEAD^{tree})"),
    ("move a tag", "git tag -f mark $(git commit-tree -m EVIL HEAD^{tree})"),
    ("delete a branch", "git branch -D side; git update-ref -d refs/heads/side"),
    (
        "remove all references",
        "git for-each-ref --format='delete %(refname)' | git update-ref --stdin",
    ),
    ("replace an object", "git replace HEAD $(git commit-tree -m EVIL HEAD^{tree})"),
    ("add a linked work tree", "git worktree add src/wt$N; git worktree prune"),
    ("change the other work tree", "git -C $R/linked config core.fsmonitor $W/src/evil.sh"),
    ("commit in the other work tree", "git -C $R/linked commit --allow-empty -m EVIL"),
    (
        "configure the submodule",
        "env -u GIT_DIR -u GIT_WORK_TREE git -C libs/a/b config core.fsmonitor $W/src/evil.sh",
    ),
    ("remove the submodule's objects", "rm -rf .git/modules/libs/a/b/objects"),
    ("remove objects", "rm -rf .git/objects; rm -rf $W/.git/objects/*"),
    (
        "remove borrowed objects",
        "rm -rf .git/borrowed/objects/*; for i in .git/borrowed/objects/*; do : > $i; done",
    ),
    (
        "repack and prune",
        "git reflog expire --expire=now --all; git gc --prune=now; git repack -adf",
    ),
    (
        "borrow objects of another repository",
        "echo $R/other/.git/objects > $(git rev-parse --git-dir)/objects/info/alternates",
    ),
    (
        "replace the objects with a link",
        "G=$(git rev-parse --git-dir); mv $G/objects $G/o2; ln -s $R/outside $G/objects",
    ),
    (
        "replace the alternates with a link",
        "G=$(git rev-parse --git-dir); rm -rf $G/objects/info; ln -s $R/outside $G/objects/info",
    ),
    (
        "add references through a link",
        "G=$(git rev-parse --git-dir); ln -s $R/outside $G/refs/heads/l; ln -sf $R/outside/file $G/refs/heads/evil",
    ),
    (
        "replace the packed references with a link",
        "G=$(git rev-parse --git-dir); ln -sfn $R/outside/file $G/packed-refs",
    ),
    (
        "pack a reference outside refs",
        "G=$(git rev-parse --git-dir); echo \"$(git rev-parse HEAD) refs/heads/../../config\" >> $G/packed-refs",
    ),
    (
        "pack a reference that ends in .lock",
        "G=$(git rev-parse --git-dir); echo \"$(git rev-parse HEAD~) refs/heads/main.lock\" >> $G/packed-refs",
    ),
    (
        "add a reference of runner",
        "git update-ref refs/runner/x/heads/EVIL $(git commit-tree -m EVIL HEAD^{tree})",
    ),
    (
        "point HEAD outside refs",
        "G=$(git rev-parse --git-dir); echo 'ref: refs/heads/../../hooks/EVIL' > $G/HEAD",
    ),
    (
        "switch HEAD to another branch",
        "git symbolic-ref HEAD refs/heads/side; git commit --allow-empty -m EVIL",
    ),
    (
        "change the settings of the private folder",
        "G=$(git rev-parse --git-dir); printf '[core]\\n\\tfsmonitor = %s\\n\\talternateRefsCommand = %s\\n[uploadpack]\\n\\tpackObjectsHook = %s\\n' $W/src/evil.sh $W/src/evil.sh $W/src/evil.sh >> $G/config",
    ),
    (
        "add hooks to the private folder",
        "G=$(git rev-parse --git-dir); for h in post-index-change reference-transaction pre-commit update; do cp src/evil.sh $G/hooks/$h; done",
    ),
    (
        "add a filter",
        "echo '* filter=evil' > .gitattributes; git config filter.evil.clean $W/src/evil.sh",
    ),
    (
        "commit a submodule that starts a program",
        "printf '[submodule \"x\"]\\n\\tpath = src/x\\n\\turl = -u./src/evil.sh\\n' > src/m; git update-index --add --cacheinfo 100644,$(git hash-object -w src/m),.gitmodules; git commit -m EVIL",
    ),
    (
        "commit settings",
        "B=$(git hash-object -w $X); git update-index --cacheinfo 100644,$B,runner.toml; git commit -m EVIL",
    ),
    (
        "commit settings in upper case",
        "B=$(git hash-object -w $X); git update-index --add --cacheinfo 100644,$B,RUNNER.TOML; git commit -m EVIL",
    ),
    (
        "commit a journal",
        "B=$(git hash-object -w $X); git update-index --add --cacheinfo 100644,$B,rem/EVIL.org; git commit -m EVIL",
    ),
    (
        "commit agent settings",
        "B=$(git hash-object -w $X); git update-index --add --cacheinfo 100755,$B,.claude/EVIL; git commit -m EVIL",
    ),
    (
        "commit a link",
        "B=$(printf /etc | git hash-object -w --stdin); git update-index --add --cacheinfo 120000,$B,dreams; git commit -m EVIL",
    ),
    (
        "commit a git folder",
        "B=$(git hash-object -w $X); T=$(printf '100644 config\\0%b' \"$(echo $B | sed 's/../\\\\x&/g')\" | git hash-object -w -t tree --literally --stdin); T=$(printf '40000 .git\\0%b' \"$(echo $T | sed 's/../\\\\x&/g')\" | git hash-object -w -t tree --literally --stdin); git update-ref HEAD $(git commit-tree -m EVIL -p HEAD $T)",
    ),
    (
        "commit and revert",
        "B=$(git hash-object -w $X); git update-index --cacheinfo 100644,$B,runner.toml; git commit -m EVIL; git revert --no-edit HEAD",
    ),
    (
        "merge settings",
        "B=$(git hash-object -w $X); git checkout -b evil; git update-index --cacheinfo 100644,$B,runner.toml; git commit -m EVIL; git checkout -f main; git merge --no-ff -m EVIL evil",
    ),
    (
        "stash settings",
        "B=$(git hash-object -w $X); git update-index --cacheinfo 100644,$B,runner.toml; git stash",
    ),
    (
        "damage an object",
        "G=$(git rev-parse --git-dir); C=$(git commit-tree -m EVIL -p HEAD HEAD^{tree}); F=$G/objects/$(echo $C | sed 's,..,&/,'); chmod u+w $F; echo EVIL > $F; git update-ref refs/heads/main $C; echo $C > $G/refs/heads/main",
    ),
    (
        "point the branch to a missing object",
        "G=$(git rev-parse --git-dir); echo 1234567812345678123456781234567812345678 > $G/refs/heads/main",
    ),
    (
        "replace the history",
        "git checkout --orphan fresh; git commit -m EVIL; git branch -f main HEAD",
    ),
    ("amend", "git commit --amend -m EVIL; git reset --soft HEAD~1; git commit -m EVIL"),
    (
        "push to the repository",
        "git push --force $W HEAD:refs/heads/side; git push -f $W/.git HEAD:refs/heads/side; git push -f $R/linked HEAD:side",
    ),
    (
        "create lock files",
        "G=$(git rev-parse --git-dir); touch $G/index.lock $W/.git/index.lock $W/.git/HEAD.lock",
    ),
    (
        "create deep folders",
        "G=$(git rev-parse --git-dir); D=$G/refs; for i in $(seq 60); do D=$D/d; done; mkdir -p $D; git rev-parse HEAD > $D/x",
    ),
    (
        "replace HEAD with a FIFO",
        "G=$(git rev-parse --git-dir); rm -f $G/HEAD; mkfifo $G/HEAD; mkfifo $G/refs/heads/fifo",
    ),
    ("make folders unreadable", "G=$(git rev-parse --git-dir); chmod 000 $G/refs $G/objects"),
    (
        "move the private folder",
        "G=$(git rev-parse --git-dir); mv $G $G.old; ln -s $R/other/.git $G",
    ),
    ("remove the private folder", "rm -rf $(git rev-parse --git-dir)/*"),
    (
        "unmount",
        "umount -l $W/.git; umount $W/.git/borrowed/objects; mount --bind $R/outside $W/.git",
    ),
    (
        "overwrite the run's record",
        "for f in $R/state/runner/runs/*/work.json; do echo EVIL > $f; done",
    ),
];

/// One attempt, with the script that makes it.
pub struct Attempt {
    pub name: String,
    pub script: String,
    /// Whether only a mount view refuses the attempt.
    pub needs_mounts: bool,
    /// Whether the attempt may prevent later attempts in the same child.
    pub alone: bool,
}

/// Returns all attempts.
pub fn all() -> Vec<Attempt> {
    let mut all = Vec::new();
    for (target, content) in TARGETS {
        for (way, needs_mounts, script) in WAYS {
            let content = match content {
                Config => "$W/src/evil.config",
                Program => "$W/src/evil.sh",
                Text => "$W/src/evil.txt",
            };
            all.push(Attempt {
                name: format!("{target}: {way}"),
                script: format!("P=$R/{target}; D=$(dirname $P); X={content}; {script}"),
                needs_mounts: *needs_mounts,
                alone: false,
            });
        }
    }
    all.extend(SINGLE.iter().map(|(name, script)| Attempt {
        name: (*name).to_owned(),
        script: format!("X=$W/src/evil.txt; {script}"),
        needs_mounts: false,
        alone: true,
    }));
    all
}

/// Returns the script of a child that makes these attempts one after the other.
pub fn script(project: &str, around: &str, attempts: &[&Attempt]) -> String {
    let mut text = format!(
        "W={project}; R={around}; export W R; cd $W\n\
         printf '[core]\\n\\tfsmonitor = %s\\n\\thooksPath = %s\\n# EVIL\\n' $W/src/evil.sh $W/src/hooks > src/evil.config\n\
         printf '#!/bin/sh\\n# EVIL\\ntouch %s/ran-EVIL\\n' $R > src/evil.sh; chmod +x src/evil.sh\n\
         echo EVIL > src/evil.txt; mkdir -p src/hooks; cp src/evil.sh src/hooks/post-checkout\n\
         echo up > src/up; cat src/go\n"
    );
    for (number, attempt) in attempts.iter().enumerate() {
        let script = attempt.script.replace('\'', "'\\''");
        text.push_str(&format!(
            "N={number} timeout 10 sh -c '{script}' >/dev/null 2>&1 </dev/null || true\n"
        ));
    }
    text
}
