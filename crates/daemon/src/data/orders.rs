//! The worker's end of the connection to control ([`crate::channel`]): orders are carried out
//! between two turns, and what the switch has to tell is written.
//!
//! While nobody is attached, or control does not read, the switch goes on with what it knows: a
//! full connection is left alone, and notices wait in the switch, which bounds them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use sluice_base::{DropReason, Nanos, PortId, PriorityMask, VnetId};
use sluice_host::Host;
use sluice_ports::{FrameBuf, Pool};
use sluice_switch::{
    Command, Counter, Destination, Notice, PuntCause, PuntFrom, Switch, Target, Used,
};

use super::too_big::TooBig;
use crate::channel::{Cause, Order, Pipe, Senders, Told, Way};
use crate::log::say;
use crate::poller::Poller;

/// The poller's index: no port has it.
pub(super) const CONTROL: usize = 1 << 32;
/// Reads in a turn.
const READS_MAX: usize = 4;
/// Frames that are flooded in a turn. The others wait, so that ports take the copies meanwhile:
/// each may hold only so many.
const FLOODS_MAX: u32 = 16;
/// How often a part of the chip is looked at for what was used.
const USED_EVERY: Nanos = Nanos::from_millis(100);
/// How large that part is: the largest chip is looked at within ten seconds.
const USED_PLACES: u32 = 1 << 13;
/// How often receivers are looked at although the switch says nothing: some are isolated without
/// anybody to be told of it.
const RECEIVERS_EVERY: Nanos = Nanos::from_millis(100);
/// How often while the connection is full, and the switch is not asked what it has to say.
const RECEIVERS_EVERY_FULL: Nanos = Nanos::from_millis(1);

/// What control has done here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Orders that the switch refused, for instance because the port has just gone.
    pub(super) refused: u64,
    /// Frames of control without room.
    pub(super) unsent: u64,
}

/// The connection, if there is one.
#[derive(Debug, Default)]
pub(super) struct Orders {
    pipe: Option<Pipe>,
    ready: bool,
    /// Orders were read that are not carried out yet.
    behind: bool,
    used_at: Nanos,
    receivers: Receivers,
    too_big: TooBig,
    pub(super) counts: Counts,
}

impl Orders {
    /// Control is there: it hears what the chip holds, and then what happens. It takes the place of
    /// one before.
    pub(super) fn attach(
        &mut self,
        now: Nanos,
        stream: UnixStream,
        host: &mut Host<FrameBuf>,
        poller: &Poller,
    ) -> io::Result<()> {
        self.detach(now, host);
        let mut pipe = Pipe::new(stream)?;
        poller.add(CONTROL, pipe.as_fd(), true)?;
        poller.set(CONTROL, pipe.as_fd(), true, true)?;
        for (vnet, mac, to) in host.switch().macs() {
            Told::Found { vnet, mac, to: way(to) }.write(pipe.out());
        }
        for flow in host.switch().decap_flows() {
            Told::Decap { vnet: flow.vnet, tunnel: flow.tunnel }.write(pipe.out());
        }
        Told::All.write(pipe.out());
        (self.pipe, self.ready, self.used_at) = (Some(pipe), true, now);
        self.behind = false;
        self.receivers = Receivers::default();
        command(now, host.switch_mut(), Command::Control { attached: true }, &mut self.counts);
        Ok(())
    }

    /// The poller told of it.
    pub(super) const fn wake(&mut self) {
        self.ready = true;
    }

    /// Carries out what control wants, and hands on what the switch has to tell. Returns how much
    /// was done.
    pub(super) fn serve(&mut self, now: Nanos, host: &mut Host<FrameBuf>, pool: &mut Pool) -> u32 {
        let done = self.exchange(now, host, pool);
        self.too_big.answer(now, host.switch_mut(), pool);
        done
    }

