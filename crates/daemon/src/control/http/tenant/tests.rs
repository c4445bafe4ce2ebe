use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request as HttpRequest;
use axum::middleware::from_fn_with_state;
use serde_json::json;
use sluice_api::config::HttpClient;

use super::super::accept::Peer;
use super::super::api::{Api, operations};
use super::super::guard::{Keys, Shown, admit};
use super::*;
use crate::control::tokens::ApiTokens;

const ROLES: [Role; 4] = [Role::Tenant, Role::Viewer, Role::Operator, Role::Admin];
const ALL: &[Role] = &ROLES;
const LOOK: &[Role] = &[Role::Viewer, Role::Operator, Role::Admin];
/// A tenant by its own networks.
const PORTS: &[Role] = &[Role::Tenant, Role::Operator, Role::Admin];
const OPERATE: &[Role] = &[Role::Operator, Role::Admin];
const ADMIN: &[Role] = &[Role::Admin];

/// A port that the tenant may have.
const OWN_PORT: &str = r#"{"place":{"netns":"shop-9"},"vnet":"blue"}"#;

/// Each operation of the document, a request of it, and the roles that may make it. A tenant's has
/// its own network, `blue`, where there is one.
const OPERATIONS: [(&str, &str, &str, &str, &[Role]); 31] = [
    ("GET", "/v1", "/v1", "", ALL),
    ("GET", "/v1/config", "/v1/config", "", LOOK),
    ("GET", "/v1/events", "/v1/events?seconds=0", "", LOOK),
    ("GET", "/v1/fabric/{question}", "/v1/fabric/members", "", LOOK),
    ("GET", "/v1/host", "/v1/host", "", ALL),
    ("GET", "/v1/openapi.json", "/v1/openapi.json", "", ALL),
    ("GET", "/v1/placement", "/v1/placement", "", LOOK),
    ("PUT", "/v1/placement", "/v1/placement", "{}", ADMIN),
    ("GET", "/v1/ports", "/v1/ports", "", ALL),
    ("POST", "/v1/ports", "/v1/ports", OWN_PORT, PORTS),
    ("GET", "/v1/ports/{name}", "/v1/ports/shop-1", "", ALL),
    ("DELETE", "/v1/ports/{name}", "/v1/ports/shop-1", "", PORTS),
    ("POST", "/v1/reload", "/v1/reload", "", OPERATE),
    ("GET", "/v1/show/{question}", "/v1/show/ports", "", LOOK),
    ("GET", "/v1/status", "/v1/status", "", LOOK),
    ("GET", "/v1/tokens", "/v1/tokens", "", LOOK),
    ("POST", "/v1/tokens", "/v1/tokens", r#"{"name":"a","role":"admin"}"#, ADMIN),
    ("DELETE", "/v1/tokens/{name}", "/v1/tokens/a", "", ADMIN),
    ("GET", "/v1/transactions", "/v1/transactions", "", LOOK),
    ("POST", "/v1/transactions", "/v1/transactions", r#"{"change":[]}"#, ADMIN),
    ("POST", "/v1/transactions/confirm", "/v1/transactions/confirm", "", ADMIN),
    ("POST", "/v1/transactions/rollback", "/v1/transactions/rollback", r#"{"to":1}"#, ADMIN),
    ("GET", "/v1/vnets", "/v1/vnets", "", ALL),
    ("POST", "/v1/vnets", "/v1/vnets", r#"{"name":"a","vnet":{"vni":9}}"#, ADMIN),
    ("PATCH", "/v1/vnets/{name}", "/v1/vnets/blue", "{}", ADMIN),
    ("DELETE", "/v1/vnets/{name}", "/v1/vnets/blue", "", ADMIN),
    ("GET", "/v1/vports", "/v1/vports?vnet=blue", "", ALL),
    ("GET", "/v1/vports/{endpoint}", "/v1/vports/10.0.0.1?vnet=blue", "", ALL),
    ("POST", "/v1/vports/{endpoint}/thaw", "/v1/vports/10.0.0.1/thaw?vnet=blue", "", PORTS),
    // Beside the document.
    ("GET", "/metrics", "/metrics", "", LOOK),
    ("GET", "/healthz", "/healthz", "", LOOK),
];

/// A host with clients of each role, whose answers and refusals name others.
struct Host {
    router: Router,
    runtime: tokio::runtime::Runtime,
}

/// Answers as a host on which `red` is another tenant's network.
fn respond(request: Request) -> Result<String, String> {
    let row = |name: &str, vnet: &str, netns: &str| {
        let port = json!({"place": {"netns": netns}, "vnet": vnet, "name": name});
        json!({"port": port, "open": true})
    };
    let answer = match request {
        Request::Ports => json!({"ports": [
            row("shop-1", "blue", "shop-1"), row("shop-2", "red", "shop-2"),
            row("router", "blue", "routers"), row("redis", "red", "other"),
        ]}),
        Request::Fabric(Question::Vnets) => json!({"vnets": [
            {"vnet": "blue", "vni": 1, "ports": ["router", "shop-1"]},
            {"vnet": "red", "vni": 2, "ports": ["redis", "redfile", "shop-2"]},
        ]}),
        Request::Fabric(Question::Vports { .. }) => {
            json!({"vports": [{"vnet": "red"}, {"vnet": "blue"}]})
        }
        Request::Add(new) => match new.name.as_deref() {
            Some("shop-red") => return Err("there is no network `x`; there is red".to_owned()),
            Some("shop-file") => return Err("port `redfile` has it; use another".to_owned()),
            Some("shop-own") => return Err("port `router` of blue has the MAC; wait".to_owned()),
            _ => json!({"name": "shop-9", "vnet": "blue"}),
        },
        _ => json!({"done": true}),
    };
    Ok(answer.to_string())
}

impl Host {
    fn new(netns: &[&str]) -> Self {
        let clients = ROLES.map(|role| {
            let is_tenant = role == Role::Tenant;
            let words = |words: &[&str]| match is_tenant {
                true => words.iter().map(|&word| word.to_owned()).collect(),
                false => Vec::new(),
            };
            let (vnets, netns) = (words(&["blue"]), words(netns));
            HttpClient { name: role.to_string(), role, vnets, netns }
        });
        let tokens = Arc::new(ApiTokens::load(std::path::Path::new("/nonexistent")));
        let keys = Arc::new(Keys::new(tokens, clients.to_vec()));
        let router = Api::new("h1", Arc::new(respond)).router();
        let router = router.layer(from_fn_with_state(keys, admit));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { router, runtime }
    }

    fn send(&self, role: Role, line: &str, body: &str) -> (u16, String) {
        use hyper::service::Service as _;
        let (method, path) = line.split_once(' ').unwrap();
        let request = HttpRequest::builder().method(method).uri(path);
        let request = request.header("Content-Type", "application/json");
        let mut request = request.body(Body::from(body.to_owned())).unwrap();
        request.extensions_mut().insert(Peer::Remote);
        request.extensions_mut().insert(Shown(Some(vec![role.to_string()].into())));
        self.runtime.block_on(async {
            let service = hyper_util::service::TowerToHyperService::new(self.router.clone());
            let response = service.call(request).await.unwrap();
            let status = response.status().as_u16();
            let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
            (status, String::from_utf8(body.to_vec()).unwrap())
        })
    }
}

/// An operation that is new needs a decision for each role.
#[test]
fn each_operation_decided_for_each_role() {
    let decided: BTreeSet<String> =
        OPERATIONS.iter().map(|(method, path, ..)| format!("{method} {path}")).collect();
    let documented = operations()
        .iter()
        .flat_map(|(path, methods)| methods.iter().map(move |method| format!("{method} {path}")));
    let beside = ["GET /metrics", "GET /healthz"].map(str::to_owned);
    assert_eq!(decided, documented.chain(beside).collect(), "decide each operation here");
    let host = Host::new(&["shop-*"]);
    for (method, _, path, body, roles) in OPERATIONS {
        for role in ROLES {
            let line = format!("{method} {path}");
            let (status, answer) = host.send(role, &line, body);
            let is_refused = [401, 403].contains(&status);
            assert_eq!(!is_refused, roles.contains(&role), "{role}: {line}: {status} {answer}");
            let tells = is_refused && !answer.contains("\"code\":\"forbidden\"");
            assert!(!tells, "{role}: {line}: {answer}");
            let leaks =
                role == Role::Tenant && !path.ends_with(".json") && answer.contains("red\"");
            assert!(!leaks, "{line}: {answer}");
        }
    }
}

#[test]
fn tenant_has_ports_in_own_namespaces() {
    let host = Host::new(&["shop-*"]);
    let add = |rest: &str| {
        let body = format!("{{\"vnet\":\"blue\",{rest}}}");
        host.send(Role::Tenant, "POST /v1/ports", &body)
    };
    let cni = r#""cni":{"network":"n","container":"c","interface":"i"}"#;
    for (rest, status, part) in [
        (r#""place":{"netns":"shop-9"},"name":"shop-9b","ips":["10.0.0.7/24"]"#, 201, "shop-9"),
        (r#""place":{"netns":"other"}"#, 403, "shop-*"),
        (r#""place":{"netns":"/run/netns/shop-9"}"#, 403, "shop-*"),
        (r#""place":{"netns":"shop-/../other"}"#, 403, "shop-*"),
        (r#""place":{"pid":1}"#, 403, "namespaces alone"),
        (r#""place":"host""#, 403, "namespaces alone"),
        (r#""place":{"tap":"shop-1"}"#, 403, "namespaces alone"),
        (r#""place":{"netns":"shop-9"},"name":"db""#, 403, "names its ports"),
        (&format!(r#""place":{{"netns":"shop-9"}},{cni}"#), 403, "container runtimes"),
    ] {
        let (seen, answer) = add(rest);
        assert!(seen == status && answer.contains(part), "{rest}: {seen} {answer}");
    }
    let body = OWN_PORT.replace("blue", "red");
    assert_eq!(host.send(Role::Tenant, "POST /v1/ports", &body).0, 403);
    let without = Host::new(&[]);
    let (status, answer) = without.send(Role::Tenant, "POST /v1/ports", OWN_PORT);
    assert!(status == 403 && answer.contains("--netns"), "{answer}");
    assert_eq!(without.send(Role::Tenant, "DELETE /v1/ports/shop-1", "").0, 403);
    assert_eq!(without.send(Role::Tenant, "GET /v1/ports/shop-1", "").0, 200);
}

/// A port of others is as none: its answer differs in nothing but the name that was asked for.
#[test]
fn ports_of_others_are_as_none() {
    let host = Host::new(&["shop-*"]);
    for method in ["GET", "DELETE"] {
        let ask = |name: &str| {
            let (status, answer) =
                host.send(Role::Tenant, &format!("{method} /v1/ports/{name}"), "");
            (status, answer.replace(name, "NAME"))
        };
        let none = ask("nothing");
        assert!(none.0 == 404 && none.1.contains("no_such_port"), "{none:?}");
        for other in ["redis", "redfile", "shop-2"] {
            assert_eq!(ask(other), none, "{method} {other}");
        }
    }
    // A port of its network that somebody else gave it: to be seen, not to be deleted.
    assert_eq!(host.send(Role::Tenant, "GET /v1/ports/router", "").0, 200);
    assert_eq!(host.send(Role::Tenant, "DELETE /v1/ports/router", "").0, 403);
}

#[test]
fn refusals_have_no_names_of_others() {
    let host = Host::new(&["shop-*"]);
    for (name, part) in [
        ("shop-red", "outside of this tenant's networks"),
        ("shop-file", "outside of this tenant's networks"),
        ("shop-own", "port `router` of blue has the MAC"),
    ] {
        let body = OWN_PORT.replace("\"vnet\"", &format!("\"name\":\"{name}\",\"vnet\""));
        let (status, answer) = host.send(Role::Tenant, "POST /v1/ports", &body);
        let answer = answer.replace(name, "NAME");
        assert!(status == 409 && answer.contains(part) && !answer.contains("red"), "{answer}");
        let (_, answer) = host.send(Role::Operator, "POST /v1/ports", &body);
        assert!(!answer.contains("outside"), "{answer}");
    }
}

#[test]
fn places_of_a_host_are_not_one_tenants() {
    let grant = Grant {
        name: "shop".to_owned(),
        role: Role::Tenant,
        vnets: vec!["blue".to_owned()],
        netns: vec!["shop-*".to_owned()],
    };
    let host = |count: usize| {
        move |request: Request| {
            let row = |at: usize| {
                let name = format!("shop-{at}");
                json!({"port": {"place": {"netns": name}, "vnet": "blue", "name": name},
                       "open": true})
            };
            let rows: Vec<Value> = (0..count).map(row).collect();
            Ok(if request == Request::Ports { json!({"ports": rows}) } else { json!({}) }
                .to_string())
        }
    };
    let add = |netns: &str, count: usize| {
        let body = OWN_PORT.replace("shop-9", netns);
        let new = Box::new(serde_json::from_str(&body).unwrap());
        Tenant(grant.clone()).answer(Request::Add(new), &host(count))
    };
    assert!(add("shop-new", PORTS_MAX - 1).is_ok());
    assert!(add("shop-new", PORTS_MAX).unwrap_err().contains("delete one"));
    // The same port again is no further one.
    assert!(add("shop-3", PORTS_MAX).is_ok());
}

#[test]
fn unlisted_request_refused_whatever_its_path() {
    let grant = Grant {
        name: "shop".to_owned(),
        role: Role::Tenant,
        vnets: vec!["blue".to_owned()],
        netns: Vec::new(),
    };
    let question =
        |vnet: Option<&str>| Request::Fabric(Question::Vports { vnet: vnet.map(str::to_owned) });
    for (request, is_admitted) in [
        (question(Some("blue")), true),
        (question(Some("red")), false),
        (question(None), false),
        (Request::Reload, false),
        (Request::Status, false),
        (Request::Fabric(Question::Members), false),
    ] {
        let done = Tenant(grant.clone()).answer(request.clone(), &respond);
        assert_eq!(done.is_ok(), is_admitted, "{request:?}");
    }
}

#[test]
fn tenant_sees_rows_of_own_networks() {
    let own = ["blue".to_owned()];
    let line = r#"{"ports":[{"port":{"vnet":"blue"},"open":true},{"port":{"vnet":"red"}},{}]}"#;
    assert_eq!(narrowed_to(line, &own), r#"{"ports":[{"open":true,"port":{"vnet":"blue"}}]}"#);
    let line = r#"{"vnets":[{"vnet":"red","vni":7},{"vnet":"blue","vni":8}]}"#;
    assert_eq!(narrowed_to(line, &own), r#"{"vnets":[{"vnet":"blue","vni":8}]}"#);
    assert_eq!(narrowed_to("no JSON", &own), "{}");
}
