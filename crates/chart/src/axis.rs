//! Axes: places of values in a drawing, and the values that get a tick.

/// A logarithmic axis over a range of the drawing.
#[derive(Debug)]
pub(crate) struct LogAxis {
    /// The values at both ends, and their places.
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) from: f64,
    pub(crate) to: f64,
}

impl LogAxis {
    /// Returns the place of a value; what is below the axis lies at its lower end.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let part = (value.max(self.low) / self.low).ln() / (self.high / self.low).ln();
        self.from + (self.to - self.from) * part
    }

    /// Returns 1, 2 and 5 times each power of ten in the range.
    pub(crate) fn ticks(&self) -> Vec<f64> {
        let mut ticks = Vec::new();
        let mut decade = 10_f64.powf(self.low.log10().floor());
        while decade <= self.high {
            for step in [1.0, 2.0, 5.0] {
                let tick = decade * step;
                if tick >= self.low * 0.999 && tick <= self.high * 1.001 {
                    ticks.push(tick);
                }
            }
            decade *= 10.0;
        }
        ticks
    }
}

/// Returns the end of a linear axis that begins at zero: the next of 1, 2, 3, 4, 6, 8 or 10 times a
/// power of ten.
pub(crate) fn nice_top(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let decade = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0];
    let fitting = steps.into_iter().find(|step| step * decade >= value * 0.999);
    fitting.unwrap_or(10.0) * decade
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_axis_ends_map_to_plot_ends() {
        let axis = LogAxis { low: 1.0, high: 100.0, from: 0.0, to: 200.0 };
        assert!((axis.at(1.0) - 0.0).abs() < 1e-9);
        assert!((axis.at(10.0) - 100.0).abs() < 1e-9);
        assert!((axis.at(100.0) - 200.0).abs() < 1e-9);
        assert!((axis.at(0.0) - 0.0).abs() < 1e-9, "zero lies on the edge");
        assert_eq!(axis.ticks(), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
    }

    #[test]
    fn bars_end_at_round_numbers() {
        for (value, top) in [(0.0, 1.0), (3.0, 3.0), (11.0, 20.0), (99.0, 100.0), (0.7, 0.8)] {
            assert!((nice_top(value) - top).abs() < 1e-9, "{value}");
        }
    }
}
