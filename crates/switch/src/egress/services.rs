//! The services of the priorities: which frames may be dropped, and whose turn it is.

use sluice_base::{Priority, PriorityMask};

use crate::config::{Service, SwitchConfig};
use crate::sizes::mask_of;

/// Lossless priorities, strict priorities, and the weights of the others.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Services {
    lossless: PriorityMask,
    strict: PriorityMask,
    weights: [u8; Priority::COUNT],
}

impl Services {
    /// Returns the services of a configuration.
    pub(crate) fn new(config: &SwitchConfig) -> Self {
        Self {
            lossless: mask_of(|p| config.classes[p].lossless),
            strict: mask_of(|p| config.classes[p].service == Service::Strict),
            weights: core::array::from_fn(|p| weight_of(config.classes[p].service)),
        }
    }

    /// Sets the service of a priority.
    pub(super) fn set(&mut self, priority: Priority, service: Service) {
        if service == Service::Strict {
            self.strict.insert(priority);
        } else {
            self.strict.remove(priority);
        }
        self.weights[priority.index()] = weight_of(service);
    }

    /// Returns the lossless priorities.
    #[inline]
    pub(crate) const fn lossless(&self) -> PriorityMask {
        self.lossless
    }

    /// Returns the strict priorities of a set.
    #[inline]
    pub(crate) const fn strict(&self, priorities: u8) -> u8 {
        priorities & self.strict.0
    }

    /// Returns the weighted priorities of a set.
    #[inline]
    pub(crate) const fn weighted(&self, priorities: u8) -> u8 {
        priorities & !self.strict.0
    }

    /// Returns the weight of a priority.
    #[inline]
    pub(crate) const fn weight(&self, priority: usize) -> u8 {
        self.weights[priority]
    }
}

/// Returns the weight of a service.
const fn weight_of(service: Service) -> u8 {
    match service {
        Service::Strict => 1,
        Service::Weighted(weight) => weight,
    }
}
