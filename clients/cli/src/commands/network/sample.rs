//! Settings for the tests of the commands beside it.

use belay_all_in_one::{
    LoadedSettings, OperatorCredential, ValueWithOrigin,
    network::{Credential, CredentialSource, DraftCredential, DraftProfile, DraftRule, Profiles},
};

/// Settings with a profile `ci`, of which two hosts have a credential.
pub(super) fn settings() -> LoadedSettings {
    let rule = |host: &str| DraftRule { host: host.to_owned(), place: "c.yaml:4".to_owned(), ..DraftRule::default() };
    let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
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
    let print = CredentialSource::Command(words(&["/usr/bin/print", "--key", "of-the-model"]));
    let credentials: Vec<OperatorCredential> =
        [(github, CredentialSource::File("/etc/belay/github.token".into())), (model, print)]
            .into_iter()
            .map(|(draft, source)| OperatorCredential { credential: Credential::new(&draft).unwrap(), source })
            .collect();
    let ci = DraftProfile {
        name: "ci".to_owned(),
        include: words(&["registries"]),
        rules: vec![
            DraftRule { methods: words(&["GET"]), ..rule("tls.example.com") },
            DraftRule {
                ports: words(&["80"]),
                methods: words(&["GET"]),
                paths: words(&["/debian/"]),
                ..rule("mirror.example.com")
            },
            DraftRule {
                ports: words(&["5432"]),
                protocol: "tcp".to_owned(),
                private_addresses: true,
                ..rule("db.example.com")
            },
            DraftRule { credential: Some("github".to_owned()), ..rule("api.github.com") },
            DraftRule {
                credential: Some("model".to_owned()),
                base_url: Some("MODEL_URL".to_owned()),
                base_path: Some("/v1".to_owned()),
                ..rule("api.model.example")
            },
        ],
        host_services: words(&["127.0.0.1:5432"]),
        place: "c.yaml:3".to_owned(),
        ..DraftProfile::default()
    };
    let mut loaded = LoadedSettings { file: Some("c.yaml".into()), ..LoadedSettings::default() };
    let checked: Vec<Credential> = credentials.iter().map(|known| known.credential.clone()).collect();
    loaded.settings.network.profiles = Profiles::with_credentials(&[ci], &checked).unwrap();
    loaded.settings.credentials = credentials.into_iter().map(|known| ValueWithOrigin::on_line(known, 9)).collect();
    loaded
}
