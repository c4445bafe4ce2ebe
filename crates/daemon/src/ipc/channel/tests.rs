use std::os::unix::net::UnixStream;

use super::*;

const VNET: VnetId = VnetId(7);
const MAC: Mac = Mac([2, 0, 0, 0, 0, 9]);
const TO: [Destination; 2] = [Destination::Port(PortId(3)), Destination::Tunnel(TunnelId(500))];

fn events() -> Vec<Event<'static>> {
    let (isolated, held, stuck) = (PriorityMask(7), PriorityMask(3), PriorityMask(1));
    let state = ReceiverState { isolated, held, stuck };
    let receiver = |senders| Event::Receiver { port: PortId(3), state, senders: Senders(senders) };
    let mut all = vec![
        Event::Decap { vnet: VNET, tunnel: TunnelId(9) },
        Event::Used { vnet: VNET, mac: MAC },
        receiver(&[]),
        receiver(&[1, 0, 2, 1]),
    ];
    for to in TO {
        all.push(Event::Found { vnet: VNET, mac: MAC, to });
        for cause in PuntCause::ALL {
            all.push(Event::Punt { cause, vnet: VNET, from: to, head: b"a frame" });
        }
    }
    all
}

fn commands() -> Vec<Command<'static>> {
    let unbind = |ip| base::Command::Unbind { port: PortId(3), mac: MAC, ip };
    let mut all = vec![
        base::Command::Remove { vnet: VNET, mac: MAC },
        base::Command::Reject { vnet: VNET, mac: MAC },
        unbind(None),
        unbind(Some([10, 0, 0, 1].into())),
        unbind(Some([7; 16].into())),
        base::Command::ForgetDecap { vnet: VNET, tunnel: TunnelId(1) },
        base::Command::Hold {
            vnet: VNET,
            mac: MAC,
            tunnel: TunnelId(1),
            held: PriorityMask(3),
            stuck: PriorityMask(2),
        },
    ];
    all.extend(TO.map(|to| base::Command::Install { vnet: VNET, mac: MAC, to }));
    let sends = TO.map(|to| Command::Send { vnet: VNET, to, frame: &[5; FRAME_SIZE_MAX] });
    all.into_iter().map(Command::Switch).chain(sends).collect()
}

#[test]
fn record_round_trips_and_truncated_record_is_incomplete() {
    for one in events() {
        let mut bytes = Vec::new();
        one.write(&mut bytes);
        assert_eq!(Event::read(&bytes), Ok(Some((one, bytes.len()))));
        for size in 0..bytes.len() {
            assert_eq!(Event::read(&bytes[..size]), Ok(None), "{one:?} cut to {size}");
        }
    }
    for one in commands() {
        let mut bytes = Vec::new();
        one.write(&mut bytes);
        assert_eq!(Command::read(&bytes), Ok(Some((one, bytes.len()))));
        for size in (0..bytes.len()).filter(|size| *size < 64 || size + 64 > bytes.len()) {
            assert_eq!(Command::read(&bytes[..size]), Ok(None));
        }
    }
}

