//! The ways in which a project can make git start a program.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::{Place, copy};

/// A way to make git start a program: its name, the lines for `.git/config` and a function for the
/// rest of the setup. `{}` is replaced with the canary's path.
pub struct EntryPoint {
    pub name: &'static str,
    pub config: &'static str,
    pub plant: fn(&Place, &str),
}

fn nothing(_: &Place, _: &str) {}

fn attributes(place: &Place, line: &str) {
    let path = place.root().join(".gitattributes");
    let old = fs::read_to_string(&path).unwrap_or_default();
    fs::write(path, format!("{old}{line}\n")).unwrap();
}

fn promisor(place: &Place, canary: &str) {
    let _ = canary;
    // The commit's tree does not exist, so reading it would require a download.
    let missing = "tree 1111111111111111111111111111111111111111\n\
                   author a <a@b> 1700000000 +0000\ncommitter a <a@b> 1700000000 +0000\n\nx\n";
    let hash =
        place.input(&["hash-object", "-t", "commit", "-w", "--stdin", "--literally"], missing);
    place.git(&["update-ref", "refs/heads/main", hash.trim()]);
}

pub const ENTRY_POINTS: &[EntryPoint] = &[
    EntryPoint {
        name: "filter-clean",
        config: "[filter \"x\"]\nclean = {}\nsmudge = {}\n",
        plant: |place, _| attributes(place, "* filter=x"),
    },
    EntryPoint {
        name: "filter-required",
        config: "[filter \"x\"]\nclean = {}\nrequired = true\n",
        plant: |place, _| attributes(place, "*.rs filter=x"),
    },
    EntryPoint {
        name: "filter-process",
        config: "[filter \"x\"]\nprocess = {}\n",
        plant: |place, _| attributes(place, "* filter=x"),
    },
    EntryPoint {
        name: "filter-info-attributes",
        config: "[filter \"y\"]\nclean = {}\n",
        plant: |place, _| {
            fs::create_dir_all(place.dot_git().join("info")).unwrap();
            fs::write(place.dot_git().join("info/attributes"), "* filter=y\n").unwrap();
        },
    },
    EntryPoint {
        name: "filter-attributes-file",
        config: "[core]\nattributesFile = ../attributes\n[filter \"z\"]\nclean = {}\n",
        plant: |place, _| fs::write(place.root().join("../attributes"), "* filter=z\n").unwrap(),
    },
    EntryPoint {
        name: "submodule-filter",
        config: "",
        plant: |place, canary| submodule(place, canary, "lib"),
    },
    EntryPoint {
        name: "submodule-filter-slashes",
        config: "",
        plant: |place, canary| submodule(place, canary, "docs/a/lib"),
    },
    EntryPoint {
        name: "submodule-update",
        config: "[submodule \"docs/x\"]\nupdate = !{}\nactive = true\nurl = ./x\n[submodule]\nrecurse = true\n",
        plant: nothing,
    },
    EntryPoint { name: "fsmonitor", config: "[core]\nfsmonitor = {}\n", plant: nothing },
    EntryPoint {
        name: "hooks-path",
        config: "[core]\nhooksPath = ../hooks\n",
        plant: |place, canary| hooks(&place.root().join("../hooks"), canary),
    },
    EntryPoint {
        name: "hooks",
        config: "",
        plant: |place, canary| hooks(&place.dot_git().join("hooks"), canary),
    },
    EntryPoint {
        name: "show-signature",
        config: "[log]\nshowSignature = true\n[gpg]\nprogram = {}\n",
        plant: |place, _| signed(place, "PGP SIGNATURE"),
    },
    EntryPoint {
        name: "show-signature-ssh",
        config: "[log]\nshowSignature = true\n[gpg]\nformat = ssh\n[gpg \"ssh\"]\nprogram = {}\nallowedSignersFile = config\n",
        plant: |place, _| signed(place, "SSH SIGNATURE"),
    },
    EntryPoint {
        name: "sign-commits",
        config: "[commit]\ngpgSign = true\n[user]\nsigningKey = x\n[gpg]\nprogram = {}\n",
        plant: nothing,
    },
    EntryPoint {
        name: "lazy-fetch-ssh",
        config: "[core]\nrepositoryFormatVersion = 1\nsshCommand = {}\n[extensions]\npartialClone = origin\n[remote \"origin\"]\nurl = ssh://127.0.0.1/x\npromisor = true\n",
        plant: promisor,
    },
    EntryPoint {
        name: "lazy-fetch-ext",
        config: "[core]\nrepositoryFormatVersion = 1\n[extensions]\npartialClone = origin\n[remote \"origin\"]\nurl = \"ext::{} x\"\npromisor = true\n[protocol \"ext\"]\nallow = always\n",
        plant: promisor,
    },
    EntryPoint {
        name: "lazy-fetch-upload-pack",
        config: "[core]\nrepositoryFormatVersion = 1\n[extensions]\npartialClone = origin\n[remote \"origin\"]\nurl = .\nuploadpack = {}\npromisor = true\n",
        plant: promisor,
    },
    EntryPoint {
        name: "lazy-fetch-proxy",
        config: "[core]\nrepositoryFormatVersion = 1\ngitProxy = {}\n[extensions]\npartialClone = origin\n[remote \"origin\"]\nurl = git://127.0.0.1/x\npromisor = true\n",
        plant: promisor,
    },
    EntryPoint {
        name: "lazy-fetch-instead-of",
        config: "[core]\nrepositoryFormatVersion = 1\n[extensions]\npartialClone = origin\n[remote \"origin\"]\nurl = https://127.0.0.1:9/x\npromisor = true\n[url \"ext::{} \"]\ninsteadOf = https://\n[protocol \"ext\"]\nallow = always\n",
        plant: promisor,
    },
    EntryPoint {
        name: "lazy-fetch-credentials",
        config: "[core]\nrepositoryFormatVersion = 1\naskPass = {}\n[credential]\nhelper = {}\n[extensions]\npartialClone = origin\n[remote \"origin\"]\nurl = http://u@127.0.0.1:9/x\npromisor = true\n",
        plant: promisor,
    },
    EntryPoint {
        name: "lazy-fetch-vcs",
        config: "[core]\nrepositoryFormatVersion = 1\n[extensions]\npartialClone = origin\n[remote \"origin\"]\nurl = x\nvcs = planted\npromisor = true\n",
        plant: promisor,
    },
    EntryPoint { name: "external-diff", config: "[diff]\nexternal = {}\n", plant: nothing },
    EntryPoint {
        name: "diff-driver",
        config: "[diff \"x\"]\ncommand = {}\n",
        plant: |place, _| attributes(place, "* diff=x"),
    },
    EntryPoint {
        name: "textconv",
        config: "[diff \"x\"]\ntextconv = {}\ncachetextconv = true\n",
        plant: |place, _| attributes(place, "* diff=x"),
    },
    EntryPoint {
        name: "merge-driver",
        config: "[merge \"x\"]\ndriver = {}\n",
        plant: |place, _| attributes(place, "* merge=x"),
    },
    EntryPoint {
        name: "pager",
        config: "[core]\npager = {}\n[pager]\nlog = {}\nrev-list = {}\nls-files = {}\nconfig = {}\nfor-each-ref = {}\n",
        plant: nothing,
    },
    EntryPoint {
        name: "alias",
        config: "[alias]\nrev-parse = !{}\nls-files = !{}\nrev-list = !{}\nx = !{}\n",
        plant: nothing,
    },
    EntryPoint {
        name: "editor",
        config: "[core]\neditor = {}\n[sequence]\neditor = {}\n",
        plant: nothing,
    },
    EntryPoint {
        name: "trailers",
        config: "[trailer \"x\"]\ncommand = {}\ncmd = {}\n",
        plant: nothing,
    },
    EntryPoint {
        name: "alternate-refs",
        config: "[core]\nalternateRefsCommand = {}\n",
        plant: |place, _| {
            let other = place.root().join("../other.git");
            place.git(&["init", "-q", "--bare", other.to_str().unwrap()]);
            fs::create_dir_all(place.dot_git().join("objects/info")).unwrap();
            let line = format!("{}/objects\n", other.display());
            fs::write(place.dot_git().join("objects/info/alternates"), line).unwrap();
        },
    },
    EntryPoint {
        name: "include",
        config: "[include]\npath = ../planted\n",
        plant: |place, canary| {
            let text = format!("[core]\nfsmonitor = {canary}\npager = {canary}\n");
            fs::write(place.root().join("planted"), text).unwrap();
        },
    },
    EntryPoint {
        name: "include-if",
        config: "[includeIf \"gitdir:**\"]\npath = ../planted\n",
        plant: |place, canary| {
            let text = format!("[filter \"x\"]\nclean = {canary}\n[core]\nfsmonitor = {canary}\n");
            fs::write(place.root().join("planted"), text).unwrap();
            attributes(place, "* filter=x");
        },
    },
    EntryPoint {
        name: "worktree-config",
        config: "[extensions]\nworktreeConfig = true\n",
        plant: |place, canary| {
            let text = format!("[core]\nfsmonitor = {canary}\n");
            fs::write(place.dot_git().join("config.worktree"), text).unwrap();
        },
    },
    EntryPoint {
        name: "git-file",
        config: "[core]\nfsmonitor = {}\n",
        plant: |place, _| {
            fs::rename(place.dot_git(), place.root().join("elsewhere")).unwrap();
            fs::write(place.root().join(".git"), "gitdir: elsewhere\n").unwrap();
        },
    },
    EntryPoint {
        name: "common-folder",
        config: "",
        plant: |place, canary| {
            let common = place.root().join("common");
            copy(&place.dot_git(), &common);
            let config = format!("[core]\nfsmonitor = {canary}\nhooksPath = {canary}\n");
            fs::write(common.join("config"), config).unwrap();
            fs::write(place.dot_git().join("commondir"), "../common\n").unwrap();
        },
    },
    EntryPoint {
        name: "linked-worktree",
        config: "[extensions]\nworktreeConfig = true\n",
        plant: |place, canary| {
            place.git(&["worktree", "add", "-q", "--detach", "tree", "HEAD"]);
            let folder = place.dot_git().join("worktrees/tree");
            let text = format!("[core]\nfsmonitor = {canary}\n[filter \"x\"]\nclean = {canary}\n");
            fs::write(folder.join("config.worktree"), text).unwrap();
            fs::write(place.root().join("tree/.gitattributes"), "* filter=x\n").unwrap();
        },
    },
    EntryPoint {
        name: "recent-objects",
        config: "[gc]\nrecentObjectsHook = {}\nauto = 1\n[maintenance]\nauto = true\n[uploadpack]\npackObjectsHook = {}\n",
        plant: nothing,
    },
    EntryPoint {
        name: "external-command",
        config: "",
        plant: |place, canary| {
            // The project contains programs with the names of git and its commands. They are
            // links, because only the canary's own folder is watched.
            for name in ["git", "git-rev-list", "git-ls-files", "git-remote-planted"] {
                fs::create_dir_all(place.root().join("bin")).unwrap();
                symlink(canary, place.root().join("bin").join(name)).unwrap();
            }
        },
    },
];

