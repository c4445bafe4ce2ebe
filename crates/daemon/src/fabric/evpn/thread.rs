//! The thread of the speaker.
//!
//! It keeps every own claim: one that a neighbor's route has beaten is announced again when that
//! route is gone and the claim is still there, as that of a bound endpoint is.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use anyhow::Context as _;
use sluice_base::Nanos;
use sluice_control::vport::{Claim, IP_SEQUENCE_DOWN, Key, Origin};
use sluice_evpn::{
    Change, Driver, Endpoint, Event, MacKey, Mobility, NeighborId, Network, Speaker,
};

use super::{ForeignHosts, Inbox, News, Vteps};
use crate::config::EvpnPlan;
use crate::fabric::Fabric;
use crate::fabric::member::MemberRequest;
use crate::sys::clock;
use crate::sys::log::say;
use crate::sys::threads::spawn;

/// News that the member takes at a time.
const BATCH_MAX: usize = 512;
/// Batches of news until the sessions have their turn: it comes well within a hold time.
const BATCHES_MAX: usize = 8;
/// Longest sleep: VTEPs are said again as often.
const SLEEP_MAX: Nanos = Nanos::from_millis(1_000);
/// Time between two attempts to listen.
const LISTEN_AGAIN: Nanos = Nanos::from_millis(5_000);

/// Starts the thread.
pub(super) fn start(fabric: Fabric, hosts: Arc<dyn ForeignHosts>) -> anyhow::Result<()> {
    spawn("evpn", move || {
        let thread = Thread {
            fabric,
            hosts,
            own: BTreeMap::new(),
            plan: None,
            driver: None,
            listen_at: Nanos::ZERO,
            failure: None,
            endings: BTreeMap::new(),
            complete: BTreeSet::new(),
            complete_at: Nanos::ZERO,
            vteps: Vteps::new(),
            told_at: None,
        };
        thread.run();
    })
}

pub(super) struct Thread {
    fabric: Fabric,
    hosts: Arc<dyn ForeignHosts>,
    /// Own claims.
    own: BTreeMap<Key, Claim>,
    pub(super) plan: Option<EvpnPlan>,
    /// `None`: nothing is to be spoken, or the address cannot be listened on.
    pub(super) driver: Option<Driver>,
    /// Time of the next attempt to listen.
    listen_at: Nanos,
    /// Reason why it cannot be listened.
    pub(super) failure: Option<String>,
    /// Last endings of sessions, as they were logged.
    endings: BTreeMap<NeighborId, String>,
    /// Neighbors that have told all of their routes since the speaker began.
    complete: BTreeSet<NeighborId>,
    /// Time at which the others are not waited for any more.
    complete_at: Nanos,
    pub(super) vteps: Vteps,
    /// Time at which the VTEPs were told, if they are the same since.
    told_at: Option<Nanos>,
}

/// The member is gone, and this thread is to end.
struct Gone;

impl Thread {
    fn run(mut self) {
        loop {
            let now = clock::now();
            let Inbox { own, forget_own, plan, tell_again, questions, goodbye } =
                self.fabric.evpn.take();
            let forgotten =
                if forget_own { std::mem::take(&mut self.own) } else { BTreeMap::new() };
            self.keep(own.iter());
            if let Some(plan) = plan {
                self.follow(now, plan, tell_again);
            }
            self.listen(now);
            self.announce_all(own.into_keys().chain(forgotten.into_keys()));
            if let Some(driver) = &mut self.driver {
                driver.turn(now);
            }
            self.log_events();
            let Ok(is_all) = self.pass_changes() else { return };
            for question in questions {
                // The one who asked may be gone.
                _ = question.try_send(self.state());
            }
            if let Some(done) = goodbye {
                if let Some(driver) = &mut self.driver {
                    driver.shut_down(now);
                }
                _ = done.send(());
                return;
            }
            self.tell_vteps(now);
            self.sleep(if is_all { SLEEP_MAX } else { Nanos::ZERO });
        }
    }

    /// Tells the VTEPs if they are others, and once a second.
    fn tell_vteps(&mut self, now: Nanos) {
        let Some(plan) = &self.plan else { return };
        if self.told_at.is_some_and(|at| now < at.after(SLEEP_MAX)) {
            return;
        }
        self.told_at = Some(now);
        let is_complete =
            self.driver.is_some() && self.complete.len() == plan.speaker.neighbors.len();
        self.hosts.set(now, &self.vteps, is_complete || self.complete_at <= now);
    }

