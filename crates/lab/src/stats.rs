//! Mean, percentiles and the interval of a ratio of means.

use sluice_base::Prng;

/// Completion times above this come from a retransmission time-out of 200 ms.
pub(crate) const TIMED_OUT_NS: f64 = 150e6;
/// Resamples of a bootstrap.
const RESAMPLES: usize = 4000;

/// Returns the mean; zero for an empty slice.
pub(crate) fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / count(values) }
}

/// Returns the value below which `part` (0 to 1) of the values lie, interpolated between
/// neighbours.
pub(crate) fn percentile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let place = part.clamp(0.0, 1.0) * count(&sorted[1..]);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and the number of values"
    )]
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (place - place.floor())
}

/// Returns the share of values above a bound.
pub(crate) fn share_above(values: &[f64], bound: f64) -> f64 {
    let above: Vec<f64> = values.iter().copied().filter(|&value| value > bound).collect();
    if values.is_empty() { 0.0 } else { count(&above) / count(values) }
}

/// A ratio with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    /// The ratio.
    pub(crate) value: f64,
    /// Lower end.
    pub(crate) low: f64,
    /// Upper end.
    pub(crate) high: f64,
}

/// Returns the mean of `above` over the mean of `below`, with the percentile bootstrap interval:
/// both are resampled with replacement. `seed` and `name` choose the stream of random numbers.
pub(crate) fn ratio_of_means(above: &[f64], below: &[f64], seed: u64, name: &str) -> Option<Ratio> {
    if above.is_empty() || below.is_empty() || mean(below) <= 0.0 {
        return None;
    }
    let mut random = Prng::stream(seed, name);
    let ratios: Vec<f64> = (0..RESAMPLES)
        .map(|_| resampled_mean(above, &mut random) / resampled_mean(below, &mut random))
        .collect();
    Some(Ratio {
        value: mean(above) / mean(below),
        low: percentile(&ratios, 0.025),
        high: percentile(&ratios, 0.975),
    })
}

fn resampled_mean(values: &[f64], random: &mut Prng) -> f64 {
    let draws = (0..values.len()).map(|_| {
        let index = random.below(values.len() as u64);
        values[usize::try_from(index).unwrap_or(0)]
    });
    draws.sum::<f64>() / count(values)
}

fn count(values: &[f64]) -> f64 {
    u32::try_from(values.len()).map_or(f64::MAX, f64::from)
}

#[cfg(test)]
mod tests;
