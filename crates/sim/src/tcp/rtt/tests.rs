use super::*;
use crate::tcp::Algorithm;

fn config() -> Config {
    Config {
        rto_rule: RtoRule::Rfc6298,
        rto_min: Nanos::ZERO,
        rto_slop: Nanos::ZERO,
        rto_max: Nanos::from_millis(60_000),
        tick: Nanos::ZERO,
        ..Config::freebsd9(Algorithm::NewReno)
    }
}

/// ns-3, src/internet/test/rtt-test.cc, the cases with alpha 1/8 and beta 1/4: measurement, then
/// estimate and variation, in microseconds. They follow from RFC 6298 clauses 2.2 and 2.3.
#[test]
fn ns3_estimates() {
    let table = [
        (1_000_000, 1_000_000, 500_000),
        (1_200_000, 1_025_000, 425_000),
        (900_000, 1_009_375, 350_000),
    ];
    let config = config();
    let mut rtt = Rtt::new(&config);
    assert_eq!((rtt.srtt(), rtt.rto(&config)), (None, Nanos::from_millis(1_000)));
    for (measured, srtt, rttvar) in table {
        rtt.sample(Nanos::from_micros(measured), &config);
        assert_eq!(rtt.srtt(), Some(Nanos::from_micros(srtt)));
        assert_eq!(rtt.rttvar_by_4, 4 * rttvar * 1_000);
        // Clause 2.3: RTO = SRTT + 4 RTTVAR.
        assert_eq!(rtt.rto(&config), Nanos::from_micros(srtt + 4 * rttvar));
    }
}

/// RFC 6298: the first sample R gives SRTT = R, RTTVAR = R/2 and so RTO = 3 R (clause 2.2); each
/// time-out doubles it (5.5) up to the bound (2.5); a sample ends that (5.7).
#[test]
fn rfc6298_backoff() {
    let config = config();
    let mut rtt = Rtt::new(&config);
    rtt.sample(Nanos::from_millis(500), &config);
    for seconds_by_2 in [3, 6, 12, 24, 48, 96, 120, 120] {
        assert_eq!(rtt.rto(&config), Nanos::from_millis(seconds_by_2 * 500));
        rtt.back_off();
    }
    for _ in 0..300 {
        rtt.back_off();
    }
    assert_eq!(rtt.rto(&config), config.rto_max);
    rtt.sample(Nanos::from_millis(500), &config);
    assert_eq!(rtt.rto(&config), Nanos::from_micros(500_000 + 4 * 187_500));
}

/// The bounds, by rule: a steady round trip time of 100 us lets the variation die out.
#[test]
fn bounds_and_addends() {
    let steady = |config: &Config| {
        let mut rtt = Rtt::new(config);
        for _ in 0..100 {
            rtt.sample(Nanos::from_micros(100), config);
        }
        rtt.rto(config)
    };
    // RFC 6298 clause 2.3: the variance term is at least the granularity; clause 2.4: a minimum.
    let tick = Config { tick: Nanos::from_micros(7), ..config() };
    assert_eq!(steady(&tick), Nanos::from_micros(107));
    let least = Config { rto_min: Nanos::from_millis(2), ..tick };
    assert_eq!(steady(&least), Nanos::from_millis(2));
    // FreeBSD adds the slop to the bounded sum, Linux bounds only the variance term.
    assert_eq!(steady(&Config::freebsd9(Algorithm::NewReno)), Nanos::from_millis(22));
    assert_eq!(steady(&Config::linux_2013(Algorithm::Cubic)), Nanos::from_micros(200_100));
}

/// Clause 5.7: after a SYN that timed out the first data waits 3 s.
#[test]
fn after_a_lost_syn() {
    let config = config();
    let mut rtt = Rtt::new(&config);
    rtt.back_off();
    rtt.after_syn_timeout(&config);
    assert_eq!(rtt.rto(&config), Nanos::from_millis(3_000));
}
