//! Replication of broadcast and multicast frames to many receivers.
//!
//! A frame to replicate waits at its input until the driver moves it into the host pool
//! ([`Switch::copy_to_shared`]); from then on it holds no sender up. Every receiver gets a *copy*:
//! a slot that shares the pool's buffer. Copies are bounded per output and lossy beyond that, under
//! a reason of their own, so that a broadcast never holds up its sender.
//!
//! Receivers are the local members of the network except the ingress port and those to which its
//! device floods by itself, and, for a frame of a local port, the tunnels of the network (head-end
//! replication). A frame from the underlay is
//! never sent back to it (split horizon in a full mesh of tunnels, as RFC 4762 section 4.4).

use sluice_base::{Buf, DropReason};

use crate::inspect::Counter;
use crate::place::NO_PORT;
use crate::switch::Switch;

impl<B: Buf> Switch<B> {
    /// Replicates all frames that wait for it at an input.
    pub(crate) fn replicate(&mut self, input: u16, copy: &mut impl FnMut(B) -> Result<B, B>) {
        let mut list = self.ingress.take_awaiting(input);
        while let Some(slot) = self.slots.pop(&mut list) {
            let receivers = self.receivers(slot);
            if receivers == 0 {
                self.drop_frame(slot, DropReason::NoReceiver);
            } else if self.pool.is_full_of_bodies() {
                self.drop_frame(slot, DropReason::ReplicationLimit);
            } else {
                let buf = self.slots.get_mut(slot).take_buf().expect("it has its handle");
                match copy(buf) {
                    Err(buf) => {
                        self.slots.get_mut(slot).put_buf(buf);
                        self.drop_frame(slot, DropReason::ReplicationLimit);
                    }
                    Ok(buf) => {
                        self.slots.get_mut(slot).put_buf(buf);
                        self.fan_out(slot, receivers);
                    }
                }
            }
        }
    }

    fn receivers(&self, slot: u32) -> usize {
        let s = self.slots.get(slot);
        let input = self.ingress.input(s.input());
        let vnet = self.networks.vnet(s.vnet());
        let from = input.port();
        let members = vnet.members().iter().filter(|&&to| self.is_receiver(from, to)).count();
        members + if input.is_from_underlay() { 0 } else { vnet.tunnels().len() }
    }

    fn is_receiver(&self, from: u16, to: u16) -> bool {
        to != from && !self.is_offloaded(from, to)
    }

    /// Makes the slot the body of its copies, and queues them.
    fn fan_out(&mut self, body: u32, receivers: usize) {
        let s = self.slots.get(body);
        let (input, vnet, bytes, priority) = (s.input(), s.vnet(), s.bytes(), s.priority());
        self.uncharge_input(input, bytes, priority);
        self.ingress.note_excess(&mut self.slots, input);
        self.spread(body, receivers, vnet);
    }

    /// Makes a frame of the host pool that waits in no queue the body of its copies.
    pub(crate) fn flood_body(&mut self, body: u32) {
        let receivers = self.receivers(body);
        if receivers == 0 {
            self.count_drop(body, DropReason::NoReceiver);
        }
        let vnet = self.slots.get(body).vnet();
        self.spread(body, receivers, vnet);
    }

    fn spread(&mut self, body: u32, receivers: usize, vnet: u16) {
        let s = self.slots.get(body);
        let (input, bytes, priority) = (s.input(), s.bytes(), s.priority());
        let from = self.ingress.input(input);
        let (from_port, from_underlay) = (from.port(), from.is_from_underlay());
        for _ in 1..receivers {
            self.ledger.copy(input, priority, Counter::of(bytes));
        }
        self.slots.begin_copies(body);
        self.pool.add_body();
        for at in 0..self.networks.vnet(vnet).members().len() {
            let port = self.networks.vnet(vnet).members()[at];
            if self.is_receiver(from_port, port) {
                let group = self.egress.port(usize::from(port)).group();
                self.copy_to(body, group);
            }
        }
        if !from_underlay {
            for at in 0..self.networks.vnet(vnet).tunnels().len() {
                let tunnel = self.networks.vnet(vnet).tunnels()[at];
                let group = self.networks.tunnel(tunnel).group();
                self.copy_to(body, group);
            }
        }
        if !self.slots.has_copies(body) {
            self.pool.push_ended(&mut self.slots, body);
        }
    }

    fn copy_to(&mut self, body: u32, group: u32) {
        let l = self.egress.group(group);
        debug_assert!(l.port() != NO_PORT);
        if self.egress.port(usize::from(l.port())).is_detached() {
            self.count_lost_copy(body, DropReason::Stopped);
            return;
        }
        let is_isolated = self.is_isolated(l.port(), self.slots.get(body).priority());
        if l.copies() >= self.pool.copies_max() || self.slots.free_count() == 0 || is_isolated {
            self.count_lost_copy(body, DropReason::ReplicationLimit);
            return;
        }
        let index = self.slots.copy_of(body);
        self.enqueue(index, group);
    }
}
