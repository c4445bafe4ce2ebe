//! The peer of a commit: three members of etcd on the loopback of a namespace, each with a folder
//! of its own.
//!
//! A put goes to the member that was started first, by its JSON gateway, over one connection that
//! is kept. The package's own service is not used.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::net::{Net, PATIENCE, is_installed, run, wait_for};

/// Members.
const MEMBERS: u16 = 3;
/// Port of the first member's clients; that of its peers is the next one.
const PORT: u16 = 23_790;
/// Size of a value.
const VALUE_SIZE: usize = 128;

/// Returns the reason why etcd cannot take part; `None` if it can.
pub(super) fn obstacle() -> Option<String> {
    (!is_installed("etcd")).then(|| "etcd is not installed (scripts/setup.sh bench)".to_owned())
}

/// Returns the version of etcd, for people.
pub(super) fn version() -> String {
    let said = run("etcd --version").unwrap_or_default();
    said.lines().next().unwrap_or("etcd").to_owned()
}

/// Three members, and a connection to one.
pub(super) struct Etcd {
    connection: BufReader<TcpStream>,
    members: Vec<Child>,
    _net: Net,
}

impl Etcd {
    /// Starts the members, and waits until one of them takes a put.
    ///
    /// # Errors
    /// If they do not start, with the place of their logs.
    pub(super) fn start() -> anyhow::Result<Self> {
        let mut net = Net::new("etcd")?;
        let netns = net.netns("etcd")?;
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let ports = |id: u16| (PORT + 2 * id, PORT + 2 * id + 1);
        let all: Vec<String> =
            (0..MEMBERS).map(|id| format!("e{id}={}", url(ports(id).1))).collect();
        let mut members = Vec::new();
        for id in 0..MEMBERS {
            let dir = net.dir().join(format!("e{id}"));
            fs::create_dir_all(&dir)?;
            let log = File::create(dir.join("log"))?;
            let (client, peer) = (url(ports(id).0), url(ports(id).1));
            let mut command = netns.command("etcd");
            command.args(["--name", &format!("e{id}"), "--data-dir"]).arg(dir.join("data"));
            command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
            command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
            command.args(["--initial-cluster", &all.join(","), "--log-level", "warn"]);
            command.stdout(log.try_clone()?).stderr(log).stdin(Stdio::null());
            members.push(command.spawn().context("cannot start etcd")?);
        }
        let mut connection = None;
        wait_for("etcd takes a put", || {
            connection = netns.inside(|| TcpStream::connect(("127.0.0.1", PORT)))?.ok();
            let Some(stream) = &connection else { return Ok(false) };
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_nodelay(true)?;
            Ok(put(&mut BufReader::new(stream.try_clone()?), 0).is_ok())
        })?;
        let connection = BufReader::new(connection.context("no connection to etcd")?);
        Ok(Self { connection, members, _net: net })
    }

    /// Puts a value; returns the time until it is durable at a majority.
    ///
    /// # Errors
    /// If it is refused.
    pub(super) fn put(&mut self, number: u32) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        put(&mut self.connection, number)?;
        Ok(begin.elapsed())
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in &mut self.members {
            _ = member.kill();
            _ = member.wait();
        }
    }
}

/// Sends a put and reads its answer.
fn put(connection: &mut BufReader<TcpStream>, number: u32) -> anyhow::Result<()> {
    // Keys and values of JSON are in base64: digits alone are their own alphabet.
    let body = serde_json::json!({
        "key": format!("{:08}", number % 1_000),
        "value": "A".repeat(VALUE_SIZE.div_ceil(3) * 4),
    });
    let body = body.to_string();
    let request = format!(
        "POST /v3/kv/put HTTP/1.1\r\nHost: etcd\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.get_mut().write_all(request.as_bytes())?;
    let (mut size, mut line) = (0, String::new());
    connection.read_line(&mut line)?;
    ensure!(line.contains(" 200 "), "etcd refuses a put: {}", line.trim());
    loop {
        line.clear();
        ensure!(connection.read_line(&mut line)? > 0, "etcd hung up");
        let Some((key, value)) = line.split_once(':') else { break };
        if key.eq_ignore_ascii_case("content-length") {
            size = value.trim().parse()?;
        }
    }
    connection.read_exact(&mut vec![0; size])?;
    Ok(())
}
