//! A figure of the paper beside the model's: its unit, what the comparison is worth, its error.

use super::published::Cell;

/// Unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Mbit/s of payload.
    Mbps,
    /// Hundredths of datagrams.
    Loss,
    /// Hundredths of all softirqs.
    Share,
    /// Jain's index.
    Jain,
    /// Softirqs in millions: of the paper in an unknown span, of the model in a second.
    Count,
}

impl Unit {
    pub(crate) const ALL: [Self; 5] =
        [Self::Mbps, Self::Loss, Self::Share, Self::Jain, Self::Count];

    /// Returns the symbol behind a value.
    pub(crate) const fn symbol(self) -> &'static str {
        match self {
            Self::Mbps => "Mbit/s",
            Self::Loss | Self::Share => "%",
            Self::Jain => "",
            Self::Count => "M",
        }
    }

    /// Formats a value without its symbol.
    pub(crate) fn format(self, value: f64) -> String {
        match self {
            Self::Mbps | Self::Loss | Self::Share => format!("{value:.1}"),
            Self::Jain => format!("{value:.2}"),
            Self::Count => format!("{value:.3}"),
        }
    }
}

/// The value of the paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Published {
    /// The paper gives it.
    Printed(f64),
    /// It follows from others that the paper gives.
    Derived(f64),
    /// The paper prints a dash.
    Dash,
    /// The paper has one that is not known here.
    Unknown,
    /// The paper gives it, and not what it would have to be divided by.
    Incomparable(f64),
}

impl Published {
    pub(crate) const fn value(self) -> Option<f64> {
        match self {
            Self::Printed(value) | Self::Derived(value) | Self::Incomparable(value) => Some(value),
            Self::Dash | Self::Unknown => None,
        }
    }

    /// Returns the word for this kind in result files.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Printed(_) => "printed",
            Self::Derived(_) => "derived",
            Self::Dash => "dash",
            Self::Unknown => "unknown",
            Self::Incomparable(_) => "incomparable",
        }
    }

    /// Returns the kind of a word with its value.
    pub(crate) fn from_word(word: &str, value: Option<f64>) -> Option<Self> {
        match (word, value) {
            ("printed", Some(value)) => Some(Self::Printed(value)),
            ("derived", Some(value)) => Some(Self::Derived(value)),
            ("incomparable", Some(value)) => Some(Self::Incomparable(value)),
            ("dash", None) => Some(Self::Dash),
            ("unknown", None) => Some(Self::Unknown),
            _ => None,
        }
    }

    /// Returns the reason why there is no comparison.
    pub(crate) const fn why_not(self) -> Option<&'static str> {
        match self {
            Self::Printed(_) | Self::Derived(_) => None,
            Self::Dash => Some("the paper prints a dash"),
            Self::Unknown => Some("the paper's value is not known here"),
            Self::Incomparable(_) => Some("the span of the paper's count is not known"),
        }
    }
}

impl From<Cell> for Published {
    fn from(cell: Cell) -> Self {
        match cell {
            Cell::Printed(value) => Self::Printed(value),
            Cell::Dash => Self::Dash,
            Cell::Unknown => Self::Unknown,
        }
    }
}

/// The worth of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Basis {
    /// A prediction.
    Predicted,
    /// Parameters were fitted to it.
    Fitted,
    /// It follows from parameters of the testbed that were read in the table itself.
    Given,
    /// The prediction of the rule as it was first written, without an excluded core.
    Plain,
    /// It follows from another cell that is compared already.
    Repeated,
}

impl Basis {
    pub(crate) const ALL: [Self; 5] =
        [Self::Predicted, Self::Fitted, Self::Given, Self::Plain, Self::Repeated];

    /// Returns the word in result files.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Predicted => "predicted",
            Self::Fitted => "fitted",
            Self::Given => "given",
            Self::Plain => "plain",
            Self::Repeated => "repeated",
        }
    }
}

/// A figure of the paper beside the model's.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) table: u8,
    pub(crate) bytes: u64,
    pub(crate) vms: u16,
    /// Name of the rule, or of the case of Table 4.
    pub(crate) mode: String,
    /// Subject of the figure: `VM1`, `core 2`, `all`, `Jain`.
    pub(crate) of: String,
    pub(crate) unit: Unit,
    pub(crate) published: Published,
    pub(crate) predicted: f64,
    pub(crate) basis: Basis,
}

impl Figure {
    /// Returns the difference from the published value, in the figure's unit.
    pub(crate) fn off(&self) -> Option<f64> {
        match self.published {
            Published::Printed(value) | Published::Derived(value) => Some(self.predicted - value),
            Published::Dash | Published::Unknown | Published::Incomparable(_) => None,
        }
    }

    /// Returns the error relative to the published value, in hundredths; none if that value is zero
    /// or there is nothing to compare.
    pub(crate) fn error(&self) -> Option<f64> {
        let (off, value) = (self.off()?, self.published.value()?);
        (value > 0.0).then(|| 100.0 * off.abs() / value)
    }

    /// Returns rule, size and subject in a few words.
    pub(crate) fn name(&self) -> String {
        format!("{}, {} B, {}", self.mode, self.bytes, self.of)
    }
}
