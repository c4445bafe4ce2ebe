//! The chip of the host, if it is not the switch: a thread that writes into it what the switch
//! knows.
//!
//! ```text
//!   worker ── what control installs and removes, what the switch uses ──▶ chip thread ──▶ kernel
//!          ◀────────────────── what the chip's frames used ──────────────            ◀── hits
//! ```
//!
//! The switch keeps the whole table and decides everything; the chip has a part of it. Writing it
//! takes system calls, for which no worker waits: a frame whose address is under way to the chip
//! comes to the switch. A known address whose note finds no room is left out, and so is one that
//! the chip did not take: both come back when the switch uses the address again. What takes
//! something away from the chip never comes again by itself: such notes wait ([`Late`]).

mod book;
mod late;

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sluice_api::config::ChipKind;
use sluice_api::show::ChipRow;
use sluice_base::{Destination, Mac, PortId, TunnelId, VnetId};
use sluice_ports::chip::{
    Cache, Capacity, Chip as _, Figures, Hits, KernelChip, KernelConfig, Refused, Ways,
};

use self::book::Book;
use self::late::Late;
use crate::config::{BoundTo, Plan};
use crate::sys::log::say;

/// Notes under way. They are a few words each, and a whole table fits.
const NOTES_MAX: usize = 1 << 17;
/// Notes that are carried out together.
const NOTES_TOGETHER: usize = 256;
/// Uses under way.
const USES_MAX: usize = 1 << 16;
/// Length of a round: a hit is told within it.
const ROUND: Duration = Duration::from_secs(1);
/// Time between two looks for changes by others.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Time for control to say again what an earlier process wrote.
const LEFT_FOR: Duration = Duration::from_secs(30);
/// Shortest time between two lines of the log about the same thing.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// A change that the chip is to know.
#[derive(Debug)]
pub(super) enum Note {
    /// An address is known to be there, or was used there.
    Known { vnet: VnetId, mac: Mac, to: Destination },
    /// An address is not known any more.
    Gone { vnet: VnetId, mac: Mac },
    /// Frames of a network come from another host, or no more.
    Decap { vnet: VnetId, tunnel: TunnelId, is_on: bool },
    /// A port came: its device on the host, and who may send there.
    Port { port: PortId, vnet: VnetId, device: String, bound: Option<BoundTo> },
    /// A port went.
    PortGone(PortId),
    /// A port's endpoint may send less than before.
    Unbound(PortId, Mac),
    /// Networks and peers of a new configuration.
    Plan(Arc<Plan>),
}

/// A use of an address by the chip's frames.
#[derive(Clone, Copy, Debug)]
pub(super) enum Use {
    /// The chip has it.
    Hit(VnetId, Mac, Hits),
    /// The chip saw it send at a port, and has learned it by itself.
    Heard(VnetId, Mac, PortId),
}

/// The chip, for those who open its devices and ask for it.
#[derive(Clone, Debug)]
pub(super) struct Chip {
    ways: Ways,
    notes: SyncSender<Note>,
    row: Arc<Mutex<ChipRow>>,
    uses: Arc<Mutex<Option<Receiver<Use>>>>,
}

/// The worker's end.
#[derive(Debug)]
pub(super) struct ChipLink {
    notes: SyncSender<Note>,
    late: Late,
    uses: Receiver<Use>,
}

impl ChipLink {
    /// Passes a note on, behind those that wait for room.
    pub(super) fn note(&mut self, note: Note) {
        self.catch_up();
        let note = match self.late.is_empty() {
            true => match self.notes.try_send(note) {
                Err(TrySendError::Full(note)) => note,
                _ => return,
            },
            false => note,
        };
        self.late.add(note);
    }

    /// Passes notes on that have waited for room.
    pub(super) fn catch_up(&mut self) {
        while let Some(note) = self.late.first() {
            if self.notes.try_send(note).is_err() {
                return;
            }
            self.late.remove_first();
        }
    }

