//! Feature bits of a network device.

/// Receive buffers may be merged for one frame (virtio 1.2, 5.1.3, `VIRTIO_NET_F_MRG_RXBUF`).
pub const MRG_RXBUF: u64 = 1 << 15;
/// Several queue pairs (5.1.3, `VIRTIO_NET_F_MQ`).
pub const MQ: u64 = 1 << 22;
/// vhost-user: what the device writes is marked in a log (`VHOST_F_LOG_ALL`). Not one of [`ALL`],
/// for it is agreed on while a guest is moved.
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

/// All that the driver knows.
pub const ALL: u64 =
    MRG_RXBUF | MQ | INDIRECT_DESC | EVENT_IDX | PROTOCOL_FEATURES | VERSION_1 | IN_ORDER;
