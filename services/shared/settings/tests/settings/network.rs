//! Network profiles: what is read, what is refused and how, and how they are shown.

use std::path::Path;

use belay_settings::{File, Network, Origin, ResolvedCommands, Settings, Violation, rows, toolchains::Host};

const GOOD: &str = "\
tools:
  fetch: {command: [fetch], network: ci}
network:
  profiles:
    ci:
      include: [registries, git-https, base]
      rules:
        - host: api.example.com
        - {host: '*.cdn.example.com', ports: [443, 8443, 9000-9002]}
        - host: mirror.example.com
          ports: [80]
          methods: [GET, HEAD]
          paths: [/debian/]
        - {host: db.example.com, ports: ['5432'], protocol: tcp, private_addresses: true}
        - {host: '*'}
        - {host: tls.example.com, methods: [GET]}
      host_services: ['127.0.0.1:5433']
      fetch_only: true
      any_host: true
    base:
      rules:
      - host: base.example.com
    mirror:
      include: [registries]
";

fn parsed(text: &str) -> Result<Settings, Vec<String>> {
    File::parse_from(text, None, Some(Path::new("/etc/belay/config.yaml"))).map_err(|violations| {
        let shown = |Violation { field, line, message }: &Violation| format!("{line} {field}: {message}");
        violations.iter().map(shown).collect()
    })
}

fn refused(text: &str) -> String {
    parsed(text).expect_err(text).join("\n")
}

/// The rows of the network, as `key = value (origin)`.
fn shown(settings: &Settings) -> Vec<String> {
    let file = Path::new("/etc/belay/config.yaml");
    rows(settings, &ResolvedCommands::of(settings.commands.clone(), None, &Host), &|_| None)
        .into_iter()
        .filter(|row| row.key.contains("network"))
        .map(|row| format!("{} = {} ({})", row.key, row.value, row.origin.shown(Some(file))))
        .collect()
}

#[test]
fn a_profile_has_its_rules_and_where_each_comes_from() {
    let settings = parsed(GOOD).unwrap();
    let profiles = &settings.network.profiles;
    let ci = profiles.find("ci").unwrap();
    let own: Vec<String> =
        ci.rules.iter().filter(|rule| rule.origin.profile == "ci").map(ToString::to_string).collect();
    assert_eq!(
        own,
        [
            "https://api.example.com:443",
            "https://*.cdn.example.com:443,8443,9000-9002",
            "http://mirror.example.com:80 GET,HEAD /debian/",
            "tcp://db.example.com:5432 (private addresses too)",
            "https://*:443",
            "https://tls.example.com:443 GET (not enforced inside TLS)",
        ]
    );
    let place = |host: &str| &ci.rules.iter().find(|rule| rule.host.to_string() == host).unwrap().origin;
    assert_eq!(place("api.example.com").to_string(), "ci, /etc/belay/config.yaml:8");
    assert_eq!(place("mirror.example.com").place, "/etc/belay/config.yaml:10");
    assert_eq!(place("base.example.com").to_string(), "base, /etc/belay/config.yaml:22");
    assert_eq!(place("crates.io").to_string(), "registries, built in");
    assert_eq!(ci.host_services[0].1.place, "/etc/belay/config.yaml:5");
    // `git-https` does more than fetch.
    assert!(!ci.fetch_only && profiles.find("mirror").unwrap().fetch_only);
    assert_eq!(settings.tools[0].value.network.as_deref(), Some("ci"));
    assert_eq!(settings.tools[0].origin, Origin::Line(2));
}

#[test]
fn without_the_section_there_are_the_built_in_profiles() {
    for text in ["", "network: {}\n", "network: {profiles: {}}\n"] {
        let settings = parsed(text).unwrap();
        assert_eq!(settings.network, Network::default(), "{text}");
        let names: Vec<&str> = settings.network.profiles.iter().map(|profile| profile.name.as_str()).collect();
        assert_eq!(names, ["git-https", "loopback", "none", "registries"]);
    }
    let settings = parsed("tools: {t: {command: [x], network: none, recovery: read_only}}").unwrap();
    assert_eq!(settings.tools[0].value.network.as_deref(), Some("none"));
    assert_eq!(parsed("tools: {t: {command: [x]}}").unwrap().tools[0].value.network, None);
    // A text without a file has lines, too.
    let settings = File::parse("network: {profiles: {p: {rules: [{host: a.example.com}]}}}", None).unwrap();
    assert_eq!(settings.network.profiles.find("p").unwrap().rules[0].origin.to_string(), "p, line 1");
}