    /// Returns the next use by the chip's frames.
    pub(super) fn next_use(&self) -> Option<Use> {
        self.uses.try_recv().ok()
    }
}

impl Chip {
    /// Opens the chip of a plan; `None` if that is the switch.
    pub(super) fn open(plan: &Plan) -> anyhow::Result<Option<Self>> {
        let config = plan.config.chip;
        if config.kind == ChipKind::Software {
            delete_left(&plan.config.host.name);
            return Ok(None);
        }
        let Some(underlay) = plan.config.underlay.as_ref() else { return Ok(None) };
        let capacity = Capacity { macs: config.macs as usize, flows: config.flows as usize };
        let host = plan.config.host.name.clone();
        let (vtep, offloads) = (underlay.address, config.kind == ChipKind::Switchdev);
        let chip = KernelChip::open(KernelConfig { host, vtep, capacity, offloads })
            .map_err(|error| anyhow::anyhow!("the kernel cannot be the chip: {error}"))?;
        let ways = chip.ways();
        let (notes, received) = sync_channel(NOTES_MAX);
        let (used, uses) = sync_channel(USES_MAX);
        let row = Arc::new(Mutex::new(row_of(config.kind, &Figures::default(), capacity)));
        let thread = Thread {
            kind: config.kind,
            book: Book::new(Cache::new(chip), plan),
            notes: received,
            used,
            row: Arc::clone(&row),
            said: None,
            error: None,
        };
        super::spawn("chip", move || thread.run())?;
        Ok(Some(Self { ways, notes, row, uses: Arc::new(Mutex::new(Some(uses))) }))
    }

    /// The ways of its devices' frames.
    pub(super) const fn ways(&self) -> &Ways {
        &self.ways
    }

    /// Takes the worker's end, of which there is one.
    pub(super) fn link(&self) -> Option<ChipLink> {
        let uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(ChipLink { notes: self.notes.clone(), late: Late::default(), uses })
    }

    /// Passes a note on, and waits for room.
    pub(super) fn tell(&self, note: Note) {
        _ = self.notes.send(note);
    }

    /// Tells it of all addresses and peers of a host without a fabric, whose file says them all.
    pub(super) fn tell_all_of(&self, plan: &Plan) {
        for &(vnet, mac, to) in &plan.addresses {
            self.tell(Note::Known { vnet, mac, to });
        }
        for peer in &plan.config.peers {
            let Some(tunnel) = plan.numbers.tunnel(&peer.name) else { continue };
            for vnet in peer.vnets.iter().filter_map(|vnet| plan.numbers.vnet(vnet)) {
                self.tell(Note::Decap { vnet, tunnel, is_on: true });
            }
        }
    }

