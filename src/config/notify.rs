//! Whom to tell of what: `[notify]` and `[channels.NAME]`.
//!
//! A project's own words override the user's key by key, as everywhere; only the heartbeat is the
//! user's alone, for a tick is of all projects. Must never hold a secret: those are named, and looked
//! up by the process that delivers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use jiff::SignedDuration;
use runner_backends::credentials::in_keyring;
use runner_engine::alerts::{AlertKind, AlertRules};
use runner_text::grammar;
use serde::Serialize as _;

use super::job::Job;
use super::reader::Reader;
use super::settings::{ChannelTable, ChannelType, NotifyTable};
use super::values::Switch;

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

grammar! {
    /// An address that messages are sent to, or `env:NAME`.
    Url: Address, "https://example.org/x", "", url;
    /// The receiver of the signal after a good tick.
    Recipient: Heartbeat, "https://example.org/x", "", heartbeat;
    /// The name of a variable or of a keyring's entry that holds a key.
    SecretName: Secret, "RUNNER_HOOK_KEY", "", secret;
    /// A mail address.
    MailAddress: String, "me@example.org", "", address;
}

/// Reads `[notify]` and `[channels]`.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Notify> {
    let table = reader.read::<NotifyTable>(&["notify"])?;
    let mut channels = BTreeMap::new();
    for name in reader.entries("channels") {
        channels.extend(channel(&name, reader).map(|channel| (name, channel)));
    }
    Some(Notify {
        on: table.on.into_iter().collect(),
        recovery: table.recovery,
        repeat: table.repeat.0,
        success_within: table.success_within.0,
        subject: table.subject,
        body: table.body,
        heartbeat: table.heartbeat.map(|it| it.0),
        channels,
    })
}

/// The keys that only some types have.
const OWN: [(&str, &[ChannelType]); 8] = [
    ("url", &[ChannelType::Webhook]),
    ("secret", &[ChannelType::Webhook]),
    ("secret_file", &[ChannelType::Webhook]),
    ("recipient", &[ChannelType::Email]),
    ("sender", &[ChannelType::Email]),
    ("program", &[ChannelType::Command, ChannelType::Email]),
    ("args", &[ChannelType::Command, ChannelType::Email]),
    ("env", &[ChannelType::Command, ChannelType::Email]),
];

fn channel(name: &str, reader: &mut Reader<'_>) -> Option<Channel> {
    let path = format!("channels.{name}");
    let written = reader.table(&["channels", name])?.clone();
    let table = reader.read::<ChannelTable>(&["channels", name])?;
    let kind = table.kind;
    for (key, types) in OWN {
        if written.contains_key(key) && !types.contains(&kind) {
            let types: Vec<String> = types.iter().map(ToString::to_string).collect();
            let why = format!("only a channel of type {} has it", types.join(" or "));
            reader.wrong(&format!("{path}.{key}"), why);
        }
    }
    let mut needs = |key: &str| {
        // A mistake in the setting is reported already.
        if reader.is_good(&format!("{path}.{key}")) {
            reader.wrong(&path, format!("a channel of type \"{kind}\" needs `{key}`"));
        }
    };
    let usual = (kind == ChannelType::Email).then(|| "sendmail".to_owned());
    let program = table.program.or(usual).filter(|program| !program.is_empty());
    let words: &[&str] = if kind == ChannelType::Email { &["-i", "-t"] } else { &[] };
    let usual = || words.iter().map(|word| (*word).to_owned()).collect();
    let program = program.map(|program| Program {
        program,
        args: table.args.unwrap_or_else(usual),
        env: table.env,
        off: table.sandbox == Some(Switch::Off),
    });
    match kind {
        ChannelType::Desktop => Some(Channel::Desktop),
        ChannelType::Webhook => {
            if written.contains_key("secret") && written.contains_key("secret_file") {
                let why = "it is `secret` or `secret_file`, not both";
                reader.wrong(&format!("{path}.secret_file"), why);
                return None;
            }
            let file = table.secret_file.map(|file| Secret::File(file.0));
            let secret = table.secret.map(|secret| secret.0).or(file);
            match table.url {
                Some(url) => Some(Channel::Webhook { url: url.0, secret }),
                None => {
                    needs("url");
                    None
                }
            }
        }
        ChannelType::Command => {
            if program.is_none() {
                needs("program");
            }
            program.map(Channel::Command)
        }
        ChannelType::Email => {
            if table.recipient.is_none() {
                needs("recipient");
            }
            let sender = table.sender.map(|sender| sender.0);
            Some(Channel::Email { recipient: table.recipient?.0, sender, program: program? })
        }
    }
}

impl fmt::Display for ChannelType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
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
