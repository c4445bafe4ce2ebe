//! The HTTP interface of a host (`[api]`).

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::access::{Grant, Role, VNETS_MAX};

/// Most clients that are known by their certificates.
pub const CLIENTS_MAX: usize = 256;
/// Longest name in a client's certificate, in bytes.
const CLIENT_NAME_SIZE_MAX: usize = 255;

/// The HTTP interface of a host. A socket in the directory of the host is always there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpApi {
    /// Loopback address and TCP port on which it listens, too; absent: on the socket only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// The interface for other machines; absent: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<HttpTls>,
    /// Collector of traces; absent: none are made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traces: Option<HttpTraces>,
}

/// A collector of traces (OTLP by HTTP).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpTraces {
    /// Its address: `http://ADDRESS:PORT` or `https://ADDRESS:PORT`, and a path other than
    /// `/v1/traces`.
    pub endpoint: String,
    /// File with the authorities that sign its certificate (PEM), for `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

/// Address of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorAddress {
    /// Its address and port.
    pub at: SocketAddr,
    /// Path of the request.
    pub path: String,
    /// File with the authorities that sign its certificate; `None`: there is no TLS.
    pub ca: Option<PathBuf>,
}

impl HttpTraces {
    /// Returns the address of the collector.
    ///
    /// # Errors
    /// If it cannot be used.
    pub fn address(&self) -> Result<CollectorAddress, Refusal> {
        let wrong = |what: &str| {
            let what = format!("`{}` {what}", self.endpoint);
            let remedy = "Use the address of a collector, such as `http://127.0.0.1:4318`.";
            Refusal::from((&["traces", "endpoint"] as &[_], what, remedy))
        };
        let (rest, ca) = match (self.endpoint.split_once("://"), &self.ca) {
            (Some(("http", rest)), None) => (rest, None),
            (Some(("https", rest)), Some(ca)) if ca.is_absolute() => (rest, Some(ca.clone())),
            (Some(("http", _)), Some(_)) => return Err(wrong("has no TLS, and `ca` is for it")),
            (Some(("https", _)), _) => {
                let what = format!("`{}` needs a file of authorities", self.endpoint);
                let remedy =
                    "Name it with its whole path: `ca = \"/etc/sluice/collector-ca.pem\"`.";
                return Err((&["traces", "ca"], what, remedy));
            }
            _ => return Err(wrong("begins with neither `http://` nor `https://`")),
        };
        let (at, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        let at: SocketAddr = at.parse().map_err(|_| wrong("has no IP address with a port"))?;
        if at.port() == 0 || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong("has no port, or a path with blanks"));
        }
        let path = if path.is_empty() { "/v1/traces" } else { path }.to_owned();
        Ok(CollectorAddress { at, path, ca })
    }
}

/// The HTTP interface for other machines: all of the management API, by TLS, for those who have a
/// token, or a certificate whose name is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpTls {
    /// Address and TCP port.
    pub listen: SocketAddr,
    /// File with the certificate, and those between it and the authority (PEM); absent: the
    /// certificate that the fabric gave this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// File with its key (PEM).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// File with the authorities that sign certificates of clients (PEM); absent: those of the
    /// fabric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_ca: Option<PathBuf>,
    /// Clients that are known by their certificates; none: no certificate is asked for.
    #[serde(rename = "client", default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<HttpClient>,
}

/// A client that is known by its certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpClient {
    /// Name in its certificate: the common name, or an alternative name (DNS, e-mail, URI).
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Networks of a tenant; none for other roles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vnets: Vec<String>,
    /// Network namespaces in which a tenant may have ports: their names, or beginnings (`shop-*`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub netns: Vec<String>,
}

/// Reason why an interface is refused: the key, what is wrong with it, and the remedy.
pub type Refusal = (&'static [&'static str], String, &'static str);

impl HttpApi {
    /// Returns true if nothing is said.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the addresses and files.
    ///
    /// # Errors
    /// The reason why they cannot be used.
    pub fn check(&self) -> Result<(), Refusal> {
        match self.listen {
            Some(at) if !at.ip().is_loopback() => Err((
                &["listen"],
                format!(
                    "{at} is no loopback address: this interface has neither TLS nor tokens, and \
                     everybody who reaches the address could read it"
                ),
                "Use 127.0.0.1 or [::1]; or leave the key out, and use the socket `http.sock` in \
                 the host's directory, or `[api.tls]`.",
            )),
            Some(at) if at.port() == 0 => Err(no_port(&["listen"], at)),
            _ => {
                self.traces.as_ref().map_or(Ok(()), |traces| traces.address().map(|_| ()))?;
                self.tls.as_ref().map_or(Ok(()), |tls| tls.check(self.listen))
            }
        }
    }
}

