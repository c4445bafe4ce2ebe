//! Requests as Docker 20.10.24 sends them, with identifiers and addresses of these tests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::*;

const NETWORK: &str = "05f75003ae896339";
const ENDPOINT: &str = "7764f8164e6b2e27d42659d2986dcfa4";

/// A folder that goes with its test.
struct Dir(PathBuf);

impl Dir {
    fn new(word: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("sluice-docker-{word}-{}", std::process::id()));
        _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn driver(&self) -> Driver {
        Driver::open(&self.0.join("state")).unwrap()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A host that knows network `blue` and keeps the ports that it is asked for.
struct FakeHost {
    socket: PathBuf,
    ports: Arc<Mutex<Vec<Value>>>,
}

impl FakeHost {
    fn new(dir: &Dir) -> Self {
        let socket = dir.0.join("show.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let ports = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&ports);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                answer(stream.unwrap(), &kept);
            }
        });
        Self { socket, ports }
    }

    fn ports(&self) -> Vec<Value> {
        self.ports.lock().unwrap().clone()
    }
}

fn answer(mut stream: UnixStream, ports: &Mutex<Vec<Value>>) {
    let mut line = String::new();
    BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
    let asked: Value = serde_json::from_str(&line).unwrap();
    let mut ports = ports.lock().unwrap();
    let answer = if let Some(new) = asked.get("add") {
        let at = ports.iter().position(|port| port["name"] == new["name"]);
        if at.is_none() {
            ports.push(new.clone());
        }
        json!({ "name": new["name"], "vnet": "blue", "device": new["place"]["tap"], "number": 1 })
    } else if let Some(name) = asked.get("del") {
        ports.retain(|port| port["name"] != *name);
        json!({ "name": name, "frames": 0 })
    } else if let Some(name) = asked.get("card") {
        let port = ports.iter().find(|port| port["name"] == *name).unwrap();
        json!({
            "device": port["place"]["tap"], "mac": port["mac"], "mtu": 1450, "up": false,
            "addresses": [], "routes": []
        })
    } else if asked == "ports" {
        let state = |port: &Value| json!({ "port": port, "open": true });
        json!({ "ports": ports.iter().map(state).collect::<Vec<_>>() })
    } else {
        panic!("nobody asks {asked}")
    };
    writeln!(stream, "{answer}").unwrap();
}

fn ask(driver: &Driver, method: &str, body: &Value) -> Value {
    driver.answer(&format!("/NetworkDriver.{method}"), body.to_string().as_bytes()).unwrap()
}

fn refused(driver: &Driver, method: &str, body: &Value) -> String {
    let answer = ask(driver, method, body);
    answer["Err"].as_str().unwrap_or_else(|| panic!("{method} {body}: {answer}")).to_owned()
}

fn network(options: &Value) -> Value {
    json!({
        "NetworkID": NETWORK,
        "Options": {
            "com.docker.network.enable_ipv6": false, "com.docker.network.generic": options
        },
        "IPv4Data": [{
            "AddressSpace": "LocalDefault", "Gateway": "10.42.0.1/16", "Pool": "10.42.0.0/16"
        }],
        "IPv6Data": []
    })
}

fn endpoint(id: &str, ip: &str, mac: &str, published: &Value) -> Value {
    json!({
        "NetworkID": NETWORK, "EndpointID": id,
        "Interface": { "Address": ip, "AddressIPv6": "", "MacAddress": mac },
        "Options": {
            "com.docker.network.endpoint.exposedports": [], "com.docker.network.portmap": published
        }
    })
}

fn short(id: &str) -> Value {
    json!({ "NetworkID": NETWORK, "EndpointID": id })
}

/// Writes a network down without asking a host for its vnet.
fn know(driver: &Driver, socket: &Path) {
    let asked = network(&json!({ "vnet": "blue", "socket": socket }));
    let asked = protocol::read(asked.to_string().as_bytes()).unwrap();
    driver.networks.insert(NETWORK, Network::of(&asked).unwrap()).unwrap();
}

#[test]
fn driver_says_what_it_is() {
    let dir = Dir::new("says");
    let driver = dir.driver();
    let active = driver.answer("/Plugin.Activate", b"").unwrap();
    assert_eq!(active, json!({ "Implements": ["NetworkDriver"] }));
    let able = driver.answer("/NetworkDriver.GetCapabilities", b"").unwrap();
    assert_eq!(able, json!({ "Scope": "local", "ConnectivityScope": "global" }));
    assert_eq!(driver.answer("/NetworkDriver.AllocateNetwork", b"{}"), None);
}

