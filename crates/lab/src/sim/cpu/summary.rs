//! Errors of all figures, by table. No error is left out, however large it is.

use sluice_api::results::median;

use super::figure::{Basis, Figure, Unit};

/// Errors of a group of figures.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) name: &'static str,
    /// Number of figures, those without a published value included. A count is its share's cell.
    pub(crate) figures: usize,
    /// Relative errors in hundredths, in the order of the figures.
    pub(crate) errors: Vec<f64>,
    /// Name of the figure with the largest relative error.
    pub(crate) worst_at: String,
    /// Differences of losses and shares in percentage points, of zero published values too.
    pub(crate) points: Vec<f64>,
}

impl Summary {
    fn of<'a>(name: &'static str, figures: impl Iterator<Item = &'a Figure>) -> Self {
        let figures: Vec<&Figure> = figures.filter(|figure| figure.unit != Unit::Count).collect();
        let errors = figures.iter().filter_map(|figure| Some((figure.error()?, figure.name())));
        let worst = errors.clone().max_by(|a, b| a.0.total_cmp(&b.0));
        let in_points = |figure: &&&Figure| matches!(figure.unit, Unit::Loss | Unit::Share);
        let points = figures.iter().filter(in_points).filter_map(|figure| figure.off());
        Self {
            name,
            figures: figures.len(),
            errors: errors.map(|(error, _)| error).collect(),
            worst_at: worst.map_or_else(String::new, |(_, name)| name),
            points: points.map(f64::abs).collect(),
        }
    }

    pub(crate) fn median(&self) -> f64 {
        median(&self.errors)
    }

    /// Returns the least error that nine of ten do not exceed.
    pub(crate) fn p90(&self) -> f64 {
        let mut sorted = self.errors.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (sorted.len() * 9).div_ceil(10);
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
    }

    pub(crate) fn worst(&self) -> f64 {
        largest(&self.errors)
    }

    /// Returns median and largest difference in points, if the group has any.
    pub(crate) fn in_points(&self) -> Option<(f64, f64)> {
        (!self.points.is_empty()).then(|| (median(&self.points), largest(&self.points)))
    }
}

fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// Name of the group by which the model is judged.
const ALL_PREDICTED: &str = "Tables 5 to 7, predicted";

const fn is_predicted(figure: &Figure) -> bool {
    matches!(figure.basis, Basis::Predicted)
}

/// Returns the errors by which the model is judged: of all predictions.
pub(crate) fn predicted(figures: &[Figure]) -> Summary {
    Summary::of(ALL_PREDICTED, figures.iter().filter(|figure| is_predicted(figure)))
}

/// Returns the errors of each table and of all together.
pub(crate) fn summaries(figures: &[Figure]) -> Vec<Summary> {
    let of = |name, keep: &dyn Fn(&Figure) -> bool| {
        Summary::of(name, figures.iter().filter(|figure| keep(figure)))
    };
    // The plain rule changes what `vs-extend` does with three machines, and nothing else.
    let replaced = |f: &Figure| {
        figures.iter().any(|plain| {
            plain.basis == Basis::Plain
                && (plain.table, &plain.mode, plain.bytes, &plain.of)
                    == (f.table, &f.mode, f.bytes, &f.of)
        })
    };
    let is_plain = |f: &Figure| f.basis == Basis::Plain || (is_predicted(f) && !replaced(f));
    vec![
        of("Table 4, fitted", &|f| f.table == 4),
        of("Table 5, predicted", &|f| f.table == 5 && is_predicted(f)),
        of("Table 5, given", &|f| f.table == 5 && f.basis == Basis::Given),
        of("Table 6, predicted", &|f| f.table == 6 && is_predicted(f)),
        of("Table 7, predicted", &|f| f.table == 7 && is_predicted(f)),
        predicted(figures),
        of("the same, without the exclusion", &is_plain),
        of("Tables 4 to 7, all", &|f| !matches!(f.basis, Basis::Plain | Basis::Repeated)),
    ]
}

#[cfg(test)]
mod tests;
