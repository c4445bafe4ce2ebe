//! The worker's end of the connection to control ([`crate::ipc::channel`]): commands are carried
//! out between two turns, and the switch's notices are written.
//!
//! While control is not attached, or does not read, the switch continues with its forwarding table
//! (FDB): a full connection is left alone, and notices wait in the switch, which bounds them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use sluice_base::{DropReason, Mac, Nanos, PortId, VnetId};
use sluice_host::Host;
use sluice_ports::{FrameBuf, Pool};
use sluice_switch::{Command, Destination, Notice, PuntCause, Switch, Target, Used};

use super::chip::{ChipLink, Note, Use};
use super::too_big::TooBig;
use crate::ipc::channel::{self, Event, Pipe, Senders};
use crate::sys::log::say;
use crate::sys::poller::Poller;

/// Index of the connection in the poller: no port has it.
pub(super) const CONTROL: usize = 1 << 32;
/// Reads from the connection in a turn.
const READS_MAX: usize = 4;
/// Frames that are flooded in a turn. The others wait, so that ports take the copies meanwhile:
/// each port may hold only a limited number.
const FLOODS_MAX: u32 = 16;
/// Time between two scans for used entries, each of a part of the forwarding table.
const USED_EVERY: Nanos = Nanos::from_millis(100);
/// Size of that part: the largest table is scanned within ten seconds.
const USED_PLACES: u32 = 1 << 13;
/// Time between two checks of all receivers without a notice of the switch: a receiver may be
/// isolated without one.
const RECEIVERS_EVERY: Nanos = Nanos::from_millis(100);
/// Time between two checks while the connection is full, and the switch's notices are not read.
const RECEIVERS_EVERY_FULL: Nanos = Nanos::from_millis(1);

/// Counters of control's actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Commands that the switch refused, for instance because the port has just gone.
    pub(super) refused: u64,
    /// Frames of control that found no room.
    pub(super) unsent: u64,
}

/// The connection, if there is one.
#[derive(Debug, Default)]
pub(super) struct ControlLink {
    pipe: Option<Pipe>,
    ready: bool,
    /// True if commands were read that are not carried out yet.
    behind: bool,
    used_at: Nanos,
    receivers: Receivers,
    too_big: TooBig,
    /// The chip, if it is not the switch.
    chip: Option<ChipLink>,
    pub(super) counts: Counts,
}

impl ControlLink {
    /// Writes into a chip what the switch knows, from now on.
    pub(super) fn set_chip(&mut self, chip: ChipLink) {
        self.chip = Some(chip);
    }

    /// Attaches control: it receives the contents of the forwarding table, and then the events. An
    /// earlier connection is replaced.
    pub(super) fn attach(
        &mut self,
        now: Nanos,
        stream: UnixStream,
        host: &mut Host<FrameBuf>,
        poller: &Poller,
    ) -> io::Result<()> {
        self.detach(host);
        let mut pipe = Pipe::new(stream)?;
        poller.add(CONTROL, pipe.as_fd(), true)?;
        poller.set(CONTROL, pipe.as_fd(), true, true)?;
        for (vnet, mac, to) in host.switch().macs() {
            Event::Found { vnet, mac, to }.write(pipe.out());
        }
        for flow in host.switch().decap_flows() {
            Event::Decap { vnet: flow.vnet, tunnel: flow.tunnel }.write(pipe.out());
            if let Some(chip) = &mut self.chip {
                // It may have begun while control was away, and nobody was told.
                chip.note(Note::Decap { vnet: flow.vnet, tunnel: flow.tunnel, is_on: true });
            }
        }
        Event::All.write(pipe.out());
        (self.pipe, self.ready, self.used_at) = (Some(pipe), true, now);
        self.behind = false;
        self.receivers = Receivers::default();
        host.switch_mut().attach_control(true);
        Ok(())
    }

    /// Notes an event of the poller for the connection.
    pub(super) const fn wake(&mut self) {
        self.ready = true;
    }

    /// Carries out control's commands, and passes on the switch's notices. Returns the amount of
    /// work done.
    pub(super) fn serve(&mut self, now: Nanos, host: &mut Host<FrameBuf>, pool: &mut Pool) -> u32 {
        let done = self.exchange(now, host, pool);
        self.too_big.answer(now, host.switch_mut(), pool);
        done
    }