#[test]
fn every_rule_is_shown_with_its_origin() {
    let shown = shown(&parsed(GOOD).unwrap());
    let ci: Vec<&str> = shown
        .iter()
        .filter_map(|row| row.strip_prefix("network.profiles.ci."))
        .filter(|row| !row.contains("(default)"))
        .collect();
    assert_eq!(
        ci,
        [
            "rules = https://base.example.com:443, from base (/etc/belay/config.yaml:22)",
            "rules[0] = https://api.example.com:443 (/etc/belay/config.yaml:8)",
            "rules[1] = https://*.cdn.example.com:443,8443,9000-9002 (/etc/belay/config.yaml:9)",
            "rules[2] = http://mirror.example.com:80 GET,HEAD /debian/ (/etc/belay/config.yaml:10)",
            "rules[3] = tcp://db.example.com:5432 (private addresses too) (/etc/belay/config.yaml:14)",
            "rules[4] = https://*:443 (/etc/belay/config.yaml:15)",
            "rules[5] = https://tls.example.com:443 GET (not enforced inside TLS) (/etc/belay/config.yaml:16)",
            "host_services = 127.0.0.1:5433 (/etc/belay/config.yaml:5)",
            "fetch_only = false (because of base, git-https) (/etc/belay/config.yaml:18)",
        ]
    );
    for row in [
        "network.profiles.ci.rules = https://github.com:443, from git-https (default)",
        "network.profiles.mirror.rules = https://crates.io:443, from registries (default)",
        "network.profiles.mirror.fetch_only = true (/etc/belay/config.yaml:23)",
        "network.profiles.registries.rules[0] = https://index.crates.io:443 (default)",
        "network.profiles.git-https.fetch_only = false (default)",
        "network.profiles.loopback.rules = none (default)",
        "tools.fetch.network = ci (/etc/belay/config.yaml:2)",
    ] {
        assert!(shown.iter().any(|shown| shown == row), "{row}: {shown:#?}");
    }
}

