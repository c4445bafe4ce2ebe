use super::*;

fn picture(seconds: u64, frames: u64) -> Picture {
    let times = |busy_ns, asleep_ns| WorkerTimes {
        busy_ns,
        asleep_ns,
        turns: frames,
        ..WorkerTimes::default()
    };
    let port = PortRow {
        port: "web".to_owned(),
        rx_frames: frames,
        rx_bytes: frames * 1_000,
        tx_frames: frames / 2,
        held_frames: 3,
        ..PortRow::default()
    };
    let placed = PlacementRow {
        port: "web".to_owned(),
        worker: Some(1),
        cpu: None,
        why: String::new(),
        buckets: None,
    };
    Picture {
        host: "h1".to_owned(),
        at_ns: (seconds * 1_000_000_000, seconds * 1_000_000_000),
        workers: vec![times(frames, frames * 3), times(0, frames)],
        ports: vec![port],
        placement: vec![placed],
        dropped: [("web".to_owned(), frames / 10)].into(),
    }
}

#[test]
fn rates_are_differences_over_the_time_between() {
    let top = between(&picture(10, 1_000), &picture(12, 5_000));
    let web = &top.ports[0];
    assert_eq!((web.rx_frames_per_s, web.tx_frames_per_s), (2_000, 1_000));
    assert_eq!((web.rx_mbps, web.drops_per_s), (16, 200));
    assert_eq!((web.worker, web.held_frames), (Some(1), 3));
    assert_eq!((top.workers[0].busy_percent, top.workers[0].asleep_percent), (25.0, 75.0));
    assert_eq!((top.workers[1].busy_percent, top.workers[1].turns_per_s), (0.0, 2_000));
}

#[test]
fn a_host_that_was_started_anew_begins_at_zero() {
    let top = between(&picture(100, 1_000_000), &picture(2, 5_000));
    assert_eq!(top.ports[0].rx_frames_per_s, 2_500);
    assert_eq!(top.workers[0].busy_percent, 25.0);
}

#[test]
fn a_table_names_what_it_shows() {
    let text = render(&between(&picture(1, 0), &picture(2, 500)));
    assert!(text.contains("busy %") && text.contains("rx Mbit/s"), "{text}");
    let line = text.lines().find(|line| line.contains("web")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words, ["web", "1", "500", "250", "4", "0", "3", "0", "50"]);
}
