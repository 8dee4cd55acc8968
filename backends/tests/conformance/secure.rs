//! Tests connection security: trusted certificates, proxies and addresses.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use runner_backends::{BackendError as E, BackendKind, Phase, Reply, VecSink, build};
use runner_engine::process::Cancel;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;

use super::hostile_http::question;
use super::http::behaviours::Behaviour as B;
use super::http::dialect::Dialect;
use super::http::{Server, Wire};
use super::{CANARY, around, block_on, spec};

struct Tls(StreamOwned<ServerConnection, TcpStream>);

impl Read for Tls {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Tls {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        self.0.write(buffer)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Wire for Tls {
    fn patience(&self, patience: Duration) {
        self.0.sock.set_read_timeout(Some(patience)).unwrap();
    }
}

/// Starts a server with a certificate for `name`, and writes the signer's certificate to a file.
fn secure(name: &str, place: &Path) -> (Server, PathBuf) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let signed = authority.self_signed(&key).unwrap();
    let file = place.join("ca.pem");
    fs::write(&file, signed.pem()).unwrap();
    let issuer = Issuer::new(authority, key);
    let own = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&own, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(own.serialize_der()).unwrap(),
        )
        .unwrap();
    let config = Arc::new(config);
    let wrap = move |stream| {
        let connection = ServerConnection::new(config.clone()).ok()?;
        let wire: Box<dyn Wire> = Box::new(Tls(StreamOwned::new(connection, stream)));
        Some(wire)
    };
    let server = Server::with("127.0.0.1:0", wrap, |talk, seen| {
        B::Good.answer(Dialect::Chat, talk, seen, "");
    });
    (server.unwrap(), file)
}

fn ask(
    base: &str,
    env: &[(&str, &str)],
    ca: Option<&Path>,
    connect: Option<Duration>,
) -> Result<Reply, E> {
    let mut env: BTreeMap<String, String> =
        env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    env.insert("SECRET".into(), CANARY.into());
    let mut settings = json!({ "model": "m", "base_url": base });
    if !base.starts_with("http://") || base.contains("127.0.0.1") || base.contains("[::1]") {
        settings["key"] = "SECRET".into();
    }
    if let Some(ca) = ca {
        settings["ca_file"] = ca.to_str().unwrap().into();
    }
    let mut spec = spec("openai", settings);
    if let BackendKind::Api(_, settings) = &mut spec.kind {
        settings.connect = connect;
    }
    let backend = build(&spec, &around(&env))?;
    let cancel = Cancel::new().unwrap();
    let request = question(None);
    let result = block_on(backend.run(&request, &mut VecSink::default(), &cancel));
    assert!(!format!("{result:?}").contains(CANARY), "{result:?}");
    result
}

#[test]
fn untrusted_certificate_is_rejected() {
    let place = tempfile::tempdir().unwrap();
    let (server, file) = secure("localhost", place.path());
    let good = format!("https://localhost:{}/v1", server.port());
    ask(&good, &[], Some(&file), None).unwrap();
    // The certificates are specified in the environment.
    ask(&good, &[("SSL_CERT_FILE", file.to_str().unwrap())], None, None).unwrap();
    let before = server.seen().len();
    assert_eq!(before, 2);

    let wrong_name = format!("https://127.0.0.1:{}/v1", server.port());
    for (base, ca, word) in
        [(&wrong_name, Some(file.as_path()), "not valid for name"), (&good, None, "UnknownIssuer")]
    {
        match ask(base, &[], ca, None) {
            Err(E::Rejected { why }) => {
                assert!(why.contains(word) && why.contains("ca_file"), "{why}");
            }
            other => panic!("{base}: {other:?}"),
        }
    }
    assert_eq!(server.seen().len(), before, "something was sent anyway");

    for content in ["", "no certificate"] {
        let empty = place.path().join("empty.pem");
        fs::write(&empty, content).unwrap();
        let error = ask(&good, &[], Some(&empty), None).unwrap_err();
        assert!(error.to_string().contains("empty.pem"), "{error}");
    }
}

