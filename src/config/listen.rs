//! The address at which `runner serve` serves its pages.

use std::net::SocketAddr;
use std::str::FromStr;

/// The default port.
const PORT: u16 = 7077;

/// An IP address with a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen(pub SocketAddr);

impl Default for Listen {
    fn default() -> Self {
        Self(SocketAddr::from(([127, 0, 0, 1], PORT)))
    }
}

impl FromStr for Listen {
    type Err = String;

    /// Parses `127.0.0.1:7077` or `[::1]:7077`. Names are refused, because somebody else may
    /// control how a name resolves.
    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| {
            format!("{text:?} is not an IP address with a port, such as 127.0.0.1:{PORT}")
        })
    }
}
