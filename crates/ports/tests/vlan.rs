//! Ports that share a device, on a veth pair: tags off and on, and the effect of a port without
//! room on the others.

mod support;

use sluice_base::{Batch, Buf as _, Mac, Priority, PriorityMask, VlanTag};
use sluice_ports::l2::{KernelShare, L2Config, Trunk, Vlan, VlanPort};
use sluice_ports::{FlowControl as _, Pool, Port as _, ReadAhead as _};
use sluice_switch::{Egress, Sink as _, Taken};
use sluice_wire::mac_control::{FRAME_SIZE, Message};
use support::{
    Cable, OPEN, Peer as _, RawPeer, Waiter, can_have_namespaces, egress, eventually, frame,
    inside, pool, test_frame,
};

/// Priorities 0 to 3.
const PAUSABLE: PriorityMask = PriorityMask(0x0f);

/// A device with ports, and its neighbour.
struct Rig {
    cable: Cable,
    trunk: Trunk,
    ports: Vec<VlanPort>,
    peer: RawPeer,
    pool: Pool,
}

fn rig(vlans: &[Vlan]) -> Rig {
    let cable = Cable::new();
    let config =
        L2Config { kernel: KernelShare::Nothing, ring_bytes: 100_000, ..L2Config::new("l0") };
    let trunk = inside(&cable.left, || Trunk::open(&config, PAUSABLE).unwrap());
    let ports = inside(&cable.left, || vlans.iter().map(|v| trunk.port(*v).unwrap()).collect());
    let peer = inside(&cable.right, || RawPeer::new("r0"));
    Rig { cable, trunk, ports, peer, pool: pool(512) }
}

/// A test frame with `tags` between its addresses and its type.
fn with(nth: usize, tags: &[u8]) -> Vec<u8> {
    let mut frame = test_frame(nth, 1514);
    frame.splice(12..12, tags.iter().copied());
    frame
}

impl Rig {
    /// Reads once. Returns `more`, and each frame with its tag handling.
    fn read_once(&mut self, port: usize) -> (bool, Vec<(Vec<u8>, VlanTag)>) {
        let mut batch = Batch::with_limit(64);
        let read = self.ports[port].read(OPEN, 64, &mut self.pool, &mut batch).unwrap();
        let mut frames = Vec::new();
        for buf in batch.drain() {
            frames.push((buf.bytes().to_vec(), buf.vlan_tag()));
            self.pool.give_back(buf);
        }
        assert_eq!(frames.len(), read.frames);
        (read.more, frames)
    }

    /// Flow control that a port receives: the priorities of the message, and the priorities that it
    /// pauses.
    fn heard(&mut self, port: usize) -> (u8, u8) {
        let mut heard = None;
        let came = eventually(|| {
            self.ports[port].receive_control(&mut |frame| heard = Some(pauses(frame)));
            heard.is_some()
        });
        assert!(came, "nothing was heard");
        heard.unwrap_or_default()
    }

    /// Frames that are set aside.
    fn aside(&self) -> u64 {
        self.ports[0].aside().frames
    }

    /// Reads a port until `count` frames came.
    fn read(&mut self, port: usize, count: usize) -> Vec<(Vec<u8>, VlanTag)> {
        let mut frames = Vec::new();
        let came = eventually(|| {
            frames.extend(self.read_once(port).1);
            frames.len() >= count
        });
        assert!(came, "{} of {count} frames", frames.len());
        frames
    }

    /// The next `count` frames at the neighbour.
    fn received(&mut self, count: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let came = eventually(|| {
            // The device may have had no room at the first attempt.
            self.ports.iter_mut().for_each(|port| port.flush().unwrap());
            frames.extend(std::iter::from_fn(|| self.peer.receive()));
            frames.len() >= count
        });
        assert!(came, "{} of {count} frames", frames.len());
        frames
    }

    fn send(&mut self, port: usize, bytes: &[u8], priority: u8) {
        let buf = frame(&mut self.pool, bytes);
        let priority = Priority::new(priority).unwrap();
        let egress = Egress { priority, ..egress(&[], Some(&buf)) };
        assert_eq!(self.ports[port].offer(&egress), Taken::All);
        self.pool.give_back(buf);
        self.ports[port].flush().unwrap();
    }

    /// Sends pauses and their ends as the switch behind a port does.
    fn ask(&mut self, port: usize, enabled: u8, on: u8) {
        let quanta = std::array::from_fn(|p| if on >> p & 1 == 1 { 0xffff } else { 0 });
        let mut bytes = [0; FRAME_SIZE];
        let message = Message::Pfc { enabled: PriorityMask(enabled), quanta };
        message.emit(Mac([2, 0, 0, 0, 0, 7]), &mut bytes);
        assert_eq!(self.ports[port].offer(&egress(&bytes, None)), Taken::All);
    }

    /// Returns true if nothing comes to the neighbour.
    fn is_silent(&mut self) -> bool {
        std::thread::sleep(std::time::Duration::from_millis(20));
        self.peer.receive().is_none()
    }
}

