//! Ordinary traffic.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use super::super::seen::Seen;
use super::super::station::Station;
use super::super::world::Host::{self, H1, H2};
use super::super::world::World;
use super::super::{Case, case};

pub(super) const CASES: &[Case] = &[
    case("traffic/tcp-across-hosts", |world| tcp(world, H2)),
    case("traffic/tcp-on-one-host", |world| tcp(world, H1)),
    case("traffic/port-unreachable", unreachable),
    case("traffic/router", router),
    case("traffic/router-with-many-behind-it", many_behind),
    case("traffic/between-bound-ports", bound),
    case("traffic/scan-of-ports", scan).with(&["nmap"]),
    case("traffic/scan-of-a-network", scan_network).with(&["nmap"]),
];

const BYTES: usize = 2_000_000;

/// Sends bytes over TCP; returns the number that arrives.
pub(super) fn transfer(from: &Station, to: &Station) -> usize {
    let listener = to.netns.inside(|| TcpListener::bind((to.ip, 0)).unwrap());
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            let mut accepted = None;
            super::super::station::until(Duration::from_secs(10), || {
                accepted = listener.accept().ok();
                accepted.is_some()
            });
            let Some((mut stream, _)) = accepted else { return 0 };
            stream.set_nonblocking(false).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut bytes = Vec::new();
            _ = stream.read_to_end(&mut bytes);
            bytes.len()
        });
        from.netns.inside(|| {
            let stream = TcpStream::connect_timeout(&address, Duration::from_secs(8));
            if let Ok(mut stream) = stream {
                stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
                _ = stream.write_all(&vec![7; BYTES]);
            }
        });
        server.join().unwrap()
    })
}

fn tcp(world: &World<'_>, host: Host) -> Seen {
    let [a, b] = world.stations([H1, host]);
    Seen::new().count("bytes there", transfer(&a, &b)).count("bytes back", transfer(&b, &a))
}

fn unreachable(world: &World<'_>) -> Seen {
    let [a, b] = world.stations([H1, H2]);
    a.reaches(b.ip);
    let socket = a.netns.udp(a.ip, 0);
    socket.connect((b.ip, 9)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket.send(b"anybody?").unwrap();
    let error = socket.recv(&mut [0; 8]).unwrap_err().kind();
    Seen::new().word("told", format!("{error:?}"))
}

/// A network behind a router: sources without a claim.
fn router(world: &World<'_>) -> Seen {
    let [a, r] = world.stations([H1, H2]);
    r.does("addr add 10.7.0.1/32 dev lo");
    a.does(&format!("route add 10.7.0.0/16 via {}", r.ip));
    let there = a.reaches(Ipv4Addr::new(10, 7, 0, 1));
    let back = r.prints(&format!("ping -n -c 2 -W 1 -I 10.7.0.1 {}", a.ip));
    Seen::new().word("there", there).word("back", back.contains("bytes from"))
}

/// Twenty machines behind one MAC.
fn many_behind(world: &World<'_>) -> Seen {
    let [a, r] = world.stations([H1, H2]);
    a.does(&format!("route add 10.7.0.0/16 via {}", r.ip));
    let mut reached = 0;
    for at in 1..=20 {
        r.does(&format!("addr add 10.7.0.{at}/32 dev lo"));
        let text = r.prints(&format!("ping -n -c 1 -W 1 -I 10.7.0.{at} {}", a.ip));
        reached += usize::from(text.contains("bytes from"));
    }
    Seen::new().count("reached from 20", reached)
}

fn bound(world: &World<'_>) -> Seen {
    let (a, b, c) = (world.bound(H1), world.bound(H2), world.bound(H1));
    Seen::new()
        .word("across hosts", a.reaches(b.ip))
        .word("on one host", a.reaches(c.ip))
        .count("bytes there", transfer(&a, &b))
}

fn scan(world: &World<'_>) -> Seen {
    let [a, b] = world.stations([H1, H2]);
    let _listener = b.netns.inside(|| TcpListener::bind((b.ip, 80)).unwrap());
    let text = a.prints(&format!("nmap -n -Pn -sT -T4 -p 70-89 {}", b.ip));
    Seen::new()
        .count("open", text.matches("/tcp open").count())
        .count("closed", text.matches(" closed ").count())
}

fn scan_network(world: &World<'_>) -> Seen {
    let stations = world.stations([H1, H2, H2, H1, H2]);
    let text = stations[0].prints("nmap -sn -n -PR -T4 10.0.0.1-60");
    Seen::new().count("found", text.matches("Host is up").count())
}
