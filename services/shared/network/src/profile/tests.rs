use super::*;
use crate::{AccessDecision, AccessRequest, DraftCredential, Host, Traffic};

fn draft(name: &str, hosts: &[&str]) -> DraftProfile {
    let rule = |host: &&str| DraftRule { host: (*host).to_owned(), ..DraftRule::default() };
    DraftProfile { name: name.to_owned(), rules: hosts.iter().map(rule).collect(), ..DraftProfile::default() }
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

/// The problems, as `field: message`.
fn problems(drafts: &[DraftProfile]) -> Vec<String> {
    let all = Profiles::new(drafts).unwrap_err();
    all.into_iter().map(|problem| format!("{}: {}", problem.field, problem.message)).collect()
}

#[test]
fn the_built_in_profiles_are_plain_lists() {
    let profiles = Profiles::default();
    let names: Vec<&str> = profiles.iter().map(|profile| profile.name.as_str()).collect();
    assert_eq!(names, ["git-https", "loopback", "none", "registries"]);
    for closed in [LOOPBACK, NONE] {
        assert!(profiles.find(closed).unwrap().is_closed());
    }
    let registries = profiles.find("registries").unwrap();
    assert!(registries.fetch_only && registries.ports().into_iter().eq([80, 443]));
    assert!(registries.lines().contains(&"http://deb.debian.org:80".to_owned()));
    assert_eq!(registries.rules[0].origin.to_string(), "registries, built in");
    assert!(!profiles.find("git-https").unwrap().fetch_only);
    assert_eq!(profiles.find("other"), None);
}

#[test]
fn a_profile_has_the_rules_of_what_it_includes_once_with_their_origins() {
    let mut ci = draft("ci", &["api.example.com"]);
    (ci.include, ci.place) = (words(&["base", "registries", "loopback"]), "/etc/belay/belay.yaml:4".to_owned());
    let mut base = draft("base", &["*.base.example.com"]);
    (base.include, base.fetch_only) = (words(&["registries"]), true);
    base.host_services = words(&["127.0.0.1:5432"]);
    let profiles = Profiles::new(&[ci, base]).unwrap();
    let ci = profiles.find("ci").unwrap();
    let registries = profiles.find("registries").unwrap();
    assert_eq!(ci.rules.len(), registries.rules.len() + 2);
    assert_eq!(ci.rules[..registries.rules.len()], registries.rules);
    assert_eq!(ci.rules.last().unwrap().origin.to_string(), "ci, /etc/belay/belay.yaml:4");
    assert_eq!(ci.host_services[0].0, "127.0.0.1:5432".parse().unwrap());
    // Its own rules may do more than fetch.
    assert!(!ci.fetch_only && profiles.find("base").unwrap().fetch_only);
    let host = Host::parse("pypi.org").unwrap();
    assert!(
        matches!(ci.decide(AccessRequest { host: &host, port: 443, traffic: Traffic::Tls }), AccessDecision::Allowed(rule) if rule.origin.profile == "registries")
    );
}

#[test]
fn what_does_more_than_fetch_is_named() {
    let mut ci = draft("ci", &["api.example.com"]);
    (ci.include, ci.fetch_only) = (words(&["registries", "git-https"]), true);
    let mut fetching = draft("fetching", &["api.example.com"]);
    (fetching.include, fetching.fetch_only) = (words(&["registries"]), true);
    let profiles = Profiles::new(&[ci, fetching, draft("own", &["api.example.com"])]).unwrap();
    let why = |name: &str| {
        let profile = profiles.find(name).unwrap();
        (profile.fetch_only, profiles.beyond_fetching(profile).into_iter().collect::<Vec<_>>())
    };
    assert_eq!(why("ci"), (false, vec!["git-https"]));
    assert_eq!(why("fetching"), (true, vec![]));
    assert_eq!(why("own"), (false, vec![]));
}

#[test]
fn a_profile_that_has_no_rule_of_its_own_is_what_it_includes() {
    let mut alias = draft("alias", &[]);
    alias.include = words(&["registries"]);
    let profiles = Profiles::new(&[alias]).unwrap();
    assert!(profiles.find("alias").unwrap().fetch_only);
}

/// Each is refused with the field, and what to do.
#[test]
fn bad_profiles_are_refused() {
    let rule = |change: fn(&mut DraftRule)| {
        let mut profile = draft("p", &["a.example.com"]);
        change(&mut profile.rules[0]);
        problems(&[profile])
    };
    let including = |name: &str, included: &[&str]| DraftProfile { include: words(included), ..draft(name, &[]) };
    for (found, expected) in [
        (rule(|rule| rule.host = "*".to_owned()), "p.rules[0].host: `*` is every host"),
        (
            rule(|rule| rule.host = "*.com".to_owned()),
            "p.rules[0].host: `*.com` is every host, or all of a top-level domain",
        ),
        (rule(|rule| rule.host = "10.0.0.1".to_owned()), "p.rules[0].host: must be the name of a host, not an address"),
        (
            rule(|rule| rule.host = "a.example.com.".to_owned()),
            "p.rules[0].host: must be the name of a host without the final dot",
        ),
        (
            rule(|rule| rule.host = "https://a.example.com".to_owned()),
            "p.rules[0].host: must be the name of a host, not an address",
        ),
        (rule(|rule| rule.host.clear()), "p.rules[0].host: must be the name of a host, of 1 to 253"),
        (
            rule(|rule| rule.ports = words(&["443", "9000-8000"])),
            "p.rules[0].ports[1]: is a range upside down: write 8000-9000",
        ),
        (rule(|rule| rule.ports = words(&["443", "53"])), "p.rules[0].ports[1]: has 53 or 21080"),
        (rule(|rule| rule.ports = words(&["21070-21090"])), "p.rules[0].ports[0]: has 53 or 21080"),
        (rule(|rule| rule.ports = words(&["0"])), "p.rules[0].ports[0]: must be a port from 1 to 65535"),
        (rule(|rule| rule.ports = words(&["+80"])), "p.rules[0].ports[0]: must be a port"),
        (rule(|rule| rule.ports = words(&["70000"])), "p.rules[0].ports[0]: must be a port"),
        (
            rule(|rule| rule.ports = words(&["1-65535"])),
            "p.rules[0].ports[0]: has 65535 ports, but a profile may have 64",
        ),
        (
            rule(|rule| rule.ports = words(&["1001-1064", "1065"])),
            "p: has 65 ports, base URLs and services of this machine",
        ),
        (rule(|rule| rule.protocol = "ftp".to_owned()), "p.rules[0].protocol: must be `https`, `http` or `tcp`"),
        (rule(|rule| rule.protocol = "tcp".to_owned()), "p.rules[0].ports: are required with `protocol: tcp`"),
        (rule(|rule| rule.methods = words(&["GET", "get"])), "p.rules[0].methods[1]: must be one of GET, HEAD"),
        (rule(|rule| rule.paths = words(&["v1"])), "p.rules[0].paths[0]: must begin with `/`"),
        (rule(|rule| rule.paths = words(&["/v1/../v2"])), "p.rules[0].paths[0]: must begin with `/`, and have no `..`"),
        (rule(|rule| rule.paths = words(&["/v1/;x"])), "p.rules[0].paths[0]: must begin with `/`, and have no"),
        (rule(|rule| rule.paths = words(&["/v1//x"])), "p.rules[0].paths[0]: must begin with `/`, and have no"),
        (
            rule(|rule| rule.paths = words(&["/%2e"])),
            "p.rules[0].paths[0]: must begin with `/`, and have no `..`, `//`, `%`",
        ),
        (problems(&[draft("", &[])]), ": is not a profile's name"),
        (problems(&[draft("a b", &[])]), "a b: is not a profile's name"),
        (problems(&[draft("registries", &[])]), "registries: is the name of a built-in profile"),
        (problems(&[draft("none", &[])]), "none: is the name of a built-in profile"),
        (problems(&[draft("a", &[]), draft("a", &[])]), "a: is the name of another profile, too"),
        (problems(&[including("a", &["b"])]), "a.include[0]: is not a profile: there are a, git-https, registries"),
        (problems(&[including("a", &["a"])]), "a.include[0]: makes a circle (a → a)"),
        (
            problems(&[including("a", &["b"]), including("b", &["c"]), including("c", &["registries", "a"])]),
            "c.include[1]: makes a circle (a → b → c → a): remove one `include`",
        ),
        (
            problems(&[DraftProfile { host_services: words(&["127.0.0.1:5432", "10.0.0.1:80"]), ..draft("a", &[]) }]),
            "a.host_services[1]: must be an address of this machine's loopback",
        ),
        (
            problems(&[DraftProfile { host_services: words(&["localhost:80"]), ..draft("a", &[]) }]),
            "a.host_services[0]: must be an address",
        ),
        (
            problems(&[DraftProfile { host_services: words(&["127.0.0.1:0"]), ..draft("a", &[]) }]),
            "a.host_services[0]: must have a port",
        ),
        (
            problems(&[DraftProfile { host_services: words(&["127.77.0.1:21080"]), ..draft("a", &[]) }]),
            "a.host_services[0]: is an address that stands for hosts, or for the proxy",
        ),
        (
            problems(&[DraftProfile { host_services: words(&["127.79.3.4:80"]), ..draft("a", &[]) }]),
            "a.host_services[0]: is an address that stands for hosts, or for the proxy",
        ),
    ] {
        assert!(found.iter().any(|problem| problem.starts_with(expected)), "{expected}: {found:?}");
    }
    let meant = DraftProfile { any_host: true, ..draft("a", &["*"]) };
    assert!(Profiles::new(&[meant]).is_ok());
}

#[test]
fn limits_inside_tls_are_said_to_be_unenforced() {
    let mut profile = draft("p", &["a.example.com", "b.example.com"]);
    profile.rules[0].methods = words(&["GET"]);
    (profile.rules[1].methods, profile.rules[1].protocol) = (words(&["GET"]), "http".to_owned());
    let profiles = Profiles::new(&[profile]).unwrap();
    let unenforced: Vec<bool> = profiles.find("p").unwrap().rules.iter().map(Rule::is_unenforced_inside_tls).collect();
    assert_eq!(unenforced, [true, false]);
}

// The requests of all rules are read where one of them has a credential.
#[test]
fn limits_hold_inside_tls_where_another_rule_has_a_credential() {
    let token = Credential::new(&DraftCredential {
        name: "token".to_owned(),
        hosts: words(&["https://*.example.com:443", "https://*.example.com:8443"]),
        ..DraftCredential::default()
    });
    let mut profile =
        draft("p", &["a.example.com", "*.b.example.com", "a.example.com", "a.example.org", "*.example.com"]);
    for rule in &mut profile.rules[..4] {
        rule.methods = words(&["GET"]);
    }
    profile.rules[2].ports = words(&["443", "8443"]);
    (profile.rules[4].credential, profile.rules[4].methods) = (Some("token".to_owned()), words(&["POST"]));
    let including = DraftProfile { name: "q".to_owned(), include: words(&["p"]), ..DraftProfile::default() };
    let profiles = Profiles::with_credentials(&[profile, including], &[token.unwrap()]).unwrap();
    for name in ["p", "q"] {
        let rules = &profiles.find(name).unwrap().rules;
        let unenforced: Vec<bool> = rules.iter().map(Rule::is_unenforced_inside_tls).collect();
        assert_eq!(unenforced, [false, false, true, true, false], "{rules:?}");
    }
}

#[test]
fn a_rule_is_shown_with_all_that_it_opens() {
    let mut profile = draft("p", &["a.example.com", "b.example.com", "c.example.com"]);
    (profile.rules[0].methods, profile.rules[0].paths) = (words(&["GET"]), words(&["/v1/"]));
    (profile.rules[1].ports, profile.rules[1].private_addresses) = (words(&["443", "8000-8010", "443"]), true);
    // One port, however often it is written.
    profile.rules[2].ports = words(&["80", "80"]);
    profile.host_services = words(&["127.0.0.1:5432"]);
    assert_eq!(
        Profiles::new(&[profile]).unwrap().find("p").unwrap().lines(),
        [
            "https://a.example.com:443 GET /v1/ (not enforced inside TLS)",
            "https://b.example.com:443,8000-8010 (private addresses too)",
            "http://c.example.com:80",
            "this machine's 127.0.0.1:5432",
        ]
    );
}

/// The texts of rules are what people approve: rules that open different things have different ones.
#[test]
fn no_two_rules_read_alike() {
    let lists: [&[&str]; 6] = [&[], &["/a"], &["/a,/b"], &["/a", "/b"], &["/b", "/a"], &["/a/b"]];
    let methods: [&[&str]; 3] = [&[], &["GET"], &["GET", "HEAD"]];
    let mut texts = std::collections::BTreeSet::new();
    let mut count = 0;
    for (host, ports) in [("a.example.com", "443"), ("*.example.com", "443"), ("a.example.com", "8443")] {
        for (paths, methods) in lists.iter().flat_map(|paths| methods.iter().map(move |methods| (paths, methods))) {
            for (protocol, private_addresses) in [("https", false), ("http", false), ("http", true)] {
                let mut profile = draft("p", &[host]);
                let rule = &mut profile.rules[0];
                (rule.ports, rule.paths, rule.methods) = (words(&[ports]), words(paths), words(methods));
                (rule.protocol, rule.private_addresses) = (protocol.to_owned(), private_addresses);
                texts.insert(Profiles::new(&[profile]).unwrap().find("p").unwrap().lines().join("\n"));
                count += 1;
            }
        }
    }
    assert_eq!(texts.len(), count);
}
