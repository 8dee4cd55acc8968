//! Whom to tell of what: `[notify]` and `[channels.NAME]`.
//!
//! A project's own words override the user's key by key, as everywhere; only the heartbeat is the
//! user's alone, for a tick is of all projects. Must never hold a secret: those are named, and looked
//! up by the process that delivers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

use jiff::SignedDuration;
use runner_backends::credentials::in_keyring;
use runner_engine::alerts::{AlertKind, AlertRules};
use runner_text::nearest::nearest;
use toml::{Table, Value};

use super::job::Job;
use super::section::Section;
use super::sources::{ConfigMistake, Sources, wrong};
use super::{good_name, units};

/// The types of channels.
pub(super) const CHANNELS: [&str; 4] = ["desktop", "webhook", "command", "email"];

/// The settings of `[notify]` and `[channels]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notify {
    /// The kinds of alerts that people are notified of.
    pub on: BTreeSet<AlertKind>,
    /// Whether people are notified of a recovery.
    pub recovery: bool,
    /// How long at least between two messages of the same open alert.
    pub repeat: SignedDuration,
    /// After how long without a success a job with a clock is stale.
    pub success_within: Option<SignedDuration>,
    /// The template of a subject.
    pub subject: Option<String>,
    /// The template of a text.
    pub body: Option<String>,
    /// The receiver of a signal after each good tick.
    pub heartbeat: Option<Heartbeat>,
    /// Whom to tell.
    pub channels: BTreeMap<String, Channel>,
}

/// The receiver of the signal after a good tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heartbeat {
    /// A server.
    Address(Address),
    /// A file, whose path begins with `/` or `~/`.
    File(PathBuf),
}

/// Where something is sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// This.
    Given(String),
    /// The name of a variable that holds the address, because an address may itself be a secret.
    Variable(String),
}

/// The key of a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// The value of a variable.
    Variable(String),
    /// The secret of this name in the desktop's keyring.
    Keyring(String),
    /// The path of a file that holds the secret and that only its owner may read.
    File(PathBuf),
}

/// One way to tell people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Channel {
    /// A notification on the desktop of who runs this.
    Desktop,
    /// A POST of JSON.
    Webhook {
        /// Where to.
        url: Address,
        /// The key that signs it; absent if it is not signed.
        secret: Option<Secret>,
    },
    /// A program that reads the message as JSON.
    Command(Program),
    /// A mail, through a program that is used like sendmail.
    Email {
        /// To whom.
        recipient: String,
        /// From whom, if that is said.
        sender: Option<String>,
        /// The program that takes the mail.
        program: Program,
    },
}

/// A program of the user's choosing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// A name to look for in `PATH`, or a path.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Names of variables that it may see besides the ordinary ones.
    pub env: Vec<String>,
    /// Without a sandbox.
    pub off: bool,
}

impl Notify {
    /// Returns the settings that decide on alerts, in the form that the database keeps.
    pub fn rules(&self, jobs: &BTreeMap<String, Job>) -> AlertRules {
        let seconds = |duration: SignedDuration| duration.as_secs();
        AlertRules {
            on: self.on.clone(),
            recovery: self.recovery,
            repeat: seconds(self.repeat),
            success_within: self.success_within.map(seconds),
            jobs: jobs
                .iter()
                .filter_map(|(name, job)| Some((name.clone(), job.success_within?.map(seconds))))
                .collect(),
            channels: self.channels.keys().cloned().collect(),
        }
    }
}

/// Parses an age such as "7d", or "none".
pub(super) fn age_limit(text: &str) -> Result<Option<SignedDuration>, String> {
    match text {
        "none" => Ok(None),
        text => units::age(text, 1).map(Some),
    }
}