/// The processes of a host may be of two builds of one version.
#[test]
fn records_are_written_in_fixed_bytes() {
    let (head, frame): (&[u8], &[u8]) = (&[1, 2], &[3]);
    let (held, stuck) = (PriorityMask(3), PriorityMask(1));
    let [port, tunnel] = TO;
    let punt = |cause, from| Event::Punt { cause, vnet: VNET, from, head };
    let state = ReceiverState { isolated: PriorityMask(7), held, stuck };
    let (mac, vnet, id) = (MAC, VNET, TunnelId(9));
    let events: [(Event<'_>, &[u8]); 11] = [
        (punt(PuntCause::Miss, port), &[0, 0, 7, 0, 0, 3, 0, 1, 2]),
        (punt(PuntCause::NewSource, tunnel), &[0, 1, 7, 0, 1, 0xf4, 1, 1, 2]),
        (punt(PuntCause::Moved, port), &[0, 2, 7, 0, 0, 3, 0, 1, 2]),
        (punt(PuntCause::Arp, port), &[0, 3, 7, 0, 0, 3, 0, 1, 2]),
        (punt(PuntCause::Nd, port), &[0, 4, 7, 0, 0, 3, 0, 1, 2]),
        (punt(PuntCause::Snooped, port), &[0, 5, 7, 0, 0, 3, 0, 1, 2]),
        (Event::Decap { vnet, tunnel: id }, &[1, 7, 0, 9, 0]),
        (Event::Used { vnet, mac }, &[2, 7, 0, 2, 0, 0, 0, 0, 9]),
        (Event::Found { vnet, mac, to: tunnel }, &[3, 7, 0, 2, 0, 0, 0, 0, 9, 1, 0xf4, 1]),
        (Event::All, &[4]),
        (
            Event::Receiver { port: PortId(3), state, senders: Senders(&[9, 0]) },
            &[5, 3, 0, 7, 3, 1, 9, 0],
        ),
    ];
    let switch = Command::Switch;
    let (reason, ip) = (DropReason::ALL[5], Some([10, 0, 0, 1].into()));
    let commands: [(Command<'_>, &[u8]); 9] = [
        (
            switch(base::Command::Install { vnet, mac, to: port }),
            &[0, 7, 0, 2, 0, 0, 0, 0, 9, 0, 3, 0],
        ),
        (switch(base::Command::Remove { vnet, mac }), &[1, 7, 0, 2, 0, 0, 0, 0, 9]),
        (switch(base::Command::Reject { vnet, mac }), &[2, 7, 0, 2, 0, 0, 0, 0, 9]),
        (Command::Send { vnet, to: tunnel, frame }, &[3, 7, 0, 1, 0xf4, 1, 3]),
        (switch(base::Command::ForgetDecap { vnet, tunnel: id }), &[4, 7, 0, 9, 0]),
        (
            switch(base::Command::Hold { vnet, mac, tunnel: id, held, stuck }),
            &[5, 7, 0, 2, 0, 0, 0, 0, 9, 9, 0, 3, 1],
        ),
        (Command::Flood { vnet, from: port, frame }, &[6, 7, 0, 0, 3, 0, 3]),
        (
            switch(base::Command::Refuse { port: PortId(3), reason, frames: 2, bytes: 256 }),
            &[7, 3, 0, 5, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0],
        ),
        (
            switch(base::Command::Unbind { port: PortId(3), mac, ip }),
            &[8, 3, 0, 2, 0, 0, 0, 0, 9, 10, 0, 0, 1],
        ),
    ];
    let mut out = Vec::new();
    let mut check = |write: &dyn Fn(&mut Vec<u8>), expected: &[u8]| {
        out.clear();
        write(&mut out);
        let size = u16::try_from(expected.len()).unwrap().to_le_bytes();
        assert_eq!(out, [&size[..], expected].concat());
    };
    for (event, expected) in events {
        check(&|out| event.write(out), expected);
    }
    for (command, expected) in commands {
        check(&|out| command.write(out), expected);
    }
}

#[test]
fn what_no_process_writes_is_not_read() {
    let short_body = [2, 0, 2, 7];
    let no_kind = [0, 0];
    let unknown_kind = [1, 0, 9];
    let too_long = [0xff, 0xff, 0];
    let left_over = [7, 0, 1, 7, 0, 9, 0, 1, 1];
    for bytes in [&short_body[..], &no_kind, &unknown_kind, &too_long, &left_over] {
        assert_eq!(Event::read(bytes), Err(Unreadable), "{bytes:?}");
    }
    let half_a_sender = [7, 0, 5, 3, 0, 1, 1, 0, 9];
    assert_eq!(Event::read(&half_a_sender), Err(Unreadable));
    let no_such_destination = [12, 0, 0, 7, 0, 2, 0, 0, 0, 0, 9, 2, 0, 0];
    assert_eq!(Command::read(&no_such_destination), Err(Unreadable));
}

#[test]
fn pipe_partial_reads_keep_records_whole_and_ordered() {
    let (near, far) = UnixStream::pair().unwrap();
    let (mut near, mut far) = (Pipe::new(near).unwrap(), Pipe::new(far).unwrap());
    let (mut sent, mut got) = (0_u64, 0_u64);
    for _ in 0..300 {
        while !near.is_full() && sent < 5_000 {
            let mac = Mac::from_u64(sent);
            let install = base::Command::Install { vnet: VNET, mac, to: TO[0] };
            Command::Switch(install).write(near.out());
            Command::Send { vnet: VNET, to: TO[1], frame: &[1; 700] }.write(near.out());
            sent += 1;
        }
        near.flush().unwrap();
        far.fill().unwrap();
        far.take(|bytes| {
            let Some((command, size)) = Command::read(bytes)? else { return Ok(None) };
            if let Command::Switch(base::Command::Install { mac, .. }) = command {
                assert_eq!(mac, Mac::from_u64(got));
                got += 1;
            }
            Ok(Some(size))
        })
        .unwrap();
    }
    assert_eq!((sent, got), (5_000, 5_000));
    assert!(!near.has_out());
    drop(near);
    assert!(far.fill().is_err(), "the end is noticed");
}

#[test]
fn senders_are_read_as_they_were_written() {
    let tunnels = [TunnelId(7), TunnelId(0x0102)];
    let mut bytes = Vec::new();
    let senders = Senders::write(tunnels.into_iter(), &mut bytes);
    assert_eq!(senders.iter().collect::<Vec<_>>(), tunnels);
    let many = (0..u16::MAX).map(TunnelId);
    assert_eq!(Senders::write(many, &mut bytes).iter().count(), SENDERS_MAX);
}

#[test]
fn pipe_urgent_record_overtakes_queued_ones_in_order() {
    let (near, far) = UnixStream::pair().unwrap();
    let (mut near, mut far) = (Pipe::new(near).unwrap(), Pipe::new(far).unwrap());
    let (mut ahead, mut got, mut urgent) = (0_u64, Vec::new(), Vec::new());
    let mut sent = 0_u64;
    for round in 0..400_u64 {
        while !near.is_full() && sent < 6_000 {
            Command::Send { vnet: VNET, to: TO[1], frame: &sent.to_le_bytes() }.write(near.out());
            Command::Send { vnet: VNET, to: TO[0], frame: &[1; 900] }.write(near.out());
            sent += 1;
        }
        for _ in 0..round % 3 {
            let mut record = Vec::new();
            let remove = base::Command::Remove { vnet: VNET, mac: Mac::from_u64(ahead) };
            Command::Switch(remove).write(&mut record);
            near.put_ahead(&record);
            ahead += 1;
        }
        near.flush().unwrap();
        far.fill().unwrap();
        far.take(|bytes| {
            let Some((command, size)) = Command::read(bytes)? else { return Ok(None) };
            match command {
                Command::Switch(base::Command::Remove { mac, .. }) => {
                    assert_eq!(mac, Mac::from_u64(urgent.len() as u64), "in their order");
                    urgent.push(got.len());
                }
                Command::Send { to, frame, .. } if to == TO[1] => {
                    got.push(u64::from_le_bytes(frame.try_into().unwrap()));
                }
                Command::Send { .. } => {}
                other => panic!("{other:?}"),
            }
            Ok(Some(size))
        })
        .unwrap();
    }
    while near.has_out() {
        near.flush().unwrap();
        far.fill().unwrap();
    }
    assert!(got.len() > 3_000 && got.iter().copied().eq(0..got.len() as u64));
    // The records before the urgent one had reached the socket; those in `out` come after it.
    assert!(urgent.len() > 300, "{} came", urgent.len());
}