#[test]
fn unreachable_server_is_detected_in_time() {
    let short = Some(Duration::from_millis(150));
    // The server accepts the connection but never starts TLS.
    let silent = Server::start(|talk, _| talk.wait());
    let error = ask(&format!("https://127.0.0.1:{}/v1", silent.port()), &[], None, short);
    assert!(matches!(error, Err(E::Silent { phase: Phase::Connect, .. })), "{error:?}");
    // Nothing accepts the connection, because the queue is full.
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
    let full = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&full, &"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap()).unwrap();
    listen(&full, 0).unwrap();
    let address: std::net::SocketAddr = getsockname(&full).unwrap().try_into().unwrap();
    let waiting: Vec<_> =
        (0..3).map(|_| TcpStream::connect_timeout(&address, Duration::from_millis(50))).collect();
    let error = ask(&format!("http://{address}/v1"), &[], None, short);
    assert!(matches!(error, Err(E::Silent { phase: Phase::Connect, .. })), "{error:?}");
    drop(waiting);
    // Nothing is listening on the port.
    let nobody = {
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        gone.local_addr().unwrap().port()
    };
    let error = ask(&format!("http://127.0.0.1:{nobody}/v1"), &[], None, None);
    assert!(matches!(error, Err(E::Unavailable { .. })), "{error:?}");
    // The host does not exist.
    let error = ask("https://no-such-host.invalid/v1", &[], None, None);
    assert!(matches!(error, Err(E::Unavailable { .. })), "{error:?}");
}

#[test]
fn ipv6_addresses_are_reachable() {
    let plain = |stream| -> Option<Box<dyn Wire>> { Some(Box::new(stream)) };
    let server = Server::with("[::1]:0", plain, |talk, seen| {
        B::Good.answer(Dialect::Chat, talk, seen, "");
    });
    let Ok(server) = server else {
        let _closed =
            std::io::Write::write_all(&mut std::io::stderr(), b"skipped 2: no IPv6 here\n");
        return;
    };
    ask(&format!("http://[::1]:{}/v1", server.port()), &[], None, None).unwrap();
    // If `localhost` has an IPv6 address, the connection succeeds even though no IPv4 address
    // answers.
    if std::net::ToSocketAddrs::to_socket_addrs(&("localhost", 1))
        .is_ok_and(|mut all| all.any(|it| it.is_ipv6()))
    {
        ask(&format!("http://localhost:{}/v1", server.port()), &[], None, None).unwrap();
    }
}

#[test]
fn proxies_are_bypassed_for_loopback() {
    let proxy = Server::start(|talk, seen| match seen.line.starts_with("CONNECT") {
        true => talk.reply(403, &[], ""),
        false => B::Good.answer(Dialect::Chat, talk, seen, ""),
    });
    let server = Server::start(|talk, seen| B::Good.answer(Dialect::Chat, talk, seen, ""));
    let url = proxy.url();
    let env = [("HTTP_PROXY", url.as_str()), ("https_proxy", url.as_str())];
    ask("http://model.invalid/v1", &env, None, None).unwrap();
    assert!(proxy.seen()[0].line.starts_with("POST http://model.invalid/v1/chat"));
    let error = ask("https://model.invalid/v1", &env, None, None);
    assert!(matches!(error, Err(E::Unavailable { .. })), "{error:?}");
    let tunnel = &proxy.seen()[1];
    assert_eq!(tunnel.line, "CONNECT model.invalid:443 HTTP/1.1");
    assert!(!format!("{tunnel:?}").contains(CANARY), "the proxy sees the key");
    ask(&format!("{}/v1", server.url()), &env, None, None).unwrap();
    assert_eq!(proxy.seen().len(), 2, "a loopback request used the proxy");
    let without = [env[0], env[1], ("no_proxy", "model.invalid")];
    let error = ask("http://model.invalid/v1", &without, None, None);
    assert!(matches!(error, Err(E::Unavailable { .. })), "{error:?}");
    assert_eq!(proxy.seen().len(), 2);
    let error = ask("https://x.invalid", &[("HTTPS_PROXY", "::not an address::")], None, None);
    assert!(matches!(error, Err(E::Rejected { .. })), "{error:?}");
}

#[test]
fn tls_proxy_uses_the_same_certificates() {
    let place = tempfile::tempdir().unwrap();
    let (proxy, file) = secure("localhost", place.path());
    let url = format!("https://localhost:{}", proxy.port());
    let env = [("http_proxy", url.as_str())];
    ask("http://model.invalid/v1", &env, Some(&file), None).unwrap();
    assert!(proxy.seen()[0].line.starts_with("POST http://model.invalid/v1/chat"));
    let error = ask("http://model.invalid/v1", &env, None, None).unwrap_err();
    assert!(format!("{error:?}").contains("UnknownIssuer"), "{error:?}");
    assert_eq!(proxy.seen().len(), 1);
}