/// Content of a PFC frame: the priorities of the message, and the priorities that it pauses.
fn pauses(frame: &[u8]) -> (u8, u8) {
    assert_eq!(frame[..6], Mac::PAUSE.0, "flow control, without a tag");
    let Ok(Message::Pfc { enabled, quanta }) = Message::parse(&frame[14..]) else {
        panic!("no PFC frame: {frame:x?}")
    };
    let on = (0..8).filter(|p| enabled.0 >> p & 1 == 1 && quanta[*p] > 0);
    (enabled.0, on.map(|p| 1 << p).sum())
}

#[test]
fn the_tag_chooses_the_port_and_comes_off() {
    if !can_have_namespaces("the_tag_chooses_the_port_and_comes_off") {
        return;
    }
    let mut rig = rig(&[Vlan::Tagged(10), Vlan::Native(20)]);
    let sent = [
        with(0, &[0x81, 0, 0x60, 10]),
        with(1, &[0x81, 0, 0, 20]),
        with(2, &[]),
        with(3, &[0x81, 0, 0xa0, 0]),
        with(4, &[0x81, 0, 0, 10, 0x88, 0xa8, 0, 10]),
        with(5, &[0x81, 0, 0, 30]),
        with(6, &[0x88, 0xa8, 0, 10]),
    ];
    sent.iter().for_each(|frame| rig.peer.send(frame));
    let ten = rig.read(0, 2);
    assert_eq!(ten[0], (with(0, &[]), VlanTag::TakenOff(0x600a)));
    assert_eq!(ten[1], (with(4, &[0x88, 0xa8, 0, 10]), VlanTag::TakenOff(10)), "its own stays");
    let twenty = rig.read(1, 5);
    assert_eq!(twenty[0], (with(1, &[]), VlanTag::TakenOff(20)));
    assert_eq!(twenty[1], (with(2, &[]), VlanTag::AsIs));
    assert_eq!(twenty[2], (with(3, &[]), VlanTag::TakenOff(0xa000)));
    assert_eq!(twenty[3], (sent[5].clone(), VlanTag::NotAllowed));
    assert_eq!(twenty[4], (sent[6].clone(), VlanTag::NotAllowed));
    assert_eq!((rig.ports.len(), rig.pool.used()), (2, 0));
}

#[test]
fn the_tag_goes_on_with_the_priority() {
    if !can_have_namespaces("the_tag_goes_on_with_the_priority") {
        return;
    }
    let mut rig = rig(&[Vlan::Tagged(10), Vlan::Native(20)]);
    let mut largest = test_frame(1, 1514);
    largest.resize(1514, 7);
    rig.send(0, &largest, 5);
    let mut tagged = largest.clone();
    tagged.splice(12..12, [0x81, 0, 0xa0, 10]);
    // A socket without a ring gets frames without their tags, so a trunk receives.
    let far = inside(&rig.cable.right, || {
        let config = L2Config { ring_bytes: 100_000, ..L2Config::new("r0") };
        sluice_ports::l2::L2Port::open(&config).unwrap()
    });
    let mut far: Box<dyn sluice_ports::Port> = Box::new(far);
    assert_eq!(rig.received(1)[0].len(), 1514, "the kernel takes 1500 bytes with a tag");
    rig.send(0, &largest, 5);
    rig.send(1, &with(2, &[]), 6);
    // The neighbour would take a tag of the frame's own for the VLAN's.
    rig.send(1, &with(3, &[0x81, 0, 0, 10]), 6);
    let expected = vec![tagged, with(2, &[]), with(3, &[0x81, 0, 0xc0, 20, 0x81, 0, 0, 10])];
    assert_eq!(support::read_all(&mut *far, &mut rig.pool, 3, 0), expected);
    assert!(rig.ports.iter().all(|port| port.lost().total().frames == 0));
}