impl HttpTls {
    fn check(&self, other: Option<SocketAddr>) -> Result<(), Refusal> {
        if self.listen.port() == 0 {
            return Err(no_port(&["tls", "listen"], self.listen));
        }
        if other == Some(self.listen) {
            return Err((
                &["tls", "listen"],
                format!("{} is the address of `api.listen` as well", self.listen),
                "Use another port.",
            ));
        }
        if self.certificate.is_some() != self.key.is_some() {
            return Err((
                &["tls"],
                "a certificate belongs to its key, and one of both is missing".to_owned(),
                "Give `certificate` and `key`; or neither, for those of the fabric.",
            ));
        }
        for (path, key) in [
            (&self.certificate, &["tls", "certificate"] as &[_]),
            (&self.key, &["tls", "key"]),
            (&self.client_ca, &["tls", "client_ca"]),
        ] {
            if let Some(path) = path.as_ref().filter(|path| !path.is_absolute()) {
                let what = format!("{} is no absolute path", path.display());
                return Err((key, what, "Begin the path with `/`."));
            }
        }
        self.check_clients()
    }

    fn check_clients(&self) -> Result<(), Refusal> {
        const KEY: &[&str] = &["tls", "client"];
        if self.client_ca.is_some() && self.clients.is_empty() {
            return Err((
                &["tls", "client_ca"],
                "an authority of clients is named, and no client".to_owned(),
                "Name each client by `[[api.tls.client]]` with `name` and `role`.",
            ));
        }
        if self.clients.len() > CLIENTS_MAX {
            let what = format!("{} clients are more than {CLIENTS_MAX}", self.clients.len());
            return Err((KEY, what, "Give clients of one kind one name, or use tokens."));
        }
        for (at, client) in self.clients.iter().enumerate() {
            client.check().map_err(|(what, remedy)| (KEY, what, remedy))?;
            if self.clients[..at].iter().any(|other| other.name == client.name) {
                let what = format!("client `{}` is named twice", client.name);
                return Err((KEY, what, "Keep one of both."));
            }
        }
        Ok(())
    }
}

impl HttpClient {
    /// Returns what the client may do.
    #[must_use]
    pub fn grant(&self) -> Grant {
        let Self { name, role, vnets, netns } = self.clone();
        Grant { name, role, vnets, netns }
    }

    fn check(&self) -> Result<(), (String, &'static str)> {
        let Self { name, role, vnets, .. } = self;
        let is_plain = name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'`');
        if name.is_empty() || name.len() > CLIENT_NAME_SIZE_MAX || !is_plain {
            return Err((
                format!("`{}` cannot be the name of a client", name.escape_default()),
                "Use the name in its certificate, of 1 to 255 visible characters of ASCII.",
            ));
        }
        if let Err(why) = self.grant().check_netns() {
            let what = why.split_once(';').map_or(&*why, |(what, _)| what).to_owned();
            let remedy = "Name namespaces of a tenant in `netns`, at most 16 of them, as `shop` or \
                          `shop-*`.";
            return Err((format!("client `{name}`: {what}"), remedy));
        }
        match (role, vnets.len()) {
            (Role::Tenant, 0) => Err((
                format!("client `{name}` is a tenant without networks"),
                "Name its networks by `vnets`.",
            )),
            (Role::Tenant, count) if count > VNETS_MAX => Err((
                format!("client `{name}` has {count} networks, and a tenant at most {VNETS_MAX}"),
                "Use another certificate for the others.",
            )),
            (Role::Tenant, _) | (_, 0) => Ok(()),
            (role, _) => Err((
                format!("client `{name}` has networks, and the role `{role}` is for all of them"),
                "Leave `vnets` out, or use the role `tenant`.",
            )),
        }
    }
}

