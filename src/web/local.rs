//! Sends requests to a server in this process, for tests: the same routes and checks, without a
//! socket.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::access::Peer;
use super::router;
use super::server::{Commands, Server};
use super::state::Web;
use crate::env::Env;

/// A server without sockets.
pub struct LocalServer {
    router: Router,
    runtime: Runtime,
}

impl LocalServer {
    pub fn new(home: &Env, (caller, answers): Commands) -> Self {
        let (_sender, changes) = watch::channel(0);
        let web = Web::new((home.clone(), caller), Vec::new(), changes, 1).unwrap();
        Self {
            router: router::router(&Arc::new(web), answers),
            runtime: Server::runtime().unwrap(),
        }
    }

    /// Returns the status and body of the response to a client on the Unix socket.
    pub fn get(&self, path: &str) -> (u16, String) {
        let request = Request::get(path).extension(Peer::Unix).body(Body::empty()).unwrap();
        let service = TowerToHyperService::new(self.router.clone());
        self.runtime.block_on(async {
            let response = service.call(request).await.unwrap();
            let status = response.status().as_u16();
            let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
            (status, String::from_utf8(body.to_vec()).unwrap())
        })
    }
}
