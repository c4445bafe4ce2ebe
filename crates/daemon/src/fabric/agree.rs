//! Agreement of members' settings: each member is asked when it connects, a while after this host's
//! settings changed, and once a minute, since clocks drift. A difference is logged once, and shown
//! in `fabric members` and in `trace` for as long as it lasts. `fabric members` has the version of
//! each member's program beside it.
//!
//! ```text
//!   session up ── host ──> thread ── Topic::AGREE ──> the member's networks, page by page
//!                            └── compare ──> differences by host
//! ```
//!
//! A host tells a member only about networks that it believes the member to be in.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sluice_api::agree::{AnnouncedSettings, Difference, Page, Setting, VnetParticulars};
use sluice_base::{HostId, Nanos, Vni};
use sluice_control::rpc::Failure;
use sluice_wire::fabric::{ANSWER_SIZE_MAX, Topic};

use super::Fabric;
use crate::config::{FabricPlan, HostPlan};
use crate::sys::clock::wall_ms;
use crate::sys::log::say;

/// Time between two rounds of questions.
const AGAIN: Duration = Duration::from_secs(60);
/// Time after a change of settings until members are asked. They change theirs at the same time.
const SETTLED: Duration = Duration::from_secs(5);
/// Longest time for an answer.
const ANSWER_MAX: Nanos = Nanos::from_millis(2_000);
/// Hosts that may wait to be asked. A host beyond them is asked in the next round.
const WAITING_MAX: usize = 64;
/// Largest difference of clocks.
const CLOCK_MS_MAX: u64 = 1_000;
/// Differences that are kept of a host.
const DIFFERENCES_MAX: usize = 32;
/// Bytes of a page that are left for the rest beside networks.
const HEAD_SIZE: usize = 512;
/// Pages that are asked for.
const PAGES_MAX: usize = 64;

/// Programs and differences known of the members.
#[derive(Debug)]
pub(super) struct Agreement {
    plan: Mutex<Arc<FabricPlan>>,
    known: Mutex<BTreeMap<HostId, Known>>,
    events: SyncSender<Asks>,
    /// True if all members have one configuration: then they differ only while it is on its way.
    is_one: bool,
}

/// Facts of a member by its last answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Version of its program; absent: it is too old to say.
    pub(super) program: Option<String>,
    /// Settings that differ from this host's.
    pub(super) differences: Vec<Difference>,
}

/// Reason to ask members.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asks {
    /// A member is connected: ask it now.
    Connected(HostId),
    /// Settings of this host changed: ask all members soon.
    Changed,
}

