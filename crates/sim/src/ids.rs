//! Numbers of frames, connections and their ends: every part of the simulator names them.

/// A frame of the physical network, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameId(pub(crate) u32);

impl FrameId {
    /// The number of no frame.
    pub(crate) const NIL: Self = Self(u32::MAX);
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndpointId(pub u32);

impl EndpointId {
    /// Returns the other end.
    #[must_use]
    pub const fn peer(self) -> Self {
        Self(self.0 ^ 1)
    }

    /// Returns the connection of the endpoint.
    #[must_use]
    pub const fn connection(self) -> ConnectionId {
        ConnectionId(self.0 / 2)
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A connection. A number is used again after [`World::close`](crate::world::World::close).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub u32);

impl ConnectionId {
    /// Returns the end that connected.
    #[must_use]
    pub const fn client(self) -> EndpointId {
        EndpointId(self.0 * 2)
    }

    /// Returns the other end.
    #[must_use]
    pub const fn server(self) -> EndpointId {
        EndpointId(self.0 * 2 + 1)
    }
}
