//! Determines which paths on the host contain the user's secrets. Child processes cannot read them
//! unless they are listed in the `reads` setting.
//!
//! The table lists paths, not secrets: a program that keeps its login elsewhere is not covered,
//! except for the logins and keys of the configured backends. A path that does not exist needs no
//! protection. This module must never read a file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use runner_backends::credentials::login_file;
use runner_engine::sandbox::Sandbox;
use runner_jobs::AgentFolders;

use crate::config::Config;
use crate::env::{Env, agent_folders};

/// Private paths in the home folder. A path in `.config` also covers the same path in
/// `$XDG_CONFIG_HOME`.
const IN_HOME: &[&str] = &[
    // Keys and passwords of common programs.
    ".ssh",
    ".gnupg",
    ".netrc",
    ".git-credentials",
    ".config/git/credentials",
    ".pgpass",
    ".my.cnf",
    ".msmtprc",
    ".config/msmtp",
    ".age",
    ".config/sops",
    ".config/age",
    // Forges and package registries.
    ".config/gh",
    ".config/hub",
    ".config/glab-cli",
    ".config/tea",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".gradle/gradle.properties",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".nuget/NuGet/NuGet.Config",
    ".huggingface",
    ".cache/huggingface/token",
    // Command-line programs for clouds and clusters.
    ".aws",
    ".azure",
    ".config/gcloud",
    ".config/doctl",
    ".config/hcloud",
    ".config/linode-cli",
    ".config/scw",
    ".config/configstore",
    ".config/heroku",
    ".config/netlify",
    ".config/vercel",
    ".local/share/com.vercel.cli",
    ".config/.wrangler",
    ".wrangler",
    ".fly",
    ".oci",
    ".bluemix",
    ".aliyun",
    ".kube",
    ".docker",
    ".config/containers/auth.json",
    ".terraform.d/credentials.tfrc.json",
    ".terraformrc",
    ".pulumi/credentials.json",
    ".vault-token",
    ".config/rclone",
    ".s3cfg",
    ".boto",
    ".config/stripe",
    ".databrickscfg",
    ".snowflake",
    ".config/ngrok",
    ".ngrok2",
    // Password managers and keyrings.
    ".password-store",
    ".local/share/gopass",
    ".config/gopass",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".config/op",
    ".config/1Password",
    ".1password",
    ".config/Bitwarden",
    ".config/Bitwarden CLI",
    ".config/keepassxc",
    ".cache/keepassxc",
    ".config/KeePass",
    ".config/rbw",
    ".local/share/rbw",
    ".config/lastpass-cli",
    ".local/share/lpass",
    ".lpass",
    ".config/Enpass",
    ".config/Dashlane",
    ".local/share/dashlane-cli",
    ".config/protonmail",
    // Browsers and mail programs.
    ".mozilla",
    ".config/mozilla",
    ".cache/mozilla",
    ".librewolf",
    ".waterfox",
    ".config/google-chrome",
    ".config/google-chrome-beta",
    ".config/google-chrome-unstable",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/vivaldi",
    ".config/opera",
    ".config/net.imput.helium",
    ".config/qutebrowser",
    ".local/share/qutebrowser",
    ".local/share/epiphany",
    ".thunderbird",
    ".config/evolution",
    ".local/share/evolution",
    "snap/firefox",
    "snap/chromium",
    "snap/thunderbird",
    ".var/app/org.mozilla.firefox",
    ".var/app/org.mozilla.Thunderbird",
    ".var/app/com.google.Chrome",
    ".var/app/org.chromium.Chromium",
    ".var/app/com.brave.Browser",
    ".var/app/com.microsoft.Edge",
    ".var/app/com.bitwarden.desktop",
    ".var/app/org.keepassxc.KeePassXC",
    // Messengers.
    ".config/Signal",
    ".config/Slack",
    ".config/discord",
    ".config/Element",
    ".local/share/TelegramDesktop",
    // Shell and database histories, which may contain typed passwords.
    ".bash_history",
    ".zsh_history",
    ".local/share/fish/fish_history",
    ".psql_history",
    ".mysql_history",
    ".python_history",
    ".node_repl_history",
];

/// The agents' logins. The agent that a backend runs can read and write its own login.
const LOGINS: [&str; 2] = [".claude/.credentials.json", ".codex/auth.json"];

/// The folders and files from which private paths are determined.
#[derive(Clone, Debug)]
pub struct PrivateFolders<'a> {
    /// The children's home folder.
    home: Option<&'a Path>,
    /// Runner's configuration file, whose folder also contains the credentials.
    user_config: &'a Path,
    /// The agents' logins outside their default folders.
    logins: Vec<PathBuf>,
    /// The `env_file` of each backend.
    env_files: Vec<PathBuf>,
}

impl<'a> PrivateFolders<'a> {
    /// Determines the private paths of children with the environment `env`.
    pub fn new(home: &'a Env, config: &Config, env: &'a BTreeMap<String, String>) -> Self {
        let backends = || config.backends.values();
        let AgentFolders { claude, codex } = agent_folders();
        let logins = [(claude, "claude"), (codex, "codex")].into_iter();
        let logins = logins.filter_map(|(folder, kind)| Some(folder?.join(login_file(kind))));
        Self {
            home: env.get("HOME").map(Path::new),
            user_config: &home.user_config,
            logins: logins.chain(backends().filter_map(|spec| spec.own_login(env))).collect(),
            env_files: backends().filter_map(|spec| spec.env_file(env)).collect(),
        }
    }
}

