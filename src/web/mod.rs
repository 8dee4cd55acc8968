//! `runner serve`: pages, an API and an event stream for the operator.
//!
//! ```text
//! socket ──connection limits──> access ──role──> view    ──command──> JSON ──template──> page
//!                                  │             action  ──audit, command──> JSON or a page
//!                                  └ refused     stream  ──changes, bytes of logs──> events
//! ```
//!
//! Every view and every action is a `runner` command: it runs inside this process, and its JSON
//! serves as the API's response and as input for the page's template. This module must never query
//! the database for the content of a page. A GET request must never change anything.

mod access;
mod actions;
mod address;
mod api;
mod artifacts;
mod codes;
mod connections;
mod events;
#[cfg(test)]
mod local;
mod login;
mod logs;
mod openapi;
mod pages;
mod render;
mod router;
mod secrets;
mod server;
mod settings;
mod state;
mod views;
mod webhook;

pub use address::ServeSettings;
#[cfg(test)]
pub use local::LocalServer;
pub use server::{Bound, Commands, Server, open_page};
pub use settings::settings;

/// Returns the name and command of every view and action, with text that looks like a flag in each
/// path parameter and text field.
#[cfg(test)]
pub fn sample_commands() -> Vec<(&'static str, Vec<String>)> {
    let names = ["project", "job", "run", "night", "proposal", "alert"];
    let path = names.map(|name| (name.to_owned(), "--all".to_owned())).to_vec();
    let parts = views::Parts { path, query: Vec::new() };
    let seen = views::VIEWS.iter().map(|view| {
        let query = view.query.iter().filter(|flag| flag.kind != views::QueryKind::Text);
        let query = query.map(|flag| (flag.name.to_owned(), "1".to_owned())).collect();
        (view.name, view.command(&views::Parts { query, ..parts.clone() }).unwrap())
    });
    let done = actions::ACTIONS.iter().map(|action| {
        let fields: Vec<_> =
            action.fields.iter().map(|it| (it.name.to_owned(), "-x".to_owned())).collect();
        (action.name, action.command(&parts, &fields).unwrap())
    });
    seen.chain(done).collect()
}
