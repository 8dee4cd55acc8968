//! `runner alerts test`: sends a test message through one channel or all channels.

use runner_engine::outcome::Exit;
use serde::Serialize;

use crate::alerts::deliver;
use crate::alerts::message::{Message, Templates};
use crate::commands::Cli;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, show};

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct ChannelTests(Vec<ChannelTest>);

#[derive(Debug, Serialize)]
struct ChannelTest {
    channel: String,
    delivered: bool,
    /// The reason why the channel did not accept the message; empty if it did.
    said: String,
}

impl View for ChannelTest {
    fn print(&self, ui: Ui) {
        let Self { channel, delivered, said } = self;
        match delivered {
            true => ui.info(&format!("{channel}: delivered")),
            false => show::complain(&format!("{channel}: {said}")),
        }
    }
}

impl View for ChannelTests {
    // Each result was printed as soon as it was known.
    fn print(&self, _ui: Ui) {}
}

/// Sends a test alert through the channel `only`, or through every configured channel.
pub fn test(cli: &Cli<'_>, only: Option<&str>) -> Result<Exit, Failure> {
    let here = LoadedProject::load(cli.env, cli.here)?.trusted_outside_jobs()?;
    cli.env.make_state()?;
    let notify = &here.config.notify;
    let names = || notify.channels.keys().map(String::as_str);
    if let Some(only) = only
        && !notify.channels.contains_key(only)
    {
        let near = runner_text::nearest::nearest(only, names())
            .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
        return Err(Failure::configuration(format!("there is no [channels.{only}]{near}"))
            .hint("runner config show"));
    }
    if notify.channels.is_empty() {
        return Err(Failure::configuration("no channel is configured, so no alert can be sent")
            .hint("runner config set --user channels.screen.type desktop"));
    }
    let templates = Templates { subject: notify.subject.as_deref(), body: notify.body.as_deref() };
    let message = Message::test(&here.root, cli.env.wall()?, &templates);
    let tested = notify.channels.iter().filter(|(name, _)| only.is_none_or(|only| only == *name));
    let tests: Vec<ChannelTest> = tested
        .map(|(name, channel)| {
            let sent = deliver::send(cli.env, channel, &message);
            let test = ChannelTest {
                channel: name.clone(),
                delivered: sent.is_ok(),
                said: sent.err().unwrap_or_default(),
            };
            cli.ui.show_part(&test);
            test
        })
        .collect();
    let all = tests.iter().all(|one| one.delivered);
    cli.ui.show(&ChannelTests(tests));
    Ok(if all { Exit::Done } else { Exit::Unavailable })
}
