use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

use axum::Router;
use axum::body::Body;
use axum::http::Method;
use axum::middleware::from_fn_with_state;

use super::super::accept::Peer;
use super::super::api::Api;
use super::*;

/// A host that counts what it is asked to change.
struct Host {
    router: Router,
    runtime: tokio::runtime::Runtime,
    count: Arc<AtomicUsize>,
}

type Answered = Result<String, String>;

impl Host {
    fn within(
        answer_max: Duration,
        answer: impl Fn(usize) -> Answered + Send + Sync + 'static,
    ) -> Self {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let answer = move |_| answer(counted.fetch_add(1, Ordering::Relaxed) + 1);
        let api = Api::new("h1", Arc::new(answer)).within(answer_max);
        let router = api.router().layer(from_fn_with_state(Requests::new("h1"), admit));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { router, runtime, count }
    }

    fn new(answer: impl Fn(usize) -> Answered + Send + Sync + 'static) -> Self {
        Self::within(Duration::from_secs(60), answer)
    }

    fn request(key: Option<&str>, line: &str) -> Request {
        let (method, path) = line.split_once(' ').unwrap();
        let method: Method = method.parse().unwrap();
        let mut request = Request::builder().method(method).uri(path);
        if let Some(key) = key {
            request = request.header(KEY, key);
        }
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(Peer::Owner);
        request
    }

    /// Sends a request; returns its status and answer, and whether it was given before.
    fn send(&self, key: Option<&str>, line: &str) -> (u16, String, bool) {
        self.runtime.block_on(Self::exchange(self.router.clone(), key, line))
    }

