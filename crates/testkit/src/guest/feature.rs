//! Feature bits of a network device.

/// The device finishes checksums (virtio 1.2, 5.1.3, `VIRTIO_NET_F_CSUM`).
pub const CSUM: u64 = 1;
/// The driver finishes checksums (`VIRTIO_NET_F_GUEST_CSUM`).
pub const GUEST_CSUM: u64 = 1 << 1;
/// The driver takes super-frames of TCP over IPv4, of TCP over IPv6, and such with CWR set.
pub const GUEST_TSO4: u64 = 1 << 7;
/// See [`GUEST_TSO4`].
pub const GUEST_TSO6: u64 = 1 << 8;
/// See [`GUEST_TSO4`].
pub const GUEST_ECN: u64 = 1 << 9;
/// The device takes super-frames of TCP over IPv4, of TCP over IPv6, and such with CWR set.
pub const HOST_TSO4: u64 = 1 << 11;
/// See [`HOST_TSO4`].
pub const HOST_TSO6: u64 = 1 << 12;
/// See [`HOST_TSO4`].
pub const HOST_ECN: u64 = 1 << 13;
/// The driver takes super-frames of UDP over IPv4, and over IPv6 (virtio 1.3).
pub const GUEST_USO4: u64 = 1 << 54;
/// See [`GUEST_USO4`].
pub const GUEST_USO6: u64 = 1 << 55;
/// The device takes super-frames of UDP.
pub const HOST_USO: u64 = 1 << 56;
/// All work that a driver may leave to the device. Not in [`ALL`]: most tests send finished frames.
pub const LEAVES: u64 = CSUM | HOST_TSO4 | HOST_TSO6 | HOST_ECN | HOST_USO;
/// All work that a device may leave to the driver.
pub const TAKES: u64 = GUEST_CSUM | GUEST_TSO4 | GUEST_TSO6 | GUEST_ECN | GUEST_USO4 | GUEST_USO6;
/// Receive buffers may be merged for one frame (virtio 1.2, 5.1.3, `VIRTIO_NET_F_MRG_RXBUF`).
pub const MRG_RXBUF: u64 = 1 << 15;
/// Several queue pairs (5.1.3, `VIRTIO_NET_F_MQ`).
pub const MQ: u64 = 1 << 22;
/// vhost-user: the device marks pages that it writes in a log (`VHOST_F_LOG_ALL`). Not in [`ALL`],
/// since it is agreed on only while a guest is migrated.
pub const LOG_ALL: u64 = 1 << 26;
/// Descriptors in tables of their own (6, `VIRTIO_F_INDIRECT_DESC`).
pub const INDIRECT_DESC: u64 = 1 << 28;
/// Notifications by index (6, `VIRTIO_F_EVENT_IDX`).
pub const EVENT_IDX: u64 = 1 << 29;
/// vhost-user: there are protocol features (`VHOST_USER_F_PROTOCOL_FEATURES`).
pub const PROTOCOL_FEATURES: u64 = 1 << 30;
/// Not a legacy device (6, `VIRTIO_F_VERSION_1`).
pub const VERSION_1: u64 = 1 << 32;
/// Buffers are used in the order in which they were made available (6, `VIRTIO_F_IN_ORDER`).
pub const IN_ORDER: u64 = 1 << 35;

/// All features that the driver knows.
pub const ALL: u64 =
    MRG_RXBUF | MQ | INDIRECT_DESC | EVENT_IDX | PROTOCOL_FEATURES | VERSION_1 | IN_ORDER;
