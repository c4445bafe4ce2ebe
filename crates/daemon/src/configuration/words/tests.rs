//! Tests of the protocol's results in words.

use super::*;

fn veto(host: u16, reason: &str) -> Veto {
    Veto { host: HostId(host), reason: reason.to_owned() }
}

#[test]
fn alike_vetoes_name_their_members_together() {
    let config = FabricConfig::new("prod").unwrap();
    let said = |vetoes: &[Veto]| refused(&config, &Refused::Vetoed(vetoes.to_vec()));
    assert_eq!(
        said(&[veto(2, "no memory"), veto(1, "port `web` is in it"), veto(3, "no memory")]),
        "nothing has changed; host 2, host 3 refuse: no memory; host 1 refuses: port `web` is in it"
    );
    assert_eq!(said(&[veto(2, "no memory")]), "nothing has changed; host 2 refuses: no memory");
}
