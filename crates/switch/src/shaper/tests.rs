use super::*;
use sluice_base::BitRate;

fn limit(mbps: u64, catch_up_us: u64, overhead: u16) -> RateLimit {
    RateLimit {
        rate: BitRate::from_mbps(mbps),
        catch_up: Nanos::from_micros(catch_up_us),
        overhead,
    }
}

#[test]
fn without_a_limit_it_is_always_ready() {
    let mut shaper = Shaper::new(None);
    shaper.charge(Nanos::ZERO, u32::MAX);
    assert!(shaper.is_ready(Nanos::ZERO) && !shaper.is_limited());
}

#[test]
fn busy_shaper_keeps_rate_within_ten_nanoseconds() {
    let mut shaper = Shaper::new(Some(limit(300, 0, 0)));
    let mut now = Nanos::ZERO;
    for _ in 0..3_000 {
        shaper.charge(now, 1_500);
        now = shaper.ready_at();
    }
    // 4.5 MB at 300 Mbit/s are 120 ms.
    assert!(
        now.since(Nanos::from_millis(120)) <= Nanos(10)
            && Nanos::from_millis(120).since(now) <= Nanos(10),
        "{now}"
    );
}

#[test]
fn idle_shaper_credit_is_capped_at_catch_up() {
    let mut shaper = Shaper::new(Some(limit(1_000, 100, 24)));
    let now = Nanos::from_millis(50);
    let mut frames = 0;
    while shaper.is_ready(now) {
        shaper.charge(now, 1_226);
        frames += 1;
    }
    // 1,250 bytes are 10 us on the wire: ten of them fit into 100 us, and one more starts.
    assert_eq!(frames, 11);
}
