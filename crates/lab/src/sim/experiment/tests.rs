use super::*;
use crate::sim::scenario::text_of;

fn experiment(name: &str) -> Experiment {
    Experiment::new(Any::parse(&text_of(name).unwrap()).unwrap(), &Overrides::default()).unwrap()
}

fn error(text: &str) -> String {
    let scenario = Any::parse(text).unwrap();
    format!("{:#}", Experiment::new(scenario, &Overrides::default()).unwrap_err())
}

#[test]
fn a_policy_is_two_switches_and_nothing_else() {
    let experiment = experiment("incast");
    for case in &experiment.cases {
        let overlay = case.world.overlay.as_ref().unwrap();
        assert_eq!(overlay.lossless == PriorityMask::ALL, case.policy.virtual_lossless());
        assert_eq!(overlay.card_pause.is_some(), case.policy.physical_lossless());
        assert_eq!(case.world.net.lossless.is_empty(), !case.policy.physical_lossless());
        assert_eq!(case.is_lossless(), case.policy == Policy::ZZ);
        assert_eq!(case.world.seed, experiment.seed);
        assert_eq!(case.world.net.buffer, ByteCount(150_000));
    }
}

#[test]
fn demo_scenario_converted_keeps_lab_vms_and_buffers() {
    let experiment = experiment("demo");
    assert_eq!(experiment.cases.len(), 20);
    for case in &experiment.cases {
        let world = &case.world;
        let overlay = world.overlay.as_ref().unwrap();
        assert_eq!((world.topology.hosts, overlay.vms_per_host), (4, 9));
        assert_eq!(overlay.vm_rate, Some(BitRate::from_mbps(500)));
        assert_eq!((overlay.vm_in.frames, overlay.vm_out.frames), (64, 64));
        assert_eq!(overlay.card_in.bytes, ByteCount(409_600));
        assert_eq!(world.net.buffer, ByteCount(200_000));
        assert_eq!(world.net.buffering, Buffering::Output);
        assert_eq!((world.net.xoff, world.net.xon), (ByteCount(120_000), ByteCount(80_000)));
        let Load::Aggregate(plan) = &case.load else { panic!() };
        assert_eq!(plan.workers.len(), 32);
        // One host after the other; host 0 has the aggregator before its workers.
        assert_eq!(plan.workers[..5], [1, 9, 18, 27, 2]);
        assert_eq!(plan.response_bytes, u64::from(case.size) * 1398);
        assert_eq!((plan.tcp.mss, plan.queries, plan.warm_up), (1398, 200, 2));
    }
}

#[test]
fn lab_variants_and_sweeps_become_separate_cases() {
    let total = experiment("pa-total");
    let of = |variant: &str| total.cases.iter().filter(|case| case.variant == variant).count();
    assert_eq!((of("vm-bound"), of("vm-bound-total")), (10, 5));
    let frames = |case: &Case| case.world.overlay.as_ref().unwrap().vm_out.frames;
    assert_eq!(total.cases.iter().map(frames).max(), Some(64 + 9 * 64 + 2 * 256));
    let buffers = experiment("pa-buffers");
    let zz = buffers.cases.iter().find(|case| case.policy == Policy::ZZ).unwrap();
    assert_eq!(zz.variant, "vm-bound switch_kb=12");
    assert!(zz.world.net.buffer > ByteCount(12_000), "the headroom is added, as the daemon does");
}

#[test]
fn buffer_below_headroom_error_names_config_keys() {
    let incast = text_of("incast").unwrap();
    let text = error(&incast.replace("buffer_kb = 150", "buffer_kb = 20"));
    assert!(text.contains("switch.buffer_kb") && text.contains("lower XOFF"), "{text}");
    let text = error(&incast.replace("vms_per_host = 1", "card_kb = 20"));
    assert!(text.contains("overlay.card_kb") && text.contains("KB at least"), "{text}");
}

#[test]
fn without_a_virtual_network_lz_loses_nothing() {
    let text = text_of("incast")
        .unwrap()
        .replace("[overlay]\nvms_per_host = 1\nvm_mbps = 5000\n", "")
        .replace("seed = 1", "policies = [\"LL\", \"LZ\"]");
    let experiment = Experiment::new(Any::parse(&text).unwrap(), &Overrides::default()).unwrap();
    let lossless: Vec<bool> = experiment.cases.iter().map(Case::is_lossless).collect();
    assert_eq!(lossless[..5], [false; 5]);
    assert_eq!(lossless[5..], [true; 5]);
}