impl Agreement {
    /// Returns the settings of this host and of the others.
    pub(super) fn plan(&self) -> Arc<FabricPlan> {
        Arc::clone(&self.plan.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the state for a host, and the channel of reasons to ask. With `is_one` all members
    /// have one configuration.
    pub(super) fn new(plan: &FabricPlan, is_one: bool) -> (Self, Receiver<Asks>) {
        let (events, asks) = sync_channel(WAITING_MAX);
        let plan = Mutex::new(Arc::new(plan.clone()));
        (Self { plan, known: Mutex::default(), events, is_one }, asks)
    }

    /// Takes over other settings of this host. Differences of hosts that are no members any more
    /// go.
    pub(super) fn reconfigure(&self, plan: &FabricPlan) {
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(plan.clone());
        let is_member = |host| plan.hosts.iter().any(|one| one.host == host && one.at.is_some());
        self.all().retain(|host, _| is_member(*host));
        _ = self.events.try_send(Asks::Changed);
    }

    /// Notes that a member is connected.
    pub(super) fn connected(&self, host: HostId) {
        _ = self.events.try_send(Asks::Connected(host));
    }

    /// Returns the differences of a member's settings.
    pub(super) fn of(&self, host: HostId) -> Vec<Difference> {
        self.all().get(&host).map_or_else(Vec::new, |known| known.differences.clone())
    }

    /// Returns the facts of a host by its name.
    pub(super) fn of_named(&self, name: &str) -> Known {
        let plan = self.plan();
        if plan.name == name {
            let program = Some(env!("CARGO_PKG_VERSION").to_owned());
            return Known { program, differences: Vec::new() };
        }
        let host = plan.hosts.iter().find(|known| known.name == name).map(|known| known.host);
        host.and_then(|host| self.all().get(&host).cloned()).unwrap_or_default()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<HostId, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a member.
    pub(super) fn serve(&self, host: HostId, body: &[u8]) -> Result<Vec<u8>, Failure> {
        let page: Page = serde_json::from_slice(body).map_err(|_| Failure::Refused)?;
        let plan = self.plan();
        let known = plan.hosts.iter().find(|known| known.host == host);
        let known = known.ok_or(Failure::Refused)?;
        let answer = page_of(&plan, known, page.from, wall_ms());
        serde_json::to_vec(&answer).map_err(|_| Failure::Refused)
    }

    /// Notes the facts of a member, and logs new differences.
    fn set(&self, known: &HostPlan, now: Known) {
        let name = &known.name;
        let found = now.differences.clone();
        let before = self.all().insert(known.host, now).unwrap_or_default().differences;
        // Clocks never differ by the same amount twice.
        let is_like = |one: &Difference, other: &Difference| match one.what {
            Setting::Clock => other.what == Setting::Clock,
            _ => one == other,
        };
        for one in found.iter().filter(|one| !before.iter().any(|other| is_like(one, other))) {
            say!(warn: "{name}: {one}: {}", one.what.remedy());
        }
        if found.is_empty() && !before.is_empty() {
            say!("{name}: says alike what it must");
        }
    }
}

/// Asks members that connect, and all once a minute, in a thread of its own.
pub(super) fn start(fabric: Fabric, asks: Receiver<Asks>) -> anyhow::Result<()> {
    crate::sys::threads::spawn("agreement", move || {
        let ask_some = |which: &dyn Fn(&HostPlan) -> bool| {
            let plan = fabric.agreement.plan();
            let members = plan.hosts.iter().filter(|known| known.at.is_some() && which(known));
            members.for_each(|known| ask(&fabric, known));
        };
        let mut round = Instant::now() + AGAIN;
        loop {
            match asks.recv_timeout(round.saturating_duration_since(Instant::now())) {
                Ok(Asks::Connected(host)) => ask_some(&|known| known.host == host),
                Ok(Asks::Changed) => round = round.min(Instant::now() + SETTLED),
                Err(RecvTimeoutError::Timeout) => {
                    ask_some(&|_| true);
                    round = Instant::now() + AGAIN;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    })
}

/// Asks a member and notes its differences. Without an answer nothing changes.
fn ask(fabric: &Fabric, known: &HostPlan) {
    let agreement = &fabric.agreement;
    let mut whole: Option<(AnnouncedSettings, u64)> = None;
    let mut page = Page::default();
    for _ in 0..PAGES_MAX {
        let asked = wall_ms();
        let answer = fabric.call(known.host, Topic::AGREE, ANSWER_MAX, &page);
        let answered = wall_ms();
        let part = match answer.map(|body| serde_json::from_slice::<AnnouncedSettings>(&body)) {
            Ok(Ok(part)) => part,
            Err(Failure::UnknownTopic | Failure::TooOld) => {
                let here = env!("CARGO_PKG_VERSION").to_owned();
                let there = "one that compares nothing".to_owned();
                let what = Setting::Version;
                let differences = vec![Difference { what, vnet: None, here, there }];
                agreement.set(known, Known { program: None, differences });
                return;
            }
            _ => return,
        };
        let next = part.next;
        match &mut whole {
            // The member read its clock somewhere between question and answer.
            None => whole = Some((part, asked.midpoint(answered))),
            Some((whole, _)) => whole.vnets.extend(part.vnets),
        }
        match next {
            Some(from) if from > page.from => page.from = from,
            _ => break,
        }
    }
    if let Some((theirs, at_ms)) = whole {
        let mut found = compare(&agreement.plan(), known, &theirs, at_ms);
        if agreement.is_one {
            found.retain(|one| !matches!(one.what, Setting::Network | Setting::Vni));
        }
        let program = Some(clean(&theirs.program));
        agreement.set(known, Known { program, differences: found });
    }
}

/// Returns this host's settings for a member.
fn page_of(plan: &FabricPlan, to: &HostPlan, from: u32, clock_ms: u64) -> AnnouncedSettings {
    let mut answer = AnnouncedSettings {
        program: env!("CARGO_PKG_VERSION").to_owned(),
        policy: plan.policy.clone(),
        vtep: plan.vtep,
        clock_ms,
        vnets: Vec::new(),
        next: None,
    };
    let shared = plan.vnets.iter().zip(&plan.mtus).filter(|((vni, _), _)| to.vnets.contains(vni));
    let mut left = ANSWER_SIZE_MAX - HEAD_SIZE;
    for (at, ((vni, name), mtu)) in (0..).zip(shared).skip(from as usize) {
        let row = VnetParticulars { vnet: name.clone(), vni: vni.get(), mtu: *mtu };
        let size = serde_json::to_vec(&row).map_or(left, |text| text.len() + 1);
        if size > left {
            // A name that fits on no page is left out.
            answer.next = Some(if answer.vnets.is_empty() { at + 1 } else { at });
            break;
        }
        left -= size;
        answer.vnets.push(row);
    }
    answer
}

/// Returns the differences of a member's settings from this host's. This host's clock read `at_ms`.
fn compare(
    plan: &FabricPlan,
    known: &HostPlan,
    theirs: &AnnouncedSettings,
    at_ms: u64,
) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut differ = |what, vnet: Option<&str>, here: String, there: String| {
        if here != there && found.len() < DIFFERENCES_MAX {
            let (vnet, there) = (vnet.map(str::to_owned), clean(&there));
            found.push(Difference { what, vnet, here, there });
        }
    };
    for ((vni, name), mtu) in plan.vnets.iter().zip(&plan.mtus) {
        if !known.vnets.contains(vni) {
            continue;
        }
        let by_name = theirs.vnets.iter().find(|theirs| theirs.vnet == *name);
        let by_vni = theirs.vnets.iter().find(|theirs| theirs.vni == vni.get());
        match (by_vni, by_name) {
            // Hosts may have different names for a network.
            (Some(there), _) => {
                differ(Setting::Mtu, Some(name), mtu.to_string(), there.mtu.to_string());
            }
            (None, Some(there)) => {
                differ(Setting::Vni, Some(name), vni.to_string(), there.vni.to_string());
            }
            (None, None) => {
                let here = format!("shared with {}", known.name);
                differ(Setting::Network, Some(name), here, format!("not with {}", plan.name));
            }
        }
    }
    for there in &theirs.vnets {
        let vni = Vni::new(there.vni);
        let at = plan.vnets.iter().find(|(own, name)| Some(*own) == vni || *name == there.vnet);
        if at.is_none_or(|(own, _)| Some(*own) == vni && !known.vnets.contains(own)) {
            let here = format!("not shared with {}", known.name);
            let name = clean(&there.vnet);
            differ(Setting::Network, Some(&name), here, format!("shared with {}", plan.name));
        }
    }
    differ(Setting::Policy, None, plan.policy.clone(), theirs.policy.clone());
    differ(Setting::Vtep, None, known.vtep.to_string(), theirs.vtep.to_string());
    let program = env!("CARGO_PKG_VERSION").to_owned();
    differ(Setting::Version, None, program, theirs.program.clone());
    let apart = theirs.clock_ms.abs_diff(at_ms);
    if apart > CLOCK_MS_MAX {
        let side = if theirs.clock_ms > at_ms { "ahead" } else { "behind" };
        let there = format!("{}.{} s {side}", apart / 1000, apart % 1000 / 100);
        let here = sluice_api::envelope::rfc3339(at_ms.into());
        differ(Setting::Clock, None, here, there);
    }
    found
}

/// Makes another host's text printable.
fn clean(text: &str) -> String {
    text.chars().take(64).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests;
