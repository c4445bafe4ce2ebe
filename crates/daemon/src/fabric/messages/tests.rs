use std::sync::Mutex;

use super::*;
use crate::fabric::tests::{Folder, certificates, free_port, plan, start_with, wait_for};

/// A configuration that writes down all calls.
#[derive(Debug, Default)]
struct Log(Mutex<Vec<(HostId, Call)>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Connected(Result<(), SendError>),
    Received(usize, u8),
    Unsent(SendError),
    Gone,
}

impl Log {
    fn note(&self, host: HostId, call: Call) {
        self.0.lock().unwrap().push((host, call));
    }

    fn of(&self, host: HostId) -> Vec<Call> {
        let all = self.0.lock().unwrap();
        all.iter().filter(|call| call.0 == host).map(|call| call.1).collect()
    }
}

impl ConfigPort for Log {
    fn connected(&self, host: HostId, takes_messages: Result<(), SendError>) {
        self.note(host, Call::Connected(takes_messages));
    }

    fn received(&self, host: HostId, message: Vec<u8>) {
        assert!(message.iter().all(|byte| *byte == message[0]));
        self.note(host, Call::Received(message.len(), message[0]));
    }

    fn unsent(&self, host: HostId, why: SendError) {
        self.note(host, Call::Unsent(why));
    }

    fn gone(&self, host: HostId) {
        self.note(host, Call::Gone);
    }
}

#[test]
fn config_message_arrives_whole_from_authenticated_member() {
    let folder = Folder::new("fabric-messages");
    certificates(&folder, &["h1", "h2"]);
    let port = free_port();
    let logs = [1, 2].map(|_| Arc::new(Log::default()));
    let [h1, h2] = [1_u8, 2].map(|own| {
        let log = Arc::clone(&logs[usize::from(own) - 1]);
        start_with(&folder, &plan(&folder, own, 2, port), log)
    });
    let (first, second) = (HostId(1), HostId(2));
    let up = Call::Connected(Ok(()));
    wait_for("both are connected", || {
        logs[0].of(second).contains(&up) && logs[1].of(first).contains(&up)
    });
    h1.send_config(second, vec![1; 3]);
    h1.send_config(second, vec![2; 5 << 20]);
    h1.send_config(second, vec![3; 1]);
    h2.send_config(first, vec![4; 40_000]);
    h1.send_config(HostId(9), vec![5; 1]);
    h1.send_config(second, Vec::new());
    let (small, large, last) =
        (Call::Received(3, 1), Call::Received(5 << 20, 2), Call::Received(1, 3));
    wait_for("all arrive", || logs[1].of(first) == [up, small, large, last]);
    let unsent = Call::Unsent(SendError::Empty);
    wait_for("and the other way", || {
        let calls = logs[0].of(second);
        calls.contains(&Call::Received(40_000, 4)) && calls.contains(&unsent)
    });
    assert_eq!(logs[0].of(HostId(9)), [Call::Unsent(SendError::NotConnected)]);
    h2.leave();
    wait_for("it is gone", || logs[0].of(second).last() == Some(&Call::Gone));
    h1.send_config(second, vec![6; 1]);
    let unsent = Call::Unsent(SendError::NotConnected);
    wait_for("it is told", || logs[0].of(second).last() == Some(&unsent));
}