#[test]
fn what_is_changed_for_one_run_is_checked() {
    let change = |overrides: Overrides| {
        Experiment::new(Any::parse(&text_of("incast").unwrap()).unwrap(), &overrides)
    };
    let experiment = change(Overrides {
        seed: Some(9),
        queries: Some(3),
        sizes: Some(vec![5]),
        policies: Some(vec![Policy::ZL]),
    });
    let experiment = experiment.unwrap();
    assert_eq!((experiment.seed, experiment.cases.len()), (9, 1));
    let case = &experiment.cases[0];
    assert_eq!((case.size, case.queries(), case.asked()), (5, 3, 5));
    let error = change(Overrides { queries: Some(0), ..Overrides::default() }).unwrap_err();
    assert!(error.to_string().contains("workload.queries"), "{error}");
}

#[test]
fn the_overrides_of_a_profile_reach_tcp() {
    let text = text_of("incast").unwrap().replace(
        "congestion = \"cubic\"",
        "congestion = \"vegas\"\nrto_min_us = 500\nrto_slop_us = 7\nsend_buffer_kb = 64\n\
         idle_restart = false",
    );
    let experiment = Experiment::new(Any::parse(&text).unwrap(), &Overrides::default()).unwrap();
    let Load::Aggregate(plan) = &experiment.cases[0].load else { panic!() };
    assert_eq!(plan.tcp.algorithm, tcp::Algorithm::Vegas);
    assert_eq!((plan.tcp.rto_min, plan.tcp.rto_slop), (Nanos(500_000), Nanos(7_000)));
    assert_eq!((plan.tcp.send_buffer, plan.tcp.idle_restart), (64_000, false));
}

#[test]
fn ack_delay_beyond_rto_warned_of() {
    let warned = |slop_us: u32, more: &str| {
        let text = include_str!("../../../../../scenarios/sim/incast.toml").replace(
            "profile = \"linux-2013\"",
            &format!("profile = \"freebsd9\"\nrto_slop_us = {slop_us}\n{more}"),
        );
        let any = Any::parse(&text).unwrap();
        Experiment::new(any, &Overrides::default()).unwrap().warnings
    };
    assert_eq!(warned(20_000, ""), Vec::<String>::new());
    // 10 ms of the profile against 2 ms.
    let warning = warned(0, "").concat();
    assert!(warning.contains("tcp.ack_delay_us") && warning.contains("10000 us"), "{warning}");
    assert!(warning.contains("2000 us") && warning.contains("tcp.ack_every = 1"), "{warning}");
    // A delay that is as long as the wait is too long.
    assert_eq!(warned(0, "ack_delay_us = 2000").len(), 1);
    assert_eq!(warned(0, "ack_delay_us = 1999"), Vec::<String>::new());
    assert_eq!(warned(0, "ack_every = 1"), Vec::<String>::new());
}

#[test]
fn clients_are_hosts_behind_the_others() {
    let made = experiment("search-clients");
    let Load::Search(plan) = &made.cases[0].load else { panic!() };
    assert_eq!((plan.hosts, plan.clients, made.cases[0].world.topology.hosts), (32, 8, 40));
    // Clients have no part in the background.
    let background = made.cases[0].background.as_ref().unwrap();
    assert!(background.stations.iter().all(|&station| station < 96));
    let star = text_of("search-clients").unwrap().replace("clients = 8", "clients = 300");
    let error = Any::parse(&star).unwrap_err().to_string();
    assert!(error.contains("workload.clients: 256 at most"), "{error}");
}

#[test]
fn link_delay_is_that_of_its_hosts() {
    let own = "[[topology.link]]\nhosts = [0, 4]\ndelay_ns = 50000\n[tcp]";
    let text = text_of("incast").unwrap().replace("[tcp]", own);
    let experiment = Experiment::new(
        Any::parse(&text).unwrap(),
        &Overrides { policies: Some(vec![Policy::LL]), ..Overrides::default() },
    );
    let experiment = experiment.unwrap();
    let cables = &experiment.cases[0].world.topology.cables;
    let delays: Vec<u64> = cables.iter().take(6).map(|cable| cable.delay.0).collect();
    assert_eq!(delays, [50_000, 1_000, 1_000, 1_000, 50_000, 1_000]);
    assert!(error(&text).contains("headroom is wrong") || error(&text).contains("XOFF"));
}
