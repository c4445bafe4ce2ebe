//! The placement rule as text in files and messages.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sluice_placement::Mode;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(crate) fn is_default(mode: &Mode) -> bool {
    *mode == Mode::default()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(crate) fn serialize<S: Serializer>(mode: &Mode, serializer: S) -> Result<S::Ok, S::Error> {
    mode.name().serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Mode, D::Error> {
    parse(&String::deserialize(deserializer)?)
}

fn parse<E: Error>(name: &str) -> Result<Mode, E> {
    name.parse().map_err(|_| E::unknown_variant(name, &Mode::NAMES))
}

/// A rule that may be absent.
pub(crate) mod option {
    use super::*;

    #[expect(clippy::ref_option, reason = "serde passes a reference")]
    pub(crate) fn serialize<S: Serializer>(
        mode: &Option<Mode>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        mode.map(Mode::name).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Mode>, D::Error> {
        let name = Option::<String>::deserialize(deserializer)?;
        name.map(|name| parse(&name)).transpose()
    }
}
