//! The routes of the server, and the checks that every request must pass.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Extension, Query, RawPathParams, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{MethodRouter, get, post};
use tokio::time::timeout;

use super::access::{Client, LOGIN, Peer, Refusal, RequestHead, is_public};
use super::actions::{self, ACTIONS, ActionRequest, Output};
use super::api::SentRequest;
use super::openapi::{self, AnswerSchemas, BASE};
use super::secrets::Role;
use super::state::{Purpose, Web};
use super::views::{Parts, VIEWS, View};
use super::{api, artifacts, events, login, logs, pages, webhook};

/// Maximum size of a request body in bytes.
const BODY: usize = 64 * 1024;
/// Maximum time for a request body to arrive.
const PATIENCE: Duration = Duration::from_secs(10);
/// The content security policy for every page without its own policy. It allows nothing from
/// elsewhere, and no inline scripts or styles.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// The files that pages load.
const FILES: &[(&str, &str, &str)] = &[
    ("/style.css", "text/css; charset=utf-8", include_str!("style.css")),
    ("/htmx.js", "text/javascript; charset=utf-8", include_str!("vendor/htmx.min.js")),
    ("/hx-sse.js", "text/javascript; charset=utf-8", include_str!("vendor/hx-sse.min.js")),
];

/// The path from which Prometheus reads the metrics.
const METRICS: &str = "/metrics";

type QueryPairs = Query<Vec<(String, String)>>;

/// Returns the server's routes. `answers` returns the response schemas.
pub fn router(web: &Arc<Web>, answers: AnswerSchemas) -> Router {
    let mut routes: Router<Arc<Web>> = Router::new()
        .route("/", page(&VIEWS[0]))
        .route(LOGIN, get(login::form).post(login::exchange))
        .route("/logout", post(login::end))
        .route("/rem/{project}", one_file(&["journal", "--html"], Some("60")))
        .route(
            "/projects/{project}/nights/{night}/page",
            one_file(&["report", "--html", "--night={night}"], None),
        )
        .route("/runs/{run}/artifacts/{number}", get(artifacts::show))
        .route("/runs/{run}/live", get(logs::live))
        .route(&format!("{BASE}/runs/{{run}}/log"), get(logs::part))
        .route(&format!("{BASE}/events"), get(events::changes))
        .route(METRICS, get(metrics))
        .route(
            &format!("{BASE}/openapi.json"),
            get(async move || axum::Json(openapi::document(answers))),
        );
    for view in VIEWS {
        let answer =
            async move |State(web): State<Arc<Web>>, path: RawPathParams, query: QueryPairs| {
                api::show(view, web, parts(&path, query)).await
            };
        routes =
            routes.route(view.path, page(view)).route(&format!("{BASE}{}", view.path), get(answer));
    }
    for action in ACTIONS {
        let submit =
            async move |State(web): State<Arc<Web>>,
                        Extension(client): Extension<Client>,
                        path: RawPathParams,
                        axum::Form(fields): axum::Form<Vec<(String, String)>>| {
                let parts = parts(&path, Query(Vec::new()));
                let request = ActionRequest { parts, fields, output: Output::Text };
                actions::from_form(action, web, client, request).await
            };
        let answer = async move |State(web): State<Arc<Web>>,
                                 Extension(client): Extension<Client>,
                                 path: RawPathParams,
                                 headers: HeaderMap,
                                 body: axum::body::Bytes| {
            let sent = SentRequest { headers, body: body.to_vec() };
            api::act(action, web, client, parts(&path, Query(Vec::new())), sent).await
        };
        routes = routes
            .route(action.path, post(submit))
            .route(&format!("{BASE}{}", action.path), post(answer));
    }
    for (path, kind, text) in FILES {
        let headers = [(header::CONTENT_TYPE, *kind), (header::CACHE_CONTROL, "no-cache")];
        routes = routes.route(path, get(async move || (headers, *text)));
    }
    routes
        .fallback(unknown)
        .with_state(Arc::clone(web))
        .layer(from_fn_with_state(Arc::clone(web), checked))
}

fn page(view: &'static View) -> MethodRouter<Arc<Web>> {
    get(
        async move |State(web): State<Arc<Web>>,
                    Extension(client): Extension<Client>,
                    path: RawPathParams,
                    query: QueryPairs,
                    headers: HeaderMap| {
            // An action's message is meant for the page that the browser opens next, so a page that
            // reloads itself must not take it.
            let message = match headers.contains_key("hx-request") {
                true => None,
                false => web.messages.take(&client.from),
            };
            pages::show(view, web, client, parts(&path, query), message).await
        },
    )
}

async fn metrics(State(web): State<Arc<Web>>) -> Response {
    match web.call(Purpose::View, None, vec!["metrics".to_owned()]).await {
        Ok(answer) => {
            ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], answer.text)
                .into_response()
        }
        Err(failure) => api::failed(&failure, pages::status(&failure)),
    }
}

