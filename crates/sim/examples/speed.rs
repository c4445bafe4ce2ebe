use std::sync::Arc;
use std::time::Instant;

use sluice_base::{BitRate, ByteCount, Nanos, PriorityMask};
use sluice_sim::events::Ties;
use sluice_sim::net::{Buffering, NetConfig};
use sluice_sim::overlay::OverlayConfig;
use sluice_sim::tcp::{Algorithm, Config};
use sluice_sim::topology::FatTree;
use sluice_sim::workload::{Permutation, Waves};
use sluice_sim::world::{World, WorldConfig};
use sluice_switch::Limit;

fn limit(frames: u32) -> Limit {
    Limit { frames, bytes: ByteCount(u64::from(frames) * 1600) }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let pfc = args[2] == "pfc";
    let n: u64 = args[3].parse().unwrap();
    let topology = FatTree::racks_256(BitRate::from_gbps(10), Nanos(1000)).build();
    let config = WorldConfig {
        topology,
        net: NetConfig {
            lossless: if pfc { PriorityMask::ALL } else { PriorityMask::NONE },
            buffer: ByteCount(if pfc {
                15 * 1514 + 8000 + 2500
            } else if args[1] == "pa" {
                1_500_000
            } else {
                150_000
            }),
            buffering: Buffering::Output,
            xoff: ByteCount(15 * 1514),
            xon: ByteCount(12 * 1514),
            mark: None,
            latency: Nanos::ZERO,
            pause_response: Nanos::ZERO,
            overhead: 0,
            frame_max: 1514,
        },
        overlay: (args.len() > 4).then(|| OverlayConfig {
            vms_per_host: 1,
            lossless: true,
            mtu: 1450,
            vm_in: limit(64),
            vm_out: limit(256),
            vm_rate: None,
            card_in: limit(512),
            card_out: limit(256),
            pool: limit(256),
            card_pause: pfc.then_some((ByteCount(400_000), ByteCount(200_000))),
        }),
        send_latency: Nanos::ZERO,
        receive_latency: Nanos::ZERO,
        seed: 1,
        ties: Ties::Fifo,
    };
    let mut tcp = Config::linux_2013(Algorithm::NewReno);
    tcp.ack_every = 1;
    tcp.mss = if args.len() > 4 { 1398 } else { 1448 };
    let tcp = Arc::new(tcp);
    let mut world = World::new(&config).unwrap();
    let start = Instant::now();
    let end = if args[1] == "pa" {
        let mut waves = Waves::new(tcp, 256, u32::try_from(n).unwrap(), 1);
        let end = world.run(&mut waves, Nanos::MAX);
        let mut fct = waves.fct.clone();
        fct.sort();
        println!(
            "fct {} min {} p50 {} max {}",
            fct.len(),
            fct[0],
            fct[fct.len() / 2],
            fct[fct.len() - 1]
        );
        end
    } else {
        let mut p = Permutation {
            tcp,
            hosts: 256,
            shift: 80,
            priority: sluice_base::Priority::ZERO,
            seed: 1,
        };
        world.run(&mut p, Nanos::from_millis(n))
    };
    let took = start.elapsed().as_secs_f64();
    println!(
        "{end:?} at {}: {} hops {} events {:.2}/hop, {} drops, {took:.3} s, {:.2} M hops/s",
        world.now(),
        world.hops(),
        world.event_count(),
        world.event_count() as f64 / world.hops() as f64,
        world.drops(),
        world.hops() as f64 / took / 1e6
    );
}
