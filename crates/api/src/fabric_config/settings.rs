//! Settings of a fabric: what must not differ between its hosts, beside members and networks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::NotApplicable;
use crate::config::{MobilityPolicy, Policy};
use crate::hold::HoldTime;

/// The settings. An absent one has the default that a host's file has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Flow-control policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// Hold contract of every port and priority without one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldTime>,
    /// Time for which a frame waits for an unknown destination, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unresolved_timeout_ms: Option<u32>,
    /// Time for which a receiver may use more than its share of shared buffers, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolate_after_ms: Option<u32>,
    /// Broadcasts that a port, and a network through tunnels, may send per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broadcasts_per_second: Option<u32>,
    /// Most endpoints that may be learned at one port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learn_max: Option<u32>,
    /// Most endpoints that one other member may claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims_per_host: Option<u32>,
    /// Most frames per second of one port that the control plane handles for one cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub punts_per_port: Option<u32>,
    /// Moves of an endpoint within the window that are allowed; 0: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves_max: Option<u32>,
    /// Window in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves_window_s: Option<u32>,
    /// Reaction to an endpoint that moves more often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_moves: Option<MobilityPolicy>,
    /// Seconds for which it is frozen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freeze_s: Option<u32>,
    /// Seconds for which a host answers for a learned endpoint that is silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed_s: Option<u32>,
    /// Questions per second for frames of one port whose destination is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asks_per_port: Option<u32>,
    /// Priorities that differ from "weighted 1, lossless".
    #[serde(default, rename = "class", skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<u8, ClassSettings>,
}

/// Service of a priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ClassSettings {
    /// True if it is served before all weighted ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// Weight, 1 to 255; default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u8>,
    /// True if the lossless policies apply to it; default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lossless: Option<bool>,
    /// Hold contract; absent: the fabric's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldTime>,
    /// DSCPs with this priority, instead of DSCP / 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dscp: Vec<u8>,
}

impl Settings {
    /// Sets the value of a key such as `hold` or `class.5.weight`, or gives it its default again,
    /// and returns its previous value.
    ///
    /// # Errors
    /// If there is no such key, or it cannot have that value.
    pub(super) fn set(
        &mut self,
        key: &str,
        value: Option<&Value>,
    ) -> Result<Option<Value>, NotApplicable> {
        let before = set(self, key, value)?;
        if let Some(priority) = self.classes.keys().find(|priority| **priority > 7) {
            return Err(NotApplicable::of(format!("there is no priority {priority}; use 0 to 7")));
        }
        let is_zero = |class: &ClassSettings| class.weight == Some(0);
        if let Some((priority, _)) = self.classes.iter().find(|(_, class)| is_zero(class)) {
            return Err(NotApplicable::of(format!(
                "a weight of 0 would never serve priority {priority}; use 1 to 255"
            )));
        }
        Ok(before)
    }

    /// Returns every key that is set, with its value.
    #[must_use]
    pub fn entries(&self) -> BTreeMap<String, Value> {
        let mut all = BTreeMap::new();
        leaves("", &serde_json::to_value(self).expect("settings are plain data"), &mut all);
        all
    }
}

/// Sets one value of an object by the path to it, or removes it, and returns its previous value.
///
/// # Errors
/// If the result is no such object.
pub(super) fn set<T: Serialize + for<'de> Deserialize<'de>>(
    object: &mut T,
    key: &str,
    value: Option<&Value>,
) -> Result<Option<Value>, NotApplicable> {
    let mut tree = serde_json::to_value(&*object).expect("plain data");
    let path: Vec<&str> = key.split('.').collect();
    let before = tree.as_object_mut().and_then(|map| replace(map, &path, value));
    *object = serde_json::from_value(tree).map_err(|error| {
        let value = value.map_or_else(|| "its default".to_owned(), Value::to_string);
        let why = format!("`{key}` cannot be {value}: {error}");
        match error.to_string().starts_with("unknown ") {
            true => NotApplicable::unknown(why, key.to_owned()),
            false => NotApplicable::of(why),
        }
    })?;
    if let Some(value) = value {
        // A key whose parent ignores it would be lost without a word.
        let tree = serde_json::to_value(&*object).expect("plain data");
        let mut all = BTreeMap::new();
        leaves("", &tree, &mut all);
        let is_default = value.is_null() || *value == Value::Bool(false);
        if !is_default && !all.contains_key(key) {
            let why = format!("there is no setting `{key}`");
            return Err(NotApplicable::unknown(why, key.to_owned()));
        }
    }
    Ok(before)
}

fn replace(map: &mut Map<String, Value>, path: &[&str], value: Option<&Value>) -> Option<Value> {
    let (first, rest) = path.split_first()?;
    if rest.is_empty() {
        return match value {
            Some(value) => map.insert((*first).to_owned(), value.clone()),
            None => map.remove(*first),
        };
    }
    if value.is_none() && !map.contains_key(*first) {
        return None;
    }
    let inner = map.entry(*first).or_insert_with(|| Value::Object(Map::new()));
    let (before, is_empty) = match inner.as_object_mut() {
        Some(inner) => (replace(inner, rest, value), inner.is_empty()),
        // It is a value, and no object; the reader refuses the type.
        None => (std::mem::replace(inner, Value::Object(Map::new())).into(), false),
    };
    if is_empty {
        map.remove(*first);
    }
    before
}

/// Collects the values of an object by their paths. An array is a value.
fn leaves(path: &str, value: &Value, all: &mut BTreeMap<String, Value>) {
    match value.as_object() {
        Some(map) => {
            for (key, value) in map {
                let dot = if path.is_empty() { "" } else { "." };
                leaves(&format!("{path}{dot}{key}"), value, all);
            }
        }
        None => _ = all.insert(path.to_owned(), value.clone()),
    }
}
