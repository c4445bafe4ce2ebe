use super::*;

fn counts(cards: [u64; 2], sink: [u64; 2]) -> [Vec<u64>; 6] {
    let (cards, sink) = (cards.to_vec(), sink.to_vec());
    [cards.clone(), cards.clone(), cards.clone(), cards, sink.clone(), sink]
}

#[test]
fn flood_loss_between_nics_detected_per_run() {
    assert_eq!(lost_between_cards(&counts([100, 200], [100, 200])), None);
    assert_eq!(lost_between_cards(&counts([100, 200], [100, 201])), None, "a frame of ARP");
    let one = Some("flood: 1 frames were lost between the cards".to_owned());
    assert_eq!(lost_between_cards(&counts([100, 200], [99, 200])), one);
    assert_eq!(
        lost_between_cards(&counts([100, 200], [99, 201])),
        one,
        "not hidden by the other run"
    );
}