    fn exchange(&mut self, now: Nanos, host: &mut Host<FrameBuf>, pool: &mut Pool) -> u32 {
        let too_big = &mut self.too_big;
        let Some(pipe) = &mut self.pipe else {
            return host.resolve(now, |_, notice| too_big.note(notice));
        };
        let mut done = 0;
        let counts = &mut self.counts;
        let (mut read, mut floods) = (Ok(()), 0);
        for _ in 0..READS_MAX {
            if !(self.ready || self.behind) || floods == FLOODS_MAX {
                break;
            }
            let fill = if self.behind { Ok(self.ready) } else { pipe.fill() };
            self.behind = false;
            read = fill.map(|more| self.ready = more).and_then(|()| {
                let taken = pipe.take(|bytes| {
                    let Some((order, size)) = Order::read(bytes)? else { return Ok(None) };
                    if matches!(order, Order::Flood { .. }) {
                        if floods == FLOODS_MAX {
                            self.behind = true;
                            return Ok(None);
                        }
                        floods += 1;
                    }
                    carry_out(now, &order, host.switch_mut(), pool, counts);
                    done += 1;
                    Ok(Some(size))
                });
                taken.map_err(io::Error::other)
            });
            if read.is_err() {
                break;
            }
        }
        if !pipe.is_full() {
            done += host.resolve(now, |switch, notice| {
                too_big.note(notice);
                if let Some(told) = told(switch, notice) {
                    told.write(pipe.out());
                } else if matches!(notice, Notice::Receiver { .. }) {
                    self.receivers.look_at = now;
                }
            });
            if now >= self.used_at {
                self.used_at = now.after(USED_EVERY);
                host.switch_mut().used_since(USED_PLACES, |vnet, mac, _: Used| {
                    Told::Used { vnet, mac }.write(pipe.out());
                });
            }
        }
        self.receivers.tell(now, host.switch(), pipe);
        if let Err(error) = read.and_then(|()| pipe.flush()) {
            say!(warn: "control is gone ({error}); what is known stays");
            self.detach(now, host);
        }
        done
    }

    /// When there is something to do although nothing happens.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.pipe
            .as_ref()
            .map(|_| if self.ready || self.behind { Nanos::ZERO } else { self.used_at })
    }

    fn detach(&mut self, now: Nanos, host: &mut Host<FrameBuf>) {
        // Its descriptor leaves the poller with it.
        if self.pipe.take().is_some() {
            let off = Command::Control { attached: false };
            command(now, host.switch_mut(), off, &mut self.counts);
        }
    }
}

/// Receivers that do not take what comes: what stands is compared with what was told, so that
/// nothing is lost when the connection is full.
#[derive(Debug, Default)]
struct Receivers {
    look_at: Nanos,
    /// The records that were told of those with whom something is wrong.
    told: BTreeMap<PortId, Vec<u8>>,
    tunnels: Vec<u8>,
}

impl Receivers {
    /// Tells of those that are not as they were told, ahead of all that waits.
    fn tell(&mut self, now: Nanos, switch: &Switch<FrameBuf>, pipe: &mut Pipe) {
        if now < self.look_at || pipe.is_crammed() {
            return;
        }
        let pace = if pipe.is_full() { RECEIVERS_EVERY_FULL } else { RECEIVERS_EVERY };
        self.look_at = now.after(pace);
        let mut isolated: BTreeMap<PortId, PriorityMask> = BTreeMap::new();
        for state in switch.isolated() {
            isolated.entry(state.port).or_default().insert(state.priority);
        }
        let known: BTreeSet<PortId> = self.told.keys().chain(isolated.keys()).copied().collect();
        for port in known {
            let isolated = isolated.get(&port).copied().unwrap_or_default();
            let state = switch.receiver(port);
            let senders = Senders::write(switch.senders(port), &mut self.tunnels);
            let (held, stuck) = (state.held, state.stuck);
            let mut record = Vec::new();
            Told::Receiver { port, isolated, held, stuck, senders }.write(&mut record);
            if self.told.get(&port) == Some(&record) {
                continue;
            }
            pipe.put_ahead(&record);
            if isolated.is_empty() && held.is_empty() {
                self.told.remove(&port);
            } else {
                self.told.insert(port, record);
            }
        }
    }
}

const fn way(to: Destination) -> Way {
    match to {
        Destination::Port(port) => Way::Port(port),
        Destination::Tunnel(tunnel) => Way::Tunnel(tunnel),
    }
}

const fn destination(way: Way) -> Destination {
    match way {
        Way::Port(port) => Destination::Port(port),
        Way::Tunnel(tunnel) => Destination::Tunnel(tunnel),
    }
}

fn command(now: Nanos, switch: &mut Switch<FrameBuf>, command: Command, counts: &mut Counts) {
    counts.refused += u64::from(switch.command(now, command).is_err());
}

