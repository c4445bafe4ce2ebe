//! Fuzzes `show.sock` with lines that may be requests, and applies requests that add and delete
//! ports.
//!
//! Nothing may panic. No line exceeds its size limit. A request that is written and read again is
//! the same. Among admitted ports no two have the same name, device, MAC or IP address.
#![no_main]

use std::io::BufReader;

use libfuzzer_sys::fuzz_target;
use sluice_api::port::{NewPort, Place};
use sluice_base::Mac;
use sluice_daemon::config::{self, DeviceFacts, Devices, Plan};
use sluice_daemon::ipc::protocol::{self, Request};

/// Number of ports that are kept of an input.
const PORTS_MAX: usize = 8;
/// Number of requests that are read of an input.
const REQUESTS_MAX: usize = 32;

/// The configuration of the tests of added ports.
const HOST: &str = include_str!("../../crates/daemon/src/config/added/tests/host.toml");

struct Fake;

impl Devices for Fake {
    fn facts(&self, _: &str) -> Option<DeviceFacts> {
        Some(DeviceFacts { mac: Mac([2, 0, 0, 0, 0, 0xee]), mtu: 1500 })
    }
}

thread_local! {
    static PLAN: Plan = config::plan("h1.toml", HOST, &Fake).expect("it is fine");
}

fuzz_target!(|bytes: &[u8]| {
    let (mut reader, mut ports) = (BufReader::new(bytes), Vec::new());
    for _ in 0..REQUESTS_MAX {
        match protocol::read_request(&mut reader) {
            Ok(Some(request)) => {
                let mut text = serde_json::to_vec(&request).expect("it is written");
                text.push(b'\n');
                let again = protocol::read_request(&mut &text[..]).expect("it is read");
                assert_eq!(again.as_ref(), Some(&request));
                take(request, &mut ports);
            }
            Ok(None) => break,
            Err(error) => return assert!(!error.to_string().is_empty()),
        }
    }
});

fn take(request: Request, ports: &mut Vec<NewPort>) {
    match request {
        Request::Add(new) => match PLAN.with(|plan| config::admit(plan, ports, &new)) {
            Ok(admitted) => {
                let again = PLAN.with(|plan| config::admit(plan, ports, &admitted));
                assert_eq!(again.as_ref(), Ok(&admitted), "the same words come to the same port");
                check(&admitted, ports);
                if ports.len() < PORTS_MAX {
                    ports.push(admitted);
                }
            }
            Err(why) => assert!(!why.is_empty()),
        },
        Request::Del(name) => ports.retain(|port| port.name.as_ref() != Some(&name)),
        Request::Placement(sluice_api::placement::Question::Set(policy)) => {
            if policy.check().is_ok() {
                let size = serde_json::to_vec(&policy).expect("it is written").len();
                assert!(size <= sluice_api::placement::POLICY_SIZE_MAX);
            }
        }
        _ => {}
    }
}

fn check(new: &NewPort, others: &[NewPort]) {
    let mac = |port: &NewPort| port.mac.as_ref().map(|text| text.parse::<Mac>().expect("a MAC"));
    let name = new.name.as_deref().expect("it has a name");
    assert!(!name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control()));
    let device = new.device.as_deref().expect("it has a device");
    assert!(!device.is_empty() && device.len() <= 15 && !device.contains('/'));
    assert!(mac(new).is_none_or(|mac| !mac.is_group() && mac != Mac::default()));
    assert!(new.vnet == "red" || new.vnet == "blue");
    assert!(new.ips.is_empty() || new.mac.is_some() || matches!(new.place, Place::Tap(_)));
    for other in others {
        assert_ne!(other.name, new.name);
        assert!(other.place != new.place || other.device != new.device);
        if other.vnet == new.vnet {
            assert!(mac(new).is_none() || mac(other) != mac(new));
            let ips = |port: &NewPort| port.ips.iter().map(|cidr| cidr.ip).collect::<Vec<_>>();
            assert!(!ips(other).iter().any(|ip| ips(new).contains(ip)));
        }
    }
}