#[test]
fn endpoint_becomes_port_and_goes() {
    let dir = Dir::new("lives");
    let (host, driver) = (FakeHost::new(&dir), dir.driver());
    know(&driver, &host.socket);
    let new = endpoint(ENDPOINT, "10.42.1.7/16", "", &json!([]));
    for _ in 0..2 {
        // Docker asks again if it got no answer.
        let made = ask(&driver, "CreateEndpoint", &new);
        assert_eq!(made, json!({ "Interface": { "MacAddress": "02:42:0a:2a:01:07" } }));
        assert_eq!(host.ports().len(), 1);
    }
    let port = &host.ports()[0];
    assert_eq!(port["place"], json!({ "tap": "sl-7764f8164e6b" }));
    assert_eq!(port["ips"], json!(["10.42.1.7/16"]));
    assert_eq!((&port["vnet"], &port["mac"]), (&json!("blue"), &json!("02:42:0a:2a:01:07")));
    assert_eq!(port["cni"]["network"], format!("docker:{NETWORK}"));
    // A new process goes on with what is written down.
    let driver = dir.driver();
    let joined = ask(&driver, "Join", &new);
    let expected = json!({
        "InterfaceName": { "SrcName": "sl-7764f8164e6b", "DstPrefix": "eth" },
        "Gateway": "10.42.0.1", "DisableGatewayService": true
    });
    assert_eq!(joined, expected);
    let info = ask(&driver, "EndpointOperInfo", &short(ENDPOINT));
    assert_eq!(info["Value"]["vnet"], "blue");
    for _ in 0..2 {
        assert_eq!(ask(&driver, "Leave", &short(ENDPOINT)), json!({}));
        assert_eq!(ask(&driver, "DeleteEndpoint", &short(ENDPOINT)), json!({}));
        assert!(host.ports().is_empty());
    }
    assert!(refused(&driver, "Join", &new).contains("no port for endpoint"));
}

#[test]
fn address_given_again_clears_left_over() {
    let dir = Dir::new("again");
    let (host, driver) = (FakeHost::new(&dir), dir.driver());
    know(&driver, &host.socket);
    for (id, ip) in [("aa", "10.42.1.7/16"), ("bb", "10.42.1.8/16"), ("cc", "10.42.1.7/16")] {
        ask(&driver, "CreateEndpoint", &endpoint(id, ip, "", &Value::Null));
    }
    let names: Vec<Value> =
        host.ports().iter().map(|port| port["cni"]["container"].clone()).collect();
    assert_eq!(names, ["bb", "cc"]);
    // A network without endpoints, as Docker says, has no port.
    let gone = json!({ "NetworkID": NETWORK });
    for _ in 0..2 {
        assert_eq!(ask(&driver, "DeleteNetwork", &gone), json!({}));
        assert!(host.ports().is_empty());
    }
    let new = endpoint(ENDPOINT, "10.42.1.7/16", "", &Value::Null);
    assert!(refused(&driver, "CreateEndpoint", &new).contains("docker network create"));
    assert_eq!(ask(&driver, "DeleteEndpoint", &short(ENDPOINT)), json!({}));
}

#[test]
fn given_mac_is_not_answered() {
    let dir = Dir::new("mac");
    let (host, driver) = (FakeHost::new(&dir), dir.driver());
    know(&driver, &host.socket);
    let new = endpoint(ENDPOINT, "10.42.1.7/16", "02:42:0a:2a:77:77", &json!([]));
    assert_eq!(ask(&driver, "CreateEndpoint", &new), json!({ "Interface": {} }));
    assert_eq!(host.ports()[0]["mac"], "02:42:0a:2a:77:77");
    // `--ipam-driver null`: a plain card.
    ask(&driver, "CreateEndpoint", &endpoint("9f3c5511", "0.0.0.0/0", "", &json!([])));
    assert_eq!(host.ports()[1]["mac"], "06:42:9f:3c:55:11");
    assert!(host.ports()[1].get("ips").is_none());
}

#[test]
fn endpoint_has_addresses_of_both_families() {
    let dir = Dir::new("v6");
    let (host, driver) = (FakeHost::new(&dir), dir.driver());
    let mut asked = network(&json!({ "vnet": "blue", "socket": host.socket }));
    asked["IPv6Data"] = json!([{
        "AddressSpace": "LocalDefault", "Gateway": "fd42::1/64", "Pool": "fd42::/64"
    }]);
    let asked = protocol::read(asked.to_string().as_bytes()).unwrap();
    driver.networks.insert(NETWORK, Network::of(&asked).unwrap()).unwrap();
    let mut new = endpoint(ENDPOINT, "10.42.1.7/16", "", &json!([]));
    new["Interface"]["AddressIPv6"] = json!("fd42::7/64");
    ask(&driver, "CreateEndpoint", &new);
    assert_eq!(host.ports()[0]["ips"], json!(["10.42.1.7/16", "fd42::7/64"]));
    let joined = ask(&driver, "Join", &new);
    assert_eq!(
        (&joined["Gateway"], &joined["GatewayIPv6"]),
        (&json!("10.42.0.1"), &json!("fd42::1"))
    );
}