    fn keep<'a>(&mut self, changes: impl Iterator<Item = (&'a Key, &'a Option<Claim>)>) {
        for (key, claim) in changes {
            match claim {
                Some(claim) => _ = self.own.insert(*key, *claim),
                None => _ = self.own.remove(key),
            }
        }
    }

    /// Follows a plan. If only its networks are others, sessions go on.
    fn follow(&mut self, now: Nanos, plan: Option<EvpnPlan>, tell_again: bool) {
        let of =
            |plan: &Option<EvpnPlan>| plan.as_ref().map(|plan| (plan.speaker.clone(), plan.listen));
        if of(&plan) != of(&self.plan) {
            self.end_speaker(now, plan.is_none());
            (self.listen_at, self.failure) = (now, None);
        }
        self.plan = plan;
        if let Some(plan) = self.plan.as_ref().filter(|_| self.driver.is_none()) {
            self.complete_at = now.after(plan.speaker.stale_max);
        }
        let (Some(plan), Some(driver)) = (&self.plan, &mut self.driver) else { return };
        follow_networks(now, driver.speaker_mut(), &plan.networks);
        if tell_again {
            driver.speaker_mut().tell_again();
        }
        // What another VTEP's route has beaten waits for the end of that route.
        let speaker = driver.speaker();
        let is_free = |key: &&Key| {
            speaker.is_announced(mac_key(**key)) || speaker.remote(mac_key(**key)).is_none()
        };
        let free: Vec<Key> = self.own.keys().filter(is_free).copied().collect();
        self.announce_all(free);
    }

    /// Ends the speaker. If another one follows, VTEPs stay peers until it knows its neighbors'.
    fn end_speaker(&mut self, now: Nanos, for_good: bool) {
        if let Some(mut driver) = self.driver.take() {
            driver.shut_down(now);
        }
        if self.plan.is_some() {
            _ = self.pass(vec![News::Nothing]);
        }
        self.endings.clear();
        self.complete.clear();
        self.vteps.clear();
        self.told_at = None;
        if for_good {
            self.hosts.forget();
        }
    }

    /// Begins to speak, if that is wanted and not done yet.
    fn listen(&mut self, now: Nanos) {
        let Some(plan) = self.plan.as_ref().filter(|_| self.driver.is_none()) else { return };
        if now < self.listen_at {
            return;
        }
        self.listen_at = now.after(LISTEN_AGAIN);
        let seed = now.0 ^ u64::from(plan.speaker.router_id.to_bits());
        let speaker = Speaker::new(plan.speaker.clone(), seed, now);
        match Driver::listen(speaker, plan.listen, plan.listen.port()) {
            Ok(mut driver) => {
                follow_networks(now, driver.speaker_mut(), &plan.networks);
                say!("EVPN: AS {} listens on {}", plan.speaker.local_as, plan.listen);
                (self.driver, self.failure) = (Some(driver), None);
                self.complete_at = now.after(plan.speaker.stale_max);
                self.announce_all(self.own.keys().copied().collect::<Vec<_>>());
            }
            Err(error) => {
                let why = format!(
                    "cannot listen on {}: {error}; is another BGP speaker there?",
                    plan.listen
                );
                if self.failure.as_ref() != Some(&why) {
                    say!(error: "EVPN: {why}");
                }
                self.failure = Some(why);
            }
        }
    }

    /// Announces own endpoints, and withdraws those that are none any more.
    fn announce_all(&mut self, keys: impl IntoIterator<Item = Key>) {
        let Some(driver) = &mut self.driver else { return };
        let mut news = Vec::new();
        for key in keys {
            let claim = self.own.get(&key);
            news.extend(announce(driver.speaker_mut(), key, claim));
        }
        for batch in news.chunks_mut(BATCH_MAX) {
            let batch = batch.iter_mut().map(|news| std::mem::replace(news, News::Nothing));
            _ = self.pass(batch.collect());
        }
    }

    /// Passes changes on to the member. Returns false if there may be more.
    fn pass_changes(&mut self) -> Result<bool, Gone> {
        for _ in 0..BATCHES_MAX {
            let Some(driver) = &mut self.driver else { return Ok(true) };
            let speaker = driver.speaker_mut();
            let mut batch = Vec::new();
            while batch.len() < BATCH_MAX
                && let Some(change) = speaker.change()
            {
                match change {
                    Change::Mac { key, to, is_taken } => {
                        let key = Key { vni: key.vni, mac: key.mac };
                        let is_free = to.is_none() && !speaker.is_announced(mac_key(key));
                        batch.push(News::Mac { key, to, is_taken });
                        let own = self.own.get(&key).filter(|_| is_free);
                        batch.extend(own.and_then(|claim| announce(speaker, key, Some(claim))));
                    }
                    Change::Vtep { vni, vtep, is_there } => {
                        let networks = self.vteps.entry(vtep).or_default();
                        if is_there {
                            networks.insert(vni);
                        } else {
                            networks.remove(&vni);
                        }
                        if networks.is_empty() {
                            self.vteps.remove(&vtep);
                        }
                        self.told_at = None;
                        batch.push(News::Vtep { vni, vtep, is_there });
                    }
                }
            }
            if batch.is_empty() {
                return Ok(true);
            }
            self.pass(batch)?;
        }
        Ok(false)
    }

    /// Passes news on, and waits until they are taken: the member serves others in between.
    fn pass(&self, news: Vec<News>) -> Result<(), Gone> {
        let (done, taken) = sync_channel(1);
        self.fabric.ask(MemberRequest::Evpn(news, done));
        taken.recv().map_err(|_| Gone)
    }

    fn log_events(&mut self) {
        let Some(driver) = &mut self.driver else { return };
        let name = |id: NeighborId, speaker: &Speaker| -> IpAddr {
            speaker.config().neighbors[id.0].address
        };
        while let Some(event) = driver.speaker_mut().event() {
            let speaker = driver.speaker();
            match event {
                Event::Up(id) => {
                    self.endings.remove(&id);
                    say!("EVPN: neighbor {} is up", name(id, speaker));
                }
                Event::Down(id, ending) => {
                    let why = ending.to_string();
                    // A neighbor that is away is tried again and again.
                    if self.endings.get(&id) != Some(&why) {
                        say!(warn: "EVPN: neighbor {} is down: {why}", name(id, speaker));
                        self.endings.insert(id, why);
                    }
                }
                Event::EndOfRib(id) => {
                    self.complete.insert(id);
                    say!(debug: "EVPN: all routes of neighbor {} are known", name(id, speaker));
                }
                Event::Forgotten(id, count) => {
                    let name = name(id, speaker);
                    say!(warn: "EVPN: neighbor {name} is away, its {count} routes are forgotten");
                }
            }
        }
    }

    fn sleep(&mut self, most: Nanos) {
        let (now, port) = (clock::now(), Arc::clone(&self.fabric.evpn));
        let waited = match &mut self.driver {
            Some(driver) => driver.wait(now, most, Some(port.wake.as_fd())),
            None => {
                // Who does not speak is woken.
                let most = if self.plan.is_some() { most } else { Nanos::MAX };
                wait_for(&port.wake, most)
            }
        };
        if let Err(error) = waited.context("the EVPN thread cannot wait") {
            say!(warn: "{error:#}");
            clock::sleep(SLEEP_MAX);
        }
    }
}

