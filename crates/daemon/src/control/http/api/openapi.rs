//! The OpenAPI document of the management API. Routes and document are made of the same words.

use std::sync::OnceLock;

use serde_json::Value;
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
        (name = "configuration", description = "The configuration; a write is a transaction")
    )
)]
struct About;

/// Returns the document.
fn document() -> OpenApi {
    let mut document = About::openapi();
    document.merge(paths::router().into_openapi());
    document
}

/// Returns the paths that the document has.
pub(super) fn path_names() -> &'static [String] {
    static PATHS: OnceLock<Vec<String>> = OnceLock::new();
    PATHS.get_or_init(|| document().paths.paths.into_keys().collect())
}

/// Returns the document as text.
pub(super) fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut document = serde_json::to_value(document()).unwrap_or_default();
        bound(&mut document);
        format!("{document:#}\n")
    })
}

/// Says the largest value of each unsigned integer, and calls its format as the registry of OpenAPI
/// has it: `utoipa` writes `u-int16` for `uint16`.
fn bound(schema: &mut Value) {
    match schema {
        Value::Array(parts) => parts.iter_mut().for_each(bound),
        Value::Object(keys) => {
            let known = match keys.get("format").and_then(Value::as_str) {
                Some("u-int8") => Some(("uint8", u64::from(u8::MAX))),
                Some("u-int16") => Some(("uint16", u64::from(u16::MAX))),
                Some("u-int32") => Some(("uint32", u64::from(u32::MAX))),
                Some("u-int64") => Some(("uint64", u64::MAX)),
                _ => None,
            };
            if let Some((format, most)) = known {
                keys.insert("format".to_owned(), format.into());
                keys.entry("maximum").or_insert(most.into());
            }
            keys.values_mut().for_each(bound);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