/// Reads both tables; of `[notify]` the embedded default states every key that must be there.
pub(super) fn read(
    mut notify: Table,
    channels: Table,
    sources: &Sources,
) -> Result<Notify, ConfigMistake> {
    let mut section = Section::of("notify", &mut notify, sources);
    let words = section.texts("on")?.unwrap_or_default();
    let mut on = BTreeSet::new();
    for word in &words {
        let kind = AlertKind::read(word).ok_or_else(|| {
            let all = AlertKind::ALL.map(AlertKind::as_str);
            let near = nearest(word, all)
                .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
            let why = format!("there is no {word:?} to be told of ({}){near}", all.join(", "));
            section.wrong("notify.on", &why)
        })?;
        on.insert(kind);
    }
    let read = Notify {
        on,
        recovery: section.flag("recovery")?.unwrap_or(true),
        repeat: section
            .parsed("repeat", units::duration)?
            .unwrap_or(SignedDuration::from_hours(24)),
        success_within: section.parsed("success_within", age_limit)?.flatten(),
        subject: section.text("subject")?,
        body: section.text("body")?,
        heartbeat: section.parsed("heartbeat", heartbeat)?,
        channels: channels_of(channels, sources)?,
    };
    section.finish()?;
    Ok(read)
}

fn channels_of(
    table: Table,
    sources: &Sources,
) -> Result<BTreeMap<String, Channel>, ConfigMistake> {
    let mut channels = BTreeMap::new();
    for (name, value) in table {
        let path = format!("channels.{name}");
        let Value::Table(mut table) = value else {
            return Err(wrong(sources, &path, "it must be a table"));
        };
        if !good_name(&name) {
            let why = "a channel's name has letters, digits, - and _";
            return Err(wrong(sources, &path, why));
        }
        let mut section = Section::of(&path, &mut table, sources);
        let channel = channel(&path, &mut section)?;
        section.finish()?;
        channels.insert(name, channel);
    }
    Ok(channels)
}

/// Which types have which keys.
const OWN: [(&str, &[&str]); 8] = [
    ("url", &["webhook"]),
    ("secret", &["webhook"]),
    ("secret_file", &["webhook"]),
    ("recipient", &["email"]),
    ("sender", &["email"]),
    ("program", &["command", "email"]),
    ("args", &["command", "email"]),
    ("env", &["command", "email"]),
];

fn channel(path: &str, section: &mut Section<'_>) -> Result<Channel, ConfigMistake> {
    let of = |types: &str| format!("a channel has a type ({types})");
    let kind =
        section.text("type")?.ok_or_else(|| section.wrong(path, &of(&CHANNELS.join(", "))))?;
    if !CHANNELS.contains(&kind.as_str()) {
        let near = nearest(&kind, CHANNELS)
            .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
        let why = format!("there is no type {kind:?} ({}){near}", CHANNELS.join(", "));
        return Err(section.wrong(&format!("{path}.type"), &why));
    }
    let url = section.parsed("url", url)?;
    let variable_secret = section.parsed("secret", secret)?;
    let file_secret = section.parsed("secret_file", own_path)?;
    let recipient = section.parsed("recipient", address)?;
    let sender = section.parsed("sender", address)?;
    let program = section.text("program")?;
    let args = section.texts("args")?;
    let env = section.texts("env")?;
    let off = section.parsed("sandbox", |text| match text {
        "on" => Ok(false),
        "off" => Ok(true),
        _ => Err(format!("it must be \"on\" or \"off\", it is {text:?}")),
    })?;
    let there = [
        url.is_some(),
        variable_secret.is_some(),
        file_secret.is_some(),
        recipient.is_some(),
        sender.is_some(),
        program.is_some(),
        args.is_some(),
        env.is_some(),
    ];
    for ((key, types), there) in OWN.iter().zip(there) {
        if there && !types.contains(&kind.as_str()) {
            let why = format!("only a channel of type {} has it", types.join(" or "));
            return Err(section.wrong(&section.full(key), &why));
        }
    }
    let needs =
        |key: &str| section.wrong(path, &format!("a channel of type {kind:?} needs `{key}`"));
    let program_or = |usual: Option<(&str, &[&str])>| {
        let (usual, words) = usual.unzip();
        let program = program.clone().or(usual.map(str::to_owned));
        let program = program.filter(|program| !program.is_empty());
        Ok(Program {
            program: program.ok_or_else(|| needs("program"))?,
            args: args.clone().unwrap_or_else(|| {
                let words = words.unwrap_or_default();
                words.iter().map(|word| (*word).to_owned()).collect()
            }),
            env: env.clone().unwrap_or_default(),
            off: off.unwrap_or(false),
        })
    };
    Ok(match kind.as_str() {
        "desktop" => Channel::Desktop,
        "webhook" => {
            if variable_secret.is_some() && file_secret.is_some() {
                let why = "it is `secret` or `secret_file`, not both";
                return Err(section.wrong(&section.full("secret_file"), why));
            }
            Channel::Webhook {
                url: url.ok_or_else(|| needs("url"))?,
                secret: variable_secret.or(file_secret.map(Secret::File)),
            }
        }
        "command" => Channel::Command(program_or(None)?),
        _ => Channel::Email {
            recipient: recipient.clone().ok_or_else(|| needs("recipient"))?,
            sender,
            program: program_or(Some(("sendmail", &["-i", "-t"])))?,
        },
    })
}

