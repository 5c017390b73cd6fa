//! Destinations that a profile opens to tools without a command, whose requests the proxy makes.

use crate::{profile::Profile, rule::Rule};

impl Profile {
    /// The same profile for a tool that runs no command. Each of its requests is read, so that methods and paths hold inside of TLS, too. A host that commands reach
    /// by a URL of its own is reached by its name: a tool has no variables, and what the URL prevents, a connection to the host that is not read, there is not.
    /// Services of this machine have no names, and are not reached.
    #[must_use]
    pub fn for_tools(&self) -> Self {
        let read = |rule: &Rule| Rule { base_url: None, is_read: true, ..rule.clone() };
        Self { rules: self.rules.iter().map(read).collect(), host_services: Vec::new(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        AccessDecision, AccessRequest, Credential, DraftCredential, DraftProfile, DraftRule, Host, Profiles, Traffic,
    };

    #[test]
    fn a_tool_reaches_what_is_read_and_no_services() {
        let rule = |host: &str| DraftRule { host: host.to_owned(), ..DraftRule::default() };
        let token = Credential::new(&DraftCredential {
            name: "token".to_owned(),
            hosts: vec!["https://model.example.com".to_owned()],
            ..DraftCredential::default()
        });
        let draft = DraftProfile {
            name: "ci".to_owned(),
            rules: vec![
                DraftRule { methods: vec!["GET".to_owned()], ..rule("docs.example.com") },
                DraftRule {
                    credential: Some("token".to_owned()),
                    base_url: Some("MODEL_URL".to_owned()),
                    ..rule("model.example.com")
                },
            ],
            host_services: vec!["127.0.0.1:5432".to_owned()],
            ..DraftProfile::default()
        };
        let profiles = Profiles::with_credentials(&[draft], &[token.unwrap()]).unwrap();
        let (of_commands, of_tools) = (profiles.find("ci").unwrap(), profiles.find("ci").unwrap().for_tools());
        assert_eq!(
            of_tools.lines(),
            [
                "https://docs.example.com:443 GET",
                "https://model.example.com:443 (with the credential token in the header Authorization after `Bearer `)"
            ]
        );
        let allows = |profile: &crate::Profile, host: &str, method| {
            let host = Host::parse(host).unwrap();
            let traffic = Traffic::TlsRequest { method, path: "/" };
            matches!(profile.decide(AccessRequest { host: &host, port: 443, traffic }), AccessDecision::Allowed(_))
        };
        assert!(allows(&of_tools, "model.example.com", "POST") && !allows(of_commands, "model.example.com", "POST"));
        assert!(allows(&of_tools, "docs.example.com", "GET") && !allows(&of_tools, "docs.example.com", "POST"));
        assert_eq!(profiles.find("ci").unwrap().for_tools().for_tools(), of_tools);
    }
}
