//! `belay network …`: which hosts commands may reach, as the operator's settings say it.

use belay_e2e::Home;

const SETTINGS: &str = "
network:
  profiles:
    ci:
      include: [registries]
      rules:
      - host: api.example.com
      - {host: mirror.example.com, ports: [80], methods: [GET], paths: [/debian/]}
      - {host: tls.example.com, methods: [GET]}
      host_services: ['127.0.0.1:5432']
";

fn home() -> Home {
    let home = Home::new();
    home.file("config.yaml", SETTINGS);
    home
}

#[test]
fn profiles_are_listed_with_what_they_have() {
    let home = home();
    let listed = home.run(["network", "list", "--config", "config.yaml"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    let line =
        |name: &str| listed.out.lines().find(|line| line.trim().starts_with(name)).unwrap_or_default().to_owned();
    assert!(line("ci").contains("1 service of this machine") && line("ci").ends_with("config.yaml:4"), "{listed:?}");
    assert!(line("registries").contains("only fetches") && line("registries").ends_with("built in"), "{listed:?}");
    assert!(line("none").contains("nothing but its own loopback"), "{listed:?}");
    let (code, all) = home.json(&["network", "list", "--config", "config.yaml"]);
    let names: Vec<&str> =
        all["profiles"].as_array().unwrap().iter().filter_map(|profile| profile["name"].as_str()).collect();
    assert_eq!((code, names), (0, vec!["ci", "git-https", "loopback", "none", "registries"]));
}

#[test]
fn a_profile_is_one_list_with_where_each_rule_comes_from() {
    let home = home();
    let shown = home.run(["network", "show", "ci", "--config", "config.yaml"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    for (rule, origin) in [
        ("https://pypi.org:443 ", "registries, built in"),
        ("https://api.example.com:443 ", "ci, config.yaml:7"),
        ("https://tls.example.com:443 GET (not enforced inside TLS) ", "ci, config.yaml:9"),
        ("this machine's 127.0.0.1:5432 ", "ci, config.yaml:4"),
        ("fetch only ", "no: a call that was lost does not run again automatically"),
    ] {
        let is_shown = shown.out.lines().any(|line| line.trim().starts_with(rule) && line.ends_with(origin));
        assert!(is_shown, "{rule}: {shown:?}");
    }
    let (_, json) = home.json(&["network", "show", "ci", "--config", "config.yaml"]);
    let last = json["rules"].as_array().unwrap().last().unwrap();
    assert_eq!((last["notEnforcedInsideTls"].as_bool(), last["place"].as_str()), (Some(true), Some("config.yaml:9")));
    assert_eq!((json["fetchOnly"].as_bool(), json["builtIn"].as_bool()), (Some(false), Some(false)));
    // Programs that ask for the settings get each rule, too.
    let config = home.run(["config", "show", "network.profiles.ci.rules[0]", "--config", "config.yaml"]);
    assert_eq!((config.code, config.out.trim()), (0, "https://api.example.com:443"), "{config:?}");

    let unknown = home.run(["network", "show", "cii", "--config", "config.yaml"]);
    assert_eq!(unknown.code, 2, "{unknown:?}");
    for says in ["there is no network profile `cii`", "there are ci, git-https, loopback, none, registries"] {
        assert!(unknown.talk.contains(says), "{unknown:?}");
    }
}

#[test]
fn a_url_is_checked_against_a_profile() {
    let home = home();
    let check = |more: &[&str]| home.run(["network", "check", "--config", "config.yaml", "ci"].iter().chain(more));
    for allowed in [
        &["https://pypi.org/simple/"][..],
        &["http://mirror.example.com/debian/pool"],
        &["api.example.com:443"],
        &["127.0.0.1:5432"],
    ] {
        let answer = check(allowed);
        assert!(answer.code == 0 && answer.out.starts_with("allowed"), "{answer:?}");
    }
    let refused = check(&["https://x.example.com/"]);
    assert_eq!(refused.code, 33, "{refused:?}");
    assert!(refused.out.contains("- {host: x.example.com}") && refused.out.contains("config.yaml"), "{refused:?}");
    let method = check(&["http://mirror.example.com/debian/", "--method", "PUT"]);
    assert!(method.code == 33 && method.out.contains("methods: [PUT], paths: ['/debian/']"), "{method:?}");
    let lower = check(&["http://mirror.example.com/debian/", "--method", "put"]);
    assert!(lower.code == 2 && lower.talk.contains("in upper case"), "{lower:?}");
    let wrong = check(&["https://x.example.com./"]);
    assert!(wrong.code == 2 && wrong.talk.contains("without the final dot"), "{wrong:?}");
    let (code, json) = home.json(&["network", "check", "none", "https://x.example.com", "--config", "config.yaml"]);
    assert_eq!((code, json["allowed"].as_bool(), json["refusedFor"].as_str()), (33, Some(false), Some("HOST")));

    // The line that a refusal has is one that the settings take, and that allows it.
    home.file("config.yaml", format!("{SETTINGS}    more:\n      rules:\n      - {{host: x.example.com}}\n"));
    let allowed = home.run(["network", "check", "more", "https://x.example.com/", "--config", "config.yaml"]);
    assert_eq!(allowed.code, 0, "{allowed:?}");
}

#[test]
fn a_mistake_in_a_profile_is_named_with_its_line() {
    let home = home();
    home.file("config.yaml", SETTINGS.replace("api.example.com", "10.0.0.1"));
    let refused = home.run(["network", "list", "--config", "config.yaml"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    for says in ["network.profiles.ci.rules[0].host: must be the name of a host, not an address", "config.yaml:7"] {
        assert!(refused.talk.contains(says), "{says}: {refused:?}");
    }
}