impl PrivateFolders<'_> {
    /// Hides every private path of this host from a sandbox, except those listed in `reads`: a path
    /// at or below a listed path stays visible, and a listed path below a hidden folder is shown.
    pub fn hide(&self, sandbox: &mut Sandbox, reads: &[String]) {
        let named = reads.iter().filter_map(|path| match path.strip_prefix("~/") {
            Some(below) => Some(self.home?.join(below)),
            None => Some(PathBuf::from(path)),
        });
        let named: Vec<PathBuf> = named.filter_map(|path| fs::canonicalize(path).ok()).collect();
        let mut hidden = self.all();
        hidden.retain(|path| !named.iter().any(|named| path.starts_with(named)));
        let below = |path: &&PathBuf| hidden.iter().any(|hidden| path.starts_with(hidden));
        sandbox.show.extend(named.iter().filter(below).cloned());
        sandbox.hide.extend(hidden);
    }

    /// Returns the real paths of all private paths that exist. If a path is a link, its target is
    /// hidden and the link is not. A login that is a link is left out, because an agent could
    /// replace its login with a link to a folder that other jobs need.
    fn all(&self) -> Vec<PathBuf> {
        let own = self.user_config.parent();
        let config = own.and_then(Path::parent);
        let in_home = IN_HOME.iter().flat_map(|path| {
            let other = path.strip_prefix(".config/").and_then(|below| Some(config?.join(below)));
            [self.home.map(|home| home.join(path)), other]
        });
        let env_files = self.env_files.iter().cloned();
        let paths = in_home.flatten().chain(own.map(Path::to_owned)).chain(env_files);
        let mut all: Vec<PathBuf> = paths.filter_map(|path| fs::canonicalize(path).ok()).collect();
        let logins = LOGINS.iter().filter_map(|path| Some(self.home?.join(path)));
        let logins = logins.chain(self.logins.iter().cloned());
        let logins = logins.filter(|path| fs::symlink_metadata(path).is_ok_and(|it| it.is_file()));
        all.extend(logins.filter_map(|path| fs::canonicalize(path).ok()));
        // Hiding the home folder or a folder above it would hide everything.
        all.retain(|path| !self.home.is_some_and(|home| home.starts_with(path)));
        all.sort();
        // A path below another one is hidden with it.
        all.dedup_by(|path, above| path.starts_with(above));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_paths_stay_readable() {
        let folder = tempfile::tempdir().unwrap();
        let home = fs::canonicalize(folder.path()).unwrap();
        for path in ["dots/ssh", ".aws", ".config/gh", ".config/runner", ".mozilla", "code"] {
            fs::create_dir_all(home.join(path)).unwrap();
        }
        fs::write(home.join(".aws/config"), "").unwrap();
        std::os::unix::fs::symlink(home.join("dots/ssh"), home.join(".ssh")).unwrap();
        std::os::unix::fs::symlink("/", home.join(".kube")).unwrap();
        for agent in [".claude", ".codex"] {
            fs::create_dir(home.join(agent)).unwrap();
        }
        let own = ["night/auth.json", "night/keys.env"];
        fs::create_dir(home.join("night")).unwrap();
        for path in [".claude/.credentials.json"].iter().chain(&own) {
            fs::write(home.join(path), "").unwrap();
        }
        std::os::unix::fs::symlink(home.join("code"), home.join(".codex/auth.json")).unwrap();
        let places = PrivateFolders {
            home: Some(&home),
            user_config: &home.join(".config/runner/config.toml"),
            logins: vec![home.join(own[0]), home.join("none/auth.json")],
            env_files: vec![home.join(own[1])],
        };
        let seen = |reads: &[&str]| {
            let mut sandbox = Sandbox::default();
            let reads: Vec<String> = reads.iter().map(|path| (*path).to_owned()).collect();
            places.hide(&mut sandbox, &reads);
            let names = |paths: &[PathBuf]| -> Vec<String> {
                let beneath = |path: &PathBuf| path.strip_prefix(&home).unwrap().to_owned();
                paths.iter().map(|path| beneath(path).display().to_string()).collect()
            };
            (names(&sandbox.hide), names(&sandbox.show))
        };
        let login = ".claude/.credentials.json";
        let [own_login, keys] = own;
        let all = [
            ".aws",
            login,
            ".config/gh",
            ".config/runner",
            ".mozilla",
            "dots/ssh",
            own_login,
            keys,
        ];
        assert_eq!(seen(&[]), (all.map(String::from).to_vec(), vec![]));
        let (hidden, shown) = seen(&["~/.aws/config", "~/.ssh", "~/code", "~/.none"]);
        let hidden_now =
            [".aws", login, ".config/gh", ".config/runner", ".mozilla", own_login, keys];
        assert_eq!(hidden, hidden_now);
        assert_eq!(shown, [".aws/config"]);
        let whole = home.join(".config").display().to_string();
        assert_eq!(seen(&[&whole]).0, [".aws", login, ".mozilla", "dots/ssh", own_login, keys]);
    }
}
