//! The OpenAPI document of the management API. Routes and document are made of the same words.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use axum::http::Method;
use serde_json::{Value, json};
use sluice_api::http::Problem;
use sluice_api::show;
use utoipa::OpenApi as _;
use utoipa::openapi::OpenApi;

use super::answers::FabricQuestion;
use super::paths;
use crate::control::http::once::KEY_SIZE_MAX;

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

/// Returns true if a path of the document has an operation of this method.
pub(in crate::control::http) fn has_operation(method: &Method, path: &str) -> bool {
    operations().get(path).is_some_and(|methods| methods.contains(method.as_str()))
}

/// Returns the methods of each path of the document.
pub(in crate::control::http) fn operations() -> &'static BTreeMap<String, BTreeSet<String>> {
    static OPERATIONS: OnceLock<BTreeMap<String, BTreeSet<String>>> = OnceLock::new();
    OPERATIONS.get_or_init(|| {
        let document = serde_json::to_value(document()).unwrap_or_default();
        let paths = document["paths"].as_object().into_iter().flatten();
        let methods = |item: &Value| {
            item.as_object().into_iter().flatten().map(|(name, _)| name.to_uppercase()).collect()
        };
        paths.map(|(path, item)| (path.clone(), methods(item))).collect()
    })
}

/// Returns the document as text.
pub(super) fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut document = serde_json::to_value(document()).unwrap_or_default();
        bound(&mut document);
        if let Some(Value::Object(paths)) = document.get_mut("paths") {
            paths.values_mut().for_each(key_writes);
        }
        format!("{document:#}\n")
    })
}

/// Adds the key with which a repetition of a request that changes something is known, and its
/// refusal: no function of a path sees them.
fn key_writes(path: &mut Value) {
    let Value::Object(operations) = path else { return };
    for (method, operation) in operations {
        let Value::Object(operation) = operation else { continue };
        if method == "get" {
            continue;
        }
        let header = json!({
            "name": "Idempotency-Key", "in": "header", "required": false,
            "description": "Text of the client's choice: a request with the same key is made once",
            "schema": { "type": "string", "minLength": 1, "maxLength": KEY_SIZE_MAX }
        });
        match operation.entry("parameters").or_insert_with(|| json!([])) {
            Value::Array(parameters) => parameters.push(header),
            _ => return,
        }
        let problem = json!({ "schema": { "$ref": "#/components/schemas/Problem" } });
        if let Some(Value::Object(responses)) = operation.get_mut("responses") {
            let reused = json!({
                "description": "The key was sent with another request",
                "content": { "application/json": problem }
            });
            responses.insert("422".to_owned(), reused);
        }
    }
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
