//! The HTTP client for one endpoint.
//!
//! - **Redirects are never followed**, because they would send the key to another address.
//! - **Compressed replies are never requested**, so no reply is ever decompressed.
//! - **Proxies** come from the endpoint's environment. Loopback addresses bypass them.
//! - **Trusted certificates** come from the operating system, or from `SSL_CERT_FILE` if it is set;
//!   `ca_file` adds to them.
//!
//! Connections are never kept for reuse. This module must never send a key to any host other than
//! the endpoint.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, NoProxy, Proxy, redirect};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use super::dialect::Dialect;
use super::plan::EndpointPlan;
use crate::error::BackendError;

/// The value of the `anthropic-version` header.
const VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");
/// The environment variables that specify the proxy for HTTPS endpoints.
const HTTPS_PROXY: [&str; 2] = ["https_proxy", "HTTPS_PROXY"];
/// The environment variables that specify the proxy for HTTP endpoints.
const HTTP_PROXY: [&str; 2] = ["http_proxy", "HTTP_PROXY"];

/// Builds a client for one request.
///
/// # Errors
/// Returns [`BackendError::Rejected`] if the client cannot be set up, for example because of
/// invalid certificates or proxies, and [`BackendError::NotLoggedIn`] if the key cannot be used.
pub(crate) fn client(plan: &EndpointPlan, connect: Duration) -> Result<Client, BackendError> {
    let mut builder = Client::builder()
        .use_preconfigured_tls(tls(plan)?)
        .redirect(redirect::Policy::none())
        .referer(false)
        .no_proxy()
        .connect_timeout(connect)
        .pool_max_idle_per_host(0)
        .user_agent(concat!("runner/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers(plan)?);
    for (names, is_https) in [(HTTPS_PROXY, true), (HTTP_PROXY, false)] {
        let Some((name, address)) = set(plan, &names) else {
            continue;
        };
        let proxy = match is_https {
            true => Proxy::https(address),
            false => Proxy::http(address),
        };
        let proxy = proxy.map_err(|_| BackendError::Rejected {
            // The error message may contain a password.
            why: format!("{name} is not a valid proxy address"),
        })?;
        builder = builder.proxy(proxy.no_proxy(NoProxy::from_string(&without(plan))));
    }
    builder.build().map_err(|error| BackendError::Rejected {
        why: format!("cannot set up the HTTP client: {}", describe_error(&error)),
    })
}

fn set<'p>(plan: &'p EndpointPlan, names: &[&'static str]) -> Option<(&'static str, &'p str)> {
    names.iter().find_map(|name| {
        let value = plan.env.get(*name).filter(|value| !value.is_empty())?;
        Some((*name, value.as_str()))
    })
}

/// Lists the hosts that are reached without a proxy: those in `no_proxy`, and this host.
fn without(plan: &EndpointPlan) -> String {
    let own = set(plan, &["no_proxy", "NO_PROXY"]).map_or("", |(_, hosts)| hosts);
    format!("{own},localhost,.localhost,127.0.0.0/8,::1")
}

fn headers(plan: &EndpointPlan) -> Result<HeaderMap, BackendError> {
    let mut headers = HeaderMap::new();
    if plan.dialect == Dialect::Messages {
        headers.insert("anthropic-version", VERSION);
    }
    let Some(key) = plan.secret()? else {
        return Ok(headers);
    };
    let mut put = |name: HeaderName, value: String| -> Result<(), BackendError> {
        let mut value = HeaderValue::try_from(value).map_err(|_| BackendError::NotLoggedIn {
            why: "the key cannot be sent in a header".to_owned(),
        })?;
        value.set_sensitive(true);
        headers.insert(name, value);
        Ok(())
    };
    if plan.dialect == Dialect::Messages {
        put(HeaderName::from_static("x-api-key"), key.to_owned())?;
    }
    // Servers other than Anthropic's own expect the key in this header, even with Anthropic's
    // dialect.
    if plan.dialect != Dialect::Messages || !plan.is_first_hand {
        put(AUTHORIZATION, format!("Bearer {key}"))?;
    }
    Ok(headers)
}

/// Builds the TLS configuration with the trusted certificates.
fn tls(plan: &EndpointPlan) -> Result<ClientConfig, BackendError> {
    let mut roots = RootCertStore::empty();
    // Reading certificates is slow, and a connection without TLS needs none.
    let proxy = set(plan, &HTTP_PROXY).map(|(_, address)| address);
    if plan.base.scheme() == "https" || proxy.is_some_and(|it| it.starts_with("https://")) {
        match plan.env.get("SSL_CERT_FILE").filter(|it| !it.is_empty()) {
            Some(path) => add(&mut roots, Path::new(path))?,
            None => {
                let found = rustls_native_certs::load_native_certs();
                roots.add_parsable_certificates(found.certs);
            }
        }
        if let Some(path) = &plan.ca_file {
            add(&mut roots, path)?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| BackendError::Rejected { why: format!("TLS cannot be used: {error}") })?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

fn add(roots: &mut RootCertStore, path: &Path) -> Result<(), BackendError> {
    let bad = |why: String| BackendError::Rejected {
        why: format!("cannot load certificates from {}: {why}", path.display()),
    };
    let found = CertificateDer::pem_file_iter(path).map_err(|error| bad(error.to_string()))?;
    let mut count = 0;
    for one in found {
        let one = one.map_err(|error| bad(error.to_string()))?;
        roots.add(one).map_err(|error| bad(error.to_string()))?;
        count += 1;
    }
    match count {
        0 => Err(bad("the file contains no certificates".to_owned())),
        _ => Ok(()),
    }
}

/// Describes a connection error by its causes, innermost last. The error's own message contains the
/// address and is omitted.
pub(crate) fn describe_error(error: &dyn std::error::Error) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut next = error.source();
    while let Some(error) = next {
        let said = error.to_string();
        if words.last() != Some(&said) {
            words.push(said);
        }
        next = error.source();
    }
    match words.is_empty() {
        true => "no reason was given".to_owned(),
        false => words.join(": "),
    }
}
