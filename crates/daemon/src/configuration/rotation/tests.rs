use super::*;

const NOW: i64 = 1_800_000_000;

fn config(authorities: &[&Authority]) -> FabricConfig {
    let mut config = FabricConfig::new("prod").unwrap();
    let authorities = authorities.iter().map(|one| one.pem().certificate.clone()).collect();
    config.apply(&[Operation::SetAuthorities { authorities }]).unwrap();
    config
}

#[test]
fn step_follows_from_configuration_alone() {
    let [old, new] = [(); 2].map(|()| Authority::create(NOW).unwrap());
    let mut config = config(&[&old]);
    assert_eq!(Step::of(&config.trust), Ok(None));
    let mut step = Step::Trust;
    for number in 1..=STEPS {
        assert_eq!(step.number(), number);
        config.apply(&operations(&config, step.clone(), &new)).unwrap();
        match Step::of(&config.trust).unwrap() {
            Some(next) => step = next,
            None => assert_eq!(number, STEPS),
        }
    }
    assert_eq!(config.trust.authorities, [new.pem().certificate.clone()]);
}

#[test]
fn open_tokens_end_when_new_authority_signs() {
    use sluice_api::fabric_config::{Token, TokenUse};
    let [old, new] = [(); 2].map(|()| Authority::create(NOW).unwrap());
    let mut config = config(&[&old]);
    let token = Token { hash: "0".repeat(64), expires_ms: 1, used: None };
    let used = TokenUse { host: "h2".to_owned(), key: "1".repeat(64) };
    let spent = Token { used: Some(used), ..token.clone() };
    for (id, token) in [("open", token), ("spent", spent)] {
        config.apply(&[Operation::AddToken { id: id.to_owned(), token }]).unwrap();
    }
    for _ in 1..STEPS {
        let step = Step::of(&config.trust).unwrap().unwrap_or(Step::Trust);
        config.apply(&operations(&config, step, &new)).unwrap();
    }
    assert_eq!(config.tokens.keys().collect::<Vec<_>>(), ["spent"]);
}

#[test]
fn authority_fits_into_question_to_member() {
    let authority = Authority::create(NOW).unwrap();
    let size = serde_json::to_vec(&Handed::new(&authority)).unwrap().len();
    assert!(size <= sluice_wire::fabric::ASK_SIZE_MAX, "{size} bytes");
}

#[test]
fn replacement_abandoned_after_first_step_alone() {
    let [old, new] = [(); 2].map(|()| Authority::create(NOW).unwrap());
    let mut config = config(&[&old]);
    let refused = |config: &FabricConfig| abandonment(&config.trust).unwrap_err();
    assert!(refused(&config).contains("is under way"));
    config.apply(&operations(&config, Step::Trust, &new)).unwrap();
    let mut abandoned = config.clone();
    abandoned.apply(&[abandonment(&config.trust).unwrap()]).unwrap();
    assert_eq!(abandoned.trust.trusted(), [old.pem().certificate.clone()]);
    let step = Step::of(&config.trust).unwrap().unwrap();
    config.apply(&operations(&config, step, &new)).unwrap();
    assert!(refused(&config).contains("signs already"));
}
