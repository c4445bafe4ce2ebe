use std::io::{BufReader, Write as _};
use std::os::unix::net::UnixListener;

use sluice_base::{HostId, Mac, PortId, PriorityMask, ReceiverState, TunnelId, Vni};
use sluice_control::plane::Config;

use super::super::tests::{Folder, plan};
use super::*;
use crate::config::{Placed, Why, Workers};
use crate::ipc::channel::Senders;

/// Plays a data process, and returns its connections, worker by worker.
fn attached(folder: &Path, workers: u16) -> (Data, Vec<UnixStream>) {
    let listener = UnixListener::bind(folder.join(DATA_SOCKET)).unwrap();
    let server = std::thread::spawn(move || {
        let accept = |number| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let request = protocol::read_request(&mut reader).unwrap();
            assert_eq!(request, Some(Request::Attach(number)));
            let text = String::new;
            let hello = protocol::Hello { pid: 1, fingerprint: text(), version: text() };
            protocol::write(&stream, &hello).unwrap();
            let mut all = Vec::new();
            Event::All.write(&mut all);
            stream.write_all(&all).unwrap();
            stream
        };
        (0..workers).map(accept).collect()
    });
    let data = Data::attach(folder, workers).unwrap();
    (data, server.join().unwrap())
}

/// Returns the commands that a worker received, as text.
fn commands(stream: &mut UnixStream) -> Vec<String> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let (mut at, mut all) = (0, Vec::new());
    while let Some((command, size)) = Command::read(&bytes[at..]).unwrap() {
        all.push(match command {
            Command::Switch(base::Command::Install { .. }) => "install".to_owned(),
            Command::Switch(base::Command::Remove { .. }) => "remove".to_owned(),
            Command::Switch(base::Command::ForgetDecap { vnet, tunnel }) => {
                format!("forget {} {}", vnet.0, tunnel.0)
            }
            Command::Send { frame, .. } => String::from_utf8(frame.to_vec()).unwrap(),
            Command::Switch(base::Command::Hold { held, stuck, .. }) => {
                format!("hold {} {}", held.0, stuck.0)
            }
            other => panic!("{other:?}"),
        });
        at += size;
    }
    assert_eq!(at, bytes.len(), "nothing is left over");
    all
}

#[test]
fn fdb_commands_reach_all_workers_frames_only_owner() {
    let folder = Folder::new("data-workers");
    let mut plan = plan(&folder, 1, 2, 1);
    let placed = |worker| Placed { worker, why: Why::Configured, moves: false };
    // Two ports, and an underlay that both serve.
    plan.workers =
        Workers { count: 2, ports: vec![placed(Some(1)), placed(Some(0)), placed(None)] };
    let (mut data, mut streams) = attached(&folder, plan.worker_count());
    let vni = Vni::new(42).unwrap();
    let (mac, to) = (Mac([2, 0, 0, 0, 0, 1]), Location::Port(PortId(0)));
    data.order(&plan, &plane::Command::Install { vni, mac, to });
    for (to, text) in [
        (Location::Port(PortId(0)), "to port 0"),
        (Location::Port(PortId(1)), "to port 1"),
        (Location::Host(HostId(2)), "to a host"),
    ] {
        data.order(&plan, &plane::Command::Send { vni, to, frame: text.as_bytes().into() });
    }
    data.order(&plan, &plane::Command::Remove { vni, mac });
    data.flush();
    assert!(!data.is_full() && !data.has_told_all());
    data.wake();
    let config = Config::new(plan.own, 1, plan.fabric, plan.ports_max);
    data.read(Nanos::ZERO, &plan, &mut Plane::new(&config, 1, Nanos::ZERO)).unwrap();
    assert!(data.has_told_all());
    drop(data);
    let received: Vec<_> = streams.iter_mut().map(commands).collect();
    assert_eq!(received[0], ["install", "to port 1", "to a host", "remove"]);
    assert_eq!(received[1], ["install", "to port 0", "remove"]);
}

#[test]
fn hold_command_overtakes_queued_commands_at_every_worker() {
    let folder = Folder::new("data-holds");
    let mut plan = plan(&folder, 1, 2, 1);
    let placed = Placed { worker: Some(0), why: Why::Configured, moves: false };
    plan.workers = Workers { count: 2, ports: vec![placed] };
    let (mut data, mut streams) = attached(&folder, plan.worker_count());
    let (vni, mac) = (Vni::new(42).unwrap(), Mac([2, 0, 0, 0, 0, 2]));
    let to = Location::Host(HostId(2));
    while !data.is_full() {
        data.order(&plan, &plane::Command::Install { vni, mac, to });
    }
    let (held, stuck) = (PriorityMask(3), PriorityMask(1));
    assert!(!data.is_crammed(), "there is room for what does not wait");
    data.order(&plan, &plane::Command::Hold { vni, mac, host: HostId(2), held, stuck });
    let held = PriorityMask::NONE;
    data.order(&plan, &plane::Command::Hold { vni, mac, host: HostId(2), held, stuck: held });
    let readers: Vec<_> = streams
        .drain(..)
        .map(|mut stream| std::thread::spawn(move || commands(&mut stream)))
        .collect();
    while data.workers.iter().any(|worker| worker.pipe.has_out()) {
        data.flush();
    }
    // The record is read: else the connection would be reset.
    let config = Config::new(plan.own, 1, plan.fabric, plan.ports_max);
    data.wake();
    data.read(Nanos::ZERO, &plan, &mut Plane::new(&config, 1, Nanos::ZERO)).unwrap();
    drop(data);
    for reader in readers {
        let received = reader.join().unwrap();
        assert_eq!(received[..3], ["hold 3 1", "hold 0 0", "install"]);
    }
}

