//! Reads the section `webhooks`.

use std::{path::PathBuf, time::Duration};

use belay_model::BaseUrl;
use belay_yaml::{Node, Reader, Value, seconds};

use crate::{ValueWithOrigin, Webhook, WebhookEvent};

const WEBHOOK: &str = "url events secret_file timeout give_up_after";

/// The most webhooks.
const MAX_WEBHOOKS: usize = 20;
/// The longest name.
const MAX_NAME: usize = 64;
/// The default time that a receiver has to answer, and the longest, in seconds.
const TIMEOUT: u64 = 10;
const MAX_TIMEOUT: u64 = 60;
/// The default time after which a delivery is given up, and the longest, in seconds: three days, and thirty.
const GIVE_UP_AFTER: u64 = 3 * 86_400;
const MAX_GIVE_UP_AFTER: u64 = 30 * 86_400;

/// Reads all webhooks. An invalid one adds violations and is left out.
pub(crate) fn webhooks(reader: &mut Reader, node: &Node, field: &str) -> Vec<Webhook> {
    let mut webhooks = Vec::new();
    reader.map(node, field, |reader, name, field, node| {
        let is_name = name.len() <= MAX_NAME
            && name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        if !is_name {
            let rule = "is not a webhook's name: it has 1 to 64 letters, digits, `-`, `_` and `.`, beginning with a letter or a digit";
            reader.refuse(field, node.line, rule);
        }
        webhooks.extend(webhook(reader, node, field, name));
        Ok(())
    });
    if webhooks.len() > MAX_WEBHOOKS {
        reader.refuse(field, node.line, format!("has {} webhooks, but the limit is {MAX_WEBHOOKS}", webhooks.len()));
    }
    webhooks
}

fn webhook(reader: &mut Reader, node: &Node, field: &str, name: &str) -> Option<Webhook> {
    let before = reader.violations().len();
    let (mut url, mut events, mut secret_file) = (None, None, None);
    let default = |seconds| ValueWithOrigin::default_of(Duration::from_secs(seconds));
    let (mut timeout, mut give_up_after) = (default(TIMEOUT), default(GIVE_UP_AFTER));
    reader.map(node, field, |reader, key, field, node| {
        match key {
            "url" => url = self::url(reader, node, field).map(|url| ValueWithOrigin::on_line(url, node.line)),
            "events" => {
                let read =
                    |reader: &mut Reader, node: &Node, field: &str| reader.one_of(node, field, &WebhookEvent::WORDS);
                let mut read: Vec<WebhookEvent> = reader.non_empty_list(node, field, read);
                read.sort_unstable();
                read.dedup();
                events = Some(ValueWithOrigin::on_line(read, node.line));
            }
            "secret_file" => {
                let path = reader.text(node, field).map(PathBuf::from);
                match path.filter(|path| path.is_absolute()) {
                    Some(path) => secret_file = Some(ValueWithOrigin::on_line(path, node.line)),
                    None => reader.refuse(field, node.line, "must be an absolute path"),
                }
            }
            "timeout" => time(reader, node, field, &mut timeout, MAX_TIMEOUT, "such as 10s, and at most 1m"),
            "give_up_after" => {
                time(reader, node, field, &mut give_up_after, MAX_GIVE_UP_AFTER, "such as 12h or 3d, and at most 30d");
            }
            _ => return Err(WEBHOOK),
        }
        Ok(())
    });
    let required = [
        ("url", "to which messages are posted, such as https://hooks.example.com/belay"),
        ("events", "such as [execution.failed, execution.waiting]"),
        ("secret_file", "the file with the secret that messages are signed with"),
    ];
    for (key, what) in required {
        if !reader.has_read(&format!("{field}.{key}")) {
            reader.refuse(field, node.line, format!("has no `{key}`: add it, {what}"));
        }
    }
    if reader.violations().len() > before {
        return None;
    }
    let name = name.to_owned();
    Some(Webhook { name, url: url?, events: events?, secret_file: secret_file?, timeout, give_up_after })
}

/// Refuses receivers on other machines, for settings that say that nothing beyond this one is reached.
pub(crate) fn refuse_beyond_this_machine(reader: &mut Reader, webhooks: &[Webhook]) {
    for webhook in webhooks {
        if server(&webhook.url.value).is_ok_and(|server| server.is_local()) {
            continue;
        }
        let field = format!("webhooks.{}.url", webhook.name);
        let message = "is not at `localhost` or a loopback address, and `air_gapped` is true: remove the webhook, or have its receiver on this machine";
        reader.refuse(&field, reader.line_of(&field), message);
    }
}

fn time(
    reader: &mut Reader,
    node: &Node,
    field: &str,
    to: &mut ValueWithOrigin<Duration>,
    longest: u64,
    example: &str,
) {
    let text = if let Value::Text(text) = &node.value { Some(text) } else { None };
    match text.and_then(|text| seconds(text)).filter(|seconds| (1..=longest).contains(seconds)) {
        Some(seconds) => *to = ValueWithOrigin::on_line(Duration::from_secs(seconds), node.line),
        None => reader.refuse(field, node.line, format!("must be a whole number with a unit, {example}")),
    }
}

