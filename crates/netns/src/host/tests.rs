use std::path::Path;

use super::Member;

#[test]
fn file_names_all_hosts_but_its_own() {
    let member = Member {
        id: 2,
        hosts: 3,
        fabric: "test",
        certificates: Path::new("/c"),
        host: "workers = 2",
        settings: "moves_max = 9",
        vnet: "mtu = 1400",
        more: "[[port]]\n",
    };
    let text = member.file();
    let peers: Vec<&str> = text.lines().filter(|line| line.starts_with("name = \"h")).collect();
    assert_eq!(peers, ["name = \"h1\"", "name = \"h3\""]);
    assert!(text.contains("certificates = \"/c/h2\"\nmoves_max = 9\n[[vnet]]"), "{text}");
    assert!(text.starts_with("policy = \"ZL\"\nworkers = 2\n[underlay]"), "{text}");
    assert!(text.contains("vni = 42\nmtu = 1400\n[[peer]]"), "{text}");
    assert!(text.ends_with("[[port]]\n"), "{text}");
}
