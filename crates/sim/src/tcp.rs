//! TCP endpoints as pure state machines: time and segments in, segments and deadlines out.
