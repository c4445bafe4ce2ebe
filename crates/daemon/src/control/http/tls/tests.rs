//! Other machines, with TLS of their own.

use std::io::{Read as _, Write as _};
use std::net::Ipv4Addr;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use sluice_api::access::{Made, NewToken, Question, Role};

use super::super::tests::problem_in;
use super::super::{LIMITS, Limits, accept, router};
use super::*;
use crate::control::http::api::Api;
use crate::control::http::sampler::Sampler;
use crate::control::sample::tests::well;
use crate::control::tokens::ApiTokens;

/// A host with a certificate of its own authority.
struct Server {
    dir: PathBuf,
    at: SocketAddr,
    tokens: Arc<ApiTokens>,
}

impl Server {
    fn start(name: &str, limits: Limits) -> Self {
        let dir = std::env::temp_dir().join(format!("sluice-tls-{name}-{}", std::process::id()));
        _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let tokens = Arc::new(ApiTokens::load(&dir));
        let answer =
            |_| Ok(r#"{"ports":[{"port":{"vnet":"blue"}},{"port":{"vnet":"red"}}]}"#.to_owned());
        let api = Api::new("h1", Arc::new(answer));
        let routes = router(Sampler::with(well).unwrap(), api, Arc::clone(&tokens));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let state_dir = dir.clone();
        std::thread::spawn(move || {
            runtime.block_on(async {
                let tls = HttpTls { listen: at, certificate: None, key: None };
                let tcp = TcpListener::from_std(listener).unwrap();
                let secured = Secured::new(tcp, &tls, &state_dir).unwrap();
                accept::serve(secured, limits, (routes, Arc::default())).await;
            });
        });
        Self { dir, at, tokens }
    }

    /// Gives the host a certificate. Returns its authority.
    fn certify(&self) -> String {
        let now = i64::try_from(crate::sys::clock::wall_ms() / 1_000).unwrap();
        let made = enroll::Credentials::create("h1", now).unwrap();
        enroll::Files::of(&self.dir).install(&made).unwrap();
        made.authorities().concat()
    }

    fn token(&self, role: Role, vnets: &[&str]) -> String {
        let vnets = vnets.iter().map(|&vnet| vnet.to_owned()).collect();
        let new = NewToken { name: role.to_string(), role, vnets, days: None };
        let line = self.tokens.answer(Question::Make(new)).unwrap();
        serde_json::from_str::<Made>(&line).unwrap().token
    }

    /// Asks, as a client that trusts an authority; returns the answer.
    fn ask(&self, authority: &str, request: &str, token: &str) -> io::Result<String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("h1").unwrap();
        let session = ClientConnection::new(Arc::new(config), name).unwrap();
        let socket = std::net::TcpStream::connect(self.at).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut stream = StreamOwned::new(session, socket);
        let head = format!("{request} HTTP/1.1\r\nHost: h1\r\n{token}Content-Length: 0\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(String::from_utf8(answer).unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[test]
fn token_and_role_decide_over_network() {
    let server = Server::start("roles", LIMITS);
    let authority = server.certify();
    let ask = |request: &str, token: &str| server.ask(&authority, request, token).unwrap();
    for wrong in [String::new(), bearer("sluice-api-0"), "Authorization: Basic eA==\r\n".into()] {
        for path in ["GET /v1/ports", "GET /metrics", "GET /nothing", "POST /v1/ports"] {
            let answer = ask(path, &wrong);
            assert!(answer.starts_with("HTTP/1.1 401 "), "{path}: {answer}");
            assert!(answer.contains("www-authenticate: Bearer realm=\"sluice\""), "{answer}");
            assert_eq!(problem_in(&answer).code, "unauthorized");
        }
    }
    let viewer = bearer(&server.token(Role::Viewer, &[]));
    let answer = ask("GET /v1/ports", &viewer);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("red"), "{answer}");
    assert!(ask("GET /metrics", &viewer).contains("\nsluice_data_up 1\n"));
    let answer = ask("DELETE /v1/ports/web", &viewer);
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(problem_in(&answer).message.contains("`viewer`"), "{answer}");

    let operator = bearer(&server.token(Role::Operator, &[]));
    assert!(ask("DELETE /v1/ports/web", &operator).starts_with("HTTP/1.1 200 "));
    assert!(ask("DELETE /v1/vnets/blue", &operator).starts_with("HTTP/1.1 403 "));
    let admin = bearer(&server.token(Role::Admin, &[]));
    assert!(ask("DELETE /v1/vnets/blue", &admin).starts_with("HTTP/1.1 200 "));

    let tenant = bearer(&server.token(Role::Tenant, &["blue"]));
    let answer = ask("GET /v1/ports", &tenant);
    assert!(answer.contains("\"vnet\":\"blue\"") && !answer.contains("red"), "{answer}");
    assert!(ask("GET /v1/vports?vnet=blue", &tenant).starts_with("HTTP/1.1 200 "));
    for path in ["GET /v1/vports?vnet=red", "GET /v1/config", "GET /metrics"] {
        let answer = ask(path, &tenant);
        assert!(answer.starts_with("HTTP/1.1 403 "), "{path}: {answer}");
        assert!(problem_in(&answer).message.contains("blue"), "{answer}");
    }
    server.tokens.answer(Question::Revoke("viewer".to_owned())).unwrap();
    assert!(ask("GET /v1/ports", &viewer).starts_with("HTTP/1.1 401 "));
}

#[test]
fn renewed_certificate_holds_without_restart() {
    let server = Server::start("renewed", LIMITS);
    let ask = |authority: &str| server.ask(authority, "GET /v1", "");
    let first = server.certify();
    assert!(ask(&first).unwrap().starts_with("HTTP/1.1 401 "));
    let second = server.certify();
    assert!(ask(&second).unwrap().starts_with("HTTP/1.1 401 "));
    assert!(ask(&first).is_err(), "its authority is another one");
    // A key that does not fit leaves the pair before.
    let folder = enroll::Files::of(&server.dir).folder();
    let key = std::fs::read_to_string(folder.join(enroll::KEY)).unwrap();
    for wrong in ["", "no key", &key[..key.len() / 2]] {
        std::fs::write(folder.join(enroll::KEY), wrong).unwrap();
        assert!(ask(&second).unwrap().starts_with("HTTP/1.1 401 "), "{wrong}");
    }
}

#[test]
fn silent_or_plain_client_keeps_nobody_out() {
    let limits = Limits { head_max: Duration::from_millis(200), ..LIMITS };
    let server = Server::start("silent", limits);
    let authority = server.certify();
    let silent = std::net::TcpStream::connect(server.at).unwrap();
    silent.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut plain = std::net::TcpStream::connect(server.at).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    plain.write_all(b"GET /v1 HTTP/1.1\r\nHost: h1\r\n\r\n").unwrap();
    assert!(server.ask(&authority, "GET /v1", "").unwrap().starts_with("HTTP/1.1 401 "));
    let mut answer = Vec::new();
    _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "nobody is answered without TLS");
    // Its handshake does not come: the host ends the connection.
    assert!(matches!((&silent).read(&mut [0; 1]), Ok(0)));
}
