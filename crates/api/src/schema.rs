//! Schemas of types that are text in JSON.

use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::hold::HoldTime;
use crate::placement::Match;
use crate::port::{AllowedIp, Cidr, Route};

/// Says that a type is text, with a description and an example.
macro_rules! is_text {
    ($type:ty, $about:literal, $example:literal $(, $pattern:literal)?) => {
        impl PartialSchema for $type {
            fn schema() -> RefOr<Schema> {
                ObjectBuilder::new()
                    .schema_type(Type::String)
                    .description(Some($about))
                    .examples([serde_json::Value::from($example)])
                    $(.pattern(Some($pattern)))?
                    .into()
            }
        }

        impl ToSchema for $type {}
    };
}

is_text!(AllowedIp, "An address, or all of a prefix.", "10.0.0.0/28");
is_text!(Cidr, "An endpoint's address and the length of its network's prefix.", "10.0.0.7/24");
is_text!(HoldTime, "A time with its unit, or `forever`.", "500ms", r"^([0-9]+ *(ms|s)|forever)$");
is_text!(
    Match,
    "Flows of a network, narrowed by `mac`, `ip`, `proto`, `port`.",
    "vni=100,proto=tcp,port=443"
);
is_text!(Route, "A destination, and its router unless it is on-link.", "10.9.0.0/16,10.0.0.1");
