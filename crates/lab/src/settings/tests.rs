use super::*;

#[test]
fn vm_bound_variant_limits_service_below_link_rate() {
    let s = Settings::new(Variant::VmBound, &Override::default(), None);
    assert_eq!((s.service_mbps, s.link_mbps, s.switch_kb), (Some(500), 1000, 200));
    let buffers = s.buffers(9);
    assert_eq!((buffers.vport_in.frames, buffers.vport_out.frames), (64, 64));
    assert_eq!(buffers.underlay_in.frames, 256);
    assert_eq!(buffers.cable.bytes, 200_000);
}

#[test]
fn sweep_overrides_scenario_and_scenario_overrides_variant() {
    let change = Override { switch_kb: Some(100), service_mbps: Some(0), ..Override::default() };
    assert_eq!(Settings::new(Variant::VmBound, &change, None).switch_kb, 100);
    assert_eq!(Settings::new(Variant::VmBound, &change, Some(12)).switch_kb, 12);
    assert_eq!(Settings::new(Variant::VmBound, &change, None).service_mbps, None);
    assert_eq!(Settings::new(Variant::WireBound, &Override::default(), None).service_mbps, None);
}

#[test]
fn vm_bound_total_output_equals_zz_host_total() {
    let s = Settings::new(Variant::VmBoundTotal, &Override::default(), None);
    assert_eq!(s.vport_out(9), 64 + 9 * 64 + 2 * 256);
    assert_eq!(s.buffers(8).vport_in.frames, 64);
}
