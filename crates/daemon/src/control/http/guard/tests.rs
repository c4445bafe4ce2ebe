use super::*;

fn grant(role: Role) -> Grant {
    let vnets =
        if role == Role::Tenant { vec!["blue".to_owned(), "a b".to_owned()] } else { vec![] };
    Grant { name: "n".to_owned(), role, vnets, netns: Vec::new() }
}

/// Requests, and the least roles that may make them.
const REQUESTS: [(&str, &str, &[Role]); 30] = {
    use Role::{Admin, Operator, Tenant, Viewer};
    const ALL: &[Role] = &[Tenant, Viewer, Operator, Admin];
    const LOOK: &[Role] = &[Viewer, Operator, Admin];
    const PORTS: &[Role] = &[Tenant, Operator, Admin];
    const OPERATE: &[Role] = &[Operator, Admin];
    const ADMIN: &[Role] = &[Admin];
    [
        ("GET", "/v1", ALL),
        ("GET", "/v1/ports", ALL),
        ("GET", "/v1/vnets", ALL),
        ("GET", "/v1/vports?vnet=blue", ALL),
        ("GET", "/v1/vports/10.0.0.1?vnet=a%20b", ALL),
        ("GET", "/v1/vports", LOOK),
        ("GET", "/v1/vports?vnet=red", LOOK),
        ("GET", "/v1/vports?vnet=red&vnet=blue", LOOK),
        ("GET", "/v1/vports/10.0.0.1?vnet=red", LOOK),
        ("GET", "/v1/vportsx?vnet=blue", LOOK),
        ("GET", "/v1/ports/web", ALL),
        ("GET", "/v1/ports/web/", LOOK),
        ("GET", "/v1/config", LOOK),
        ("GET", "/v1/show/ports", LOOK),
        ("GET", "/v1/fabric/members", LOOK),
        ("GET", "/metrics", LOOK),
        ("HEAD", "/healthz", LOOK),
        ("POST", "/v1/ports", PORTS),
        ("DELETE", "/v1/ports/web", PORTS),
        ("POST", "/v1/vports/10.0.0.1/thaw?vnet=blue", PORTS),
        ("POST", "/v1/vports/10.0.0.1/thaw?vnet=red", OPERATE),
        ("POST", "/v1/vports/10.0.0.1/thaw", OPERATE),
        ("POST", "/v1/reload", OPERATE),
        ("DELETE", "/v1/ports/", ADMIN),
        ("POST", "/v1/vnets", ADMIN),
        ("PATCH", "/v1/vnets/blue", ADMIN),
        ("POST", "/v1/transactions", ADMIN),
        ("PUT", "/v1/placement", ADMIN),
        ("POST", "/v1/tokens", ADMIN),
        ("POST", "/v1//ports", ADMIN),
    ]
};

#[test]
fn roles_may_what_the_table_says() {
    for (method, path, roles) in REQUESTS {
        for role in [Role::Tenant, Role::Viewer, Role::Operator, Role::Admin] {
            let admitted = may(&grant(role), &method.parse().unwrap(), &path.parse().unwrap());
            assert_eq!(admitted, roles.contains(&role), "{role}: {method} {path}");
        }
    }
}

#[test]
fn token_is_read_from_its_header() {
    let read = |value: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static(value));
        bearer(&headers).map(str::to_owned)
    };
    assert_eq!(read("Bearer abc").as_deref(), Some("abc"));
    assert_eq!(read("bearer  abc ").as_deref(), Some("abc"));
    for none in ["abc", "Basic abc", "Bearer"] {
        assert_eq!(read(none), None, "{none}");
    }
    assert_eq!(bearer(&HeaderMap::new()), None);
}
