//! One event a hop is exact: a frame is put into its next queue when it leaves the link before it,
//! and no visible result differs from a run with an event of its own for its arrival.
//!
//! Scenarios are run both ways, with ties broken by place, since the number of events differs and
//! with it the order in which they were pushed. Everything is compared: the time of every arrival
//! and drop, completion times, pauses, hops, counters of TCP. Two numbers may differ: events, and
//! the mark of the fullest buffer if no frame passed a threshold, because bytes that pass none are
//! counted when they are on the cable.

use sluice_base::PriorityMask;
use sluice_sim::events::Ties;
use sluice_sim::world::World;

use crate::run::{Outcome, run};
use crate::scenario::Scenario;
use crate::{repeat, seeds};

const TEST: &str = "one_event_a_hop_changes_nothing";

#[test]
fn one_event_a_hop_changes_nothing() {
    seeds(150, TEST, |seed| {
        let mut scenario = Scenario::new(seed);
        scenario.config.ties = Ties::ByPlace;
        // Uniform delays: without them there is nothing to compare. The least one needs no more
        // headroom than was drawn.
        let cables = &mut scenario.config.topology.cables;
        let delay = cables.iter().map(|cable| cable.delay).min().unwrap();
        cables.iter_mut().for_each(|cable| cable.delay = delay);
        let early = run(&scenario, 100_000, &repeat(seed, TEST), |_| {})?;
        let late = run(&scenario, 100_000, &repeat(seed, TEST), World::split_arrivals)?;
        compare(&scenario, early, late)
    });
}

fn compare(scenario: &Scenario, mut early: Outcome, late: Outcome) -> Result<(), String> {
    let (more, fewer) = (late.summary.events, early.summary.events);
    let (upper, exact) = (early.summary.physical_held_max, late.summary.physical_held_max);
    early.summary.events = more;
    early.summary.physical_held_max = exact;
    if early != late {
        return Err(format!("with one event a hop {early:#?}\nwith two {late:#?}"));
    }
    if fewer > more {
        return Err(format!("{fewer} events with one a hop, {more} with two"));
    }
    let lossless = scenario.config.net.lossless == PriorityMask::ALL;
    let counted = lossless && exact >= scenario.config.net.xoff.0;
    if upper < exact || (counted && upper != exact) {
        return Err(format!("the fullest buffer held {exact} bytes, and is said to have {upper}"));
    }
    Ok(())
}
