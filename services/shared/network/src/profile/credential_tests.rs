//! Rules with credentials: what is refused, and what is decided.

use super::*;
use crate::{AccessDecision, AccessRequest, DraftCredential, Host, Refusal, RefusalKind, Traffic};

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

fn credentials() -> Vec<Credential> {
    let github = DraftCredential {
        name: "github".to_owned(),
        hosts: words(&["https://api.github.com", "https://*.example.com:8443"]),
        methods: words(&["GET", "POST"]),
        paths: words(&["/repos"]),
        variable: Some("GH_TOKEN".to_owned()),
        ..DraftCredential::default()
    };
    let model = DraftCredential {
        name: "model".to_owned(),
        header: Some("x-api-key".to_owned()),
        hosts: words(&["https://api.model.example"]),
        ..DraftCredential::default()
    };
    let plain = DraftCredential {
        name: "plain".to_owned(),
        basic: Some("user".to_owned()),
        hosts: words(&["http://plain.example.com"]),
        clear_text: true,
        ..DraftCredential::default()
    };
    [github, model, plain].iter().map(|draft| Credential::new(draft).unwrap()).collect()
}

fn rule_with(host: &str, credential: &str) -> DraftRule {
    DraftRule { host: host.to_owned(), credential: Some(credential.to_owned()), ..DraftRule::default() }
}

fn draft(rules: Vec<DraftRule>) -> DraftProfile {
    DraftProfile { name: "p".to_owned(), rules, ..DraftProfile::default() }
}

fn problem(draft: DraftProfile) -> String {
    let problems = Profiles::with_credentials(&[draft], &credentials()).unwrap_err();
    let shown: Vec<String> =
        problems.into_iter().map(|Problem { field, message }| format!("{field}: {message}")).collect();
    assert_eq!(shown.len(), 1, "{shown:?}");
    shown.into_iter().next().unwrap()
}

fn profile(rules: Vec<DraftRule>) -> Profile {
    Profiles::with_credentials(&[draft(rules)], &credentials()).unwrap().find("p").unwrap().clone()
}

fn model() -> DraftRule {
    DraftRule {
        base_url: Some("MODEL_URL".to_owned()),
        base_path: Some("/v1".to_owned()),
        ..rule_with("api.model.example", "model")
    }
}

#[test]
fn a_rule_whose_credential_is_bound_elsewhere_is_refused() {
    for (rule, start) in [
        (
            rule_with("api.github.com", "githob"),
            "p.rules[0].credential: `githob` is not in `credentials`, where there are github, model, plain",
        ),
        (
            rule_with("github.com", "github"),
            "p.rules[0].credential: `github` is not bound to https://github.com:443, but to https://api.github.com:443",
        ),
        (
            rule_with("*.github.com", "github"),
            "p.rules[0].credential: `github` is not bound to https://*.github.com:443",
        ),
        (
            DraftRule { ports: words(&["443", "8443"]), ..rule_with("api.github.com", "github") },
            "p.rules[0].credential: `github` is not bound to https://api.github.com:8443",
        ),
        (
            DraftRule { protocol: "http".to_owned(), ..rule_with("api.github.com", "github") },
            "p.rules[0].credential: `github` is not bound to http://api.github.com:80",
        ),
        (
            DraftRule { protocol: "tcp".to_owned(), ports: words(&["443"]), ..rule_with("api.github.com", "github") },
            "p.rules[0].credential: is put into requests",
        ),
        (
            DraftRule { base_url: Some("A URL".to_owned()), ..rule_with("api.model.example", "model") },
            "p.rules[0].base_url: must be the name of a variable",
        ),
        (
            DraftRule {
                base_url: Some("URL".to_owned()),
                host: "api.model.example".to_owned(),
                ..DraftRule::default()
            },
            "p.rules[0].base_url: is for hosts with a `credential`",
        ),
        (
            DraftRule {
                base_url: Some("URL".to_owned()),
                ports: words(&["8443"]),
                ..rule_with("*.a.example.com", "github")
            },
            "p.rules[0].base_url: is the URL of one host",
        ),
        (
            DraftRule { base_path: Some("/v1/".to_owned()), ..model() },
            "p.rules[0].base_path: must begin with `/` and not end with it",
        ),
        (
            DraftRule { base_path: Some("/v1".to_owned()), ..rule_with("api.github.com", "github") },
            "p.rules[0].base_path: is the path of `base_url`",
        ),
    ] {
        let found = problem(draft(vec![rule]));
        assert!(found.starts_with(start), "{found}");
    }
    let twice = DraftRule { base_url: Some("GH_TOKEN".to_owned()), ..model() };
    let found = problem(draft(vec![rule_with("api.github.com", "github"), twice]));
    assert!(found.starts_with("p: gives the variable `GH_TOKEN` two values"), "{found}");
}