/// A URL whose parts are there. A message never repeats it: its path may be a secret.
fn url(reader: &mut Reader, node: &Node, field: &str) -> Option<String> {
    let url = reader.text(node, field)?;
    let problem = match url.split_once("://") {
        Some(("http" | "https", rest)) => {
            let authority = rest.split(['/', '?']).next().unwrap_or_default();
            match authority {
                "" => Some("must name a host, such as https://hooks.example.com/belay"),
                _ if authority.contains('@') => {
                    Some("must not contain credentials: messages are signed with the secret of `secret_file`")
                }
                _ if url.contains(['#', ' ']) || !url.is_ascii() => {
                    Some("must be a URL of ASCII characters without spaces and `#`")
                }
                _ => server(&url).err(),
            }
        }
        _ => Some("must begin with https:// or http://"),
    };
    if let Some(problem) = problem {
        reader.refuse(field, node.line, problem);
        return None;
    }
    Some(url)
}

/// The server of a URL: its scheme, host and port. What is behind them may be a secret, and is not looked at.
fn server(url: &str) -> Result<BaseUrl, &'static str> {
    let path = url.find("://").and_then(|scheme| Some(scheme + 3 + url[scheme + 3..].find(['/', '?'])?));
    BaseUrl::parse(&url[..path.unwrap_or(url.len())])
}

#[cfg(test)]
mod tests {
    use crate::{File, Origin, WebhookEvent};

    const GOOD: &str = "
webhooks:
  alerts:
    url: https://hooks.example.com/belay
    events: [execution.waiting, execution.failed, execution.failed]
    secret_file: /etc/belay/alerts.secret
    give_up_after: 12h
";

    fn refused(text: &str) -> String {
        let violations = File::parse(text, None).unwrap_err();
        violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_webhook_has_its_values_and_where_they_come_from() {
        let settings = File::parse(GOOD, None).unwrap();
        let [alerts] = &settings.webhooks[..] else { panic!("{settings:?}") };
        assert_eq!((alerts.name.as_str(), alerts.url.value.as_str()), ("alerts", "https://hooks.example.com/belay"));
        assert_eq!(alerts.events.value, [WebhookEvent::Failed, WebhookEvent::Waiting]);
        assert_eq!((alerts.timeout.value.as_secs(), &alerts.timeout.origin), (10, &Origin::Default));
        assert_eq!((alerts.give_up_after.value.as_secs(), &alerts.give_up_after.origin), (43_200, &Origin::Line(7)));
    }

    #[test]
    fn a_host_may_have_a_port_or_be_an_address() {
        let local = ["http://[::1]/x", "http://LOCALHOST:80/a|b?c=[1"];
        for url in local.into_iter().chain(["http://[fe80::2]:65535", "https://10.0.0.1:8443/b?c=[1", "http://hook_1"])
        {
            let text = GOOD.replacen("https://hooks.example.com/belay", &format!("'{url}'"), 1);
            let closed = File::parse(&format!("{text}air_gapped: true\n"), None);
            assert_eq!(closed.is_ok(), local.contains(&url), "{url}");
            assert_eq!(File::parse(&text, None).unwrap().webhooks[0].url.value, url);
        }
    }

    #[test]
    fn what_is_wrong_is_refused_by_its_field() {
        let cases = [
            ("https://hooks.example.com/belay", "ftp://x/y", "webhooks.alerts.url: must begin with https://"),
            ("https://hooks.example.com/belay", "https:///y", "webhooks.alerts.url: must name a host"),
            ("hooks.example.com", "me:pass@hooks.example.com", "webhooks.alerts.url: must not contain credentials"),
            ("hooks.example.com", "hooks.exämple.com", "webhooks.alerts.url: must be a URL of ASCII"),
            ("hooks.example.com", "hooks.example.com:99999", "webhooks.alerts.url: must have a port from 1 to 65535"),
            ("hooks.example.com", "hooks.example.com:", "webhooks.alerts.url: must have a port"),
            ("hooks.example.com", "hooks.example.com:+80", "webhooks.alerts.url: must have a port"),
            ("hooks.example.com", "hooks.example.com:0", "webhooks.alerts.url: must have a port"),
            ("https://hooks.example.com/belay", "'http://[::1/x'", "webhooks.alerts.url: must close the `[`"),
            ("https://hooks.example.com/belay", "'http://[::1]8080/x'", "webhooks.alerts.url: must have a port"),
            ("https://hooks.example.com/belay", "'http://[::x]/x'", "webhooks.alerts.url: must name a host"),
            ("https://hooks.example.com/belay", "'http://::1/x'", "webhooks.alerts.url: must name a host"),
            ("hooks.example.com", "hooks<example", "webhooks.alerts.url: must name a host"),
            ("[execution.waiting, execution.failed, execution.failed]", "[]", "webhooks.alerts.events"),
            ("execution.waiting,", "execution.done,", "webhooks.alerts.events[0]"),
            ("/etc/belay/alerts.secret", "alerts.secret", "webhooks.alerts.secret_file: must be an absolute path"),
            ("12h", "12", "webhooks.alerts.give_up_after: must be a whole number with a unit"),
            ("give_up_after: 12h", "timeout: 2m", "webhooks.alerts.timeout: must be a whole number with a unit"),
            ("give_up_after: 12h", "retries: 3", "retries"),
            ("  alerts:", "  al/erts:", "is not a webhook's name"),
            ("    url: https://hooks.example.com/belay\n", "", "has no `url`"),
            (
                "\nwebhooks:",
                "\nair_gapped: true\nwebhooks:",
                "webhooks.alerts.url: is not at `localhost` or a loopback address, and `air_gapped` is true",
            ),
        ];
        for (right, wrong, says) in cases {
            let text = refused(&GOOD.replacen(right, wrong, 1));
            assert!(text.contains(says), "{wrong}: {text}");
            assert!(!text.contains("pass@"), "{text}");
        }
    }
}