fn one_file(
    words: &'static [&'static str],
    refresh: Option<&'static str>,
) -> MethodRouter<Arc<Web>> {
    get(async move |State(web): State<Arc<Web>>, path: RawPathParams| {
        pages::one_file(web, parts(&path, Query(Vec::new())), words, refresh).await
    })
}

fn parts(path: &RawPathParams, Query(query): QueryPairs) -> Parts {
    let path = path.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    Parts { path: path.collect(), query }
}

async fn unknown(State(web): State<Arc<Web>>, request: Request) -> Response {
    refuse(&web, request.uri().path(), StatusCode::NOT_FOUND, "there is nothing at this address")
}

/// Checks a request, reads its body, and adds the headers that protect every response.
async fn checked(
    State(web): State<Arc<Web>>,
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match admitted(&web, &peer, request).await {
        Ok(request) => next.run(request).await,
        Err(response) => response,
    };
    let headers = response.headers_mut();
    let mut add = |name: HeaderName, value: &'static str| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    add(header::CONTENT_SECURITY_POLICY, POLICY);
    add(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    add(header::X_FRAME_OPTIONS, "DENY");
    add(header::REFERRER_POLICY, "same-origin");
    add(header::CACHE_CONTROL, "no-store");
    add(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    add(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    response
}

/// Returns the request with its client and its whole body, or the response that refuses it.
async fn admitted(web: &Arc<Web>, peer: &Peer, request: Request) -> Result<Request, Response> {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let refused = |refusal: Refusal| {
        let (status, text) = refusal.response();
        refuse(web, &path, status, text)
    };
    let asked = RequestHead { method: &head.method, uri: &head.uri, headers: &head.headers, peer };
    let is_webhook = webhook::is_webhook(&head.method, &path, &head.headers);
    match asked.check_origin(&web.hosts) {
        // The signature proves who made the request.
        Err(Refusal::OtherOrigin) if is_webhook => {}
        checked => checked.map_err(refused)?,
    }
    let now = web.home.wall().map_err(|failure| pages::failed(web, &failure))?;
    let client = match asked.client(&web.secrets(), now) {
        // A webhook is authenticated only by its signature, so that no page can use a login to send
        // one.
        _ if is_webhook => None,
        Ok(client) => Some(client),
        Err(_) if is_public(&path) => None,
        Err(Refusal::WrongToken) if web.codes.is_locked() => return Err(login::too_many(web)),
        Err(refusal) => {
            if refusal == Refusal::WrongToken {
                web.codes.count_failure();
            }
            return Err(refused(refusal));
        }
    };
    let bytes = match timeout(PATIENCE, to_bytes(body, BODY)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => {
            return Err(refuse(web, &path, StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"));
        }
        Err(_) => {
            return Err(refuse(
                web,
                &path,
                StatusCode::REQUEST_TIMEOUT,
                "the body did not arrive in time",
            ));
        }
    };
    let client = match client {
        Some(client) => Some(client),
        None if is_webhook => {
            let key = web.secrets().webhook_key();
            let Some(unique) = webhook::check(&key, &path, &head.headers, &bytes, now) else {
                if web.codes.is_locked() {
                    return Err(login::too_many(web));
                }
                web.codes.count_failure();
                let text = "the webhook's signature is invalid or too old";
                return Err(refuse(web, &path, StatusCode::UNAUTHORIZED, text));
            };
            if let Ok(unique) = HeaderValue::from_str(&unique) {
                head.headers.insert("idempotency-key", unique);
            }
            let from = match peer {
                Peer::Unix => "the Unix socket with a webhook".to_owned(),
                Peer::Tcp(at) => format!("{} with a webhook", at.ip()),
            };
            Some(Client { role: Role::Act, from })
        }
        None => None,
    };
    head.extensions.extend(
        client
            .map(|client| {
                let mut extensions = axum::http::Extensions::new();
                extensions.insert(client);
                extensions
            })
            .unwrap_or_default(),
    );
    Ok(Request::from_parts(head, Body::from(bytes)))
}

/// Refuses a request: with a page for users, or with JSON for programs. A page request without a
/// login is redirected to the login form.
fn refuse(web: &Web, path: &str, status: StatusCode, text: &str) -> Response {
    let (what, fix) = match text.split_once("; fix: ") {
        Some((what, fix)) => (what, Some(fix)),
        None => (text, None),
    };
    if path.starts_with(BASE) || path == METRICS {
        return api::problem(status, what, fix);
    }
    match status {
        StatusCode::UNAUTHORIZED => Redirect::to(LOGIN).into_response(),
        _ => pages::error(web, status, what, fix),
    }
}
