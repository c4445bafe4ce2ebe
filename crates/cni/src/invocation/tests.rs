use super::*;

fn read(command: Command, pairs: &[(&str, &str)]) -> Result<Invocation, Error> {
    let variable =
        |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, text)| (*text).to_owned());
    Invocation::read(command, &variable)
}

#[test]
fn del_needs_no_namespace() {
    let pairs = [("CNI_CONTAINERID", "c7"), ("CNI_IFNAME", "eth0"), ("CNI_NETNS", "")];
    let del = read(Command::Del, &pairs).unwrap();
    assert_eq!((del.netns.as_deref(), del.place()), (None, None));
    assert_eq!(read(Command::Del, &pairs[..2]).unwrap(), del);
    for command in [Command::Add, Command::Check] {
        assert_eq!(read(command, &pairs).unwrap_err().code(), Code::Environment);
    }
    assert!(read(Command::Gc, &[]).is_ok() && read(Command::Status, &[]).is_ok());
}

#[test]
fn namespace_of_process_is_said_by_its_number() {
    for (netns, place) in [
        ("/proc/42/ns/net", Place::Pid(42)),
        ("/run/netns/cni-1", Place::Netns("/run/netns/cni-1".to_owned())),
        ("/proc/self/ns/net", Place::Netns("/proc/self/ns/net".to_owned())),
    ] {
        let pairs = [("CNI_CONTAINERID", "c7"), ("CNI_IFNAME", "eth0"), ("CNI_NETNS", netns)];
        assert_eq!(read(Command::Add, &pairs).unwrap().place(), Some(place));
    }
}

#[test]
fn arguments_give_mac_and_path_its_folders() {
    let pairs = [
        ("CNI_CONTAINERID", "c7"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_NETNS", "/x"),
        ("CNI_ARGS", "IgnoreUnknown=1;MAC=02:00:00:00:00:01;K8S_POD_NAME=web"),
        ("CNI_PATH", "/opt/cni/bin::/usr/lib/cni"),
    ];
    let add = read(Command::Add, &pairs).unwrap();
    assert_eq!(add.mac.as_deref(), Some("02:00:00:00:00:01"));
    assert_eq!(add.path, [PathBuf::from("/opt/cni/bin"), PathBuf::from("/usr/lib/cni")]);
}
