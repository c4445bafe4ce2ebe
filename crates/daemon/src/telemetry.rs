//! Traces for a collector: OTLP 1.x in JSON, by HTTP, with TLS or without.
//!
//! ```text
//!   configuration ─ try_send ─▶ 64 traces ─▶ thread `traces` ─ POST, one at a time ─▶ collector
//!                      └─ full: dropped, counted
//! ```
//!
//! Nobody waits for a collector. One that is away costs a connection that fails, at most one a
//! second; what comes meanwhile beyond the 64 is dropped. A trace is sent once: it is never tried
//! again, as a collector that is slow would get more of it.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use ring::rand::{SecureRandom as _, SystemRandom};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use sluice_api::config::{CollectorAddress, HttpTraces};
use sluice_base::Nanos;

use crate::enroll::digits;
use crate::sys::clock;
use crate::sys::log::say;
use crate::sys::threads::spawn_behind;

/// Traces that wait to be sent.
const QUEUE_MAX: usize = 64;
/// Longest time of each step of a request.
const STEP_MAX: Duration = Duration::from_secs(2);
/// Time before the next attempt after a failure.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Most bytes of an answer that are read; its status is among the first.
const ANSWER_SIZE_MAX: usize = 4 << 10;

static SENT: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Returns the traces that a collector took, and those that were dropped.
pub(crate) fn counts() -> (u64, u64) {
    (SENT.load(Ordering::Relaxed), DROPPED.load(Ordering::Relaxed))
}

/// A part of a trace, by the monotonic clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) began: Nanos,
    pub(crate) ended: Nanos,
    /// Reason of a failure.
    pub(crate) failed: Option<String>,
}

impl Span {
    pub(crate) const fn new(name: String, began: Nanos, ended: Nanos) -> Self {
        Self { name, began, ended, failed: None }
    }
}

/// A trace: a span with its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    pub(crate) root: Span,
    /// Attributes of the root.
    pub(crate) attributes: Vec<(&'static str, String)>,
    pub(crate) spans: Vec<Span>,
}

/// The way to a collector.
#[derive(Clone, Debug)]
pub(crate) struct Exporter(SyncSender<Trace>);

impl Exporter {
    /// Starts the thread that sends. Without one, or with an address that cannot be used, there is
    /// no exporter, and the log says why.
    pub(crate) fn start(traces: &HttpTraces, host: &str) -> Option<Self> {
        let at = match traces.address() {
            Ok(address) => address,
            Err((_, why, remedy)) => {
                say!(warn: "no traces: {why}; {remedy}");
                return None;
            }
        };
        let (sender, queue) = sync_channel(QUEUE_MAX);
        let collector = Collector { at, host: host.to_owned() };
        match spawn_behind("traces", move || collector.run(&queue)) {
            Ok(()) => Some(Self(sender)),
            Err(error) => {
                say!(warn: "no traces: {error:#}");
                None
            }
        }
    }

    /// Returns an exporter whose traces are taken by a test.
    #[cfg(test)]
    pub(crate) fn channel() -> (Self, Receiver<Trace>) {
        let (sender, queue) = sync_channel(QUEUE_MAX);
        (Self(sender), queue)
    }

