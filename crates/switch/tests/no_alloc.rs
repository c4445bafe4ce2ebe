//! A switch allocates no memory after it is made. This test has a binary of its own, since its
//! allocator counts.

use std::net::Ipv4Addr;

use allocation_counter::measure;
use sluice_base::{Batch, Buf, InputId, Mac, Nanos, PortId, Priority, Prng, TunnelId, VnetId};
use sluice_switch::{Command, Destination, Egress, Switch, SwitchConfig, Taken, Target};

mod harness;

use harness::config::{fitted, random, random_access};
use harness::frames::{Outer, Tenant, arp, in_vxlan, pause, pfc};
use harness::ops::address;

/// A handle that owns nothing.
#[derive(Clone, Copy, Debug)]
struct Handle {
    head: &'static [u8],
    size: u32,
}

impl Handle {
    fn new(bytes: &[u8]) -> Self {
        let head = Box::leak(bytes[..bytes.len().min(128)].to_vec().into_boxed_slice());
        Self { head, size: u32::try_from(bytes.len()).unwrap() }
    }
}

impl Buf for Handle {
    fn head(&self) -> &[u8] {
        self.head
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn truncate(&mut self, size: u32) {
        self.head = &self.head[..self.head.len().min(size as usize)];
        self.size = size;
    }
}

/// Returns frames of every kind.
fn corpus(rng: &mut Prng) -> Vec<Handle> {
    let mut frames = Vec::new();
    for vnet in 0..3_u16 {
        for n in 0..12 {
            let dst = match n {
                10 => Mac::BROADCAST,
                11 => Mac([0x33, 0x33, 0, 0, 0, 1]),
                _ => address(vnet, n),
            };
            let size = 60 + u32::try_from(rng.below(1_600)).unwrap();
            let dscp = u8::try_from(rng.below(64)).unwrap();
            let inner = Tenant::new(dst, Mac([2, 1, 0, 0, 0, 1]), dscp, size).bytes();
            let outer = Outer {
                dst: harness::config::underlay_mac(1),
                remote: Ipv4Addr::new(10, 0, 0, 2 + u8::try_from(rng.below(4)).unwrap()),
                local: harness::config::vtep(1),
                vni: 100 + u32::from(vnet),
                dscp,
                ecn: u8::try_from(rng.below(4)).unwrap(),
                pcp: None,
            };
            frames.push(Handle::new(&in_vxlan(&outer, &inner)));
            frames.push(Handle::new(&inner));
        }
    }
    frames.extend(
        [pause(9), pause(0), pfc(0xff, [100; 8]), pfc(0xff, [0; 8])].map(|b| Handle::new(&b)),
    );
    frames.extend([Handle::new(&[]), Handle::new(&[1, 2, 3])]);
    let src = Mac([2, 1, 0, 0, 0, 1]);
    let neighbors = [Mac::BROADCAST, address(0, 1)].map(|dst| arp(dst, src, [10, 1, 0, 1].into()));
    frames.extend(neighbors.map(|bytes| Handle::new(&bytes)));
    frames
}

struct Counts {
    received: u64,
    sent: u64,
    copied: u64,
    attached: u64,
}

/// Gives a command of control, or changes a port or tunnel, which may be refused.
fn command(switch: &mut Switch<Handle>, now: Nanos, port: PortId, rng: &mut Prng) {
    let vnet = VnetId(u16::try_from(rng.below(3)).unwrap());
    let mac = address(vnet.0, u8::try_from(rng.below(10)).unwrap());
    let tunnel = TunnelId(u16::try_from(rng.below(3)).unwrap());
    let hop = rng.chance(1, 2).then_some(mac);
    let (to_port, to_tunnel) = (Destination::Port(port), Destination::Tunnel(tunnel));
    _ = match rng.below(10) {
        0 => switch.command(now, Command::Remove { vnet, mac }),
        1 => switch.command(now, Command::Reject { vnet, mac }),
        2 => switch.set_next_hop(now, tunnel, hop),
        3 => switch.command(now, Command::Install { vnet, mac, to: to_tunnel }),
        6 => {
            switch.attach_control(rng.chance(3, 4));
            Ok(())
        }
        7 => switch.bind(port, mac, [None; 4]),
        8 => switch.command(now, Command::Unbind { port, mac, ip: None }),
        9 => switch.command(now, Command::ForgetDecap { vnet, tunnel }),
        _ => switch.command(now, Command::Install { vnet, mac, to: to_port }),
    };
}

/// Takes steps of every kind.
fn drive(
    switch: &mut Switch<Handle>,
    config: &SwitchConfig,
    frames: &[Handle],
    seed: u64,
    batch: &mut Batch<Handle>,
) -> Counts {
    let mut rng = Prng::new(seed);
    let mut counts = Counts { received: 0, sent: 0, copied: 0, attached: 0 };
    let mut now = Nanos::from_millis(1);
    let control = switch.control_input();
    let inputs = u64::from(control.0);
    let vnets = config.vnets.len() as u64;
    let ports = u64::from(switch.port_of(InputId(control.0 - 1)).unwrap().0) + 1;
    for step in 0..5_000 {
        let port = PortId(u16::try_from(rng.below(ports)).unwrap());
        let input = InputId(u16::try_from(rng.below(inputs)).unwrap());
        match rng.below(16) {
            0..=5 => {
                let window = switch.window(input).of_any();
                let mut bytes = 0;
                let most = u64::from(window.frames.min(64));
                while (batch.len() as u64) < most && bytes < window.bytes.0 {
                    let frame = frames[usize::try_from(rng.below(frames.len() as u64)).unwrap()];
                    bytes += u64::from(frame.size);
                    batch.push(frame).unwrap();
                }
                counts.received += batch.len() as u64;
                switch.receive(now, input, batch);
            }
            6..=8 => {
                let mut room = rng.below(20);
                let mut sink = |_: &Egress<'_, Handle>| {
                    room = room.saturating_sub(1);
                    if room == 0 { Taken::No } else { Taken::All }
                };
                counts.sent += u64::from(switch.transmit(now, port, &mut sink));
            }
            9 | 10 => {
                for input in 0..=switch.pool_input().0 {
                    switch.reclaim(InputId(input), batch);
                    let _ = batch.drain().count();
                }
            }
            11 => {
                let mut room = rng.below(8);
                switch.copy_to_shared(input, |handle| {
                    if room == 0 {
                        return Err(handle);
                    }
                    room -= 1;
                    counts.copied += 1;
                    Ok(handle)
                });
            }
            12 => command(switch, now, port, &mut rng),
            13 => {
                let to = match rng.below(3) {
                    0 => Target::Port(port),
                    1 => Target::Address(VnetId(0), address(0, 1)),
                    _ => Target::Tunnel(VnetId(0), TunnelId(0)),
                };
                switch.used_since(50, |_, _, _| {});
                let _ = switch.inject(now, frames[1], to);
                while switch.notice().is_some() {}
            }
            14 => {
                now = now.after(Nanos(rng.below(200_000)));
                switch.advance(now);
                let _ = (switch.deadline(), switch.has_work(now, port), switch.busy_port(port));
            }
            15 if step > 4_900 || (step > 4_000 && rng.chance(1, 8)) => {
                let _ = switch.detach(now, port);
            }
            15 if step > 4_000 => {
                let spare_port =
                    config.spare.as_ref().map_or(&config.ports[0], |spare| &spare.like);
                let port = fitted(random_access(&mut rng, vnets), spare_port);
                counts.attached += u64::from(switch.attach(now, &port).is_ok());
            }
            _ => {
                let _ = switch.pause_state(now, port, Priority::ZERO);
            }
        }
    }
    counts
}

