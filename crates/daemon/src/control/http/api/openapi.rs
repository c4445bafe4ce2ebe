//! The OpenAPI document of the management API. Routes and document are made of the same words.

use std::sync::OnceLock;

use sluice_api::http::Problem;
use sluice_api::show;
use utoipa::OpenApi as _;
use utoipa::openapi::OpenApi;

use super::answers::FabricQuestion;
use super::paths;

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Sluice",
        description = "Management API of a host of Sluice, HTTP/1.1 on the socket `http.sock` of \
                       its directory. Each path is a request that a command of `sluice` makes, \
                       and its answer is what the command prints with `--json`. docs/api.md says \
                       who may ask what.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    components(schemas(FabricQuestion, Problem, show::Question)),
    tags(
        (name = "host", description = "The host itself: its state, its switch, its placement"),
        (name = "ports", description = "Ports of the host"),
        (name = "fabric", description = "The host's view of its fabric"),
        (name = "configuration", description = "The fabric's configuration; a write is a transaction")
    )
)]
struct About;

/// Returns the document.
pub(super) fn document() -> OpenApi {
    let mut document = About::openapi();
    document.merge(paths::router().into_openapi());
    document
}

/// Returns the document as text.
pub(super) fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| document().to_pretty_json().unwrap_or_default() + "\n")
}

#[cfg(test)]
mod tests;