fn wait_for(wake: &std::os::fd::OwnedFd, most: Nanos) -> std::io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    let most = clock::timespec(most.min(Nanos::from_millis(3_600_000)));
    match poll(&mut [PollFd::new(wake, PollFlags::IN)], Some(&most)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

const fn mac_key(key: Key) -> MacKey {
    MacKey { vni: key.vni, mac: key.mac }
}

/// Lets a speaker have these networks and no others.
fn follow_networks(now: Nanos, speaker: &mut Speaker, networks: &[Network]) {
    let has: Vec<Network> = speaker.networks().collect();
    for gone in has.iter().filter(|has| !networks.iter().any(|network| network.vni == has.vni)) {
        speaker.remove_network(gone.vni);
    }
    for network in networks {
        speaker.add_network(now, *network);
    }
}

/// Announces an own endpoint, or withdraws it. Returns what the member is to know of it.
fn announce(speaker: &mut Speaker, key: Key, claim: Option<&Claim>) -> Option<News> {
    let Some(claim) = claim else {
        speaker.withdraw(mac_key(key));
        return None;
    };
    let ips = claim.ips.with_sequences().filter(|(_, sequence)| *sequence != IP_SEQUENCE_DOWN);
    let mobility = Mobility { is_sticky: claim.origin != Origin::Learned, sequence: claim.moves };
    let endpoint = Endpoint { key: mac_key(key), ips: ips.map(|(ip, _)| ip).collect(), mobility };
    // One that is to stay elsewhere is told as such, and the network that is not spoken of is about
    // to be known.
    let sequence = speaker.announce(endpoint).ok()?;
    (sequence > claim.moves).then_some(News::Announced { key, moves: sequence })
}
