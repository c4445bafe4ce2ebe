//! Results of a request, and what HTTP says of them.

use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use sluice_api::client::{UNANSWERED, is_busy};
use sluice_api::envelope::{Envelope, Failed, HostIdentity};
use sluice_api::http::Problem;

use super::super::{problem, sampler, tenant};
use super::answer_of;
use crate::control::show::{NO_FABRIC, STARTING};

/// Result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::control::http) enum Outcome {
    /// It is answered.
    Answer {
        /// A JSON object.
        line: String,
        /// True if something new was made.
        made: bool,
    },
    /// It is not.
    Problem(StatusCode, Problem),
}

impl Outcome {
    /// Makes the refusal of the host, whose words have the remedy behind a semicolon.
    pub(in crate::control::http) fn refused(why: &str) -> Self {
        let (status, code) = if is_busy(why) {
            (StatusCode::SERVICE_UNAVAILABLE, "busy")
        } else if UNANSWERED.iter().any(|words| why.contains(words)) {
            (StatusCode::SERVICE_UNAVAILABLE, "data_silent")
        } else if [NO_FABRIC, STARTING].contains(&why) {
            (StatusCode::SERVICE_UNAVAILABLE, "not_ready")
        } else if ["there is no port `", "no port `"].iter().any(|words| why.starts_with(words)) {
            (StatusCode::NOT_FOUND, "no_such_port")
        } else if why.starts_with("there is no token `") {
            (StatusCode::NOT_FOUND, "no_such_token")
        } else if why.starts_with(tenant::MAY_NOT) {
            (StatusCode::FORBIDDEN, "forbidden")
        } else {
            (StatusCode::CONFLICT, "refused")
        };
        let Failed { error, remedy } = Failed::new(why, why.to_owned());
        Self::Problem(status, Problem { code: code.to_owned(), message: error, remedy })
    }

    pub(super) fn forbidden(message: &str, remedy: &str) -> Self {
        Self::Problem(StatusCode::FORBIDDEN, problem("forbidden", message.to_owned(), remedy))
    }

    /// Makes the refusal of a request that is not understood.
    pub(super) fn malformed(message: String, remedy: &str) -> Self {
        Self::Problem(StatusCode::BAD_REQUEST, problem("malformed", message, remedy))
    }

    pub(super) fn missing(message: String, remedy: &str) -> Self {
        Self::Problem(StatusCode::NOT_FOUND, problem("not_found", message, remedy))
    }

    /// Makes the refusal of a body that is no JSON.
    pub(super) fn no_json() -> Self {
        let message = "the body is not said to be JSON".to_owned();
        let remedy = "Send `Content-Type: application/json`.";
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        Self::Problem(status, problem("unsupported_media_type", message, remedy))
    }

    pub(in crate::control::http) fn busy(most: usize) -> Self {
        let message = format!("{most} requests are being answered");
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self::Problem(status, problem("busy", message, "Try again."))
    }

    pub(super) fn late(after: Duration) -> Self {
        let message = format!("there is no answer within {} s", after.as_secs());
        let remedy = "A change may still be made: look at `/v1/transactions` and `/v1/ports` \
                      before it is tried again.";
        Self::Problem(StatusCode::GATEWAY_TIMEOUT, problem("late", message, remedy))
    }

    /// Makes the response of a host of this name.
    pub(in crate::control::http) fn into_response(self, host: &str) -> Response {
        let (line, made) = match self {
            Self::Problem(status, problem) => return answer_of(status, &problem),
            Self::Answer { line, made } => (line, made),
        };
        let program = env!("CARGO_PKG_VERSION").to_owned();
        let host = HostIdentity { host: host.to_owned(), program };
        let body = Envelope::now(Some(host)).around(&line) + "\n";
        let status = if made { StatusCode::CREATED } else { StatusCode::OK };
        let head = [(header::CONTENT_TYPE, sampler::JSON), (header::CACHE_CONTROL, "no-store")];
        (status, head, body).into_response()
    }
}