/// One VLAN is not read, and the other one goes on. Once much of a priority is set aside the
/// neighbour gets a pause for it, and may go on when there is room again.
#[test]
fn unread_vlan_pauses_own_priority_other_vlan_continues() {
    if !can_have_namespaces("unread_vlan_pauses_own_priority_other_vlan_continues") {
        return;
    }
    let mut rig = rig(&[Vlan::Tagged(10), Vlan::Tagged(20)]);
    // Of 100,000 bytes; a port without a rule uses priority 0.
    let mut sent = 0;
    let mut stop_at = |rig: &mut Rig, bytes: u64| {
        while rig.ports[0].aside().bytes < bytes {
            rig.peer.send(&with(sent, &[0x81, 0, 0, 20]));
            rig.peer.send(&with(sent, &[0x81, 0, 0, 10]));
            sent += 1;
            assert_eq!(rig.read(0, 1), [(with(sent - 1, &[]), VlanTag::TakenOff(10))]);
        }
    };
    stop_at(&mut rig, 40_000);
    assert!(rig.is_silent(), "there is room");
    stop_at(&mut rig, 50_000);
    assert_eq!(pauses(&rig.received(1)[0]), (0x01, 0x01), "of this priority, and no other");
    rig.read_once(0);
    assert!(rig.is_silent(), "once is enough");
    stop_at(&mut rig, 60_000);
    assert_eq!(pauses(&rig.received(1)[0]), (0x01, 0x01), "unless frames come all the same");
    // Its own XOFF repeats it, and its XON does not end it.
    rig.ask(1, 0x20, 0x20);
    assert_eq!(pauses(&rig.received(1)[0]), (0x21, 0x21));
    rig.ask(1, 0x21, 0x00);
    assert_eq!(pauses(&rig.received(1)[0]), (0x20, 0x00));
    let came = rig.read(1, sent);
    assert_eq!(came.len(), sent);
    for (nth, frame) in came.iter().enumerate() {
        assert_eq!(*frame, (with(nth, &[]), VlanTag::TakenOff(20)), "in order");
    }
    assert_eq!(pauses(&rig.received(1)[0]), (0x01, 0x00), "there is room again");
    let rows = rig.ports[0].outside().into_counters().unwrap();
    assert_eq!((rows["ring.drops"], rows["aside.full"]), (0, 0));
    assert_eq!(rig.pool.used(), 0);
}

/// The wire has one flow control for all its ports.
#[test]
fn pauses_are_merged_and_told_to_all() {
    if !can_have_namespaces("pauses_are_merged_and_told_to_all") {
        return;
    }
    let mut rig = rig(&[Vlan::Tagged(10), Vlan::Tagged(20)]);
    rig.ask(0, 0b0010, 0b0010);
    rig.ask(1, 0b0110, 0b0110);
    rig.ask(0, 0b0010, 0);
    rig.ask(1, 0b0010, 0);
    let said: Vec<_> = rig.received(3).iter().map(|frame| pauses(frame)).collect();
    assert_eq!(said, [(2, 2), (6, 6), (2, 0)], "VLAN 20 still wanted what VLAN 10 did not");
    assert!(rig.is_silent());
    rig.ports[1].close().unwrap();
    assert_eq!(pauses(&rig.received(1)[0]), (4, 0), "who is closed wants nothing");
    rig.ports[1] = inside(&rig.cable.left, || rig.trunk.port(Vlan::Tagged(30)).unwrap());
    let message = Message::Pfc { enabled: PriorityMask(8), quanta: [9; 8] };
    let mut bytes = [0; FRAME_SIZE];
    message.emit(Mac([2, 0, 0, 0, 0, 8]), &mut bytes);
    rig.peer.send(&bytes);
    for port in 0..2 {
        assert_eq!(rig.heard(port), (8, 8));
        assert_eq!(rig.read_once(port).1, vec![], "it is not among data");
    }
}

/// A port that returned `more: false` is woken when another one reads its frame, also if that read
/// brought frames.
#[test]
fn whose_frame_another_one_reads_is_woken() {
    if !can_have_namespaces("whose_frame_another_one_reads_is_woken") {
        return;
    }
    let mut rig = rig(&[Vlan::Tagged(10), Vlan::Tagged(20)]);
    let waiter = Waiter::new(&rig.ports[1]);
    for round in 0..50 {
        if round % 2 == 0 {
            rig.peer.send(&with(99, &[0x81, 0, 0, 20]));
            rig.read(1, 1);
        } else {
            while rig.read_once(1).0 {}
        }
        while waiter.wait(0) {}
        rig.peer.send(&with(round, &[0x81, 0, 0, 20]));
        assert!(eventually(|| {
            rig.read_once(0);
            rig.aside() == 1
        }));
        assert!(waiter.wait(1000), "round {round}");
        assert_eq!(rig.read_once(1).1, vec![(with(round, &[]), VlanTag::TakenOff(20))]);
    }
}

#[test]
fn a_closed_port_leaves_the_others() {
    if !can_have_namespaces("a_closed_port_leaves_the_others") {
        return;
    }
    let mut rig = rig(&[Vlan::Tagged(10), Vlan::Tagged(20)]);
    rig.peer.send(&with(0, &[0x81, 0, 0, 20]));
    assert!(eventually(|| {
        rig.read_once(0);
        rig.aside() == 1
    }));
    rig.ports[1].close().unwrap();
    rig.peer.send(&with(1, &[0x81, 0, 0, 20]));
    let stray = rig.read(0, 1);
    assert_eq!(stray, [(with(1, &[0x81, 0, 0, 20]), VlanTag::NotAllowed)]);
    assert_eq!(rig.aside(), 0, "what was set aside is given up");
    assert!(rig.ports[1].poll_fds().is_empty());
    assert_eq!(
        rig.ports[1].read(OPEN, 1, &mut rig.pool, &mut Batch::with_limit(1)).unwrap().frames,
        0
    );
    rig.ports[0].close().unwrap();
    let refused = inside(&rig.cable.left, || rig.trunk.port(Vlan::Tagged(10)).map(|_| ()));
    assert!(refused.is_err(), "the device went with its last port");
}