#[test]
fn reported_receiver_isolated_until_every_worker_clears_it() {
    let folder = Folder::new("data-receivers");
    let mut plan = plan(&folder, 1, 2, 1);
    let placed = Placed { worker: Some(0), why: Why::Configured, moves: false };
    plan.workers = Workers { count: 2, ports: vec![placed] };
    let (mut data, mut streams) = attached(&folder, plan.worker_count());
    let config = Config::new(plan.own, 1, plan.fabric, plan.ports_max);
    let mut plane = Plane::new(&config, 1, Nanos::ZERO);
    plane.add_host(Nanos::ZERO, HostId(2), &[], plane::Kind::Member);
    let mut tell = |data: &mut Data, plane: &mut Plane, worker: usize, held: u8| {
        let (mut bytes, mut tunnels) = (Vec::new(), Vec::new());
        let senders = Senders::write([TunnelId(0), TunnelId(9)].into_iter(), &mut tunnels);
        let (isolated, held, stuck) = (PriorityMask(held), PriorityMask(held), PriorityMask::NONE);
        let state = ReceiverState { isolated, held, stuck };
        Event::Receiver { port: PortId(0), state, senders }.write(&mut bytes);
        streams[worker].write_all(&bytes).unwrap();
        data.wake();
        data.read(Nanos::ZERO, &plan, plane).unwrap();
        let port = plane.isolated().next().map(|(_, port)| port.clone());
        port.map(|port| (port.receiver.held.0, port.senders.into_iter().collect::<Vec<_>>()))
    };
    let senders = vec![HostId(2)];
    assert_eq!(tell(&mut data, &mut plane, 0, 1), Some((1, senders.clone())));
    assert_eq!(tell(&mut data, &mut plane, 1, 2), Some((3, senders.clone())), "both");
    assert_eq!(tell(&mut data, &mut plane, 0, 0), Some((2, senders)));
    assert_eq!(tell(&mut data, &mut plane, 1, 0), None);
}

#[test]
fn report_with_unknown_tunnel_recalled_by_later_plan() {
    let folder = Folder::new("data-unknown");
    let (old, new) = (plan(&folder, 1, 1, 1), plan(&folder, 1, 2, 1));
    let (mut data, mut streams) = attached(&folder, 1);
    let config = Config::new(old.own, 1, old.fabric, old.ports_max);
    let mut plane = Plane::new(&config, 1, Nanos::ZERO);
    let (mut bytes, mut tunnels) = (Vec::new(), Vec::new());
    for (vnet, tunnel) in [(0, 0), (0, 9), (7, 0)] {
        Event::Decap { vnet: VnetId(vnet), tunnel: TunnelId(tunnel) }.write(&mut bytes);
    }
    let senders = Senders::write([TunnelId(0)].into_iter(), &mut tunnels);
    let held = PriorityMask(1);
    let state = ReceiverState { isolated: held, held, stuck: PriorityMask::NONE };
    Event::Receiver { port: PortId(0), state, senders }.write(&mut bytes);
    streams[0].write_all(&bytes).unwrap();
    data.wake();
    data.read(Nanos::ZERO, &old, &mut plane).unwrap();
    let senders = |plane: &Plane| plane.isolated().next().map(|(_, port)| port.senders.len());
    assert_eq!(senders(&plane), Some(0));
    plane.add_host(Nanos::ZERO, HostId(2), &[], plane::Kind::Member);
    data.recall(Nanos::ZERO, &new, &mut plane);
    assert_eq!(senders(&plane), Some(1));
    data.recall(Nanos::ZERO, &new, &mut plane);
    // A command for a number that the plan does not have is not sent.
    let vni = Vni::new(42).unwrap();
    let install = |host| plane::Command::Install {
        vni,
        mac: Mac([2, 0, 0, 0, 0, 1]),
        to: Location::Host(HostId(host)),
    };
    data.order(&new, &install(9));
    data.order(&old, &install(2));
    data.order(&new, &install(2));
    data.flush();
    drop(data);
    assert_eq!(commands(&mut streams[0]), ["forget 0 0", "install"]);
}
