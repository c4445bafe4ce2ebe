use std::sync::Mutex;

use axum::body::Body;
use axum::http::{Method, Request as HttpRequest, StatusCode};
use serde_json::{Value, json};
use sluice_api::http::Problem;
use sluice_api::transaction::{Away, How, Question};
use sluice_api::{access, fabric, placement};

use super::*;

/// The API of a host that writes down what it is asked.
struct Asked {
    api: Api,
    requests: Arc<Mutex<Vec<Request>>>,
}

/// An answer: its status and its body.
type Reply = (StatusCode, Value);

impl Asked {
    /// Makes one that answers everything with this.
    fn answering(answer: Result<&'static str, &'static str>) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&requests);
        let answer = move |request| {
            noted.lock().unwrap().push(request);
            answer.map(str::to_owned).map_err(str::to_owned)
        };
        Self { api: Api::new("h1", Arc::new(answer)), requests }
    }

    fn new() -> Self {
        Self::answering(Ok(r#"{"ports":[]}"#))
    }

    fn taken(&self) -> Vec<Request> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }

    /// Sends a request with these heads.
    fn send(&self, peer: Peer, line: &str, heads: &[(&str, &str)], body: &str) -> Reply {
        let (method, uri) = line.split_once(' ').unwrap();
        let mut request = HttpRequest::builder().method(method.parse::<Method>().unwrap()).uri(uri);
        for (name, value) in heads {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let router = self.api.clone().router().layer(Extension(peer));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            use hyper::service::Service as _;
            let service = hyper_util::service::TowerToHyperService::new(router);
            let response = service.call(request).await.unwrap();
            let status = response.status();
            let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
            (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
        })
    }

    fn owner(&self, line: &str, body: &str) -> Reply {
        self.send(Peer::Owner, line, &[("content-type", "application/json")], body)
    }
}

fn problem(reply: &Reply) -> Problem {
    serde_json::from_value(reply.1.clone()).unwrap_or_else(|_| panic!("no problem: {reply:?}"))
}

fn transaction(question: Question) -> Request {
    Request::Transaction(Box::new(question))
}

fn change(change: Value, how: How) -> Request {
    transaction(Question::Change { change: serde_json::from_value(change).unwrap(), how })
}