fn heartbeat(text: &str) -> Result<Heartbeat, String> {
    if text.starts_with('/') || text.starts_with("~/") {
        return Ok(Heartbeat::File(text.into()));
    }
    url(text)
        .map(Heartbeat::Address)
        .map_err(|why| format!("{why}; or a file, that begins with / or ~/"))
}

/// Parses an address that messages may be sent to, or the name of a variable that holds one.
pub fn url(text: &str) -> Result<Address, String> {
    match text.strip_prefix("env:") {
        Some(name) => variable(name).map(Address::Variable),
        None => checked_url(text).map(|_| Address::Given(text.to_owned())),
    }
}

/// Parses an address, which must be https, or http on this machine.
pub fn checked_url(text: &str) -> Result<reqwest::Url, String> {
    let wrong = "it must be an https:// address, an http:// one of this machine, or env:NAME";
    let url: reqwest::Url = text.parse().map_err(|_| wrong.to_owned())?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "an address with a password in it is read by every log; use env:NAME".to_owned()
        );
    }
    match url.scheme() {
        "https" if url.has_host() => Ok(url),
        "http" if is_loopback(&url) => Ok(url),
        _ => Err(wrong.to_owned()),
    }
}

/// Reports whether an address leads to this machine.
pub fn is_loopback(url: &reqwest::Url) -> bool {
    let Some(host) = url.host_str() else {
        return false;
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Parses the location of a key: a variable's name, or a reference to the desktop's keyring.
fn secret(text: &str) -> Result<Secret, String> {
    match in_keyring(text) {
        Some(Ok(name)) => Ok(Secret::Keyring(name.to_owned())),
        Some(Err(why)) => Err(why.to_owned()),
        None => variable(text).map(Secret::Variable),
    }
}

fn variable(text: &str) -> Result<String, String> {
    let mut chars = text.chars();
    let good = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_');
    match good {
        true => Ok(text.to_owned()),
        // It may be the secret itself.
        false => {
            Err("it must be the name of a variable that holds it, like RUNNER_HOOK_KEY".to_owned())
        }
    }
}

/// Checks that the text is one plain mail address without hidden content.
fn address(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_graphic() && !"<>()[],;:\\\"".contains(c);
    let good = text
        .split_once('@')
        .is_some_and(|(name, host)| !name.is_empty() && !host.is_empty() && !host.contains('@'));
    match good && text.chars().all(plain) && !text.starts_with('-') && text.len() <= 254 {
        true => Ok(text.to_owned()),
        false => Err(format!("{text:?} is no plain mail address (like me@example.org)")),
    }
}

fn own_path(text: &str) -> Result<PathBuf, String> {
    if text.starts_with('/') || text.starts_with("~/") {
        return Ok(text.into());
    }
    Err(format!("it must begin with / or ~/, it is {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_may_be_sent_to() {
        for good in [
            "https://example.org/hook?x=1",
            "http://127.0.0.1:8080/",
            "http://[::1]:80/",
            "http://localhost/x",
            "env:HOOK",
        ] {
            assert!(url(good).is_ok(), "{good}");
        }
        for bad in [
            "http://example.org/",
            "http://127.0.0.1.example.org/",
            "ftp://example.org/",
            "https://me:pw@example.org/",
            "file:///etc/passwd",
            "env:a b",
            "https://",
            "",
        ] {
            assert!(url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nothing_hides_in_a_mail_address() {
        assert!(address("me+x@example.org").is_ok());
        for bad in [
            "me",
            "@x",
            "me@",
            "-f@x",
            "a@b@c",
            "a b@c",
            "a@b\nBcc: c@d",
            "a@b, c@d",
            "<a@b>",
            "ä@b",
        ] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
