//! Credentials: what is read, what is refused and how, and how they are shown.

use std::path::Path;

use belay_network::{CredentialSource, Placement};
use belay_settings::{File, Origin, ResolvedCommands, Settings, Violation, rows, toolchains::Host};

const GOOD: &str = "\
network:
  authorities: [/etc/belay/company-ca.pem, ~/ca.pem]
  profiles:
    ci:
      rules:
        - {host: api.github.com, credential: github}
        - {host: api.model.example, credential: model, base_url: MODEL_URL, base_path: /v1}
        - {host: other.example.com}
credentials:
  github:
    file: /etc/belay/github.token
    hosts: [https://api.github.com, 'https://*.example.com:8443']
    methods: [GET, POST]
    paths: [/repos]
    variable: GH_TOKEN
    placeholder: ghp_
  model:
    environment: MODEL_KEY
    header: X-Api-Key
    hosts: [https://api.model.example]
  registry:
    command: [/usr/bin/pass, show, 3]
    basic: robot
    hosts: [http://registry.example.com]
    clear_text: true
  maps:
    systemd: maps.key
    query: key
    hosts: [https://maps.example.com]
  raw:
    file: ~/raw
    prefix: ''
    hosts: [https://raw.example.com]
";

fn parsed(text: &str) -> Result<Settings, Vec<String>> {
    let home = Some(Path::new("/home/me"));
    File::parse_from(text, home, Some(Path::new("/etc/belay/config.yaml"))).map_err(|violations| {
        let shown = |Violation { field, line, message }: &Violation| format!("{line} {field}: {message}");
        violations.iter().map(shown).collect()
    })
}

fn refused(text: &str) -> Vec<String> {
    parsed(text).expect_err(text)
}

/// The settings with this one entry of `credentials`.
fn with(more: &str) -> String {
    format!("credentials:\n  t:\n    hosts: [https://a.example.com]\n    {more}\n")
}

#[test]
fn a_credential_has_its_source_its_place_and_its_hosts() {
    let settings = parsed(GOOD).unwrap();
    let names: Vec<&str> =
        settings.credentials.iter().map(|credential| credential.value.credential.name.as_str()).collect();
    assert_eq!(names, ["github", "model", "registry", "maps", "raw"]);
    let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let header = |name: &str, prefix: &str| Placement::Header { name: name.to_owned(), prefix: prefix.to_owned() };
    let expected = [
        (10, CredentialSource::File("/etc/belay/github.token".into()), header("Authorization", "Bearer ")),
        (17, CredentialSource::Environment("MODEL_KEY".to_owned()), header("X-Api-Key", "")),
        (
            21,
            CredentialSource::Command(words(&["/usr/bin/pass", "show", "3"])),
            Placement::Basic { user: "robot".to_owned() },
        ),
        (26, CredentialSource::Systemd("maps.key".to_owned()), Placement::Query { name: "key".to_owned() }),
        (30, CredentialSource::File("/home/me/raw".into()), header("Authorization", "")),
    ];
    for (credential, (line, source, placement)) in settings.credentials.iter().zip(expected) {
        assert_eq!(credential.origin, Origin::Line(line));
        assert_eq!((&credential.value.source, &credential.value.credential.placement), (&source, &placement));
    }
    let github = &settings.credentials[0].value.credential;
    assert_eq!((github.methods.clone(), github.paths.clone()), (words(&["GET", "POST"]), words(&["/repos"])));
    assert_eq!((github.variable.as_deref(), github.placeholder.as_str()), (Some("GH_TOKEN"), "ghp_"));
    assert_eq!(github.hosts.iter().map(ToString::to_string).collect::<Vec<_>>()[1], "https://*.example.com:8443");

    // The section may stand below the rules that name its credentials.
    let ci = settings.network.profiles.find("ci").unwrap();
    assert_eq!(ci.credentials().into_keys().collect::<Vec<_>>(), ["github", "model"]);
    let (rule, url) = ci.base_urls().next().unwrap();
    assert_eq!(
        (rule.host.to_string().as_str(), url.variable.as_str(), url.path.as_str()),
        ("api.model.example", "MODEL_URL", "/v1")
    );
    let authorities: Vec<&Path> =
        settings.network.authorities.iter().map(|authority| authority.value.as_path()).collect();
    assert_eq!(authorities, [Path::new("/etc/belay/company-ca.pem"), Path::new("/home/me/ca.pem")]);
    assert_eq!(settings.network.authorities[0].origin, Origin::Line(2));
    let empty = parsed("credentials: {}\nnetwork: {authorities: []}\n").unwrap();
    assert_eq!(empty, Settings::default());
}

#[test]
fn every_credential_is_shown_without_its_value() {
    let settings = parsed(GOOD).unwrap();
    let file = Path::new("/etc/belay/config.yaml");
    let shown: Vec<String> = rows(&settings, &ResolvedCommands::of(settings.commands.clone(), None, &Host), &|_| None)
        .into_iter()
        .filter(|row| row.key.starts_with("credentials") || row.key.starts_with("network.authorities"))
        .map(|row| format!("{} = {} ({})", row.key, row.value, row.origin.shown(Some(file))))
        .collect();
    let expected = "\
credentials.github.file = /etc/belay/github.token (/etc/belay/config.yaml:10)
credentials.github.header = Authorization (/etc/belay/config.yaml:10)
credentials.github.prefix = `Bearer ` (/etc/belay/config.yaml:10)
credentials.github.hosts = https://api.github.com:443, https://*.example.com:8443 (/etc/belay/config.yaml:10)
credentials.github.methods = GET, POST (/etc/belay/config.yaml:10)
credentials.github.paths = /repos (/etc/belay/config.yaml:10)
credentials.github.variable = GH_TOKEN (/etc/belay/config.yaml:10)
credentials.github.placeholder = ghp_ (/etc/belay/config.yaml:10)
credentials.model.environment = MODEL_KEY (/etc/belay/config.yaml:17)
credentials.model.header = X-Api-Key (/etc/belay/config.yaml:17)
credentials.model.prefix = none (/etc/belay/config.yaml:17)
credentials.model.hosts = https://api.model.example:443 (/etc/belay/config.yaml:17)
credentials.model.methods = all (/etc/belay/config.yaml:17)
credentials.model.paths = all (/etc/belay/config.yaml:17)
credentials.model.variable = none (/etc/belay/config.yaml:17)
credentials.registry.command = /usr/bin/pass (2 arguments) (/etc/belay/config.yaml:21)
credentials.registry.basic = robot (/etc/belay/config.yaml:21)
credentials.registry.hosts = http://registry.example.com:80 (/etc/belay/config.yaml:21)";
    assert_eq!(shown[..18].join("\n"), expected);
    assert!(
        shown.contains(&"credentials.maps.systemd = maps.key (/etc/belay/config.yaml:26)".to_owned()),
        "{shown:#?}"
    );
    assert!(shown.contains(&"credentials.maps.query = key (/etc/belay/config.yaml:26)".to_owned()), "{shown:#?}");
    assert!(
        shown.contains(&"network.authorities[1] = /home/me/ca.pem (/etc/belay/config.yaml:2)".to_owned()),
        "{shown:#?}"
    );
}

/// Each with its line and field, and what to do, and nothing else is reported.
#[test]
fn bad_credentials_are_refused_by_field_and_line() {
    let source = "has no source of its value: add `file`, `environment`, `systemd` or `command`";
    let file = "file: /etc/belay/t";
    let cases = [
        ("credentials: []".to_owned(), "1 credentials: is a list, and must be a mapping"),
        ("credentials: {t: /etc/x}".to_owned(), "1 credentials.t: is text, and must be a mapping"),
        (with("methods: [GET]"), &*format!("2 credentials.t: {source}")),
        (with("file: /a\n    environment: A"), "2 credentials.t: has `file` and `environment`: a credential has one"),
        (
            with("command: [/a]\n    file: /a\n    systemd: a"),
            "2 credentials.t: has `file` and `systemd` and `command`",
        ),
        (with("file: t.token"), "4 credentials.t.file: must be an absolute path without `..`"),
        (with("file: /etc/../t"), "4 credentials.t.file: must be an absolute path without `..`"),
        (with("file: ''"), "4 credentials.t.file: must be an absolute path"),
        (with("file: [a]"), "4 credentials.t.file: is a list, and must be text"),
        (with("environment: A-B"), "4 credentials.t.environment: must be the name of a variable"),
        (with("environment: ''"), "4 credentials.t.environment: must be the name of a variable"),
        (with("systemd: a/b"), "4 credentials.t.systemd: must be the name of a credential of systemd"),
        (with("systemd: ..\n"), "4 credentials.t.systemd: must be the name of a credential of systemd"),
        (with("command: []"), "4 credentials.t.command: is empty: add the program"),
        (with("command: pass"), "4 credentials.t.command: is text, and must be a list"),
        (with("command: [pass, x]"), "4 credentials.t.command[0]: must be the absolute path of a program"),
        (with("command: [{a: b}, x]"), "4 credentials.t.command[0]: is a mapping, and must be text"),
        (
            with(&format!("{file}\n    value: ghp_abc")),
            "5 credentials.t.value: there is no key `value` here; use one of file, environment",
        ),
        (with(&format!("{file}\n    headr: X")), "5 credentials.t.headr: there is no key `headr` here; did you mean"),
        (with(&format!("{file}\n    header: ''")), "5 credentials.t.header: must be the name of a header"),
        (with(&format!("{file}\n    header: Host")), "5 credentials.t.header: is a header by which servers read"),
        (with(&format!("{file}\n    basic: a\n    query: b")), "2 credentials.t: has more than one of"),
        (with(&format!("{file}\n    basic: ''")), "5 credentials.t.basic: must be a user"),
        (with(&format!("{file}\n    query: ''")), "5 credentials.t.query: must be the name of a parameter"),
        (with(&format!("{file}\n    placeholder: ''")), "5 credentials.t.placeholder: is empty"),
        (with(&format!("{file}\n    variable: ''")), "5 credentials.t.variable: is not a valid variable name"),
        (
            with(&format!("{file}\n    variable: PATH")),
            "5 credentials.t.variable: `PATH` is a variable that Belay sets",
        ),
        (with(&format!("{file}\n    variable: https_proxy")), "5 credentials.t.variable: `https_proxy` is a variable"),
        (with(&format!("{file}\n    variable: BELAY_X")), "5 credentials.t.variable: `BELAY_X` is a variable"),
        (with(&format!("{file}\n    variable: LD_X")), "5 credentials.t.variable: is not a valid variable name"),
        (with(&format!("{file}\n    methods: []")), "5 credentials.t.methods: is empty: remove it, which allows all"),
        (with(&format!("{file}\n    methods: [get]")), "5 credentials.t.methods[0]: must be one of GET"),
        (with(&format!("{file}\n    paths: [/a, b]")), "5 credentials.t.paths[1]: must begin with `/`"),
        (
            with(&format!("{file}\n    clear_text: yes")),
            "5 credentials.t.clear_text: is text, and must be true or false",
        ),
        ("credentials: {t: {file: /t}}".to_owned(), "1 credentials.t.hosts: names no host"),
        ("credentials: {t: {file: /t, hosts: []}}".to_owned(), "1 credentials.t.hosts: names no host"),
        (
            "credentials:\n  t:\n    file: /t\n    hosts:\n    - https://a.example.com\n    - http://b.example.com"
                .to_owned(),
            "6 credentials.t.hosts[1]: would send the value in clear text",
        ),
        (
            "credentials: {t: {file: /t, hosts: ['https://10.0.0.1']}}".to_owned(),
            "1 credentials.t.hosts[0]: must be the name of a host, not an address",
        ),
        (
            "credentials: {a b: {file: /t, hosts: ['https://a.example.com']}}".to_owned(),
            "1 credentials.a b: is not a credential's name",
        ),
        ("network: {authorities: [ca.pem]}".to_owned(), "1 network.authorities[0]: `ca.pem` must be an absolute path"),
        ("network: {authorities: /ca.pem}".to_owned(), "1 network.authorities: is text, and must be a list"),
        ("network: {authorities: [/a, /a/]}".to_owned(), "1 network.authorities[1]: `/a` is an earlier entry, too"),
        (
            "network: {authority: [/a]}".to_owned(),
            "1 network.authority: there is no key `authority` here; did you mean",
        ),
    ];
    for (text, says) in &cases {
        let found = refused(text);
        assert!(found.len() == 1 && found[0].starts_with(says), "{text}\n{says}\n{found:#?}");
    }
    // Somebody may have written the value itself as a source.
    for key in ["file: ghp_secret", "environment: ghp-secret", "systemd: ghp/secret", "command: [ghp_secret]"] {
        assert!(!refused(&with(key)).join("\n").contains("secret"), "{key}");
    }
    // Both the source and the rest are judged.
    assert_eq!(refused(&with("file: t\n    header: ''")).len(), 2);
}

#[test]
fn rules_name_credentials_that_are_bound_to_their_hosts() {
    for (right, wrong, says) in [
        (
            "credential: github",
            "credential: githob",
            "6 network.profiles.ci.rules[0].credential: `githob` is not in `credentials`, where there are github, model",
        ),
        ("credential: github", "credential: ''", "6 network.profiles.ci.rules[0].credential: is empty"),
        (
            "credential: github",
            "credential: model",
            "6 network.profiles.ci.rules[0].credential: `model` is not bound to https://api.github.com:443",
        ),
        (
            "credential: model, base_url",
            "base_url",
            "7 network.profiles.ci.rules[1].base_url: is for hosts with a `credential`",
        ),
        (
            "base_url: MODEL_URL, ",
            "",
            "7 network.profiles.ci.rules[1].base_path: is the path of `base_url`, which this rule has not",
        ),
        (
            "MODEL_URL",
            "SSL_CERT_FILE",
            "7 network.profiles.ci.rules[1].base_url: `SSL_CERT_FILE` is a variable that Belay sets",
        ),
        ("MODEL_URL", "GH_TOKEN", "4 network.profiles.ci: gives the variable `GH_TOKEN` two values"),
        ("base_path: /v1", "base_path: ''", "7 network.profiles.ci.rules[1].base_path: is empty"),
        ("base_path: /v1", "base_path: v1", "7 network.profiles.ci.rules[1].base_path: must begin with `/`"),
    ] {
        assert!(GOOD.contains(right), "{right}");
        let found = refused(&GOOD.replacen(right, wrong, 1));
        assert!(found.len() == 1 && found[0].starts_with(says), "{wrong}: {says}\n{found:#?}");
    }
}

#[test]
fn an_invalid_credential_is_reported_once_and_not_by_the_rules_that_name_it() {
    let found = refused(&GOOD.replace("/etc/belay/github.token", "github.token").replace("X-Api-Key", "Host"));
    let fields: Vec<&str> = found.iter().map(|one| one.split(": ").next().unwrap_or_default()).collect();
    assert_eq!(fields, ["11 credentials.github.file", "19 credentials.model.header"], "{found:#?}");
    // Other problems of the profile are reported at once.
    let found = refused(&GOOD.replace("X-Api-Key", "Host").replace("other.example.com", "10.0.0.1"));
    let fields: Vec<&str> = found.iter().map(|one| one.split(": ").next().unwrap_or_default()).collect();
    assert_eq!(fields, ["8 network.profiles.ci.rules[2].host", "19 credentials.model.header"], "{found:#?}");
    let no_names = &GOOD[..GOOD.find("credentials:\n").unwrap()];
    let found = refused(&format!("{no_names}credentials: none\n"));
    assert_eq!(found, ["9 credentials: is text, and must be a mapping: `key: value`"]);
}

#[test]
fn there_are_at_most_100_credentials_and_20_authorities() {
    let credentials = |count: usize| {
        let one = |n: usize| format!("  c{n}: {{file: /etc/c{n}, hosts: ['https://a.example.com']}}\n");
        format!("credentials:\n{}", (0..count).map(one).collect::<String>())
    };
    assert_eq!(parsed(&credentials(100)).unwrap().credentials.len(), 100);
    assert_eq!(refused(&credentials(101)), ["1 credentials: has 101 credentials, but the limit is 100"]);
    let authorities = |count: usize| {
        let all = (0..count).map(|n| format!("/ca{n}")).collect::<Vec<_>>().join(", ");
        format!("network: {{authorities: [{all}]}}")
    };
    assert_eq!(parsed(&authorities(20)).unwrap().network.authorities.len(), 20);
    assert_eq!(refused(&authorities(21)), ["1 network.authorities: has 21 entries, but the limit is 20"]);
}

#[test]
fn a_tool_reveals_credentials_that_exist_and_have_a_variable() {
    let with = |reveals: &str| {
        format!(
            "credentials:\n  a: {{file: /etc/a, variable: KEY}}\n  b: {{file: /etc/b, hosts: [https://b.example.com]}}\n  c: {{file: /etc/c, variable: KEY}}\n  d: {{file: c}}\ntools:\n  t:\n    command: [sign]\n    reveals: {reveals}\n"
        )
    };
    let of_tool = |reveals: &str| {
        let all = refused(&with(reveals)).into_iter();
        all.filter(|problem| problem.contains(" tools.")).collect::<Vec<_>>()
    };
    // One that cannot be read is told once, where it stands.
    assert!(of_tool("[a, d]").is_empty());
    for (reveals, says) in [
        ("[x]", "9 tools.t.reveals[0]: `x` is not in `credentials`, where there are a, b, c"),
        (
            "[a, b]",
            "9 tools.t.reveals[1]: `b` has no variable in which the program gets its value: add `credentials.b.variable`",
        ),
        ("[a, c]", "9 tools.t.reveals[1]: `c` has the variable of another credential that this tool reveals"),
    ] {
        assert_eq!(of_tool(reveals), [says]);
    }
    let settings = parsed(&with("[a]").replace("  d: {file: c}\n", "")).unwrap();
    assert_eq!(settings.tools[0].value.reveals, ["a"]);
}
