//! Other machines, with TLS of their own.

use std::io::{Read as _, Write as _};
use std::net::Ipv4Addr;
use std::time::Duration;

use rcgen::{Issuer, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use sluice_api::access::{Made, NewToken, Question, Role};
use sluice_api::config::HttpClient;

use super::super::tests::problem_in;
use super::super::{LIMITS, Limits, accept, router};
use super::*;
use crate::control::http::api::Api;
use crate::control::http::guard::Keys;
use crate::control::http::sampler::Sampler;
use crate::control::sample::tests::well;
use crate::control::tokens::ApiTokens;
use crate::enroll::{Authority, AuthorityPem, profile};

/// A host with a certificate of its own authority.
struct Server {
    dir: PathBuf,
    at: SocketAddr,
    tokens: Arc<ApiTokens>,
}

impl Server {
    fn start(name: &str, limits: Limits) -> Self {
        Self::knowing(name, limits, Vec::new(), None)
    }

    /// Starts a host that knows clients by certificates of an authority; `None`: the fabric's.
    fn knowing(
        name: &str,
        limits: Limits,
        clients: Vec<HttpClient>,
        authority: Option<&AuthorityPem>,
    ) -> Self {
        let dir = std::env::temp_dir().join(format!("sluice-tls-{name}-{}", std::process::id()));
        _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let tokens = Arc::new(ApiTokens::load(&dir));
        let answer =
            |_| Ok(r#"{"ports":[{"port":{"vnet":"blue"}},{"port":{"vnet":"red"}}]}"#.to_owned());
        let api = Api::new("h1", Arc::new(answer));
        let keys = Arc::new(Keys::new(Arc::clone(&tokens), clients.clone()));
        let routes = router(Sampler::with(well).unwrap(), api, keys);
        let client_ca = authority.map(|authority| {
            let path = dir.join("clients.pem");
            std::fs::write(&path, &authority.certificate).unwrap();
            path
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let state_dir = dir.clone();
        std::thread::spawn(move || {
            runtime.block_on(async {
                let (certificate, key) = (None, None);
                let tls = HttpTls { listen: at, certificate, key, client_ca, clients };
                let tcp = TcpListener::from_std(listener).unwrap();
                let secured = Secured::new(tcp, &tls, &state_dir).unwrap();
                accept::serve(secured, limits, (routes, Arc::default())).await;
            });
        });
        Self { dir, at, tokens }
    }

    /// Gives the host a certificate. Returns its authority.
    fn certify(&self) -> String {
        let made = enroll::Credentials::create("h1", now()).unwrap();
        enroll::Files::of(&self.dir).install(&made).unwrap();
        made.authorities().concat()
    }

    fn token(&self, role: Role, vnets: &[&str]) -> String {
        let vnets = vnets.iter().map(|&vnet| vnet.to_owned()).collect();
        let netns = Vec::new();
        let new = NewToken { name: role.to_string(), role, vnets, netns, days: None };
        let line = self.tokens.answer(Question::Make(new)).unwrap();
        serde_json::from_str::<Made>(&line).unwrap().token
    }

    /// Asks, as a client that trusts an authority; returns the answer.
    fn ask(&self, authority: &str, request: &str, token: &str) -> io::Result<String> {
        self.ask_as(None, authority, request, token)
    }

    /// Asks as a client with a certificate.
    fn ask_as(
        &self,
        own: Option<&Own>,
        authority: &str,
        request: &str,
        token: &str,
    ) -> io::Result<String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match own {
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                config.with_client_auth_cert(chain, key).unwrap()
            }
            None => config.with_no_client_auth(),
        };
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

/// Certificate and key of a client, in PEM.
type Own = (String, String);

/// Makes a certificate; one of negative days has expired.
fn signed(by: &AuthorityPem, name: &str, days: i32) -> Own {
    let key = KeyPair::generate().unwrap();
    let issuer = Issuer::new(profile::authority(0), KeyPair::from_pem(&by.key).unwrap());
    let params = profile::host(name, now().div_euclid(profile::DAY), days).unwrap();
    (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
}

fn now() -> i64 {
    i64::try_from(crate::sys::clock::wall_ms() / 1_000).unwrap()
}

fn client(name: &str, role: Role, vnets: &[&str]) -> HttpClient {
    let vnets = vnets.iter().map(|&vnet| vnet.to_owned()).collect();
    HttpClient { name: name.to_owned(), role, vnets, netns: Vec::new() }
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
fn certificate_of_client_gives_role() {
    let authority = Authority::create(now()).unwrap().pem().clone();
    let clients = vec![
        client("grafana", Role::Viewer, &[]),
        client("robot", Role::Operator, &[]),
        client("shop", Role::Tenant, &["blue"]),
    ];
    let server = Server::knowing("mutual", LIMITS, clients, Some(&authority));
    let host = server.certify();
    let ask =
        |own: Option<&Own>, request: &str, token: &str| server.ask_as(own, &host, request, token);
    let status = |own: &Own, request: &str, token: &str| -> u16 {
        let answer = ask(Some(own), request, token).unwrap();
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    };
    let known = |name: &str| signed(&authority, name, 1);
    let (viewer, operator, tenant) = (known("grafana"), known("robot"), known("shop"));
    assert_eq!(status(&viewer, "GET /v1/config", ""), 200);
    assert_eq!(status(&viewer, "DELETE /v1/ports/web", ""), 403);
    assert_eq!(status(&operator, "DELETE /v1/ports/web", ""), 200);
    assert_eq!(status(&operator, "DELETE /v1/vnets/blue", ""), 403);
    assert_eq!(status(&tenant, "GET /v1/config", ""), 403);
    let answer = ask(Some(&tenant), "GET /v1/ports", "").unwrap();
    assert!(answer.contains("\"vnet\":\"blue\"") && !answer.contains("red"), "{answer}");

    // A certificate that nobody is named by, and none at all.
    let answer = ask(Some(&known("stranger")), "GET /v1", "").unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains("`stranger`"), "{answer}");
    let answer = ask(None, "GET /v1", "").unwrap();
    let problem = problem_in(&answer);
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    assert!(problem.remedy.contains("`[[api.tls.client]]`") && problem.remedy.contains("token"));

    // A token that is sent decides alone, whatever the certificate.
    let token = bearer(&server.token(Role::Admin, &[]));
    assert_eq!(status(&viewer, "DELETE /v1/vnets/blue", &token), 200);
    assert_eq!(status(&operator, "GET /v1", &bearer("sluice-api-0")), 401);
    assert!(ask(None, "GET /v1", &token).unwrap().starts_with("HTTP/1.1 200 "));

    // One that does not hold ends the handshake: expired, or of another authority.
    let other = Authority::create(now()).unwrap().pem().clone();
    for wrong in [signed(&authority, "robot", -1), signed(&other, "robot", 1)] {
        assert!(ask(Some(&wrong), "GET /v1", "").is_err());
        assert!(ask(Some(&wrong), "GET /v1", &token).is_err());
    }
}

#[test]
fn authorities_of_clients_hold_without_restart() {
    let first = Authority::create(now()).unwrap().pem().clone();
    let second = Authority::create(now()).unwrap().pem().clone();
    let clients = || vec![client("robot", Role::Operator, &[])];
    let server = Server::knowing("authorities", LIMITS, clients(), Some(&first));
    let host = server.certify();
    let ask = |by: &AuthorityPem| {
        let own = signed(by, "robot", 1);
        server.ask_as(Some(&own), &host, "GET /v1", "").is_ok_and(|text| text.contains(" 200 "))
    };
    assert!(ask(&first) && !ask(&second));
    let file = server.dir.join("clients.pem");
    std::fs::write(&file, &second.certificate).unwrap();
    assert!(ask(&second) && !ask(&first));
    for wrong in ["", "no certificate", &second.certificate[..90]] {
        std::fs::write(&file, wrong).unwrap();
        assert!(ask(&second) && !ask(&first), "those from before stay");
    }
    // Without a file of their own, clients are of the fabric's authority.
    let server = Server::knowing("members", LIMITS, clients(), None);
    let host = server.certify();
    let key = std::fs::read_to_string(enroll::Files::of(&server.dir).folder().join("ca.key"));
    let fabric = AuthorityPem { certificate: host.clone(), key: key.unwrap() };
    let own = signed(&fabric, "robot", 1);
    let answer = server.ask_as(Some(&own), &host, "GET /v1", "").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
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