#[test]
fn published_ports_are_refused_by_name() {
    let dir = Dir::new("publish");
    let driver = dir.driver();
    know(&driver, Path::new("/nowhere/show.sock"));
    let published = json!([{
        "Proto": 6, "IP": "", "Port": 80, "HostIP": "", "HostPort": 8080, "HostPortEnd": 8080
    }]);
    let new = endpoint(ENDPOINT, "10.42.1.7/16", "", &published);
    for method in ["CreateEndpoint", "Join", "ProgramExternalConnectivity"] {
        let text = refused(&driver, method, &new);
        assert!(text.starts_with("`publish`: this driver publishes no port"), "{text}");
    }
    let plain = endpoint(ENDPOINT, "10.42.1.7/16", "", &json!([]));
    assert_eq!(ask(&driver, "ProgramExternalConnectivity", &plain), json!({}));
}

#[test]
fn options_are_checked_and_kept() {
    let dir = Dir::new("options");
    let driver = dir.driver();
    for (options, words) in [
        (json!({ "vlan": "7" }), "`vlan`: is no option of this driver; use one of vnet"),
        (json!({}), "`vnet`: is missing"),
        (json!({ "vnet": "blue", "mtu": "many" }), "`many` is no number"),
        (json!({ "vnet": "blue", "kind": "veth" }), "`kind`: is no option"),
        (json!({ "vnet": "blue", "host": "a", "socket": "/b" }), "stands beside `host`"),
        (json!({ "vnet": 7 }), "7 is no text"),
        (json!({ "vnet": "blue", "socket": "/nowhere/s" }), "no host answers on /nowhere/s"),
    ] {
        let text = refused(&driver, "CreateNetwork", &network(&options));
        assert!(text.contains(words), "{options}: {text}");
    }
    let read =
        |asked: Value| Network::of(&protocol::read(asked.to_string().as_bytes()).unwrap()).unwrap();
    let mtu = json!({ "vnet": "blue", "com.docker.network.driver.mtu": "1400" });
    assert_eq!(read(network(&mtu)).mtu, Some(1400));
    let mut internal = network(&json!({ "vnet": "blue" }));
    internal["Options"]["com.docker.network.internal"] = json!(true);
    let no_route = network(&json!({ "vnet": "blue", "no_default_route": "true" }));
    for asked in [internal, no_route] {
        assert_eq!(read(asked).joined("sl-1", "eth").get("Gateway"), None);
    }
}

#[test]
fn unreadable_requests_are_errors() {
    let dir = Dir::new("bad");
    let driver = dir.driver();
    for method in ["CreateNetwork", "DeleteNetwork", "CreateEndpoint", "Join", "DeleteEndpoint"] {
        for body in [
            json!(null),
            json!([]),
            json!({ "NetworkID": 7 }),
            json!({ "NetworkID": "", "EndpointID": "" }),
            json!({ "NetworkID": "../up", "EndpointID": "a b" }),
            json!({ "NetworkID": "é".repeat(9), "EndpointID": "ab".repeat(99) }),
        ] {
            assert!(refused(&driver, method, &body).contains("cannot be read"), "{method} {body}");
        }
        let cut = driver.answer(&format!("/NetworkDriver.{method}"), b"{\"NetworkID\"").unwrap();
        assert!(cut["Err"].as_str().unwrap().contains("cannot be read"));
    }
    know(&driver, Path::new("/nowhere/show.sock"));
    for ip in ["10.42.1.7", "10.42.1.7/99", "web", "10.42.0.0/16"] {
        let text = refused(&driver, "CreateEndpoint", &endpoint("ab", ip, "", &json!([])));
        assert!(text.contains(ip), "{text}");
    }
    // A damaged file is not taken for an empty one.
    std::fs::write(dir.0.join("state/networks.json"), "{").unwrap();
    assert!(Driver::open(&dir.0.join("state")).unwrap_err().contains("cannot be read"));
    let nowhere = Driver::open(Path::new("/proc/none")).unwrap_err();
    assert!(nowhere.contains("cannot make /proc/none"), "{nowhere}");
}

#[test]
fn socket_answers_within_bounds() {
    let dir = Dir::new("socket");
    let (driver, socket) = (dir.driver(), dir.0.join("plugins/sluice.sock"));
    let path = socket.clone();
    std::thread::spawn(move || serve(driver, &path));
    let connect = || {
        for _ in 0..500 {
            if let Ok(stream) = UnixStream::connect(&socket) {
                return stream;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("nobody listens")
    };
    let say = |head: &str, body: &[u8]| {
        let mut stream = connect();
        let size = body.len();
        _ = write!(stream, "{head} HTTP/1.1\r\nHost: d\r\nContent-Length: {size}\r\n\r\n");
        _ = stream.write_all(body);
        let mut text = String::new();
        _ = stream.read_to_string(&mut text);
        text
    };
    assert!(say("POST /Plugin.Activate", b"").contains("NetworkDriver"));
    assert!(say("POST /NetworkDriver.FreeNetwork", b"{}").starts_with("HTTP/1.1 404"));
    assert!(say("GET /Plugin.Activate", b"").starts_with("HTTP/1.1 405"));
    let large = vec![b' '; (1 << 20) + 1];
    assert!(say("POST /NetworkDriver.Join", &large).starts_with("HTTP/1.1 413"));
    let second = serve(Driver::open(&dir.0.join("state")).unwrap(), &socket).unwrap_err();
    assert!(second.contains("another driver listens there"), "{second}");
}
