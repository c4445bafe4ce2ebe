use super::*;

fn step(verdict: Verdict) -> Step {
    Step::new("port", verdict, format!("it is {verdict}"))
}

fn hop(host: &str, verdicts: &[Verdict]) -> Hop {
    let steps = verdicts.iter().map(|verdict| step(*verdict)).collect();
    Hop { host: host.to_owned(), role: "source".to_owned(), steps }
}

fn trace(hops: Vec<Hop>) -> Trace {
    Trace::new("blue".to_owned(), "a".to_owned(), "b".to_owned(), hops)
}

#[test]
fn every_verdict_has_its_own_name_and_says_what_to_do_unless_all_is_well() {
    let mut names: Vec<&str> = Verdict::ALL.iter().map(|verdict| verdict.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Verdict::ALL.len());
    for verdict in Verdict::ALL.iter().filter(|verdict| **verdict != Verdict::Unknown) {
        let says = !verdict.remedy().is_empty();
        assert_eq!(says, verdict.grade() > Grade::Pass, "{verdict}");
        let json = serde_json::to_string(verdict).unwrap();
        assert_eq!(serde_json::from_str::<Verdict>(&json).unwrap(), *verdict);
    }
}

#[test]
fn the_gravest_counts_and_of_equal_ones_the_first() {
    use Verdict::{Blocked, Bound, Delivered, HeldBack, NoAnswer, PortDown, SpoofedMac};
    let verdict = |hops| {
        let trace = trace(hops);
        (trace.verdict, trace.at)
    };
    assert_eq!(verdict(vec![]), (Delivered, None));
    assert_eq!(verdict(vec![hop("h1", &[Bound])]), (Delivered, None));
    let two = vec![hop("h1", &[Bound, HeldBack]), hop("h2", &[Blocked])];
    assert_eq!(verdict(two), (HeldBack, Some("h1".to_owned())));
    let two = vec![hop("h1", &[HeldBack]), hop("h2", &[NoAnswer, Blocked])];
    assert_eq!(verdict(two), (NoAnswer, Some("h2".to_owned())));
    let two = vec![hop("h1", &[NoAnswer, SpoofedMac]), hop("h2", &[PortDown])];
    assert_eq!(verdict(two), (SpoofedMac, Some("h1".to_owned())));
}

#[test]
fn a_verdict_of_a_newer_version_is_shown_with_its_own_sentence() {
    let mut json = serde_json::to_value(step(Verdict::PortDown)).unwrap();
    json["verdict"] = "tired".into();
    json["more"] = 7.into();
    let read: Step = serde_json::from_value(json).unwrap();
    assert_eq!((read.verdict, read.grade), (Verdict::Unknown, Grade::Stop));
    assert_eq!(read.remedy, Verdict::PortDown.remedy());
}

#[test]
fn what_another_host_says_controls_no_screen_and_fills_none() {
    let mut trace = trace(vec![hop("\u{1b}[2Jh2", &[Verdict::Bound])]);
    trace.hops[0].steps = vec![trace.hops[0].steps[0].clone().seen("a\nb", 1); 1_000];
    trace.hops[0].steps[0].why = "x".repeat(100_000);
    trace.hops = vec![trace.hops[0].clone(); 70];
    trace.clean();
    let hop = &trace.hops[0];
    assert_eq!((trace.hops.len(), hop.steps.len()), (64, 64));
    assert_eq!((hop.host.as_str(), hop.steps[0].why.len()), ("\u{fffd}[2Jh2", 400));
    assert!(hop.steps[0].seen.contains_key("a\u{fffd}b"));
}