    async fn exchange(router: Router, key: Option<&str>, line: &str) -> (u16, String, bool) {
        use hyper::service::Service as _;
        let service = hyper_util::service::TowerToHyperService::new(router);
        let response = service.call(Self::request(key, line)).await.unwrap();
        let replayed = response.headers().contains_key(REPLAYED);
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap(), replayed)
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

fn numbered(count: usize) -> Answered {
    Ok(format!("{{\"number\":{count}}}"))
}

#[test]
fn repetition_gets_first_answer() {
    let host = Host::new(numbered);
    let first = host.send(Some("a"), "DELETE /v1/ports/web");
    assert!(first.0 == 200 && !first.2 && first.1.contains("\"number\":1"), "{first:?}");
    for key in ["a", "\"a\"", " a "] {
        let again = host.send(Some(key), "DELETE /v1/ports/web");
        assert_eq!(again, (200, first.1.clone(), true));
    }
    assert_eq!(host.count(), 1);
    // Without a key, or with another one, it is another request; what only looks has none.
    assert!(host.send(None, "DELETE /v1/ports/web").1.contains("\"number\":2"));
    assert!(host.send(Some("b"), "DELETE /v1/ports/web").1.contains("\"number\":3"));
    for number in [4, 5] {
        let looked = host.send(Some("a"), "GET /v1/ports").1;
        assert!(looked.contains(&format!("\"number\":{number}")), "{looked}");
    }
}

#[test]
fn key_of_another_request_is_refused() {
    let host = Host::new(numbered);
    host.send(Some("a"), "DELETE /v1/ports/web");
    for line in ["DELETE /v1/ports/other", "POST /v1/reload", "DELETE /v1/ports/web?x=1"] {
        let (status, answer, _) = host.send(Some("a"), line);
        assert!(status == 422 && answer.contains("key_reused"), "{line}: {answer}");
    }
    for key in ["", "\"\"", &"x".repeat(KEY_SIZE_MAX + 1)] {
        assert_eq!(host.send(Some(key), "POST /v1/reload").0, 400, "{key}");
    }
    assert_eq!(host.count(), 1);
}

#[test]
fn refusal_is_kept_and_silence_is_not() {
    let host = Host::new(|count| match count {
        1 => Err("it has ports; delete them first".to_owned()),
        2 => Err("this host is being started".to_owned()),
        _ => numbered(count),
    });
    let refused = host.send(Some("a"), "DELETE /v1/vnets/blue");
    assert_eq!((refused.0, host.send(Some("a"), "DELETE /v1/vnets/blue").2), (409, true));
    // Nothing was done: the repetition is the first again.
    assert_eq!(host.send(Some("b"), "DELETE /v1/vnets/blue").0, 503);
    assert_eq!(host.send(Some("b"), "DELETE /v1/vnets/blue").0, 200);
    assert_eq!(host.count(), 3);
}

#[test]
fn late_answer_is_for_the_repetition() {
    let (go, waits) = sync_channel::<()>(0);
    let waits = Mutex::new(waits);
    let host = Host::within(Duration::from_millis(50), move |count| {
        _ = waits.lock().unwrap().recv_timeout(Duration::from_secs(5));
        numbered(count)
    });
    let line = "DELETE /v1/ports/web";
    let late = host.send(Some("a"), line);
    assert_eq!(late.0, 504, "{late:?}");
    let running = host.send(Some("a"), line);
    assert!(running.0 == 409 && running.1.contains("in_progress"), "{running:?}");
    go.send(()).unwrap();
    let answered = host.runtime.block_on(async {
        loop {
            let answer = Host::exchange(host.router.clone(), Some("a"), line).await;
            if answer.0 != 409 {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    });
    assert!(answered.0 == 200 && answered.2 && answered.1.contains("\"number\":1"), "{answered:?}");
    assert_eq!(host.count(), 1);
}

#[test]
fn answers_are_bounded_in_number_time_size() {
    let requests = Requests::new("h1");
    let now = Instant::now();
    let name = |number: usize| (None, number.to_string());
    let answer = || Some((StatusCode::OK, Bytes::from_static(b"{}")));
    for number in 0..ANSWERS_MAX {
        assert_eq!(requests.begin(&name(number), [0; 32], now), Found::First);
    }
    assert_eq!(requests.begin(&name(ANSWERS_MAX), [0; 32], now), Found::Full);
    requests.end(&name(7), answer());
    requests.end(&name(9), None);
    assert_eq!(requests.begin(&name(9), [0; 32], now), Found::First);
    // The oldest answer goes for another request; what is being made stays.
    assert_eq!(requests.begin(&name(ANSWERS_MAX), [0; 32], now), Found::First);
    assert_eq!(requests.begin(&name(8), [0; 32], now + KEPT_MAX), Found::Running);
    requests.end(&name(8), answer());
    assert!(matches!(requests.begin(&name(8), [0; 32], now), Found::Answered(..)));
    assert_eq!(requests.begin(&name(8), [0; 32], now + KEPT_MAX), Found::First);
    // Keys of two holders are two keys.
    requests.end(&name(0), answer());
    let other = (Some((Proof::Token, "ops".to_owned())), "0".to_owned());
    assert_eq!(requests.begin(&other, [0; 32], now), Found::First);

    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let long = Response::new(Body::from(vec![b' '; ANSWER_SIZE_MAX + 1]));
    let (status, body) = runtime.block_on(kept(long)).1.unwrap();
    let body = String::from_utf8(body.to_vec()).unwrap();
    assert!(status == StatusCode::CONFLICT && body.contains("\"answered\""), "{body}");
}

#[test]
fn missing_method_is_told_before_key() {
    let host = Host::new(numbered);
    assert_eq!(host.send(Some("a"), "POST /v1/ports").0, 415);
    assert_eq!(host.send(Some("a"), "DELETE /v1/ports/web").0, 200);
    for other in ["PUT /v1/ports", "PATCH /v1/ports/web", "DELETE /v1/config"] {
        assert_eq!(host.send(Some("a"), other).0, 405, "{other}");
    }
    assert_eq!(host.send(Some("a"), "DELETE /v1/ports/db").0, 422);
    assert_eq!(host.count(), 1);
}