fn carry_out(
    now: Nanos,
    order: &Order<'_>,
    switch: &mut Switch<FrameBuf>,
    pool: &mut Pool,
    counts: &mut Counts,
) {
    let wanted = match *order {
        Order::Install { vnet, mac, to } => Command::Install { vnet, mac, to: destination(to) },
        Order::Remove { vnet, mac } => Command::Remove { vnet, mac },
        Order::Reject { vnet, mac } => Command::Reject { vnet, mac },
        Order::ForgetDecap { vnet, tunnel } => Command::ForgetDecap { vnet, tunnel },
        Order::Hold { vnet, mac, tunnel, held, stuck } => {
            Command::Hold { vnet, mac, tunnel, held, stuck }
        }
        Order::Send { vnet, to, frame } => {
            let to = match to {
                Way::Port(port) => Target::Port(port),
                Way::Tunnel(tunnel) => Target::Tunnel(vnet, tunnel),
            };
            send(now, frame, to, switch, pool, counts);
            return;
        }
        Order::Flood { vnet, from, frame } => {
            flood(now, (vnet, from), frame, switch, pool, counts);
            return;
        }
        Order::Unbind { port, mac, ip: None } => Command::Unbind { port, mac },
        Order::Unbind { port, mac, ip: Some(ip) } => Command::UnbindIp { port, mac, ip },
        Order::Refuse { port, reason, frames, bytes } => {
            Command::Refuse { port, reason, sum: Counter { frames, bytes } }
        }
    };
    command(now, switch, wanted, counts);
}

fn send(
    now: Nanos,
    frame: &[u8],
    to: Target,
    switch: &mut Switch<FrameBuf>,
    pool: &mut Pool,
    counts: &mut Counts,
) {
    let fits = frame.len() <= usize::from(pool.slot_size());
    let Some(mut slot) = fits.then(|| pool.take()).flatten() else {
        counts.unsent += 1;
        return;
    };
    slot.bytes_mut()[..frame.len()].copy_from_slice(frame);
    if let Err(buf) = switch.inject(now, slot.freeze(0, frame.len()), to) {
        pool.give_back(buf);
        counts.unsent += 1;
    }
}

/// Floods a frame that came in somewhere. Without room it ends there, counted.
fn flood(
    now: Nanos,
    (vnet, from): (VnetId, Way),
    frame: &[u8],
    switch: &mut Switch<FrameBuf>,
    pool: &mut Pool,
    counts: &mut Counts,
) {
    let Some(mut slot) = pool.take() else {
        if let Way::Port(port) = from {
            let sum = Counter { frames: 1, bytes: frame.len() as u64 };
            let refuse = Command::Refuse { port, reason: DropReason::PuntLimit, sum };
            command(now, switch, refuse, counts);
        }
        return;
    };
    slot.bytes_mut()[..frame.len()].copy_from_slice(frame);
    if let Err(buf) = switch.flood(vnet, destination(from), slot.freeze(0, frame.len())) {
        pool.give_back(buf);
    }
}

/// A notice as control hears it.
fn told<'a>(switch: &Switch<FrameBuf>, notice: &'a Notice) -> Option<Told<'a>> {
    let way = |from| match from {
        // What control itself sent is not asked for.
        PuntFrom::Input(input) => switch.port_of(input).map(Way::Port),
        PuntFrom::Tunnel(tunnel) => Some(Way::Tunnel(tunnel)),
    };
    Some(match notice {
        Notice::Miss { vnet, from, head, .. } => {
            let head = head.as_slice();
            Told::Punt { cause: Cause::Miss, vnet: *vnet, from: way(*from)?, head }
        }
        Notice::Punt { cause, vnet, from, head } => {
            let cause = match cause {
                PuntCause::NewSource => Cause::NewSource,
                PuntCause::Moved => Cause::Moved,
                PuntCause::Arp => Cause::Arp,
                PuntCause::Nd => Cause::Nd,
                PuntCause::Snooped => Cause::Snooped,
            };
            Told::Punt { cause, vnet: *vnet, from: way(*from)?, head: head.as_slice() }
        }
        Notice::Decap { vnet, tunnel } => Told::Decap { vnet: *vnet, tunnel: *tunnel },
        _ => return None,
    })
}
