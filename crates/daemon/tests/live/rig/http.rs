//! A plain HTTP client, and the text of `/metrics`.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::Netns;

/// Longest silence of a server.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// An answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Sends a request on a connection, and reads until the server ends that.
pub(crate) fn get(stream: impl Read + Write, path: &str, accept: &str) -> Answer {
    // Of version 1.0: no server sends chunks, and all of them end the connection.
    converse(stream, &format!("GET {path} HTTP/1.0\r\nHost: h\r\nAccept: {accept}\r\n\r\n"))
}

/// Sends a request with a body in JSON to a socket: `POST /v1/vnets`.
pub(crate) fn send(socket: &Path, line: &str, body: &str) -> Answer {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(SILENCE_MAX)).unwrap();
    let length = body.len();
    let head = "Host: h\r\nContent-Type: application/json";
    let request = format!("{line} HTTP/1.0\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}");
    converse(stream, &request)
}

fn converse(mut stream: impl Read + Write, request: &str) -> Answer {
    let mut text = String::new();
    if stream.write_all(request.as_bytes()).is_err() || stream.read_to_string(&mut text).is_err() {
        return Answer::default();
    }
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or_default();
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

/// Connects to a port of a namespace's loopback address.
pub(crate) fn connect(netns: &Netns, port: u16) -> std::io::Result<TcpStream> {
    let stream = netns.inside(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)))?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    Ok(stream)
}

/// Asks a server in a namespace; an empty answer if it does not listen.
pub(crate) fn get_tcp(netns: &Netns, port: u16, path: &str, accept: &str) -> Answer {
    connect(netns, port).map(|stream| get(stream, path, accept)).unwrap_or_default()
}

/// Asks a server on a socket.
pub(crate) fn get_unix(socket: &Path, path: &str, accept: &str) -> Answer {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(SILENCE_MAX)).unwrap();
    get(stream, path, accept)
}

/// Returns the series of a text with their values: `name{label="…"}`.
pub(crate) fn series(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let pair = |line: &str| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        (series.to_owned(), value.parse().unwrap_or_else(|_| panic!("{line}")))
    };
    lines.map(pair).collect()
}
