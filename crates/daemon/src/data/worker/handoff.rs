//! The worker's part in the handoff of frames between workers.

use sluice_base::InputId;
use sluice_switch::SwitchConfig;

use super::Worker;
use crate::data::handoff::{Carrier, Elsewhere, Handoffs};
use crate::sys::clock;

impl Worker {
    /// Joins the other workers of the host.
    pub(in crate::data) fn join(&mut self, handoffs: Handoffs) {
        self.handoffs = handoffs;
    }

    /// Returns the input of frames from the worker behind a link.
    fn handoff_input(&self, link: usize) -> InputId {
        let other = self.handoffs.links[link].worker;
        self.host.switch().input(SwitchConfig::handoff_port(self.handoffs.ports, other), 0)
    }

    /// Receives frames of others, and own handles that come back. Returns true if there was
    /// anything.
    pub(super) fn receive_handoffs(&mut self) -> bool {
        let mut any = false;
        for at in 0..self.handoffs.links.len() {
            let input = self.handoff_input(at);
            let (link, switch) = (&mut self.handoffs.links[at], self.host.switch_mut());
            // Asked first: all frames sent before the revocation are in the ring by now.
            let wanted = link.wanted();
            while let Some(frame) = link.arrived() {
                switch.receive_handoff(input, frame);
                any = true;
            }
            while let Some((buf, remote)) = link.returned() {
                if let Some(copied) = switch.handed_back(buf, remote) {
                    if let Some(spread) = &self.spread {
                        spread.ended(&mut self.ports, &copied);
                    }
                    self.pool.give_back(copied);
                }
                any = true;
            }
            if let Some(of) = wanted {
                self.serve_revoke(at, input, of);
                any = true;
            }
        }
        any
    }

    /// Returns another worker's handles of an input. Frames that still wait are copied into this
    /// worker's pool.
    #[cold]
    fn serve_revoke(&mut self, at: usize, input: InputId, of: InputId) {
        let (link, switch) = (&mut self.handoffs.links[at], self.host.switch_mut());
        let pool = &mut self.pool;
        switch.revoke(input, of, |buf, remote| match pool.copy_of(&buf) {
            Some(copy) => {
                link.give_back(buf, remote);
                Ok(copy)
            }
            None => Err(buf),
        });
        while let Some((buf, remote)) = switch.reclaim_handoff(input) {
            link.give_back(buf, remote);
        }
        link.ring();
    }

    /// Sends frames that wait for ports of others. Returns true if there were any.
    pub(super) fn send_handoffs(&mut self) -> bool {
        let Self { handoffs, host, pool, ports, spread, .. } = self;
        let switch = host.switch_mut();
        let mut any = false;
        let mut buckets = spread.as_ref().and_then(|spread| spread.buckets(ports));
        for &Elsewhere { port, link, held } in &handoffs.elsewhere {
            if !held && switch.is_busy(port) && switch.has_handoff(port) {
                let link = &mut handoffs.links[link];
                let buckets = buckets.as_deref_mut();
                any |= switch.hand_over(port, &mut Carrier { link, pool, buckets }) > 0;
            }
        }
        any
    }

    /// Returns handles to other workers, and wakes the workers to which something was sent. Returns
    /// true if there was anything.
    pub(super) fn return_handoffs(&mut self) -> bool {
        let mut any = false;
        for at in 0..self.handoffs.links.len() {
            let input = self.handoff_input(at);
            let (link, switch) = (&mut self.handoffs.links[at], self.host.switch_mut());
            while let Some((buf, remote)) = switch.reclaim_handoff(input) {
                link.give_back(buf, remote);
                any = true;
            }
            link.ring();
        }
        any
    }

    /// Revokes the handles of an input that others hold. This takes as long as a turn of theirs.
    /// Returns false if the host is being stopped and the others are gone.
    pub(super) fn revoke(&mut self, input: InputId) -> bool {
        if self.host.switch().remote_refs(input) == 0 {
            return true;
        }
        self.handoffs.want_back(input);
        while self.host.switch().remote_refs(input) > 0 {
            // Others may revoke handles from here meanwhile.
            if !self.receive_handoffs() {
                std::hint::spin_loop();
            }
            if self.ending.until().is_some_and(|until| clock::now() >= until) {
                return false;
            }
        }
        self.handoffs.want_nothing();
        true
    }
}
