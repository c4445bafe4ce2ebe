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
fn verdict_names_unique_remedy_given_unless_pass() {
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
fn trace_verdict_gravest_step_first_among_equals() {
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
fn unknown_verdict_of_newer_version_keeps_own_remedy() {
    let mut json = serde_json::to_value(step(Verdict::PortDown)).unwrap();
    json["verdict"] = "tired".into();
    json["more"] = 7.into();
    let read: Step = serde_json::from_value(json).unwrap();
    assert_eq!((read.verdict, read.grade), (Verdict::Unknown, Grade::Stop));
    assert_eq!(read.remedy, Verdict::PortDown.remedy());
}

#[test]
fn trace_text_from_peer_sanitized_and_bounded() {
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
