//! Fuzzes JSON from other hosts, files and people: questions and answers of `trace` and
//! `placement`. The first byte chooses the type.
//!
//! Nothing may panic. A value that was read and written is read again as the same value. The text
//! of a host about itself is bounded and has no control character for a terminal. A policy that
//! passes its check is within the promised bounds.
#![no_main]

use std::fmt::Debug;

use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_api::envelope::Envelope;
use sluice_api::foreign::{LIST_MAX, TEXT_MAX};
use sluice_api::placement::{
    self, CPU_MAX, HIGH_MAX, HOSTS_MAX, POLICY_SIZE_MAX, Policy, PolicyFile, Stamped, Status,
    Steered,
};
use sluice_api::trace::{self, Between, Hop, Look, Looked, Trace};

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, text)) = bytes.split_first() else { return };
    match kind % 12 {
        0 => {
            if let Some(mut trace) = same::<Trace>(text) {
                trace.clean();
                tame(&trace);
                let own = serde_json::to_string(&trace).expect("it is written");
                let Trace { vnet, from, to, hops, .. } = trace;
                let whole = Trace::new(vnet, from, to, hops);
                assert!(
                    whole.hops.iter().flat_map(|hop| &hop.steps).all(|step| step.grade
                        <= whole.grade
                        || whole.grade == trace::Grade::Pass && step.grade == trace::Grade::Pass)
                );
                _ = whole.grade.exit_code();
                around(&own);
            }
        }
        1 => {
            if let Some(mut hop) = same::<Hop>(text) {
                hop.clean();
                tame(&hop);
                let stops = hop.steps.iter().any(|step| step.grade == trace::Grade::Stop);
                assert_eq!(stops, hop.stops());
            }
        }
        2 => drop(same::<trace::Question>(text)),
        3 => drop(same::<Between>(text)),
        4 => drop(same::<Look>(text)),
        5 => drop(same::<Looked>(text)),
        6 => {
            if let Some(policy) = same::<Policy>(text) {
                bounded(&policy);
            }
        }
        7 => drop(same::<Stamped>(text)),
        8 => drop(same::<PolicyFile>(text)),
        9 => {
            if let Some(mut status) = same::<Status>(text) {
                status.clean();
                tame(&status);
                around(&serde_json::to_string(&status).expect("it is written"));
            }
        }
        10 => drop(same::<Steered>(text)),
        _ => drop(same::<placement::Question>(text)),
    }
});

/// Parses a value; checks that its written form is read as the same value.
fn same<T: Debug + Serialize + DeserializeOwned + PartialEq>(text: &[u8]) -> Option<T> {
    let read: T = serde_json::from_slice(text).ok()?;
    let written = serde_json::to_vec(&read).expect("what was read is written");
    let again: T = serde_json::from_slice(&written).expect("what was written is read");
    let twice = serde_json::to_vec(&again).expect("what was read is written");
    assert!(written == twice, "{read:?} and {again:?}");
    Some(read)
}

/// Checks that a value may be shown on a terminal.
fn tame(said: &impl Serialize) {
    tame_value(&serde_json::to_value(said).expect("it is written"));
}

fn tame_value(value: &Value) {
    let text = |text: &str| {
        assert!(!text.contains(char::is_control), "{text:?}");
        assert!(text.chars().count() <= TEXT_MAX);
    };
    match value {
        Value::String(said) => text(said),
        Value::Array(all) => {
            assert!(all.len() <= LIST_MAX);
            all.iter().for_each(tame_value);
        }
        Value::Object(all) => {
            assert!(all.len() <= LIST_MAX);
            for (key, value) in all {
                text(key);
                tame_value(value);
            }
        }
        Value::Number(number) => assert!(number.as_f64().is_some_and(f64::is_finite)),
        Value::Null | Value::Bool(_) => {}
    }
}

fn bounded(policy: &Policy) {
    if let Err(why) = policy.check() {
        assert!(!why.is_empty());
        return;
    }
    assert!(policy.high.len() <= HIGH_MAX && policy.hosts.len() <= HOSTS_MAX);
    assert!(serde_json::to_vec(policy).expect("it is written").len() <= POLICY_SIZE_MAX);
    let hosts = policy.hosts.keys().map(String::as_str).chain(["nobody"]);
    for host in hosts {
        let here = policy.on(host);
        assert!(here.excluded_cpus.iter().all(|cpu| *cpu <= CPU_MAX));
        assert_eq!(here.high.len(), policy.high.len());
        for one in &here.high {
            assert_eq!(
                one.to_string().parse().as_ref(),
                Ok(one),
                "a match is read as it is written"
            );
        }
    }
}

/// Checks that an answer in its envelope is one object with the keys of both.
fn around(answer: &str) {
    let whole = Envelope::now(None).around(answer);
    let whole: Value = serde_json::from_str(&whole).expect("it is JSON");
    let answer: Value = serde_json::from_str(answer).expect("it is JSON");
    for key in ["format", "program", "host", "time"] {
        assert!(whole.get(key).is_some(), "{key} is missing");
    }
    for (key, value) in answer.as_object().expect("an object") {
        assert!(whole.get(key) == Some(value), "{key} is another");
    }
}
