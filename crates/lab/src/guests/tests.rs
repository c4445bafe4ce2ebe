use super::*;
use crate::scenario::Scenario;

#[test]
fn vm_arguments_match_daemon_port_socket_and_mac() {
    let scenario = Scenario::load("pa-vms").unwrap();
    let plan = Plan::new(&scenario);
    let settings = crate::settings::Settings::new(scenario.lab.variant, &scenario.settings, None);
    let image = Image { kernel: "/k".into(), initrd: "/i".into() };
    let daemons = plan.daemons(sluice_api::config::Policy::ZZ, &settings);
    for vm in &plan.containers {
        let words = arguments(&plan, vm, &image).join(" ");
        let (_, _, config) = daemons.iter().find(|(name, ..)| vm.name.starts_with(name)).unwrap();
        let port = config.ports.iter().find(|port| port.name == vm.name).unwrap();
        let socket = port.socket.as_ref().unwrap();
        assert!(words.contains(&format!("path={socket},reconnect=1")), "{words}");
        assert!(words.contains(&format!("mac={}", port.mac.as_ref().unwrap())), "{words}");
        assert!(words.contains("size=384M,share=on"), "a port reads only memory that is shared");
    }
}