#[test]
fn a_profile_that_only_fetches_sends_no_credential_that_can_write() {
    let fetching = |rule| DraftProfile { fetch_only: true, ..draft(vec![rule]) };
    let found = problem(fetching(rule_with("api.github.com", "github")));
    assert!(found.starts_with("p.fetch_only: ") && found.contains("rule 0 sends the credential `github`"), "{found}");
    let reading = DraftRule { methods: words(&["GET"]), ..rule_with("api.github.com", "github") };
    assert!(Profiles::with_credentials(&[fetching(reading)], &credentials()).is_ok());
}

#[test]
fn requests_to_a_host_with_a_credential_are_read() {
    let rules = vec![
        rule_with("api.github.com", "github"),
        DraftRule { host: "tls.example".to_owned(), ..DraftRule::default() },
    ];
    let profile = profile(rules);
    let host = |name: &str| Host::parse(name).unwrap();
    assert!(profile.reads_tls() && profile.reads_tls_of(&host("api.github.com"), 443));
    assert!(!profile.reads_tls_of(&host("api.github.com"), 8443) && !profile.reads_tls_of(&host("tls.example"), 443));
    let decide = |method, path| {
        let asked =
            AccessRequest { host: &host("api.github.com"), port: 443, traffic: Traffic::TlsRequest { method, path } };
        match profile.decide(asked) {
            AccessDecision::Allowed(rule) => Ok(rule.credential.as_ref().unwrap().name.clone()),
            AccessDecision::Refused(refusal) => Err(Box::new(refusal)),
        }
    };
    assert_eq!(decide("GET", "/repos/a").unwrap(), "github");
    for (method, path) in [("DELETE", "/repos/a"), ("GET", "/user"), ("GET", "/repos/../user")] {
        let refusal = decide(method, path).unwrap_err();
        let shown = refusal.to_string();
        assert_eq!(refusal.kind, RefusalKind::Credential, "{method} {path}");
        assert!(shown.ends_with("the operator changes `credentials.github`"), "{shown}");
    }
    // Approvals are bound to these texts.
    assert_eq!(
        profile.lines()[0],
        "https://api.github.com:443 (with the credential github in the header Authorization after `Bearer `, which is for GET,POST /repos)"
    );
}

#[test]
fn a_request_carries_the_credential_whichever_rule_stands_first() {
    let first = DraftRule { host: "api.model.example".to_owned(), ..DraftRule::default() };
    let profile = profile(vec![first, rule_with("api.model.example", "model")]);
    let host = Host::parse("api.model.example").unwrap();
    let traffic = Traffic::TlsRequest { method: "GET", path: "/" };
    let decided = profile.decide(AccessRequest { host: &host, port: 443, traffic });
    assert!(matches!(decided, AccessDecision::Allowed(rule) if rule.credential.is_some()), "{decided:?}");
}

