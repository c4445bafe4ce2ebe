//! Connections of a listener: a bounded number, each with bounds of its own.

use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::AbortHandle;

use super::events::Lasting;
use super::guard::Shown;
use crate::control::answering::Answering;
use crate::sys::peer::is_owner;

/// Pause after a failed `accept`, such as one without a free descriptor.
const FAILED_PAUSE: Duration = Duration::from_millis(100);

/// Bounds of a listener and of its connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections at a time.
    pub(super) connections_max: usize,
    /// Longest life of a connection.
    pub(super) connection_max: Duration,
    /// Longest time for the head of its request.
    pub(super) head_max: Duration,
    /// Longest head, in bytes.
    pub(super) head_size_max: usize,
    /// Most headers.
    pub(super) headers_max: usize,
}

/// The other side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// Root, or the user as whom this process runs.
    Owner,
    /// Somebody else who reaches the socket: a member of its group.
    Group,
    /// Anybody who reaches the loopback address.
    Network,
    /// Somebody who reaches the address with TLS: the token of a request says who, or the
    /// certificate of the connection.
    Remote,
}

/// A listening socket.
pub(super) trait Listener {
    /// A connection as it is accepted.
    type Accepted: Send + 'static;
    /// The same once it is open, to be spoken on.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    async fn next(&self) -> io::Result<Self::Accepted>;

    /// Completes the opening of a connection, which may take as long as its other side wants.
    fn open(
        &self,
        accepted: Self::Accepted,
    ) -> impl Future<Output = io::Result<Self::Stream>> + Send + 'static;

    fn peer(accepted: &Self::Accepted) -> Peer;

    /// Returns what the other side has proved of itself.
    fn shown(_: &Self::Stream) -> Shown {
        Shown::default()
    }
}

impl Listener for UnixListener {
    type Accepted = Self::Stream;
    type Stream = tokio::net::UnixStream;

    async fn next(&self) -> io::Result<Self::Stream> {
        self.accept().await.map(|(stream, _)| stream)
    }

    fn open(
        &self,
        stream: Self::Stream,
    ) -> impl Future<Output = io::Result<Self::Stream>> + Send + 'static {
        ready(Ok(stream))
    }

    fn peer(stream: &Self::Stream) -> Peer {
        if is_owner(stream) { Peer::Owner } else { Peer::Group }
    }
}

impl Listener for TcpListener {
    type Accepted = Self::Stream;
    type Stream = tokio::net::TcpStream;

    async fn next(&self) -> io::Result<Self::Stream> {
        self.accept().await.map(|(stream, _)| stream)
    }

    fn open(
        &self,
        stream: Self::Stream,
    ) -> impl Future<Output = io::Result<Self::Stream>> + Send + 'static {
        ready(Ok(stream))
    }

    fn peer(_: &Self::Stream) -> Peer {
        Peer::Network
    }
}

/// A connection.
struct Open {
    task: AbortHandle,
    /// True once the head of its request is complete.
    has_asked: Arc<AtomicBool>,
    peer: Peer,
}

impl Open {
    /// Returns the order in which connections end when there are too many: those that have not
    /// asked before those that wait for an answer, and the owner's, which may change something,
    /// after those of others.
    fn worth(&self) -> (bool, bool) {
        (self.peer == Peer::Owner, self.has_asked.load(Ordering::Relaxed))
    }
}

/// Returns the place of the connection that ends for a new one: the oldest of the least worth.
fn victim(open: &[Open]) -> usize {
    (0..open.len()).min_by_key(|&at| open[at].worth()).unwrap_or(0)
}

/// Accepts for ever, each connection as a task.
pub(super) async fn serve<L: Listener>(
    listener: L,
    limits: Limits,
    (router, answering): (Router, Arc<Answering>),
) {
    // The oldest first.
    let mut open: Vec<Open> = Vec::with_capacity(limits.connections_max);
    loop {
        let Ok(stream) = listener.next().await else {
            tokio::time::sleep(FAILED_PAUSE).await;
            continue;
        };
        open.retain(|one| !one.task.is_finished());
        if open.len() >= limits.connections_max {
            open.remove(victim(&open)).task.abort();
        }
        let has_asked = Arc::new(AtomicBool::new(false));
        // The request says who makes it.
        let peer = L::peer(&stream);
        let router = router.clone().layer(Extension(peer));
        let asked = Asked { has_asked: Arc::clone(&has_asked), answering: Arc::clone(&answering) };
        let opening = listener.open(stream);
        let task = async move {
            // A handshake is bounded as a head is; one that fails is nobody's concern.
            if let Ok(Ok(stream)) = tokio::time::timeout(limits.head_max, opening).await {
                let router = router.layer(Extension(L::shown(&stream)));
                converse(stream, limits, router, asked).await;
            }
        };
        open.push(Open { task: tokio::spawn(task).abort_handle(), has_asked, peer });
        // The runtime has one thread: a connection is read before the next one can end it.
        tokio::task::yield_now().await;
    }
}

/// Marks of a connection that has asked.
struct Asked {
    has_asked: Arc<AtomicBool>,
    answering: Arc<Answering>,
}

/// Answers the request of a connection.
async fn converse<S>(stream: S, limits: Limits, router: Router, asked: Asked)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let router = TowerToHyperService::new(router);
    // Dropped with the connection, when its answer is written.
    let answer = Arc::new(Mutex::new(None));
    let lasts = Arc::new(AtomicBool::new(false));
    let is_lasting = Arc::clone(&lasts);
    let service = service_fn(move |request| {
        asked.has_asked.store(true, Ordering::Relaxed);
        *answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(asked.answering.begin());
        let (answered, answer, lasts) =
            (router.call(request), Arc::clone(&answer), Arc::clone(&lasts));
        async move {
            let response = answered.await?;
            if response.extensions().get::<Lasting>().is_some() {
                lasts.store(true, Ordering::Relaxed);
                // It has no end for which a process that ends could wait.
                drop(answer.lock().unwrap_or_else(PoisonError::into_inner).take());
            }
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_max)
        .max_buf_size(limits.head_size_max)
        .max_headers(limits.headers_max)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // A client that breaks off, or is too slow, is nobody's concern.
    let ended = tokio::time::timeout(limits.connection_max, connection.as_mut()).await;
    if ended.is_err() && is_lasting.load(Ordering::Relaxed) {
        _ = connection.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_of_least_worth_ends_first() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let open = |peer, has_asked| Open {
            task: runtime.spawn(async {}).abort_handle(),
            has_asked: Arc::new(AtomicBool::new(has_asked)),
            peer,
        };
        let mut all = vec![
            open(Peer::Owner, true),
            open(Peer::Group, true),
            open(Peer::Owner, false),
            open(Peer::Network, false),
            open(Peer::Group, false),
        ];
        let mut ended = Vec::new();
        while !all.is_empty() {
            let one = all.remove(victim(&all));
            ended.push((one.peer, one.has_asked.load(Ordering::Relaxed)));
        }
        let expected = [
            (Peer::Network, false),
            (Peer::Group, false),
            (Peer::Group, true),
            (Peer::Owner, false),
            (Peer::Owner, true),
        ];
        assert_eq!(ended, expected);
    }
}
