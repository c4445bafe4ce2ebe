use alloc::string::ToString as _;

use super::*;

#[test]
fn bit_rate_1gbps_sends_1500_bytes_in_12us() {
    assert_eq!(BitRate::from_gbps(1).time_for(ByteCount(1500)), Nanos::from_micros(12));
}

#[test]
fn a_rate_of_zero_never_ends() {
    assert_eq!(BitRate(0).time_for(ByteCount(1)), Nanos::MAX);
}

#[test]
fn time_rounds_up_and_bytes_round_down() {
    let rate = BitRate(3);
    let time = rate.time_for(ByteCount(1));
    assert_eq!(time, Nanos(2_666_666_667));
    assert_eq!(rate.bytes_in(time), ByteCount(1));
    assert_eq!(rate.bytes_in(Nanos(time.0 - 1)), ByteCount(0));
}

#[test]
fn moments_saturate_at_both_ends() {
    assert_eq!(Nanos::MAX.after(Nanos(1)), Nanos::MAX);
    assert_eq!(Nanos(1).since(Nanos(2)), Nanos::ZERO);
    assert_eq!(Nanos(1).before(Nanos(2)), Nanos::ZERO);
}

#[test]
fn nanos_display_exact_in_fitting_unit() {
    for (nanos, shown) in [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1 µs"),
        (1_050, "1.05 µs"),
        (50_000_000, "50 ms"),
        (1_200_000_000, "1.2 s"),
        (5_000_000_001, "5.000000001 s"),
        (u64::MAX, "18446744073.709551615 s"),
    ] {
        assert_eq!(Nanos(nanos).to_string(), shown);
    }
}
