//! Tests of the whole switch.