/// Creates a nested repository in the project's work tree. Its file has a filter and is changed
/// after it is added.
fn submodule(place: &Place, canary: &str, at: &str) {
    let folder = place.root().join(at);
    fs::create_dir_all(&folder).unwrap();
    let folder = folder.to_str().unwrap();
    let git = |args: &[&str]| place.git(&[&["-C", folder], args].concat());
    git(&["init", "-q"]);
    fs::write(format!("{folder}/a.rs"), "text\n").unwrap();
    git(&["add", "."]);
    git(&["commit", "-qm", "one"]);
    place.git(&["add", at]);
    fs::write(format!("{folder}/.gitattributes"), "* filter=x\n").unwrap();
    git(&["config", "filter.x.clean", canary]);
    git(&["config", "core.fsmonitor", canary]);
    fs::write(format!("{folder}/a.rs"), "texs\n").unwrap();
}

fn signed(place: &Place, kind: &str) {
    let commit = format!(
        "tree {}\nauthor a <a@b> 1700000000 +0000\ncommitter a <a@b> 1700000000 +0000\n\
         gpgsig -----BEGIN {kind}-----\n \n abcd\n -----END {kind}-----\n\nx\n",
        place.git(&["rev-parse", "HEAD^{tree}"]).trim()
    );
    let hash = place.input(&["hash-object", "-t", "commit", "-w", "--stdin"], &commit);
    place.git(&["update-ref", "refs/heads/main", hash.trim()]);
}

fn hooks(folder: &Path, canary: &str) {
    fs::create_dir_all(folder).unwrap();
    for name in [
        "post-index-change",
        "reference-transaction",
        "pre-commit",
        "post-commit",
        "commit-msg",
        "prepare-commit-msg",
        "pre-push",
        "fsmonitor-watchman",
        "post-checkout",
        "pre-auto-gc",
    ] {
        let _ = fs::remove_file(folder.join(name));
        std::os::unix::fs::symlink(canary, folder.join(name)).unwrap();
    }
}