    fn exchange(&mut self, now: Nanos, host: &mut Host<FrameBuf>, pool: &mut Pool) -> u32 {
        let too_big = &mut self.too_big;
        let mut chip = self.chip.as_mut();
        let Some(pipe) = &mut self.pipe else {
            return host.resolve(now, |notice| too_big.note(notice));
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
                    let Some((received, size)) = channel::Command::read(bytes)? else {
                        return Ok(None);
                    };
                    if matches!(received, channel::Command::Flood { .. }) {
                        if floods == FLOODS_MAX {
                            self.behind = true;
                            return Ok(None);
                        }
                        floods += 1;
                    }
                    apply(now, &received, host.switch_mut(), pool, counts);
                    tell_chip(chip.as_deref_mut(), &received);
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
            done += host.resolve(now, |notice| {
                too_big.note(notice);
                if let (Some(chip), Notice::Decap { vnet, tunnel }) = (&mut chip, notice) {
                    chip.note(Note::Decap { vnet: *vnet, tunnel: *tunnel, is_on: true });
                }
                if let Some(event) = event_of(notice) {
                    event.write(pipe.out());
                } else if matches!(notice, Notice::Receiver { .. }) {
                    self.receivers.look_at = now;
                }
            });
            if now >= self.used_at {
                self.used_at = now.after(USED_EVERY);
                tell_used(chip, host.switch_mut(), pipe);
            }
        }
        self.receivers.tell(now, host.switch(), pipe);
        if let Err(error) = read.and_then(|()| pipe.flush()) {
            say!(warn: "control is gone ({error}); what is known stays");
            self.detach(host);
        }
        done
    }

    /// Returns the time of the next action that needs no event.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.pipe
            .as_ref()
            .map(|_| if self.ready || self.behind { Nanos::ZERO } else { self.used_at })
    }

    fn detach(&mut self, host: &mut Host<FrameBuf>) {
        // The descriptor leaves the poller when it is closed.
        if self.pipe.take().is_some() {
            host.switch_mut().attach_control(false);
        }
    }
}

/// Tells the chip of a command that concerns it.
fn tell_chip(chip: Option<&mut ChipLink>, received: &channel::Command<'_>) {
    if let (Some(chip), channel::Command::Switch(command)) = (chip, received)
        && let Some(note) = note_of(command)
    {
        chip.note(note);
    }
}

/// Returns what a command means to a chip.
const fn note_of(command: &Command) -> Option<Note> {
    Some(match *command {
        Command::Install { vnet, mac, to } => Note::Known { vnet, mac, to },
        Command::Remove { vnet, mac } => Note::Gone { vnet, mac },
        Command::ForgetDecap { vnet, tunnel } => Note::Decap { vnet, tunnel, is_on: false },
        Command::Unbind { port, mac, .. } => Note::Unbound(port, mac),
        _ => return None,
    })
}

/// Tells control and the chip what the switch used, and the switch what the chip used.
fn tell_used(chip: Option<&mut ChipLink>, switch: &mut Switch<FrameBuf>, pipe: &mut Pipe) {
    let mut used = Vec::new();
    switch.used_since(USED_PLACES, |vnet, mac, _: Used| {
        Event::Used { vnet, mac }.write(pipe.out());
        if chip.is_some() {
            used.push((vnet, mac));
        }
    });
    let Some(chip) = chip else { return };
    chip.catch_up();
    for (vnet, mac) in used {
        if let Some(to) = switch.mac(vnet, mac) {
            chip.note(Note::Known { vnet, mac, to });
        }
    }
    while let Some(used) = chip.next_use() {
        match used {
            Use::Hit(vnet, mac, hits) => {
                switch.touch(vnet, mac, Used { as_destination: hits.to, as_source: hits.from });
            }
            Use::Heard(vnet, mac, port) => {
                let cause = match switch.mac(vnet, mac) {
                    None => PuntCause::NewSource,
                    Some(Destination::Port(at)) if at == port => continue,
                    Some(_) => PuntCause::Moved,
                };
                let from = Destination::Port(port);
                Event::Punt { cause, vnet, from, head: &head_of(mac) }.write(pipe.out());
            }
        }
    }
}

