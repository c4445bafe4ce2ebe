//! The worker's part in frames that cross between workers.

use sluice_base::InputId;
use sluice_switch::SwitchConfig;

use super::Worker;
use crate::clock;
use crate::data::crossing::{Carrier, Crossings, Elsewhere};

impl Worker {
    /// Joins the other workers of the host.
    pub(in crate::data) fn join(&mut self, crossings: Crossings) {
        self.crossings = crossings;
    }

    /// Returns the input of frames from the worker behind a link.
    fn crossing_input(&self, link: usize) -> InputId {
        let other = self.crossings.links[link].worker;
        self.host.switch().input(SwitchConfig::crossing_port(self.crossings.ports, other), 0)
    }

    /// Receives frames of others, and own handles that come back. Returns true if there was
    /// anything.
    pub(super) fn cross_in(&mut self) -> bool {
        let mut any = false;
        for at in 0..self.crossings.links.len() {
            let input = self.crossing_input(at);
            let (link, switch) = (&mut self.crossings.links[at], self.host.switch_mut());
            // Asked first: all frames sent before the recall are in the ring by now.
            let wanted = link.wanted();
            while let Some(frame) = link.arrived() {
                switch.receive_crossed(input, frame);
                any = true;
            }
            while let Some((buf, loan)) = link.returned() {
                if let Some(copied) = switch.handed_back(buf, loan) {
                    if let Some(spread) = &self.spread {
                        spread.ended(&mut self.ports, &copied);
                    }
                    self.pool.give_back(copied);
                }
                any = true;
            }
            if let Some(of) = wanted {
                self.serve_recall(at, input, of);
                any = true;
            }
        }
        any
    }

    /// Returns another worker's handles of an input. Frames that still wait are copied into this
    /// worker's pool.
    #[cold]
    fn serve_recall(&mut self, at: usize, input: InputId, of: InputId) {
        let (link, switch) = (&mut self.crossings.links[at], self.host.switch_mut());
        let pool = &mut self.pool;
        switch.recall(input, of, |buf, loan| match pool.copy_of(&buf) {
            Some(copy) => {
                link.give_back(buf, loan);
                Ok(copy)
            }
            None => Err(buf),
        });
        while let Some((buf, loan)) = switch.reclaim_crossed(input) {
            link.give_back(buf, loan);
        }
        link.ring();
    }

    /// Sends frames that wait for ports of others. Returns true if there were any.
    pub(super) fn cross_over(&mut self) -> bool {
        let Self { crossings, host, pool, ports, spread, .. } = self;
        let switch = host.switch_mut();
        let mut any = false;
        let mut buckets = spread.as_ref().and_then(|spread| spread.buckets(ports));
        for &Elsewhere { port, link, held } in &crossings.elsewhere {
            if !held && switch.is_busy(port) && switch.has_to_lend(port) {
                let link = &mut crossings.links[link];
                let buckets = buckets.as_deref_mut();
                any |= switch.hand_over(port, &mut Carrier { link, pool, buckets }) > 0;
            }
        }
        any
    }

    /// Returns handles to other workers, and wakes the workers to which something was sent. Returns
    /// true if there was anything.
    pub(super) fn cross_back(&mut self) -> bool {
        let mut any = false;
        for at in 0..self.crossings.links.len() {
            let input = self.crossing_input(at);
            let (link, switch) = (&mut self.crossings.links[at], self.host.switch_mut());
            while let Some((buf, loan)) = switch.reclaim_crossed(input) {
                link.give_back(buf, loan);
                any = true;
            }
            link.ring();
        }
        any
    }

    /// Recalls the handles of an input that others hold, which takes as long as a turn of theirs.
    /// Returns false if the host is being stopped and the others are gone.
    pub(super) fn recall(&mut self, input: InputId) -> bool {
        if self.host.switch().lent(input) == 0 {
            return true;
        }
        self.crossings.want_back(input);
        while self.host.switch().lent(input) > 0 {
            // Others may recall from here meanwhile.
            if !self.cross_in() {
                std::hint::spin_loop();
            }
            if self.ending.until().is_some_and(|until| clock::now() >= until) {
                return false;
            }
        }
        self.crossings.want_nothing();
        true
    }
}