/// Each with its line and field, and what to do.
#[test]
fn bad_profiles_are_refused_by_field_and_line() {
    let ci = "network.profiles.ci";
    for (right, wrong, says) in [
        ("  profiles:", "  profile:", "4 network.profile: there is no key `profile` here; did you mean `profiles`?"),
        ("    ci:", "    c i:", "5 network.profiles.c i: is not a profile's name"),
        ("    base:", "    registries:", "20 network.profiles.registries: is the name of a built-in profile"),
        ("    base:", "    none:", "20 network.profiles.none: is the name of a built-in profile"),
        ("    base:", "    ci:", "20 "),
        (
            "include: [registries, git",
            "includes: [registries, git",
            "6 {ci}.includes: there is no key `includes` here; did you mean `include`?",
        ),
        ("[registries, git-https, base]", "registries", "6 {ci}.include: is text, and must be a list"),
        (
            "git-https, base]",
            "git-https, bsae]",
            "6 {ci}.include[2]: is not a profile: there are base, ci, git-https, mirror, registries",
        ),
        (
            "      include: [registries]",
            "      include: [mirror]",
            "24 network.profiles.mirror.include[0]: makes a circle (mirror → mirror)",
        ),
        (
            "- host: api.example.com",
            "- api.example.com",
            "8 {ci}.rules[0]: is text, and must be a mapping, such as {host: api.example.com}",
        ),
        ("- host: api.example.com", "- {ports: [443]}", "8 {ci}.rules[0]: has no `host`"),
        ("- host: api.example.com", "- [api]", "8 {ci}.rules[0]: is a list, and must be a mapping"),
        (
            "- host: api.example.com",
            "- {host: a.example.com, method: [GET]}",
            "8 {ci}.rules[0].method: there is no key `method` here; did you mean `methods`?",
        ),
        (
            "- host: api.example.com",
            "- {host: a.example.com, method_list: [GET]}",
            "use one of host, ports, protocol, methods, paths, private_addresses",
        ),
        (
            "host: api.example.com",
            "host: https://api.example.com",
            "8 {ci}.rules[0].host: must be the name of a host, not an address",
        ),
        ("host: api.example.com", "host: 10.0.0.1", "8 {ci}.rules[0].host: must be the name of a host, not an address"),
        ("host: api.example.com", "host: 127.1", "8 {ci}.rules[0].host: must be the name of a host, not an address"),
        ("host: api.example.com", "host: '[::1]'", "8 {ci}.rules[0].host: must be the name of a host, not an address"),
        (
            "host: api.example.com",
            "host: api.example.com.",
            "8 {ci}.rules[0].host: must be the name of a host without the final dot",
        ),
        ("host: api.example.com", "host: 'a.*.com'", "8 {ci}.rules[0].host: must be the name of a host in ASCII"),
        (
            "host: api.example.com",
            "host: bücher.example",
            "8 {ci}.rules[0].host: must be the name of a host in ASCII: write an international name in its `xn--` form",
        ),
        ("host: api.example.com", "host: [api.example.com]", "8 {ci}.rules[0].host: is a list, and must be text"),
        ("any_host: true", "any_host: false", "15 {ci}.rules[4].host: `*` is every host, or all of a top-level domain"),
        ("any_host: true", "any_host: yes", "19 {ci}.any_host: is text, and must be true or false"),
        ("[443, 8443, 9000-9002]", "443", "9 {ci}.rules[1].ports: is a number, and must be a list"),
        ("[443, 8443, 9000-9002]", "[]", "9 {ci}.rules[1].ports: is empty: name ports"),
        ("8443,", "84430,", "9 {ci}.rules[1].ports[1]: must be a port from 1 to 65535, or a range such as 8000-8100"),
        ("8443,", "0,", "9 {ci}.rules[1].ports[1]: must be a port"),
        ("8443,", "-1,", "9 {ci}.rules[1].ports[1]: must be a port"),
        ("8443,", "443.5,", "9 {ci}.rules[1].ports[1]: must be a port"),
        ("8443,", "true,", "9 {ci}.rules[1].ports[1]: is true or false, and must be text"),
        ("9000-9002", "9002-9000", "9 {ci}.rules[1].ports[2]: is a range upside down: write 9000-9002"),
        ("9000-9002", "9000-9999", "9 {ci}.rules[1].ports[2]: has 1000 ports, but a profile may have 64"),
        (
            "9000-9002",
            "9000-9060",
            "5 {ci}: has 66 ports, base URLs and services of this machine, each of which every command under it listens on, but the limit is 64",
        ),
        ("protocol: tcp", "protocol: udp", "14 {ci}.rules[3].protocol: must be one of https, http, tcp"),
        ("ports: ['5432'], protocol", "protocol", "14 {ci}.rules[3].ports: are required with `protocol: tcp`"),
        (
            "private_addresses: true",
            "private_addresses: 1",
            "14 {ci}.rules[3].private_addresses: is a number, and must be true or false",
        ),
        ("protocol: tcp,", "protocol: tcp, methods: [GET],", "14 {ci}.rules[3].methods: are of requests"),
        ("[GET, HEAD]", "[GET, Head]", "12 {ci}.rules[2].methods[1]: must be one of GET, HEAD, POST"),
        ("[GET, HEAD]", "[]", "12 {ci}.rules[2].methods: is empty: remove it, which allows all methods"),
        ("[GET, HEAD]", "GET", "12 {ci}.rules[2].methods: is text, and must be a list"),
        ("[/debian/]", "[debian/]", "13 {ci}.rules[2].paths[0]: must begin with `/`"),
        ("[/debian/]", "[/a, /a/../b]", "13 {ci}.rules[2].paths[1]: must begin with `/`"),
        ("[/debian/]", "['/a%2f']", "13 {ci}.rules[2].paths[0]: must begin with `/`"),
        ("127.0.0.1:5433", "127.0.0.1", "17 {ci}.host_services[0]: must be an address with a port"),
        ("127.0.0.1:5433", "10.0.0.1:5433", "17 {ci}.host_services[0]: must be an address of this machine's loopback"),
        ("127.0.0.1:5433", "[::1]:5433", "17 {ci}.host_services[0]: must be an address of this machine's loopback"),
        ("127.0.0.1:5433", "127.78.0.1:5433", "17 {ci}.host_services[0]: is an address that stands for hosts"),
        ("fetch_only: true", "fetch_only: [true]", "18 {ci}.fetch_only: is a list, and must be true or false"),
        (
            "include: [registries]\n",
            "include: [registries]\n      fetch_only: false\n",
            "25 network.profiles.mirror.fetch_only: is about the rules of this profile",
        ),
        ("    mirror:\n      include: [registries]\n", "    mirror:\n", "23 network.profiles.mirror: "),
        (
            "network: ci}",
            "network: cii}",
            "2 tools.fetch.network: there is no network profile `cii`: use one of base, ci, git-https, loopback, mirror, none, registries; did you mean `ci`?",
        ),
        ("network: ci}", "network: [ci]}", "2 tools.fetch.network: is a list, and must be text"),
        (
            "network: ci}",
            "networks: ci}",
            "2 tools.fetch.networks: there is no key `networks` here; did you mean `network`?",
        ),
    ] {
        assert!(GOOD.contains(right), "{right}");
        let found = refused(&GOOD.replacen(right, wrong, 1));
        let says = says.replace("{ci}", ci);
        assert!(found.lines().any(|line| line.starts_with(&says) || line.contains(&says)), "{wrong}: {says}\n{found}");
    }
}

