use std::net::Ipv4Addr;

use super::*;
use crate::config::{DeviceFacts, Devices, load};
use crate::fabric::certificates::{CertificateRequest, make};
use crate::fabric::tests::{Folder, certificates};

struct Every;

impl Devices for Every {
    fn facts(&self, _: &str) -> Option<DeviceFacts> {
        Some(DeviceFacts { mac: sluice_base::Mac([2, 0, 0, 0, 0, 1]), mtu: 1500 })
    }
}

/// Returns the findings for a file in a folder that has the certificates of h1.
fn found(folder: &Folder, text: &str) -> Vec<Finding> {
    let file = folder.join("host.toml");
    std::fs::write(&file, text).unwrap();
    look(&load(&file, &Every).unwrap_or_else(|report| panic!("{report}")))
}

fn member(name: &str, address: Ipv4Addr) -> String {
    format!(
        "[host]\nname = \"{name}\"\npolicy = \"ZL\"\n[underlay]\nkind = \"l2\"\ndevice = \"up0\"\n\
         address = \"{address}\"\n[fabric]\nname = \"f\"\nid = 1\ncertificates = \"tls/{name}\"\n\
         [[vnet]]\nname = \"blue\"\nvni = 42\n"
    )
}

#[test]
fn machine_check_reports_bad_certificates_and_foreign_address() {
    let folder = Folder::new("check-machine");
    certificates(&folder.join("tls"), &["h1", "h2"]);
    let all = found(&folder, &member("h1", Ipv4Addr::LOCALHOST));
    assert!(all.iter().all(|finding| matches!(finding, Finding::Fine(_))), "{all:?}");
    assert!(format!("{all:?}").contains("those of h1"), "{all:?}");
    // The host would run, and no member would talk to it.
    let hosts = ["h1".to_owned()];
    let old =
        CertificateRequest { folder: &folder.join("tls"), hosts: &hosts, days: -2, replace: true };
    make(&old).unwrap();
    let said = format!("{:?}", found(&folder, &member("h1", Ipv4Addr::LOCALHOST)));
    assert!(said.contains("Warning(\"the certificate of h1 ended on "), "{said}");
    // No host has an address of TEST-NET-1.
    let all = found(&folder, &member("h1", Ipv4Addr::new(192, 0, 2, 77)));
    let said = format!("{all:?}");
    assert!(said.contains("Problem(\"fabric.address: 192.0.2.77 is not an address"), "{said}");
    // Certificates of another host, and none.
    std::fs::rename(folder.join("tls/h2"), folder.join("tls/h3")).unwrap();
    for (name, words) in [("h3", "the certificate is that of another host"), ("h9", "ca.pem")] {
        let all = found(&folder, &member(name, Ipv4Addr::LOCALHOST));
        let is_it =
            |finding: &Finding| matches!(finding, Finding::Problem(text) if text.contains(words));
        assert!(all.iter().any(is_it), "{all:?}");
    }
}

#[test]
fn switch_that_forwards_nothing_is_warned_of() {
    let folder = Folder::new("check-silent");
    let host = "[host]\nname = \"h1\"\n[[vnet]]\nname = \"blue\"\n";
    let warnings = |text: &str| {
        let all = found(&folder, text);
        let words = all.iter().map(|finding| match finding {
            Finding::Warning(text) => text.clone(),
            other => panic!("{other:?}"),
        });
        words.collect::<Vec<_>>()
    };
    let said = warnings(host);
    assert!(said[0].contains("no [[port]]") && said[1].contains("no [[vport]]"), "{said:?}");
    let port = "[[port]]\nname = \"web\"\nkind = \"tap\"\nvnet = \"blue\"\ndevice = \"t0\"\n";
    assert_eq!(warnings(&format!("{host}{port}")).len(), 1);
    let vport = "[[vport]]\nvnet = \"blue\"\nmac = \"02:00:00:00:00:01\"\nport = \"web\"\n";
    assert_eq!(warnings(&format!("{host}{port}{vport}")), Vec::<String>::new());
}

#[test]
fn missing_namespace_is_a_problem() {
    let folder = Folder::new("check-netns");
    let text = "[host]\nname = \"h1\"\n[[vnet]]\nname = \"blue\"\n[[port]]\nname = \"web\"\n\
                kind = \"tap\"\nvnet = \"blue\"\ndevice = \"t0\"\n\
                netns = \"/run/netns/not-there\"\n";
    let all = found(&folder, text);
    assert!(format!("{all:?}").contains("Problem(\"port web: there is no namespace"), "{all:?}");
}
