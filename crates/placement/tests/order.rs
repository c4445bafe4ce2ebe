//! Packets of an entry stay in order, for all decisions and any progress of the cores.

use std::collections::VecDeque;

use proptest::prelude::*;
use sluice_base::Nanos;
use sluice_placement::{CoreIndex, Dispatch, EntryId, Move, Order, Table, Why};

const CORES: u16 = 4;
const ENTRIES: u32 = 3;
const PATIENCE: Nanos = Nanos(50);

/// The next event.
#[derive(Clone, Copy, Debug)]
enum Step {
    Packet(u32),
    Work(u16),
    Decide(u32, u16, Option<u16>),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..ENTRIES).prop_map(Step::Packet),
        5 => (0..CORES).prop_map(Step::Work),
        1 => (0..ENTRIES, 0..CORES, proptest::option::of(0..CORES))
            .prop_map(|(entry, core, delivery)| Step::Decide(entry, core, delivery)),
        1 => (0..80_u64).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 0..400)
}

/// Cores with queues: a packet with a separate delivery goes to that core when its first stage is
/// done.
#[derive(Default)]
struct Machine {
    queues: [VecDeque<(u32, u32, Option<CoreIndex>)>; CORES as usize],
    /// Per entry: the number of the next packet, and of the next one that must end.
    next: [(u32, u32); ENTRIES as usize],
}

impl Machine {
    fn work(&mut self, core: usize, table: &mut Table) {
        let Some((entry, number, delivery)) = self.queues[core].pop_front() else { return };
        if let Some(there) = delivery {
            self.queues[there.index()].push_back((entry, number, None));
            return;
        }
        let due = &mut self.next[entry as usize].1;
        assert_eq!(number, *due, "packet {number} of entry {entry} has overtaken {due}");
        *due += 1;
        table.done(EntryId(entry), 1);
    }
}

proptest! {
    #[test]
    fn no_packet_overtakes_another_one_of_its_entry(steps in steps()) {
        let mut table = Table::new(ENTRIES, Order::Counted { patience: PATIENCE });
        let mut machine = Machine::default();
        let mut now = Nanos(0);
        let change = |entry, core, delivery: Option<u16>| {
            let delivery = delivery.filter(|there| *there != core).map(CoreIndex);
            Move { entry: EntryId(entry), core: CoreIndex(core), delivery, why: Why::Hash }
        };
        for entry in 0..ENTRIES {
            table.set(now, &change(entry, 0, None));
        }
        for step in steps {
            now.0 += 1;
            match step {
                Step::Packet(entry) => match table.dispatch(now, EntryId(entry)) {
                    Dispatch::To(core, delivery) => {
                        let next = &mut machine.next[entry as usize].0;
                        machine.queues[core.index()].push_back((entry, *next, delivery));
                        *next += 1;
                    }
                    // The packet comes again.
                    Dispatch::Hold => {}
                    Dispatch::Unplaced => unreachable!("all are placed"),
                },
                Step::Work(core) => machine.work(core.into(), &mut table),
                Step::Decide(entry, core, delivery) => {
                    table.set(now, &change(entry, core, delivery));
                }
                Step::Wait(time) => now.0 += time,
            }
        }
        // No packet is lost, and every move is made in the end.
        for _ in 0..1_000 {
            (0..CORES).for_each(|core| machine.work(core.into(), &mut table));
        }
        for entry in 0..ENTRIES {
            let (came, ended) = machine.next[entry as usize];
            prop_assert_eq!(came, ended);
            let there = table.dispatch(now, EntryId(entry));
            prop_assert!(matches!(there, Dispatch::To(..)), "{:?}", there);
            prop_assert!(table.is_settled(EntryId(entry)));
        }
    }

    /// Without counting, it is enough that no packet is under way for longer than the gap.
    #[test]
    fn quiet_gap_beyond_flight_time_keeps_order(
        steps in proptest::collection::vec((0..60_u64, 0..CORES, 1..100_u64), 1..200),
    ) {
        const GAP: u64 = 100;
        let mut table = Table::new(1, Order::Quiet(Nanos(GAP)));
        let entry = EntryId(0);
        let (mut now, mut last_end) = (1_000, 0);
        for (wait, core, takes) in steps {
            now += wait * wait / 10;
            let wanted = Move { entry, core: CoreIndex(core), delivery: None, why: Why::Hash };
            let before = table.clone();
            table.set(Nanos(now), &wanted);
            let there = table.dispatch(Nanos(now), entry);
            let mut old = before;
            if old.dispatch(Nanos(now), entry) != there {
                // The entry moved: all earlier packets must have ended.
                prop_assert!(last_end <= now, "one ends at {last_end}, the next began at {now}");
            }
            last_end = last_end.max(now + takes);
        }
    }
}