fn no_port(key: &'static [&'static str], at: SocketAddr) -> Refusal {
    (
        key,
        format!("{at} has no port: nobody would find the one that the kernel chooses"),
        "Use a port, such as 9342.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_address_with_port_accepted() {
        let check =
            |at: &str| HttpApi { listen: Some(at.parse().unwrap()), ..HttpApi::default() }.check();
        for at in ["127.0.0.1:9342", "127.8.0.1:1", "[::1]:9342"] {
            assert_eq!(check(at), Ok(()), "{at}");
        }
        // An address that the kernel maps to IPv4 is no loopback address by its own family.
        for at in ["0.0.0.0:9342", "[::]:9342", "192.0.2.1:9342", "[::ffff:192.0.2.1]:1"] {
            assert!(check(at).unwrap_err().1.contains("no loopback address"), "{at}");
        }
        assert!(check("127.0.0.1:0").unwrap_err().1.contains("has no port"));
        assert_eq!(HttpApi::default().check(), Ok(()));
    }

    #[test]
    fn collector_has_address_and_path() {
        let with = |endpoint: &str, ca: Option<&str>| {
            let (endpoint, ca) = (endpoint.to_owned(), ca.map(PathBuf::from));
            HttpTraces { endpoint, ca }.address()
        };
        let address = |endpoint: &str| with(endpoint, None);
        let local: SocketAddr = "127.0.0.1:4318".parse().unwrap();
        for (endpoint, path) in [
            ("http://127.0.0.1:4318", "/v1/traces"),
            ("http://127.0.0.1:4318/", "/"),
            ("http://127.0.0.1:4318/otlp/v1/traces", "/otlp/v1/traces"),
        ] {
            let expected = CollectorAddress { at: local, path: path.to_owned(), ca: None };
            assert_eq!(address(endpoint), Ok(expected), "{endpoint}");
        }
        let ca = Some("/etc/ca.pem");
        let secret = with("https://127.0.0.1:4318", ca).unwrap();
        assert_eq!((secret.at, secret.ca), (local, ca.map(PathBuf::from)));
        for (endpoint, ca) in
            [("http://127.0.0.1:4318", ca), ("https://127.0.0.1:4318", Some("ca.pem"))]
        {
            assert!(with(endpoint, ca).is_err(), "{endpoint}");
        }
        for wrong in [
            "",
            "https://127.0.0.1:4318",
            "http://collector:4318",
            "http://127.0.0.1",
            "http://127.0.0.1:0",
            "http://[::1]:4318/a b",
            "http://127.0.0.1:4318/\r\nX: y",
        ] {
            assert!(!address(wrong).unwrap_err().2.is_empty(), "{wrong}");
        }
    }

    #[test]
    fn tls_has_port_and_pair_of_files() {
        let check = |text: &str| toml::from_str::<HttpApi>(text).unwrap().check();
        let at = "[tls]\nlisten = \"192.0.2.1:9343\"\n";
        assert_eq!(check(at), Ok(()));
        let (certificate, key) = ("certificate = \"/c.pem\"\n", "key = \"/c.key\"\n");
        assert_eq!(check(&format!("{at}{certificate}{key}")), Ok(()));
        for (text, keys, part) in [
            ("[tls]\nlisten = \"[::]:0\"".to_owned(), &["tls", "listen"] as &[_], "has no port"),
            (format!("{at}{certificate}"), &["tls"], "one of both is missing"),
            (format!("{at}{key}"), &["tls"], "one of both is missing"),
            (format!("{at}certificate = \"c\"\n{key}"), &["tls", "certificate"], "absolute"),
            (format!("{at}{certificate}key = \"k\"\n"), &["tls", "key"], "absolute"),
            (
                "listen = \"[::1]:1\"\n[tls]\nlisten = \"[::1]:1\"\n".to_owned(),
                &["tls", "listen"],
                "`api.listen` as well",
            ),
        ] {
            let (key, what, remedy) = check(&text).unwrap_err();
            assert!(key == keys && what.contains(part) && !remedy.is_empty(), "{key:?} {what}");
        }
    }

    #[test]
    fn clients_named_once_with_role_and_networks() {
        let check = |text: &str| {
            let text = format!("[tls]\nlisten = \"192.0.2.1:1\"\n{text}");
            toml::from_str::<HttpApi>(&text).unwrap().check()
        };
        let client = |rest: &str| format!("[[tls.client]]\n{rest}\n");
        let (viewer, tenant) = (
            client("name = \"spiffe://a/b\"\nrole = \"viewer\""),
            client("name = \"shop\"\nrole = \"tenant\"\nvnets = [\"blue\"]"),
        );
        let authority = "client_ca = \"/ca.pem\"\n";
        for good in [format!("{authority}{viewer}{tenant}"), viewer.clone(), String::new()] {
            assert_eq!(check(&good), Ok(()), "{good}");
        }
        for (text, part) in [
            (authority.to_owned(), "no client"),
            (format!("client_ca = \"ca\"\n{viewer}"), "no absolute path"),
            (format!("{viewer}{viewer}"), "named twice"),
            (client("name = \"\"\nrole = \"viewer\""), "cannot be the name"),
            (client("name = \"a b\"\nrole = \"viewer\""), "cannot be the name"),
            (client("name = \"a\"\nrole = \"tenant\""), "without networks"),
            (client("name = \"a\"\nrole = \"viewer\"\nnetns = [\"b\"]"), "in none"),
            (client("name = \"a\"\nrole = \"admin\"\nvnets = [\"b\"]"), "for all of them"),
        ] {
            let (_, what, remedy) = check(&text).unwrap_err();
            assert!(what.contains(part) && !remedy.is_empty(), "{what}");
        }
        assert!(toml::from_str::<HttpClient>("name = \"a\"\nrole = \"root\"").is_err());
    }
}
