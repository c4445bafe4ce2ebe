//! Tests of a configuration that cannot be put in force at once.

use std::sync::Mutex;
use std::sync::mpsc::Receiver;

use sluice_api::placement::{Policy, PolicyVersion};

use super::*;

/// Longest wait for a result that must come.
const PATIENCE: Duration = Duration::from_secs(30);

/// Control that refuses a number of times.
#[derive(Debug)]
struct Refuses {
    left: Mutex<usize>,
    /// Names of the hosts of configurations that it was given.
    given: Mutex<Vec<String>>,
    /// Versions of the placement policies that it was given.
    followed: Mutex<Vec<Option<u64>>>,
}

impl InForce for Refuses {
    fn check(&self, _: HostConfig) -> Result<(), String> {
        Ok(())
    }

    fn apply(&self, config: HostConfig) -> Result<Reloaded, String> {
        self.given.lock().unwrap().push(config.host.name);
        let mut left = self.left.lock().unwrap();
        match *left {
            0 => Ok(Reloaded::default()),
            _ => {
                *left -= 1;
                Err("device `up0` is missing".to_owned())
            }
        }
    }

    fn check_placement(&self, _: &Policy) -> Result<(), String> {
        Ok(())
    }

    fn follow(&self, placement: Option<&Stamped>) -> Result<(), String> {
        self.followed.lock().unwrap().push(placement.map(|stamped| stamped.stamp.version));
        Ok(())
    }

    fn placement_version(&self) -> u64 {
        0
    }

    fn begin_anew(&self) {}

    fn left(&self, _: &str) {}
}

fn shared() -> FabricConfig {
    FabricConfig::new("prod").unwrap()
}

fn config(name: &str) -> HostConfig {
    toml::from_str(&format!("[host]\nname = \"{name}\"\n")).unwrap()
}

/// Starts the thread with control that refuses `left` times.
fn started(left: usize, wait: Duration) -> (Arc<Refuses>, Effect, Receiver<Event>) {
    let force = Arc::new(Refuses {
        left: Mutex::new(left),
        given: Mutex::default(),
        followed: Mutex::default(),
    });
    let ((jobs, waiting), (events, results)) = (sync_channel(4), sync_channel(64));
    let thread = Arc::clone(&force);
    std::thread::spawn(move || run(&waiting, &*thread, |_: &Trust| (), &events, (wait, wait * 4)));
    (force, Effect { jobs, last: 0 }, results)
}

/// Returns the next result: number, revision, and true if it is in force.
fn result(results: &Receiver<Event>) -> (u64, u64, bool) {
    match results.recv_timeout(PATIENCE).expect("a result") {
        Event::Effect { number, revision, result } => (number, revision, result.is_ok()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn failed_configuration_is_tried_until_in_force() {
    let (force, mut effect, results) = started(3, Duration::from_millis(1));
    assert_eq!(effect.put(7, config("h1"), &shared()), 1);
    let all: Vec<_> = (0..4).map(|_| result(&results)).collect();
    assert_eq!(all, [(1, 7, false), (1, 7, false), (1, 7, false), (1, 7, true)]);
    // It is not given again once it is in force.
    assert_eq!(effect.put(8, config("h1"), &shared()), 2);
    assert_eq!(result(&results), (2, 8, true));
    assert_eq!(force.given.lock().unwrap().len(), 5);
}

#[test]
fn newer_configuration_replaces_one_that_failed() {
    // The failed one alone would be tried again after an hour.
    let (force, mut effect, results) = started(1, Duration::from_secs(3_600));
    effect.put(7, config("old"), &shared());
    assert_eq!(result(&results), (1, 7, false));
    effect.put(8, config("new"), &shared());
    assert_eq!(result(&results), (2, 8, true));
    assert_eq!(*force.given.lock().unwrap(), ["old", "new"]);
}

#[test]
fn placement_policy_is_followed_beside_failed_configuration() {
    let (force, mut effect, results) = started(1, Duration::from_secs(3_600));
    let stamp = PolicyVersion { version: 5, ..PolicyVersion::default() };
    let placement = Some(Stamped { stamp, policy: Policy::default() });
    effect.put(7, config("h1"), &FabricConfig { placement, ..shared() });
    assert_eq!(result(&results), (1, 7, false));
    effect.put(8, config("h1"), &shared());
    assert_eq!(result(&results), (2, 8, true));
    assert_eq!(*force.followed.lock().unwrap(), [Some(5), None]);
}
