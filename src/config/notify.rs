//! Settings for alerts: `[notify]` and `[channels.NAME]`.
//!
//! A project's settings override the user's settings key by key. Only the user's file can set the
//! heartbeat, because a tick serves all projects. A setting must never contain a key; it only names
//! the key's location, and the process that delivers messages reads the key.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::SignedDuration;
use runner_engine::alerts::{AlertKind, AlertRules};
use runner_engine::policy::Quiet;
use serde::Serialize as _;

use super::addresses::{Address, Heartbeat, Secret};
use super::job::Job;
use super::reader::Reader;
use super::settings::{ChannelTable, ChannelType, NotifyTable};
use super::values::Switch;

/// The settings of `[notify]` and `[channels]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notify {
    /// The kinds of alerts to send.
    pub on: BTreeSet<AlertKind>,
    /// Whether to send a message on recovery.
    pub recovery: bool,
    /// Minimum time between two messages about the same open alert.
    pub repeat: SignedDuration,
    /// Minimum time between two messages to one channel.
    pub window: SignedDuration,
    /// Hours of the day during which no messages are sent.
    pub quiet: Option<Quiet>,
    /// How long a scheduled job may go without a success before it is stale; `None` for never.
    pub success_within: Option<SignedDuration>,
    pub subject: Option<String>,
    pub body: Option<String>,
    /// The recipient of the heartbeat after each successful tick.
    pub heartbeat: Option<Heartbeat>,
    /// The channels by name.
    pub channels: BTreeMap<String, Channel>,
}

/// One way to deliver alerts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Channel {
    /// A desktop notification for the user who runs the program.
    Desktop,
    /// A POST request with a JSON body.
    Webhook {
        url: Address,
        /// The key that signs the request; `None` if requests are not signed.
        secret: Option<Secret>,
    },
    /// A program that reads the message as JSON.
    Command(Program),
    /// An email, sent through a sendmail-compatible program.
    Email {
        recipient: String,
        /// The address of the sender, if it is set.
        sender: Option<String>,
        /// The program that sends the email.
        program: Program,
    },
}

/// A program that delivers messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// A name to look for in `PATH`, or a path.
    pub program: String,
    pub args: Vec<String>,
    /// Names of environment variables to pass to the program in addition to the default ones.
    pub env: Vec<String>,
    /// Whether the program runs without a sandbox.
    pub off: bool,
}

impl Notify {
    /// Returns the settings that determine alerts, in the form that the database stores.
    /// `zone` is the zone of the quiet hours.
    pub fn rules(&self, jobs: &BTreeMap<String, Job>, zone: &str) -> AlertRules {
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
            window: seconds(self.window),
            quiet: self.quiet,
            zone: zone.to_owned(),
        }
    }
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
        window: table.window.0,
        quiet: table.quiet.and_then(|it| it.0),
        success_within: table.success_within.0,
        subject: table.subject,
        body: table.body,
        heartbeat: table.heartbeat.map(|it| it.0),
        channels,
    })
}

/// The keys supported by only some channel types.
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
            let why = format!("only a channel of type {} has this setting", types.join(" or "));
            reader.wrong(&format!("{path}.{key}"), why);
        }
    }
    let mut needs = |key: &str| {
        // If the setting is invalid, that error has already been reported.
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
                let why = "`secret` and `secret_file` cannot both be set";
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
