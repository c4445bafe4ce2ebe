//! With a data process that opens nothing and keeps what it is asked.

use std::io::{BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use serde_json::json;
use sluice_api::port::{Deleted, Place};

use super::*;
use crate::config::tests::Fake;
use crate::config::{self, Plan};
use crate::control::kept::DescriptorStore;
use crate::fabric::tests::Folder;
use crate::ipc::protocol::{self, Request};

const HOST: &str = include_str!("../../../config/added/tests/host.toml");

struct Scene {
    plan: Plan,
    ports: AddedPorts,
    asked: Receiver<&'static str>,
    folder: Folder,
}

impl Scene {
    fn new(word: &str) -> Self {
        let folder = Folder::new(&format!("notices-{word}"));
        let mut plan = config::plan("h1.toml", HOST, &Fake).unwrap();
        plan.run_dir = folder.to_path_buf();
        plan.state_dir = folder.to_path_buf();
        let listener = UnixListener::bind(folder.join("data.sock")).unwrap();
        let (sender, asked) = sync_channel(16);
        std::thread::spawn(move || {
            let streams = listener.incoming();
            streams.for_each(|stream| answer(&stream.unwrap(), &sender));
        });
        let ports = load(&plan);
        Self { plan, ports, asked, folder }
    }

    /// Adds the port of a client that goes on to listen.
    fn add(&self) -> Notice {
        self.ports.add_for(&web(), || false).unwrap().1
    }

    fn is_there(&self) -> bool {
        !self.ports.report().ports.is_empty()
    }

    /// Returns what the data process was asked since the last time.
    fn asked(&self) -> Vec<&'static str> {
        self.asked.try_iter().collect()
    }
}

fn load(plan: &Plan) -> AddedPorts {
    let files = Arc::new(DescriptorStore::new(&plan.run_dir));
    AddedPorts::load(plan, (None, None), files).unwrap()
}

fn answer(mut stream: &UnixStream, asked: &SyncSender<&'static str>) {
    let mut reader = BufReader::new(stream);
    match protocol::read_request(&mut reader) {
        Ok(Some(Request::Add(new))) => {
            _ = asked.send("add");
            let answer = json!({"name": new.name, "vnet": "blue", "device": "eth0", "number": 9});
            protocol::write(stream, &answer).unwrap();
        }
        Ok(Some(Request::Del(name))) => {
            _ = asked.send("del");
            protocol::write(stream, &Deleted { name, frames: 0 }).unwrap();
        }
        Ok(Some(Request::Lend(_))) => stream.write_all(b"[]\n").unwrap(),
        other => panic!("{other:?}"),
    }
}

fn web() -> NewPort {
    let place = serde_json::to_value(Place::Netns("web".to_owned())).unwrap();
    serde_json::from_value(json!({"place": place, "vnet": "blue"})).unwrap()
}

#[test]
fn port_nobody_was_told_of_goes() {
    let scene = Scene::new("untold");
    scene.ports.settle(&scene.add(), false);
    assert!(!scene.is_there());
    assert_eq!(scene.asked(), ["add", "del"]);
    let kept = std::fs::read_to_string(scene.folder.join("ports.json")).unwrap();
    assert!(kept.contains(r#""ports":[]"#), "{kept}");
    scene.ports.settle(&scene.add(), true);
    assert!(scene.is_there());
}

#[test]
fn port_stays_while_anybody_knows_of_it() {
    // What becomes of the answers to two clients, in this order.
    for (first, second, stays) in
        [(true, false, true), (false, true, true), (true, true, true), (false, false, false)]
    {
        let scene = Scene::new(&format!("two-{first}-{second}"));
        let notices = [scene.add(), scene.add()];
        scene.ports.settle(&notices[0], first);
        assert!(scene.is_there(), "the second answer is under way");
        scene.ports.settle(&notices[1], second);
        assert_eq!(scene.is_there(), stays, "{first} {second}");
    }
    // A control process that is started again knows only that it was added.
    let scene = Scene::new("kept");
    scene.ports.settle(&scene.add(), true);
    let again = Scene { ports: load(&scene.plan), ..scene };
    again.ports.settle(&again.add(), false);
    assert!(again.is_there());
}

#[test]
fn later_port_of_same_name_stays() {
    let scene = Scene::new("later");
    let first = scene.add();
    scene.ports.delete("web").unwrap();
    scene.ports.settle(&scene.add(), true);
    scene.ports.settle(&first, false);
    assert!(scene.is_there());
}

#[test]
fn client_that_is_gone_gets_no_port() {
    let scene = Scene::new("gone");
    assert_eq!(scene.ports.add_for(&web(), || true).unwrap_err(), GONE);
    assert!(!scene.is_there());
    assert_eq!(scene.asked(), [""; 0]);
}