#[test]
fn the_first_of_several_credentials_is_used_and_nobody_is_asked_needlessly() {
    let second = DraftCredential {
        name: "second".to_owned(),
        header: Some("x-other-key".to_owned()),
        hosts: words(&["https://api.model.example"]),
        ..DraftCredential::default()
    };
    let mut all = credentials();
    all.push(Credential::new(&second).unwrap());
    let used = |rules: Vec<DraftRule>| {
        let profiles = Profiles::with_credentials(&[draft(rules)], &all).unwrap();
        let host = Host::parse("api.model.example").unwrap();
        let traffic = Traffic::TlsRequest { method: "GET", path: "/" };
        match profiles.find("p").unwrap().decide(AccessRequest { host: &host, port: 443, traffic }) {
            AccessDecision::Allowed(rule) => rule.credential.as_ref().unwrap().name.clone(),
            AccessDecision::Refused(refusal) => panic!("{refusal}"),
        }
    };
    let rule = |credential: &str| rule_with("api.model.example", credential);
    assert_eq!(used(vec![rule("model"), rule("second")]), "model");
    assert_eq!(used(vec![rule("second"), rule("model")]), "second");
    assert_eq!(used(vec![DraftRule { ask: true, ..rule("model") }, rule("second")]), "second");
}

#[test]
fn a_host_with_a_url_is_reached_by_it_alone() {
    let profile = profile(vec![DraftRule { methods: words(&["POST"]), ..model() }]);
    assert!(!profile.reads_tls() && profile.ports().is_empty());
    let host = Host::parse("api.model.example").unwrap();
    for traffic in [Traffic::Nothing, Traffic::Tls, Traffic::Other] {
        let AccessDecision::Refused(refusal) = profile.decide(AccessRequest { host: &host, port: 443, traffic }) else {
            panic!("{traffic:?}");
        };
        let shown = refusal.to_string();
        assert!(
            refusal.kind == RefusalKind::BaseUrl && shown.ends_with("set the program to the URL in $MODEL_URL"),
            "{shown}"
        );
    }
    let (rule, url) = profile.base_urls().next().unwrap();
    assert_eq!((url.variable.as_str(), url.path.as_str()), ("MODEL_URL", "/v1"));
    let by_url = |method| {
        let traffic = Traffic::TlsRequest { method, path: "/v1/messages" };
        profile.decide_by_url(rule, AccessRequest { host: &host, port: 443, traffic })
    };
    assert!(matches!(by_url("POST"), AccessDecision::Allowed(_)));
    let AccessDecision::Refused(refusal) = by_url("GET") else { panic!("GET is not in the rule") };
    assert_eq!(
        Refusal::line(&refusal),
        "{host: api.model.example, methods: [GET], paths: ['/v1/messages'], credential: model, base_url: MODEL_URL}"
    );
}

#[test]
fn nobody_is_asked_about_what_another_rule_allows() {
    let ask = |host: &str| DraftRule { host: host.to_owned(), ask: true, ..DraftRule::default() };
    let known = DraftRule { host: "a.example.com".to_owned(), ..DraftRule::default() };
    let profile = profile(vec![ask("*.example.com"), known]);
    assert!(profile.asks() && profile.lines()[0] == "https://*.example.com:443 (a person is asked)");
    let asks = |name: &str| {
        let host = Host::parse(name).unwrap();
        match profile.decide(AccessRequest { host: &host, port: 443, traffic: Traffic::Tls }) {
            AccessDecision::Allowed(rule) => rule.ask,
            AccessDecision::Refused(refusal) => panic!("{refusal}"),
        }
    };
    assert!(!asks("a.example.com") && asks("b.example.com"));
}

#[test]
fn a_host_with_a_url_and_another_rule_is_refused() {
    let direct = DraftRule { host: "*.model.example".to_owned(), ..DraftRule::default() };
    let found = problem(draft(vec![model(), direct]));
    assert!(
        found.starts_with(
            "p: reaches api.model.example at $MODEL_URL and only there by one rule, and directly by another"
        ),
        "{found}"
    );
}
