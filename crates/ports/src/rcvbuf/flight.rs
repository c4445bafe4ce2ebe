//! Datagrams under way: sent, and perhaps not in their socket's buffer yet.
//!
//! ```text
//!   spent since the last question ─▶ [ charge, last frame ] ─▶ [ charge, last frame ]
//!                                        of the question before it, until that frame arrived
//! ```
//!
//! A question shows the bytes that have arrived. What was spent before it and is under way still
//! comes on top, in whole generations: a bound, and never too little.

/// Charges that were spent between two questions.
#[derive(Clone, Copy, Debug, Default)]
struct Generation {
    charge: u32,
    /// The last frame that the port had sent by its end.
    last: u64,
}

/// Charges under way to a socket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flight {
    older: [Generation; 2],
}

impl Flight {
    /// Returns the charge under way at a question: `spent` since the last one, when the port had
    /// sent frames up to number `sent` and those up to `arrived` had arrived.
    pub(super) fn at_question(&mut self, spent: u32, sent: u64, arrived: u64) -> u32 {
        for generation in &mut self.older {
            if generation.last <= arrived {
                *generation = Generation::default();
            }
        }
        if spent > 0 && sent > arrived {
            let [first, second] = &mut self.older;
            let place = if first.charge == 0 { first } else { second };
            place.charge = place.charge.saturating_add(spent);
            place.last = sent;
        }
        self.older[0].charge.saturating_add(self.older[1].charge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charge_stays_until_its_last_frame_arrived() {
        let mut flight = Flight::default();
        assert_eq!(flight.at_question(100, 10, 9), 100);
        assert_eq!(flight.at_question(30, 20, 9), 130);
        assert_eq!(flight.at_question(0, 20, 10), 30, "the first ten have arrived");
        assert_eq!(flight.at_question(0, 20, 19), 30, "one of the second ten is under way");
        assert_eq!(flight.at_question(0, 25, 20), 0);
    }

    #[test]
    fn third_generation_joins_the_second() {
        let mut flight = Flight::default();
        for number in 1..=4 {
            assert_eq!(flight.at_question(10, 10 * number, 0), 10 * u32::try_from(number).unwrap());
        }
        assert_eq!(flight.at_question(0, 40, 10), 30);
        assert_eq!(flight.at_question(0, 40, 39), 30, "a bound, not an account");
        assert_eq!(flight.at_question(0, 40, 40), 0);
    }

    #[test]
    fn what_has_arrived_is_not_under_way() {
        let mut flight = Flight::default();
        assert_eq!(flight.at_question(100, 7, u64::MAX), 0);
        assert_eq!(flight.at_question(100, 7, 7), 0);
    }
}