    /// Returns its state.
    pub(super) fn row(&self) -> ChipRow {
        self.row.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Deletes what the kernel forwarded by when it was the chip of this host.
fn delete_left(host: &str) {
    match KernelChip::delete_left(host) {
        Ok(0) => {}
        Ok(count) => say!("the kernel is not the chip any more: {count} devices of it are deleted"),
        Err(error) => say!(warn: "devices of the kernel as chip may be left: {error}"),
    }
}

struct Thread {
    kind: ChipKind,
    book: Book<KernelChip>,
    notes: Receiver<Note>,
    used: SyncSender<Use>,
    row: Arc<Mutex<ChipRow>>,
    /// When an error was said last.
    said: Option<Instant>,
    error: Option<String>,
}

impl Thread {
    fn run(mut self) {
        let (mut round, mut look) = (Instant::now(), Instant::now());
        let mut left_until = Some(Instant::now() + LEFT_FOR);
        loop {
            let wait = look.min(round).saturating_duration_since(Instant::now());
            match self.notes.recv_timeout(wait) {
                Ok(note) => {
                    let more = self.notes.try_iter().take(NOTES_TOGETHER - 1);
                    let done = self.book.notes(std::iter::once(note).chain(more));
                    self.judge(done);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = Instant::now();
            if now >= look {
                look = now + LOOK_EVERY;
                let before = self.book.cache().figures().mended;
                let done = self.book.mend();
                self.judge(done);
                let mended = self.book.cache().figures().mended - before;
                if mended > 0 {
                    say!(warn: "somebody changed the kernel's tables: {mended} of them put right");
                }
                self.show();
            }
            if now >= round {
                round = now + ROUND;
                let used = &self.used;
                let done = self.book.hits(|vnet, mac, hits| {
                    // It is told again as long as it is used.
                    _ = used.try_send(Use::Hit(vnet, mac, hits));
                });
                self.judge(done);
            }
            for (vnet, mac, port) in self.book.heard() {
                _ = self.used.try_send(Use::Heard(vnet, mac, port));
            }
            if left_until.is_some_and(|until| now >= until) {
                left_until = None;
                let done = self.book.forget_left();
                self.judge(done);
            }
        }
    }

    /// Notes a refusal, and says one now and then.
    fn judge(&mut self, done: Result<(), Refused>) {
        let Err(error) = done else { return };
        self.error = Some(error.to_string());
        if self.said.is_none_or(|said| said.elapsed() > SAY_EVERY) {
            self.said = Some(Instant::now());
            say!(warn: "the kernel as chip: {error}; the switch forwards what is not in it");
        }
    }

    fn show(&self) {
        let cache = self.book.cache();
        let mut row = row_of(self.kind, &cache.figures(), cache.capacity());
        row.forwarded = cache.forwarded().ok();
        row.offloaded = cache.chip().offloaded();
        row.error.clone_from(&self.error);
        *self.row.lock().unwrap_or_else(PoisonError::into_inner) = row;
    }
}

fn row_of(kind: ChipKind, figures: &Figures, capacity: Capacity) -> ChipRow {
    ChipRow {
        kind: kind.name().to_owned(),
        macs: figures.macs as u64,
        offloaded: None,
        macs_max: capacity.macs as u64,
        flows: figures.flows as u64,
        flows_max: capacity.flows as u64,
        evicted: figures.evicted,
        forwarded: Some(0),
        written: figures.put,
        full: figures.full,
        refused: figures.refused,
        mended: figures.mended,
        error: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VNET: VnetId = VnetId(3);

    /// Notes by what they would leave behind if they were lost.
    #[test]
    fn full_chip_loses_no_removal() {
        let (notes, received) = sync_channel(1);
        let (_used, uses) = sync_channel(1);
        let mut link = ChipLink { notes, late: Late::default(), uses };
        let to = Destination::Tunnel(TunnelId(1));
        let mac = |last| Mac([2, 0, 0, 0, 0, last]);
        for last in 0..3 {
            link.note(Note::Known { vnet: VNET, mac: mac(last), to });
        }
        let decap = |is_on| Note::Decap { vnet: VNET, tunnel: TunnelId(1), is_on };
        link.note(decap(true));
        link.note(Note::Gone { vnet: VNET, mac: mac(0) });
        link.note(Note::Gone { vnet: VNET, mac: mac(0) });
        link.note(Note::Unbound(PortId(4), mac(7)));
        link.note(decap(false));
        let mut seen = Vec::new();
        while let Ok(note) = received.try_recv() {
            seen.push(format!("{note:?}"));
            link.catch_up();
        }
        let wanted = [
            Note::Known { vnet: VNET, mac: mac(0), to },
            Note::Unbound(PortId(4), mac(7)),
            Note::Gone { vnet: VNET, mac: mac(0) },
            decap(false),
        ];
        assert_eq!(seen, wanted.map(|note| format!("{note:?}")));
        link.note(Note::Known { vnet: VNET, mac: mac(1), to });
        assert!(received.try_recv().is_ok());
    }
}
