//! The HTTP interface of a host (`[api]`).

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// The HTTP interface of a host. A socket in the directory of the host is always there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpApi {
    /// Loopback address and TCP port on which it listens, too; absent: on the socket only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
}

impl HttpApi {
    /// Returns true if nothing is said.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the address.
    ///
    /// # Errors
    /// The reason why it cannot be listened on, and the remedy.
    pub fn check(&self) -> Result<(), (String, &'static str)> {
        match self.listen {
            Some(at) if !at.ip().is_loopback() => Err((
                format!(
                    "{at} is no loopback address: this interface has neither TLS nor tokens, and \
                     everybody who reaches the address could read it"
                ),
                "Use 127.0.0.1 or [::1], with a proxy that has TLS before it; or leave the key \
                 out, and use the socket `http.sock` in the host's directory.",
            )),
            Some(at) if at.port() == 0 => Err((
                format!("{at} has no port: nobody would find the one that the kernel chooses"),
                "Use a port, such as 127.0.0.1:9342.",
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_address_with_port_accepted() {
        let check = |at: &str| HttpApi { listen: Some(at.parse().unwrap()) }.check();
        for at in ["127.0.0.1:9342", "127.8.0.1:1", "[::1]:9342"] {
            assert_eq!(check(at), Ok(()), "{at}");
        }
        // An address that the kernel maps to IPv4 is no loopback address by its own family.
        for at in ["0.0.0.0:9342", "[::]:9342", "192.0.2.1:9342", "[::ffff:192.0.2.1]:1"] {
            assert!(check(at).unwrap_err().0.contains("no loopback address"), "{at}");
        }
        assert!(check("127.0.0.1:0").unwrap_err().0.contains("has no port"));
        assert_eq!(HttpApi::default().check(), Ok(()));
    }
}