#[test]
fn all_problems_are_reported_in_the_order_of_the_lines() {
    let text = GOOD.replace("api.example.com", "10.0.0.1").replace("8443", "0").replace("base.example.com", "b.");
    let fields: Vec<String> =
        refused(&text).lines().map(|line| line.split(": ").next().unwrap_or_default().to_owned()).collect();
    assert_eq!(
        fields,
        [
            "8 network.profiles.ci.rules[0].host",
            "9 network.profiles.ci.rules[1].ports[1]",
            "22 network.profiles.base.rules[0].host"
        ]
    );
}

#[test]
fn there_are_at_most_100_profiles_of_1000_rules() {
    let profiles = |count: usize| {
        let all: String = (0..count).map(|n| format!("    p{n}: {{rules: [{{host: a.example.com}}]}}\n")).collect();
        format!("network:\n  profiles:\n{all}")
    };
    assert!(parsed(&profiles(100)).is_ok());
    assert_eq!(refused(&profiles(101)), "2 network.profiles: has 101 profiles, but the limit is 100");
    let rules = |count: usize| {
        let all: String = (0..count).map(|n| format!("      - {{host: h{n}.example.com}}\n")).collect();
        format!("network:\n  profiles:\n    p:\n      rules:\n{all}")
    };
    assert!(parsed(&rules(1000)).is_ok());
    let found = refused(&rules(1001));
    assert_eq!(found, "3 network.profiles.p: has 1001 rules with those that it includes, but the limit is 1000");
    let paths = |count: usize| {
        let all = (0..count).map(|n| format!("/p{n}")).collect::<Vec<_>>().join(", ");
        format!("network: {{profiles: {{p: {{rules: [{{host: a.example.com, ports: [80], paths: [{all}]}}]}}}}}}")
    };
    assert!(parsed(&paths(100)).is_ok());
    let found = refused(&paths(101));
    assert_eq!(found, "1 network.profiles.p.rules[0].paths: has 101 entries, but the limit is 100");
}

#[test]
fn the_network_of_a_command_is_bounded_by_the_settings() {
    let settings = parsed("network:\n  limits: {bytes: 2GiB, open_connections: 8, idle: 90s}\n").unwrap();
    let limits = &settings.network.limits;
    assert_eq!((limits.bytes.value, limits.open_connections.value, limits.idle.value), (2 << 30, 8, 90));
    assert_eq!((limits.connections.value, &limits.connections.origin), (100_000, &Origin::Default));
    for (limit, says) in [
        ("bytes: 1", "network.limits.bytes: must be at least 1MiB"),
        ("connections: 0", "network.limits.connections: must be a whole number between 1 and 1000000000"),
        ("open_connections: many", "network.limits.open_connections: must be a whole number between 1 and 100000"),
        ("idle: 0s", "network.limits.idle: must be a whole number with a unit, from 1s to 24h"),
        ("time: 5m", "network.limits.time"),
    ] {
        let problems = parsed(&format!("network:\n  limits: {{{limit}}}\n")).unwrap_err();
        assert!(problems.len() == 1 && problems[0].contains(says), "{problems:?}");
    }
}

#[test]
fn hosts_are_reached_behind_the_proxy_of_the_settings() {
    let settings =
        parsed("network:\n  proxy: {url: 'http://proxy.example.com:3128', direct: ['*.corp.example.com']}\n").unwrap();
    let rows = shown(&settings);
    let line = rows.iter().find(|row| row.starts_with("network.proxy = ")).unwrap();
    assert!(line.contains("= http://proxy.example.com:3128, and directly *.corp.example.com"), "{line}");
    for (proxy, says) in [
        ("{url: 'https://proxy:1'}", "network.proxy.url: must be an `http://` URL"),
        ("{url: 'http://me:secret@proxy:1'}", "network.proxy.url: must not contain a user"),
        ("{direct: []}", "network.proxy: has no `url`"),
        (
            "{url: 'http://proxy:1', direct: [10.0.0.1]}",
            "network.proxy.direct[0]: must be the name of a host, not an address",
        ),
    ] {
        let problems = parsed(&format!("network:\n  proxy: {proxy}\n")).unwrap_err();
        assert!(problems.len() == 1 && problems[0].contains(says), "{problems:?}");
    }
}