/// Returns a frame from an address, of which a chip tells nothing else: Loopback of the Ethernet
/// Configuration Testing Protocol to a group that is never forwarded, without contents.
fn head_of(mac: Mac) -> [u8; 60] {
    let mut head = [0; 60];
    head[..6].copy_from_slice(&Mac([0x01, 0x80, 0xc2, 0, 0, 0]).0);
    head[6..12].copy_from_slice(&mac.0);
    head[12..14].copy_from_slice(&0x9000_u16.to_be_bytes());
    head
}

/// Receivers that do not take frames. Their current state is compared with the state last reported,
/// so that nothing is lost when the connection is full.
#[derive(Debug, Default)]
struct Receivers {
    look_at: Nanos,
    /// Records last reported, of receivers with a problem.
    reported: BTreeMap<PortId, Vec<u8>>,
    tunnels: Vec<u8>,
}

impl Receivers {
    /// Reports receivers whose state has changed, ahead of all waiting events.
    fn tell(&mut self, now: Nanos, switch: &Switch<FrameBuf>, pipe: &mut Pipe) {
        if now < self.look_at || pipe.is_crammed() {
            return;
        }
        let pace = if pipe.is_full() { RECEIVERS_EVERY_FULL } else { RECEIVERS_EVERY };
        self.look_at = now.after(pace);
        let isolated = switch.isolated().map(|isolated| isolated.port);
        let known: BTreeSet<PortId> = self.reported.keys().copied().chain(isolated).collect();
        for port in known {
            let state = switch.receiver(port);
            let senders = Senders::write(switch.senders(port), &mut self.tunnels);
            let mut record = Vec::new();
            Event::Receiver { port, state, senders }.write(&mut record);
            if self.reported.get(&port) == Some(&record) {
                continue;
            }
            pipe.put_ahead(&record);
            if state.is_fine() {
                self.reported.remove(&port);
            } else {
                self.reported.insert(port, record);
            }
        }
    }
}

fn command(now: Nanos, switch: &mut Switch<FrameBuf>, command: Command, counts: &mut Counts) {
    counts.refused += u64::from(switch.command(now, command).is_err());
}

fn apply(
    now: Nanos,
    received: &channel::Command<'_>,
    switch: &mut Switch<FrameBuf>,
    pool: &mut Pool,
    counts: &mut Counts,
) {
    match *received {
        channel::Command::Switch(wanted) => command(now, switch, wanted, counts),
        channel::Command::Send { vnet, to, frame } => {
            let to = match to {
                Destination::Port(port) => Target::Port(port),
                Destination::Tunnel(tunnel) => Target::Tunnel(vnet, tunnel),
            };
            send(now, frame, to, switch, pool, counts);
        }
        channel::Command::Flood { vnet, from, frame } => {
            flood(now, (vnet, from), frame, switch, pool, counts);
        }
    }
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

/// Floods a frame of an ingress port or tunnel. Without room the frame is dropped, and counted.
fn flood(
    now: Nanos,
    (vnet, from): (VnetId, Destination),
    frame: &[u8],
    switch: &mut Switch<FrameBuf>,
    pool: &mut Pool,
    counts: &mut Counts,
) {
    let Some(mut slot) = pool.take() else {
        if let Destination::Port(port) = from {
            let (reason, bytes) = (DropReason::PuntLimit, frame.len() as u64);
            let refuse = Command::Refuse { port, reason, frames: 1, bytes };
            command(now, switch, refuse, counts);
        }
        return;
    };
    slot.bytes_mut()[..frame.len()].copy_from_slice(frame);
    if let Err(buf) = switch.flood(vnet, from, slot.freeze(0, frame.len())) {
        pool.give_back(buf);
    }
}

/// Returns the event for control of a notice. Frames that control itself sent are not punted.
fn event_of(notice: &Notice) -> Option<Event<'_>> {
    Some(match *notice {
        Notice::Miss { vnet, from, ref head, .. } => {
            Event::Punt { cause: PuntCause::Miss, vnet, from: from?, head: head.as_slice() }
        }
        Notice::Punt { cause, vnet, from, ref head } => {
            Event::Punt { cause, vnet, from, head: head.as_slice() }
        }
        Notice::Decap { vnet, tunnel } => Event::Decap { vnet, tunnel },
        _ => return None,
    })
}
