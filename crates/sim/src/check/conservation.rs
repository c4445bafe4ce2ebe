//! Conservation: no frame is lost or made. Every frame is located by a walk.
//!
//! `sent = delivered + dropped + resident`, over the whole world. Between hosts `resident` is the
//! number of frames in the network. Between VMs it is the number of packets with a handle: the
//! frames in the VMs' rings, in the virtual switches, in the network, and on their way to a VM's
//! TCP. Further, frame by frame: a frame is in one place; it is in the queue of the link on its
//! path; a queue's bytes are the bytes of its frames; a buffer holds the bytes of the frames that
//! came through it and have not left; a path knows how many frames are on it.
//!
//! A frame that is on its way to be counted by an event of its own is not in the buffer's bytes
//! yet. Frames of one link are counted in their order, so the uncounted frames are its latest ones.

use std::collections::BTreeMap;

use sluice_base::Priority;

use crate::ledger::{Ledger, Violation};
use crate::net::{self, Seen, Whereabouts};
use crate::topology::LinkId;
use crate::world::Census;

fn violation(what: String) -> Violation {
    Violation::new("conservation", what)
}

pub(super) fn check(census: &Census, ledger: &Ledger) -> Result<(), Violation> {
    balance(census, ledger)?;
    places(&census.net)?;
    queues(&census.net)?;
    buffers(&census.net)?;
    paths(&census.net)
}

fn is_there(seen: &&Seen) -> bool {
    seen.whereabouts != Whereabouts::Dropped
}

fn balance(census: &Census, ledger: &Ledger) -> Result<(), Violation> {
    let (sent, delivered, dropped) = ledger.totals();
    let on_wire = census.net.frames.iter().filter(is_there).count() as u64;
    let (resident, in_switches) = match &census.virt {
        Some(virt) => {
            let found = virt.rings + virt.resident + on_wire + virt.arriving;
            if found != virt.packets {
                return Err(violation(format!(
                    "{} packets have a handle, but {found} were found: {} in rings, {} in virtual \
                     switches, {on_wire} in the network, {} on their way to a VM",
                    virt.packets, virt.rings, virt.resident, virt.arriving
                )));
            }
            (virt.packets, virt.dropped)
        }
        None => (on_wire, 0),
    };
    if sent != delivered + dropped + in_switches + resident {
        return Err(violation(format!(
            "{sent} packets sent are not {delivered} delivered + {dropped} dropped by physical \
             switches + {in_switches} by virtual ones + {resident} resident"
        )));
    }
    let counted: u64 = census.net.inputs.iter().map(|input| input.drops).sum();
    if census.net.dropped != dropped || counted != dropped {
        return Err(violation(format!(
            "{dropped} frames ended in physical switches, whose counters say {} in all and \
             {counted} by reason",
            census.net.dropped
        )));
    }
    Ok(())
}

fn places(census: &net::Census) -> Result<(), Violation> {
    if let Some(frame) = census.twice {
        return Err(violation(format!("frame {} is in two places", frame.0)));
    }
    if let Some((link, priority)) = census.torn {
        let (link, priority) = (link.0, priority.get());
        return Err(violation(format!(
            "the queue of link {link}, priority {priority}, does not end at its last frame"
        )));
    }
    match census.frames.iter().find(|seen| seen.at != seen.link) {
        Some(seen) => Err(violation(format!(
            "frame {} is at link {}, but its path leads over link {}",
            seen.id.0, seen.at.0, seen.link.0
        ))),
        None => Ok(()),
    }
}

fn queues(census: &net::Census) -> Result<(), Violation> {
    let mut bytes = vec![0; census.links.len()];
    let mut backlog = vec![sluice_base::PriorityMask::NONE; census.links.len()];
    for seen in &census.frames {
        let at = seen.at.index();
        match seen.whereabouts {
            Whereabouts::Queued => bytes[at] += seen.size,
            Whereabouts::Open | Whereabouts::Dropped => {}
            Whereabouts::Sending | Whereabouts::Travelling => continue,
        }
        backlog[at].insert(seen.priority);
    }
    for (id, link, _) in census.links() {
        if link.queued != bytes[id.index()] || link.backlog != backlog[id.index()] {
            return Err(violation(format!(
                "link {} says that {} bytes of priorities {:#04x} wait for it, but there are {} of \
                 {:#04x}",
                id.0,
                link.queued,
                link.backlog.0,
                bytes[id.index()],
                backlog[id.index()].0
            )));
        }
    }
    Ok(())
}

fn buffers(census: &net::Census) -> Result<(), Violation> {
    let mut occupants: BTreeMap<u32, Vec<&Seen>> = BTreeMap::new();
    for seen in &census.frames {
        let LinkId(input) = match seen.input {
            Some(input) if seen.whereabouts != Whereabouts::Travelling => input,
            _ => continue,
        };
        if is_there(&seen) {
            occupants.entry(input).or_default().push(seen);
        }
    }
    for (id, _, input) in census.links() {
        let frames = occupants.entry(id.0).or_default();
        frames.sort_by_key(|seen| seen.ready);
        let open = input.open as usize;
        if open > frames.len() {
            return Err(violation(format!(
                "{open} frames are to be counted behind link {}, but {} are there",
                id.0,
                frames.len()
            )));
        }
        let counted = &frames[..frames.len() - open];
        let mut held = [0; Priority::COUNT];
        counted.iter().for_each(|seen| held[seen.priority.index()] += seen.size);
        let is_lossy = |seen: &&&Seen| !census.lossless.contains(seen.priority);
        let lossy: u32 = counted.iter().filter(is_lossy).map(|seen| seen.size).sum();
        if held != input.held || lossy != input.held_lossy {
            return Err(violation(format!(
                "the buffer behind link {} says that it holds {:?} bytes, {} of them lossy; its \
                 frames have {held:?} and {lossy}",
                id.0, input.held, input.held_lossy
            )));
        }
    }
    Ok(())
}

fn paths(census: &net::Census) -> Result<(), Violation> {
    let mut frames = vec![0; census.ways.len()];
    census.frames.iter().for_each(|seen| frames[seen.path.index()] += 1);
    match (0..).zip(&census.ways).find(|(at, says)| frames[*at] != **says) {
        Some((at, says)) => Err(violation(format!(
            "path {at} says that {says} frames are on it, but there are {}",
            frames[at]
        ))),
        None => Ok(()),
    }
}
