use sluice_api::show::BucketsRow;

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
fn top_rates_after_host_restart_count_from_zero() {
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

#[test]
fn what_runs_where_and_what_moved_is_shown() {
    let row = |port: &str, worker: u16, why: &str, list: Option<&[u16]>| PlacementRow {
        port: port.to_owned(),
        worker: Some(worker),
        cpu: Some(u32::from(worker) + 2),
        why: why.to_owned(),
        buckets: list.map(|list| BucketsRow { list: list.to_vec(), ..BucketsRow::default() }),
    };
    let whole = PlacementRow { worker: None, ..row("up", 0, "shared", None) };
    let (mut before, mut after) = (picture(1, 0), picture(2, 500));
    before.placement = vec![
        row("web", 1, "", None),
        whole.clone(),
        row("up", 0, "by hash", Some(&[0, 2, 4])),
        row("up", 1, "by hash", Some(&[1, 3])),
    ];
    after.placement = vec![
        row("web", 0, "a pinned vCPU", None),
        whole,
        row("up", 0, "by hash", Some(&[0])),
        row("up", 1, "by hash", Some(&[1])),
        row("up", 1, "less to do", Some(&[2, 4])),
        row("up", 1, "less to do than before", Some(&[3])),
        row("new", 1, "it came", None),
    ];
    for (worker, times) in after.workers.iter_mut().enumerate() {
        times.cpu = u32::try_from(worker + 2).ok();
    }
    let top = between(&before, &after);
    let moved = |port: &str, buckets, from, to, why: &str| MovedNow {
        port: port.to_owned(),
        buckets,
        from,
        to,
        why: why.to_owned(),
    };
    let expected = [moved("up", 2, 0, 1, "less to do"), moved("web", 0, 1, 0, "a pinned vCPU")];
    assert_eq!(top.moved, expected);
    let of = |now: &WorkerNow| (now.cpu, now.ports, now.buckets);
    assert_eq!(of(&top.workers[0]), (Some(2), 1, 1));
    assert_eq!(of(&top.workers[1]), (Some(3), 1, 4));
    let text = render(&top);
    let has = |words: &str| {
        text.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") == words)
    };
    assert!(has("2 of up 0 1 less to do") && has("web 1 0 a pinned vCPU"), "{text}");
    assert!(!render(&between(&after, &after)).contains("moved"));
}

#[test]
fn top_pinned_worker_without_ports_shows_cpu() {
    let (before, mut after) = (picture(1, 0), picture(2, 500));
    after.workers[0].cpu = Some(5);
    let top = between(&before, &after);
    assert_eq!((top.workers[0].cpu, top.workers[0].ports), (Some(5), 0));
    assert_eq!((top.workers[1].cpu, top.workers[1].ports), (None, 1));
}