#[test]
fn each_path_is_request_of_socket() {
    let asked = Asked::new();
    let red = || Some("red".to_owned());
    let vport = || "02:00:00:00:00:01".to_owned();
    for (line, body, expected) in [
        ("GET /v1/host", "", Request::Who),
        ("GET /v1/status", "", Request::Status),
        ("GET /v1/show/ports", "", Request::Show(sluice_api::show::Question::Ports)),
        ("GET /v1/show/placement", "", Request::Show(sluice_api::show::Question::Placement)),
        ("GET /v1/fabric/members", "", Request::Fabric(fabric::Question::Members)),
        ("GET /v1/fabric/status", "", transaction(Question::Status)),
        ("GET /v1/vports?vnet=red", "", Request::Fabric(fabric::Question::Vports { vnet: red() })),
        (
            "GET /v1/vports/02:00:00:00:00:01",
            "",
            Request::Fabric(fabric::Question::Vport { vnet: None, endpoint: vport() }),
        ),
        (
            "POST /v1/vports/02%3A00%3A00%3A00%3A00%3A01/thaw?vnet=red",
            "",
            Request::Fabric(fabric::Question::Thaw { vnet: red(), endpoint: vport() }),
        ),
        ("GET /v1/ports", "", Request::Ports),
        ("GET /v1/tokens", "", Request::Access(access::Question::List)),
        (
            "DELETE /v1/tokens/a%40b",
            "",
            Request::Access(access::Question::Revoke("a@b".to_owned())),
        ),
        (
            "POST /v1/tokens",
            r#"{"name":"ops","role":"operator"}"#,
            Request::Access(access::Question::Make(access::NewToken {
                name: "ops".to_owned(),
                role: access::Role::Operator,
                vnets: Vec::new(),
                netns: Vec::new(),
                days: None,
            })),
        ),
        ("GET /v1/ports/web%201", "", Request::Card("web 1".to_owned())),
        ("DELETE /v1/ports/web", "", Request::Del("web".to_owned())),
        (
            "POST /v1/ports",
            r#"{"place":{"netns":"c1"},"vnet":"red"}"#,
            Request::Add(Box::new(
                serde_json::from_value(json!({"place": {"netns": "c1"}, "vnet": "red"})).unwrap(),
            )),
        ),
        ("GET /v1/vnets", "", Request::Fabric(fabric::Question::Vnets)),
        (
            "POST /v1/vnets?check=true&comment=new%20one",
            r#"{"name":"red","vnet":{"vni":7}}"#,
            change(
                json!([{"create_vnet": {"name": "red", "vnet": {"vni": 7}}}]),
                How { check: true, comment: "new one".to_owned(), ..How::default() },
            ),
        ),
        (
            "PATCH /v1/vnets/red?require_all=true",
            r#"{"mtu":1400,"priority":null}"#,
            change(
                json!([
                    {"set_vnet": {"name": "red", "key": "mtu", "value": 1400}},
                    {"set_vnet": {"name": "red", "key": "priority"}}
                ]),
                How { away: Away::RequireAll, ..How::default() },
            ),
        ),
        (
            "DELETE /v1/vnets/red?wait_ms=500&confirmed_s=60",
            "",
            change(
                json!([{"delete_vnet": {"name": "red"}}]),
                How { away: Away::Wait(500), confirmed_s: Some(60), ..How::default() },
            ),
        ),
        ("GET /v1/config?revision=4", "", transaction(Question::Show { at: Some(4) })),
        ("GET /v1/transactions", "", transaction(Question::Log { last: 50 })),
        ("GET /v1/transactions?last=3", "", transaction(Question::Log { last: 3 })),
        ("POST /v1/transactions", r#"{"change":[]}"#, change(json!([]), How::default())),
        ("POST /v1/transactions/confirm", "", transaction(Question::Confirm)),
        (
            "POST /v1/transactions/rollback",
            r#"{"to":3}"#,
            transaction(Question::Rollback { to: 3, how: How::default() }),
        ),
        ("GET /v1/placement", "", Request::Placement(placement::Question::Show)),
        ("POST /v1/reload", "", Request::Reload),
    ] {
        let (status, answer) = asked.owner(line, body);
        assert!(status.is_success(), "{line}: {status} {answer}");
        assert_eq!(asked.taken(), [expected], "{line}");
        assert_eq!((&answer["host"], &answer["ports"]), (&json!("h1"), &json!([])), "{line}");
    }
}

#[test]
fn status_says_what_was_made() {
    let asked = Asked::new();
    let vnet = r#"{"name":"red","vnet":{"vni":7}}"#;
    for (line, body, expected) in [
        ("POST /v1/ports", r#"{"place":"host","vnet":"red"}"#, StatusCode::CREATED),
        ("POST /v1/vnets", vnet, StatusCode::CREATED),
        ("POST /v1/vnets?check=true", vnet, StatusCode::OK),
        ("DELETE /v1/ports/web", "", StatusCode::OK),
    ] {
        assert_eq!(asked.owner(line, body).0, expected, "{line}");
    }
}

#[test]
fn refusal_of_host_has_status_and_remedy() {
    for (why, status, code, remedy) in [
        (
            "there is no port `web`; added were db",
            StatusCode::NOT_FOUND,
            "no_such_port",
            "added were db",
        ),
        ("16 others are asking; try again", StatusCode::SERVICE_UNAVAILABLE, "busy", "try again"),
        ("no port `web` was added", StatusCode::NOT_FOUND, "no_such_port", "see `sluice help`"),
        (
            crate::control::show::STARTING,
            StatusCode::SERVICE_UNAVAILABLE,
            "not_ready",
            "see `sluice help`",
        ),
        (
            "port web is not deleted: no data process runs; control starts one",
            StatusCode::SERVICE_UNAVAILABLE,
            "data_silent",
            "control starts one",
        ),
        (
            "no data process runs; control starts one",
            StatusCode::SERVICE_UNAVAILABLE,
            "data_silent",
            "control starts one",
        ),
        ("`red` has ports; delete them", StatusCode::CONFLICT, "refused", "delete them"),
    ] {
        let reply = Asked::answering(Err(why)).owner("DELETE /v1/ports/web", "");
        let problem = problem(&reply);
        assert_eq!((reply.0, &*problem.code, &*problem.message), (status, code, why));
        assert!(problem.remedy.starts_with(remedy), "{problem:?}");
    }
}

#[test]
fn only_owner_changes_and_network_asks_nothing() {
    let asked = Asked::new();
    let head = [("content-type", "application/json")];
    for line in [
        "POST /v1/ports",
        "DELETE /v1/ports/web",
        "POST /v1/vnets",
        "PATCH /v1/vnets/red",
        "DELETE /v1/vnets/red",
        "POST /v1/transactions",
        "POST /v1/transactions/confirm",
        "POST /v1/transactions/rollback",
        "PUT /v1/placement",
        "POST /v1/reload",
        "POST /v1/vports/10.0.0.1/thaw",
    ] {
        for peer in [Peer::Group, Peer::Network] {
            // Not even whether it could be understood.
            for body in ["{}", "no JSON"] {
                let reply = asked.send(peer, line, &head, body);
                assert_eq!(reply.0, StatusCode::FORBIDDEN, "{line} by {peer:?}: {reply:?}");
                assert_eq!(problem(&reply).code, "forbidden");
            }
        }
    }
    for line in ["GET /v1", "GET /v1/ports", "GET /v1/config", "GET /v1/show/drops"] {
        assert_eq!(asked.send(Peer::Network, line, &[], "").0, StatusCode::FORBIDDEN, "{line}");
        assert_eq!(asked.taken(), [], "{line}");
        assert_eq!(asked.send(Peer::Group, line, &[], "").0, StatusCode::OK, "{line}");
        asked.taken();
    }
}

#[test]
fn malformed_request_is_refused_unasked() {
    let asked = Asked::new();
    for (line, body, part) in [
        ("POST /v1/ports", "{", "cannot be read: EOF"),
        ("POST /v1/ports", r#"{"place":"host","vnet":"red","colour":1}"#, "unknown field `colour`"),
        ("POST /v1/ports?check=true", r#"{"place":"host","vnet":"red"}"#, "unknown field `check`"),
        ("POST /v1/vnets", r#"{"name":"red"}"#, "missing field `vnet`"),
        ("POST /v1/transactions?check=perhaps", r#"{"change":[]}"#, "`true` or `false`"),
        ("DELETE /v1/vnets/red?require_all=true&wait_ms=1", "", "exclude each other"),
        ("PATCH /v1/vnets/red", "[]", "expected a map"),
        ("GET /v1/transactions?last=-1", "", "last: invalid digit"),
        ("GET /v1/vports?vnet=a&vnet=b", "", "duplicate field"),
        ("DELETE /v1/ports/%ff", "", "UTF-8"),
    ] {
        let reply = asked.owner(line, body);
        let problem = problem(&reply);
        assert_eq!((reply.0, &*problem.code), (StatusCode::BAD_REQUEST, "malformed"), "{line}");
        assert!(problem.message.contains(part), "{line}: {problem:?}");
        assert!(!problem.remedy.is_empty());
    }
    for line in ["GET /v1/show/colours", "GET /v1/fabric/weather"] {
        assert_eq!(problem(&asked.owner(line, "")).code, "not_found", "{line}");
    }
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let reply = asked.send(Peer::Owner, "POST /v1/ports", &form, r#"{"place":"host","vnet":"a"}"#);
    assert_eq!(problem(&reply).code, "unsupported_media_type");
    let large = format!(r#"{{"change":[{}]}}"#, " ".repeat(3 << 20));
    assert!(problem(&asked.owner("POST /v1/transactions", &large)).remedy.contains("2 MiB"));
    assert_eq!(asked.taken(), []);
}

#[test]
fn more_requests_than_threads_are_refused() {
    let asked = Asked::new();
    let places: Vec<_> =
        (0..AT_ONCE_MAX).map(|_| Arc::clone(&asked.api.places).try_acquire_owned()).collect();
    let reply = asked.owner("GET /v1/ports", "");
    assert_eq!((reply.0, &*problem(&reply).code), (StatusCode::SERVICE_UNAVAILABLE, "busy"));
    drop(places);
    assert_eq!(asked.owner("GET /v1/ports", "").0, StatusCode::OK);
}

/// Members of the group whose answers hang leave the owner its places.
#[test]
fn owner_answered_while_group_waits() {
    let asked = Asked::new();
    let take = || Arc::clone(&asked.api.of_others).try_acquire_owned().ok();
    let places: Vec<_> = std::iter::from_fn(take).collect();
    assert_eq!(places.len(), AT_ONCE_MAX - OWNERS);
    let reply = asked.send(Peer::Group, "GET /v1/ports", &[], "");
    assert_eq!((reply.0, &*problem(&reply).code), (StatusCode::SERVICE_UNAVAILABLE, "busy"));
    assert_eq!(asked.owner("GET /v1/ports", "").0, StatusCode::OK);
    drop(places);
    assert_eq!(asked.send(Peer::Group, "GET /v1/ports", &[], "").0, StatusCode::OK);
}
