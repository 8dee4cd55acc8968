//! Accepts connections, with limits on their number, their headers and slow clients.
//!
//! A client that exceeds a limit loses only its own connection. This module must never inspect the
//! content of a request.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Extension;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::process::geteuid;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::access::Peer;

/// Maximum number of simultaneous connections to each listener. Any others are closed immediately.
const CONNECTIONS: usize = 256;
/// Maximum time for a client to send the headers of its next request.
const HEADERS: Duration = Duration::from_secs(15);
/// Maximum lifetime of a connection. The client then reconnects and continues its event stream.
const CONNECTION: Duration = Duration::from_secs(600);
/// Maximum size of a request's headers in bytes.
const HEADER_BYTES: usize = 16 * 1024;
/// Maximum number of headers in a request.
const HEADER_COUNT: usize = 64;

/// Accepts connections on TCP.
pub async fn tcp(listener: TcpListener, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let _only_slower = stream.set_nodelay(true);
                serve(stream, Peer::Tcp(from), &router, &places);
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// Accepts connections on a Unix socket, from the same user only.
pub async fn unix(listener: UnixListener, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let ours = stream.peer_cred().map(|peer| peer.uid());
                if ours.is_ok_and(|uid| uid == geteuid().as_raw()) {
                    serve(stream, Peer::Unix, &router, &places);
                }
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// Logs a failure to accept a connection, and waits, because the process may be out of file
/// descriptors.
async fn pause(error: &io::Error) {
    tracing::warn!(%error, "a client of the server could not be accepted");
    tokio::time::sleep(Duration::from_millis(200)).await;
}

fn serve<S>(stream: S, peer: Peer, router: &Router, places: &Arc<Semaphore>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Ok(place) = Arc::clone(places).try_acquire_owned() else { return };
    let service = TowerToHyperService::new(router.clone().layer(Extension(peer)));
    tokio::spawn(async move {
        let _place = place;
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS)
            .max_buf_size(HEADER_BYTES)
            .max_headers(HEADER_COUNT)
            .serve_connection(TokioIo::new(stream), service);
        // A client may disconnect at any time.
        let _gone = timeout(CONNECTION, connection).await;
    });
}
