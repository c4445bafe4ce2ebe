//! Observations of a case, in a form that can be compared.

use std::fmt;
use std::time::Duration;

/// Longest delay of a recovery over the bridge's.
const HEAL_SLACK: Duration = Duration::from_secs(2);

/// One observation.
#[derive(Clone, Debug)]
enum Value {
    /// Equal, or it differs.
    Word(String),
    /// Differs by more than the slack either way.
    Count { count: u64, slack: u64 },
    /// Differs if it is less by more than the slack: a larger value is no fault.
    AtLeast { count: u64, slack: u64 },
    /// The time until it worked; `None`: it did not within the limit of the case.
    Healed(Option<Duration>),
}

impl Value {
    fn differs_from(&self, bridge: &Self) -> bool {
        match (bridge, self) {
            (Self::Word(bridge), Self::Word(own)) => bridge != own,
            (Self::Count { count, slack }, Self::Count { count: own, .. }) => {
                count.abs_diff(*own) > *slack
            }
            (Self::AtLeast { count, slack }, Self::AtLeast { count: own, .. }) => {
                own + slack < *count
            }
            (Self::Healed(None), Self::Healed(_)) => false,
            (Self::Healed(Some(_)), Self::Healed(None)) => true,
            (Self::Healed(Some(bridge)), Self::Healed(Some(own))) => *own > *bridge + HEAL_SLACK,
            _ => true,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => write!(f, "{word}"),
            Self::Count { count, .. } | Self::AtLeast { count, .. } => write!(f, "{count}"),
            Self::Healed(Some(time)) => write!(f, "{:.1} s", time.as_secs_f64()),
            Self::Healed(None) => write!(f, "never"),
        }
    }
}

/// All observations of one run of a case, by subject.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen(Vec<(String, Value)>);

impl Seen {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn and(mut self, of: &str, value: Value) -> Self {
        assert!(self.0.iter().all(|seen| seen.0 != of), "{of} is there already");
        self.0.push((of.to_owned(), value));
        self
    }

    /// Adds a word, such as the answering station. Another word differs.
    pub(crate) fn word(self, of: &str, word: impl ToString) -> Self {
        self.and(of, Value::Word(word.to_string()))
    }

    /// Adds a number. Another number differs.
    pub(crate) fn count(self, of: &str, count: usize) -> Self {
        self.count_within(of, count, 0)
    }

    /// Adds a number. A number further away than `slack` differs.
    pub(crate) fn count_within(self, of: &str, count: usize, slack: u64) -> Self {
        self.and(of, Value::Count { count: count.try_into().unwrap(), slack })
    }

    /// Adds a number of good events. Fewer than the bridge's minus `slack` differ.
    pub(crate) fn at_least(self, of: &str, count: usize, slack: u64) -> Self {
        self.and(of, Value::AtLeast { count: count.try_into().unwrap(), slack })
    }

    /// Adds the time until something worked. Two seconds later than on the bridge differs.
    pub(crate) fn healed(self, of: &str, after: Option<Duration>) -> Self {
        self.and(of, Value::Healed(after))
    }

    /// Returns the observations that differ from those of the bridge: subject, there, here.
    pub(crate) fn differences(&self, bridge: &Self) -> Vec<(String, String, String)> {
        let of = |seen: &Self| seen.0.iter().map(|seen| seen.0.clone()).collect::<Vec<_>>();
        assert_eq!(of(self), of(bridge), "a case looks at the same on both");
        let pairs = bridge.0.iter().zip(&self.0);
        let differing = pairs.filter(|(bridge, own)| own.1.differs_from(&bridge.1));
        differing
            .map(|(bridge, own)| (own.0.clone(), bridge.1.to_string(), own.1.to_string()))
            .collect()
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.0.iter().map(|(of, value)| format!("{of}: {value}")).collect();
        write!(f, "{}", texts.join(", "))
    }
}

#[test]
fn what_differs_depends_on_its_kind() {
    let seconds = |seconds: f64| Some(Duration::from_secs_f64(seconds));
    let differs = |bridge: Seen, own: Seen| !own.differences(&bridge).is_empty();
    let new = Seen::new;
    assert!(differs(new().word("x", "a"), new().word("x", "b")));
    assert!(!differs(new().word("x", "a"), new().word("x", "a")));
    assert!(differs(new().count("x", 3), new().count("x", 4)));
    assert!(!differs(new().count_within("x", 3, 1), new().count_within("x", 4, 1)));
    assert!(!differs(new().at_least("x", 300, 3), new().at_least("x", 297, 3)));
    assert!(differs(new().at_least("x", 300, 3), new().at_least("x", 296, 3)));
    assert!(!differs(new().at_least("x", 300, 3), new().at_least("x", 900, 3)));
    assert!(!differs(new().healed("x", seconds(1.0)), new().healed("x", seconds(2.9))));
    assert!(differs(new().healed("x", seconds(1.0)), new().healed("x", seconds(3.1))));
    assert!(differs(new().healed("x", seconds(1.0)), new().healed("x", None)));
    assert!(!differs(new().healed("x", None), new().healed("x", None)));
    // One of the two observations differs.
    let bridge = new().word("x", "a").count("y", 1);
    let own = new().word("x", "a").count("y", 2);
    assert_eq!(own.differences(&bridge), [("y".to_owned(), "1".to_owned(), "2".to_owned())]);
}