    /// Hands a trace over, if there is room.
    pub(crate) fn send(&self, trace: Trace) {
        if self.0.try_send(trace).is_err() {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

struct Collector {
    at: CollectorAddress,
    host: String,
}

impl Collector {
    fn run(&self, queue: &Receiver<Trace>) {
        let mut failed = None;
        for trace in queue {
            match self.post(&encoded(&trace, &self.host, offset())) {
                Ok(()) => {
                    SENT.fetch_add(1, Ordering::Relaxed);
                    failed = None;
                }
                Err(error) => {
                    DROPPED.fetch_add(1, Ordering::Relaxed);
                    let why = error.to_string();
                    if failed.as_ref() != Some(&why) {
                        say!(
                            warn: "the collector of traces at {} takes none: {why}; \
                                   `api.traces.endpoint` may have another address",
                            self.at.at
                        );
                        failed = Some(why);
                    }
                    std::thread::sleep(AFTER_FAILURE);
                }
            }
        }
    }

    fn post(&self, body: &str) -> io::Result<()> {
        let at = self.at.at;
        let client = self.at.ca.as_deref().map(|ca| tls(ca, at.ip())).transpose();
        let client = client.map_err(io::Error::other)?;
        let stream = TcpStream::connect_timeout(&at, STEP_MAX)?;
        stream.set_write_timeout(Some(STEP_MAX))?;
        stream.set_read_timeout(Some(STEP_MAX))?;
        match client {
            None => self.exchange(stream, body),
            Some(client) => self.exchange(StreamOwned::new(client, stream), body),
        }
    }

    fn exchange(&self, mut stream: impl Read + Write, body: &str) -> io::Result<()> {
        let (path, at, size) = (&self.at.path, self.at.at, body.len());
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/json\r\n\
             Content-Length: {size}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        stream.flush()?;
        let mut answer = [0; ANSWER_SIZE_MAX];
        let mut size = 0;
        // To its end: a collector whose answer is broken off takes that for a failure.
        while size < answer.len() {
            match stream.read(&mut answer[size..]) {
                Ok(0) => break,
                Ok(more) => size += more,
                Err(_) if answer[..size].contains(&b'\n') => break,
                Err(error) => return Err(error),
            }
        }
        let line = String::from_utf8_lossy(&answer[..size]);
        let status = line.split(' ').nth(1).unwrap_or_default();
        match line.starts_with("HTTP/1.") && status.len() == 3 && status.starts_with('2') {
            true => Ok(()),
            false => Err(io::Error::other(format!("it answers with status `{status}`"))),
        }
    }
}

/// Returns the client side of a connection to a collector, which shows a certificate of these
/// authorities for its address. The file is read each time: a new one takes effect.
fn tls(ca: &Path, at: IpAddr) -> Result<ClientConnection, String> {
    let in_file = |error: &dyn fmt::Display| format!("{}: {error}", ca.display());
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_file_iter(ca).map_err(|error| in_file(&error))? {
        let authority = authority.map_err(|error| in_file(&error))?;
        roots.add(authority).map_err(|error| in_file(&error))?;
    }
    if roots.is_empty() {
        return Err(in_file(&"it has no certificate"));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    ClientConnection::new(Arc::new(config), ServerName::IpAddress(at.into()))
        .map_err(|error| error.to_string())
}

/// Returns the distance from the monotonic clock to that of the machine, in nanoseconds.
fn offset() -> u64 {
    (clock::wall_ms() * 1_000_000).saturating_sub(clock::now().0)
}

/// Returns random bytes in hexadecimal digits, as OTLP's JSON has identifiers.
fn random<const SIZE: usize>() -> String {
    let mut bytes = [0; SIZE];
    // An identifier of zeros is invalid, and the collector refuses it.
    _ = SystemRandom::new().fill(&mut bytes);
    digits(&bytes)
}

fn attribute(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// Encodes a trace (opentelemetry-proto, `ExportTraceServiceRequest`): 64-bit numbers are text.
fn encoded(trace: &Trace, host: &str, offset: u64) -> String {
    let (id, root) = (random::<16>(), random::<8>());
    let span = |span: &Span, own: &str, parent: &str, attributes: Vec<Value>| {
        let at = |moment: Nanos| (offset + moment.0).to_string();
        let status = match &span.failed {
            Some(why) => json!({ "code": 2, "message": why }),
            None => json!({}),
        };
        json!({
            "traceId": id, "spanId": own, "parentSpanId": parent, "name": span.name, "kind": 1,
            "startTimeUnixNano": at(span.began), "endTimeUnixNano": at(span.ended),
            "attributes": attributes, "status": status,
        })
    };
    let own = trace.attributes.iter().map(|(key, value)| attribute(key, value)).collect();
    let mut spans = vec![span(&trace.root, &root, "", own)];
    spans.extend(trace.spans.iter().map(|part| span(part, &random::<8>(), &root, Vec::new())));
    let resource = [
        attribute("service.name", "sluice"),
        attribute("service.version", env!("CARGO_PKG_VERSION")),
        attribute("host.name", host),
    ];
    let scope = json!({ "name": "sluice" });
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{ "scope": scope, "spans": spans }],
    }] })
    .to_string()
}

#[cfg(test)]
mod tests;
