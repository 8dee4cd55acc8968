//! The addresses at which the server listens, and the host names that requests may use for it.
//!
//! A name outside the list is refused, which prevents DNS rebinding.

use std::net::{IpAddr, SocketAddr};

use crate::config::Listen;
use crate::ui::Failure;

/// The addresses and the names of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServeSettings {
    /// The address for the pages; without one, only the Unix socket is served.
    pub listen: Option<Listen>,
    /// Additional host names, with or without a port, that requests may use for the server.
    pub allowed_hosts: Vec<String>,
}

impl ServeSettings {
    /// Checks that host names are allowed if other machines can reach the address.
    ///
    /// # Errors
    /// Returns a usage error that names the setting.
    pub fn check(&self) -> Result<(), Failure> {
        match self.listen {
            Some(Listen(at)) if !at.ip().is_loopback() && self.allowed_hosts.is_empty() => {
                Err(Failure::usage(format!(
                    "{at} is reachable from other machines, but no host name is allowed for their requests"
                ))
                .hint(format!("runner serve --listen {at} --allow-host NAME:{}", at.port())))
            }
            _ => Ok(()),
        }
    }

    /// Returns the values of the `Host` header that a server at `at` accepts, in lower case.
    pub fn hosts(&self, at: SocketAddr) -> Vec<String> {
        let port = at.port();
        let mut hosts = vec![format!("localhost:{port}")];
        match at.ip() {
            IpAddr::V4(ip) => hosts.push(format!("{ip}:{port}")),
            IpAddr::V6(ip) => hosts.push(format!("[{ip}]:{port}")),
        }
        // Browsers omit the default port.
        if port == 80 {
            let names = hosts.iter().filter_map(|host| host.strip_suffix(":80")).map(str::to_owned);
            hosts.extend(names.collect::<Vec<_>>());
        }
        hosts.extend(self.allowed_hosts.iter().map(|name| name.to_ascii_lowercase()));
        hosts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_names_are_accepted() {
        let settings = ServeSettings {
            listen: Some("127.0.0.1:80".parse().unwrap()),
            allowed_hosts: vec!["Runner.example:8443".to_owned()],
        };
        let hosts = settings.hosts(settings.listen.unwrap().0);
        assert_eq!(
            hosts,
            ["localhost:80", "127.0.0.1:80", "localhost", "127.0.0.1", "runner.example:8443"]
        );
        for wrong in ["localhost:80", "80", "127.0.0.1", "", "::1:80"] {
            assert!(wrong.parse::<Listen>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn reachable_addresses_need_names() {
        let at = |text: &str| ServeSettings {
            listen: Some(text.parse().unwrap()),
            ..ServeSettings::default()
        };
        assert!(at("127.0.0.1:1").check().is_ok() && at("[::1]:1").check().is_ok());
        let failure = at("0.0.0.0:1").check().unwrap_err().to_string();
        assert!(failure.contains("--allow-host"), "{failure}");
    }
}
