use super::*;

fn row(counter: &str, frames: u64, ago_ns: u64) -> LossRow {
    LossRow { port: "p".to_owned(), counter: counter.to_owned(), frames, ago_ns }
}

#[test]
fn losses_text_sums_frames_shows_last_time() {
    assert_eq!(losses_text(&[]), None);
    let one = losses_text(&[row("ring.drops", 1, 49_999_999)]);
    assert_eq!(one.unwrap(), "lost 1 frame outside the switch (ring.drops), last 0.0 s ago");
    let two = [row("device.rx_errors", 4, 9_000_000_000), row("ring.drops", 8, 3_250_000_000)];
    assert_eq!(
        losses_text(&two).unwrap(),
        "lost 12 frames outside the switch (device.rx_errors, ring.drops), last 3.2 s ago"
    );
}

#[test]
fn losses_text_omits_softnet_drops_of_unknown_port() {
    let others = row("softnet.dropped", 7, 1);
    assert_eq!(losses_text(std::slice::from_ref(&others)), None);
    let text = losses_text(&[others, row("ring.drops", 1, 0)]).unwrap();
    assert_eq!(text, "lost 1 frame outside the switch (ring.drops), last 0.0 s ago");
}
