//! The kernel and VXLAN that is not for it.
