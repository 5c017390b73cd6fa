//! Any token of a vendor's format is hidden wherever it stands, and nothing around it.

use belay_redaction::{REDACTED, Redactor};
use proptest::{
    prelude::*,
    string::string_regex,
    test_runner::{Config, TestRunner},
};

/// The formats as their vendors document them, written apart from the rules.
const FORMATS: &[(&str, &str)] = &[
    ("1Password secret key", "A3-[A-Z0-9]{6}-[A-Z0-9]{6}(-[A-Z0-9]{5}){4}"),
    ("ClickHouse Cloud", "4b1d[A-Za-z0-9]{38}"),
    ("Contentful", "CFPAT-[A-Za-z0-9_-]{43}"),
    // A number of 18 digits in base64, a time, a signature.
    (
        "Discord bot",
        "(M[Tjz]|N[DTjz]|O[DT])[AEIMQUYcgk][w-z0-5]([MNO][TDjz][AEIMQUYcgk][w-z0-5]){5}\\.[A-Za-z0-9_-]{6}\\.[A-Za-z0-9_-]{38}",
    ),
    ("Duffel", "duffel_(test|live)_[A-Za-z0-9_-]{43}"),
    ("EasyPost", "EZ[AT]K[a-z0-9]{54}"),
    ("Flutterwave", "(FLWSECK-[a-z0-9]{32}-X|FLWSECK_TEST-[a-z0-9]{32}-X)"),
    ("frame.io", "fio-u-[A-Za-z0-9_-]{64}"),
    // With letters of both cases, as by chance nearly every one: words of a plan have one.
    ("GoCardless", "(live|sandbox)_[a-z][A-Z][A-Za-z0-9_-]{38}"),
    ("Harness", "[ps]at\\.[A-Za-z0-9_-]{22}\\.[0-9a-f]{24}\\.[A-Za-z0-9]{20}"),
    ("Hugging Face organization", "api_org_[A-Za-z]{34}"),
    ("Infracost", "ico-[A-Za-z0-9]{32}"),
    ("Okta", "SSWS 00[A-Za-z0-9_-]{40}"),
    ("OpenShift", "sha256~[A-Za-z0-9_-]{43}"),
    ("ReadMe", "rdme_[a-z0-9]{70}"),
    ("Scalingo", "tk-us-[A-Za-z0-9_-]{48}"),
    ("Sourcegraph", "sgp_((local|[0-9a-f]{16})_)?[0-9a-f]{40}"),
    ("Vercel", "vc[piark]_[A-Za-z0-9]{56}"),
    ("Neon", "napi_[a-z0-9]{64}"),
    ("Trello", "ATTA[a-f0-9]{72}"),
    ("Resend", "re_[A-Za-z0-9]{8}_[A-Za-z0-9]{24}"),
    ("MailerSend", "mlsn\\.[a-f0-9]{64}"),
    ("Together", "tgp_v1_[A-Za-z0-9_-]{43}"),
    ("Pinecone", "pcsk_[A-Za-z0-9]{5}_[A-Za-z0-9]{63}"),
    ("HubSpot", "pat-(na|eu)1-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
    ("PostHog", "phx_[A-Za-z0-9]{43}"),
    ("GitHub", "gh[pousr]_[A-Za-z0-9]{36}"),
    ("GitLab", "glpat-[A-Za-z0-9_-]{20}"),
    ("Stripe", "sk_(live|test)_[A-Za-z0-9]{24}"),
    ("Anthropic", "sk-ant-api03-[A-Za-z0-9_-]{95}"),
    ("AWS access key id", "AKIA[A-Z2-7]{16}"),
];

/// Texts around a token that are no secret's name.
const AROUND: &[(&str, &str)] = &[
    ("", ""),
    ("it is ", " and no other"),
    ("(", ")"),
    ("\"", "\","),
    ("- '", "'"),
    ("x=", "\nnext line"),
    ("first line\n", "\r\n"),
    ("<b>", "</b>"),
    ("é ", " ü"),
    ("a,", ",b"),
];

fn runner() -> TestRunner {
    TestRunner::new(Config { failure_persistence: None, ..Config::default() })
}

#[test]
fn any_token_of_a_format_is_hidden_and_nothing_around_it() {
    let redactor = Redactor::new();
    for (vendor, format) in FORMATS {
        let token = string_regex(format).unwrap();
        runner()
            .run(&(token, prop::sample::select(AROUND)), |(token, (before, after))| {
                let shown = redactor.redact_text(&format!("{before}{token}{after}")).text;
                // The scheme of an authorization header is no part of its token.
                let scheme = if token.starts_with("SSWS ") { "SSWS " } else { "" };
                prop_assert_eq!(shown, format!("{}{}{}{}", before, scheme, REDACTED, after), "{}: {}", vendor, token);
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{vendor}: {error}"));
    }
}

/// Digests, ids and data that look random and are no tokens.
#[test]
fn digests_ids_and_names_stay() {
    const FRIENDS: &[&str] = &[
        "[0-9a-f]{40}",
        "[0-9a-f]{64}",
        "sha256:[0-9a-f]{64}",
        "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
        "sgp_[a-z]{3,12}",
        "(live|sandbox|duffel_test|api_org|rdme|tk-us|fio-u|nfp|tfp|figd|essu)_[a-z]{3,9}(_[a-z]{3,9}){0,7}",
        "[a-z]{3,9}(_[a-z]{3,9}){3,12}",
        "[A-Z]{3,9}(_[A-Z]{3,9}){3,9}",
        "[a-z]{3,8}([A-Z][a-z]{3,8}){3,8}",
        "data:image/png;base64,iVBORw0KGgo[A-Za-z0-9+/]{100,200}==",
    ];
    let redactor = Redactor::new();
    for format in FRIENDS {
        runner()
            .run(&string_regex(format).unwrap(), |text| {
                let line = format!("see {text} there");
                prop_assert_eq!(&redactor.redact_text(&line).text, &line);
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{format}: {error}"));
    }
}
