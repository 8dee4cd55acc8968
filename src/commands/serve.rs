//! `runner serve`: serves pages and an API for this user until a signal stops it.

use runner_engine::outcome::Exit;
use signal_hook::consts::{SIGINT, SIGTERM};
use tokio::signal::unix::{SignalKind, signal};

use super::{Cli, report};
use crate::config::Listen;
use crate::ui::{Failure, show};
use crate::web::{Bound, Server, open_page, settings};

/// Serve pages and an API: what ran, what is due, what needs a decision
///
/// Without --open and without an address for the pages, only the API is served, on a Unix socket
/// that only you can use. The pages require a login. The login code is in a file that only you can
/// read.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner serve --open")]
pub struct ServeArgs {
    /// Open the pages in a browser, with a login [default address: 127.0.0.1:7077]
    #[arg(long)]
    open: bool,
    /// Serve the pages at this IP address and port [default: `listen` in the table `[serve]` of the user's
    /// configuration file]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<Listen>,
    /// Also accept this host name, such as runner.example:7077 (may be repeated)
    #[arg(long = "allow-host", value_name = "NAME")]
    allow_host: Vec<String>,
}

impl ServeArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let mut settings = settings(&cli.env.user_config)?.addresses;
        settings.listen = self.listen.or(settings.listen);
        if self.open && settings.listen.is_none() {
            settings.listen = Some(Listen::default());
        }
        settings.allowed_hosts.extend(self.allow_host.iter().cloned());
        let server = match Server::bind(cli.env, settings)? {
            Bound::Server(server) => *server,
            Bound::Elsewhere { pid, address } => return self.open_elsewhere(cli, pid, address),
        };
        let (address, socket) = (server.address(), server.socket());
        let ready = server.prepare(super::COMMANDS)?;
        let runtime = Server::runtime()?;
        let ended = runtime.block_on(async {
            let cannot = |error| Failure::internal(format!("cannot wait for signals: {error}"));
            let mut term = signal(SignalKind::from_raw(SIGTERM)).map_err(cannot)?;
            let mut int = signal(SignalKind::from_raw(SIGINT)).map_err(cannot)?;
            cli.ui.info(&format!("the API is served at {}", socket.display()));
            if let Some(address) = address {
                cli.ui.info(&format!("the pages are served at http://{address}/"));
                if self.open {
                    // The server continues if no browser can be started.
                    let opened = open_page(cli.env, address)
                        .and_then(|page| report::open(&page, cli.ui));
                    if let Err(failure) = opened {
                        show::complain(&failure.message());
                    }
                } else {
                    cli.ui.info("to log in: runner serve --open, or type the code in the file that the page names");
                }
            }
            tokio::select! {
                ended = ready.answer() => ended,
                _ = term.recv() => Ok(()),
                _ = int.recv() => Ok(()),
            }
        });
        runtime.shutdown_background();
        ended.map(|()| Exit::Done)
    }

    /// Opens the pages of the process that is already serving. Returns an error without `--open`,
    /// or if that process serves no pages.
    fn open_elsewhere(
        &self,
        cli: &Cli<'_>,
        pid: u32,
        address: Option<std::net::SocketAddr>,
    ) -> Result<Exit, Failure> {
        match address {
            Some(address) if self.open => {
                show::notice(&format!("process {pid} serves the pages at http://{address}/"));
                report::open(&open_page(cli.env, address)?, cli.ui)
            }
            Some(address) => Err(Failure::later(format!("process {pid} already serves http://{address}/"))
                .hint("runner serve --open")),
            None => Err(Failure::later(format!("process {pid} already serves, without an address for pages"))
                .hint("runner config set --user serve.listen 127.0.0.1:7077   (then restart that process)")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::args;
    use crate::web::sample_commands;

    #[test]
    fn every_view_and_action_is_a_command() {
        let all = sample_commands();
        assert!(all.len() > 25, "{}", all.len());
        for (name, words) in all {
            let line = std::iter::once("runner".into()).chain(words.iter().map(Into::into));
            if let Err(error) = args::read(line) {
                panic!("{name} {words:?}: {error}");
            }
        }
    }
}