#[test]
fn nothing_is_allocated_after_the_start() {
    let (mut received, mut sent, mut copied, mut dropped, mut attached) = (0, 0, 0, 0, 0);
    for seed in 0..60 {
        let mut rng = Prng::new(seed);
        let config = random(&mut rng);
        let frames = corpus(&mut rng);
        let mut switch: Switch<Handle> = Switch::new(&config, seed, Nanos::ZERO).unwrap();
        let mut batch = Batch::with_limit(64);
        let mut counts = None;
        let memory =
            measure(|| counts = Some(drive(&mut switch, &config, &frames, seed, &mut batch)));
        let counts = counts.unwrap();
        assert_eq!(memory.count_total, 0, "seed {seed}: {memory:?}");
        let audit = switch.audit();
        assert!(audit.is_closed());
        received += counts.received;
        sent += counts.sent;
        copied += counts.copied;
        attached += counts.attached;
        dropped += audit.total(|row| row.frames.dropped);
    }
    // The steps reach the states that they are meant for.
    assert!(received > 50_000 && sent > 10_000, "{received} {sent}");
    assert!(copied > 1_000 && dropped > 5_000, "{copied} {dropped}");
    assert!(attached > 100, "{attached}");
}

#[test]
fn the_counter_counts() {
    assert_eq!(measure(|| drop(vec![1_u8])).count_total, 1);
}
