//! The driver's socket: HTTP/1.1, a bounded number of connections, each with bounds of its own.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream as Probe;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::Driver;

/// Longest body of a request; Docker's have a few kilobytes.
const BODY_SIZE_MAX: usize = 1 << 20;
/// Longest head.
const HEAD_SIZE_MAX: usize = 16 << 10;
/// Connections at a time; further ones wait.
const CONNECTIONS_MAX: usize = 32;
/// Longest time for the head of a request.
const HEAD_MAX: Duration = Duration::from_secs(5);
/// Longest life of a connection. Docker's own patience is two minutes.
const CONNECTION_MAX: Duration = Duration::from_secs(110);
/// Pause after a failed `accept`, such as one without a free descriptor.
const FAILED_PAUSE: Duration = Duration::from_millis(100);
/// Type of the answers, which Docker's own plugins have.
const TYPE: &str = "application/vnd.docker.plugins.v1.2+json";

/// Answers Docker at a socket, until the process is ended.
///
/// # Errors
/// The reason why it cannot listen, and the remedy.
pub fn serve(driver: Driver, socket: &Path) -> Result<(), String> {
    let failed = |error: io::Error| {
        let path = socket.display();
        format!("cannot listen on {path}: {error}; run as root, or choose another `--socket`")
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(CONNECTIONS_MAX)
        .build()
        .map_err(failed)?;
    runtime.block_on(async {
        let listener = listen(socket).map_err(failed)?;
        println!("sluice-docker: Docker is answered on {}", socket.display());
        accept(listener, Arc::new(driver)).await;
        Ok(())
    })
}

/// Binds the socket, in place of one that nobody listens on any more.
fn listen(socket: &Path) -> io::Result<UnixListener> {
    if let Some(dir) = socket.parent() {
        std::fs::create_dir_all(dir)?;
    }
    if Probe::connect(socket).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another driver listens there"));
    }
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(socket)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Accepts for ever, each connection as a task.
async fn accept(listener: UnixListener, driver: Arc<Driver>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let router = Router::new().fallback(answer).with_state(driver);
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(FAILED_PAUSE).await;
            continue;
        };
        let router = router.clone();
        tokio::spawn(async move {
            converse(stream, router).await;
            drop(place);
        });
    }
}

/// Answers one request. Docker connects anew for the next one.
async fn converse(stream: UnixStream, router: Router) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .max_buf_size(HEAD_SIZE_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // A client that breaks off, or is too slow, is nobody's concern.
    _ = tokio::time::timeout(CONNECTION_MAX, connection).await;
}

async fn answer(State(driver): State<Arc<Driver>>, request: Request) -> Response {
    let refused = |status, text: &str| response(status, &json!({ "Err": text }));
    if request.method() != Method::POST {
        return refused(StatusCode::METHOD_NOT_ALLOWED, "only POST is answered; it is Docker's");
    }
    let path = request.uri().path().to_owned();
    let Ok(body) = to_bytes(request.into_body(), BODY_SIZE_MAX).await else {
        let text = format!("the request has no end, or more than {BODY_SIZE_MAX} bytes; send less");
        return refused(StatusCode::PAYLOAD_TOO_LARGE, &text);
    };
    let asked = path.clone();
    // The host's answer is waited for beside the thread that accepts.
    match tokio::task::spawn_blocking(move || driver.answer(&asked, &body)).await {
        Ok(Some(value)) => response(StatusCode::OK, &value),
        Ok(None) => refused(
            StatusCode::NOT_FOUND,
            &format!("{path} is no method of this driver; it is made for networks of scope local"),
        ),
        Err(_) => refused(StatusCode::INTERNAL_SERVER_ERROR, "the driver failed; its log says why"),
    }
}

fn response(status: StatusCode, value: &Value) -> Response {
    let mut response = Response::new(Body::from(format!("{value}\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, axum::http::HeaderValue::from_static(TYPE));
    response
}
