//! The questions whether a command may reach a host: people are asked while the connection waits.

use std::sync::Arc;

use belay_proto::{runner_v1::answer_tool_call_request::Reply, v1::Form};
use belay_proxy::{AskedHosts, HostAnswer, HostQuestion};
use futures::{StreamExt as _, stream::FuturesUnordered};
use serde_json::Value;

use super::ask::Asker;

/// The schema of the answer: a consent or a refusal, for this call or for all calls of the execution that ask the same.
const ANSWER: &str = r#"{"type":"object","required":["approve"],"additionalProperties":false,"properties":{"approve":{"type":"boolean","title":"Approve?"},"for":{"title":"For this call, or for the whole execution?","enum":["call","execution"],"default":"call"}}}"#;

/// Passes questions on, and their answers back, until the network of the command is closed.
pub(super) async fn serve(asker: Asker, profile: Arc<str>, mut asked: AskedHosts) {
    let mut open = FuturesUnordered::new();
    // Held from the first question on: calls that wait for people are bounded.
    let mut permit = None;
    loop {
        let (number, answer) = tokio::select! {
            question = asked.next() => {
                let Some(question) = question else { return };
                if permit.is_none() {
                    permit = Arc::clone(&asker.calls).try_acquire_owned().ok();
                }
                let number = question.number;
                let asking = match &permit {
                    Some(_) => asker.questions.ask_for_execution(form(&profile, &question)).map_err(|why| why.to_string()),
                    None => Err(format!(
                        "{} calls wait for answers already (`commands.asking_calls`)",
                        asker.most_calls
                    )),
                };
                match asking {
                    Ok(reply) => {
                        open.push(async move { (number, answer(reply.await.ok())) });
                        continue;
                    }
                    Err(reason) => (number, HostAnswer::Denied { reason }),
                }
            }
            Some(answered) = open.next() => answered,
        };
        // If the proxy has ended, nobody waits for it.
        if asked.answer(number, answer).is_err() {
            return;
        }
    }
}

fn form(profile: &str, HostQuestion { host, port, rule, .. }: &HostQuestion) -> Form {
    Form {
        title: format!("May the command reach {host}:{port}?"),
        description: format!(
            "Its network profile `{profile}` has the rule `{rule}`. If you approve, this call reaches {host}:{port} as often as it likes, and no other call does. \
             With `for: execution` your answer is also that to every later call of this execution that asks the same."
        ),
        schema: ANSWER.to_owned(),
    }
}

/// The answer that a reply to the question is.
fn answer(reply: Option<Reply>) -> HostAnswer {
    let denied = |reason: &str| HostAnswer::Denied { reason: reason.to_owned() };
    match reply {
        Some(Reply::Answer(answer)) => match answer.as_json().and_then(|json| belay_json::read(json).ok()) {
            Some(Value::Object(answer)) if answer.get("approve") == Some(&Value::Bool(true)) => HostAnswer::Allowed,
            _ => denied("a person has refused it"),
        },
        Some(Reply::Declined(declined)) if !declined.reason.is_empty() => {
            denied(&format!("it was refused: {}", declined.reason))
        }
        Some(Reply::Declined(_)) => denied("a person has refused it"),
        Some(Reply::TimedOut(_)) => denied("nobody has answered in time"),
        None => denied("the call has ended"),
    }
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::Payload;

    use super::*;

    #[test]
    fn only_a_consent_allows_a_host() {
        let reply = |text: &str| Some(Reply::Answer(Payload::of_json(text)));
        assert_eq!(answer(reply(r#"{"approve": true}"#)), HostAnswer::Allowed);
        for other in [
            reply(r#"{"approve": false}"#),
            reply(r#"{"approve": "true"}"#),
            reply("true"),
            reply("not json"),
            Some(Reply::Declined(Default::default())),
            Some(Reply::TimedOut(Default::default())),
            None,
        ] {
            assert!(matches!(answer(other.clone()), HostAnswer::Denied { .. }), "{other:?}");
        }
    }

    #[test]
    fn a_person_is_told_what_an_answer_opens() {
        let question = HostQuestion {
            number: 1,
            host: "api.example.com".to_owned(),
            port: 443,
            rule: "https://*.example.com:443 (a person is asked)".to_owned(),
        };
        let form = form("ci", &question);
        assert_eq!(form.title, "May the command reach api.example.com:443?");
        assert!(
            form.description.contains("`ci`") && form.description.contains("`https://*.example.com:443"),
            "{}",
            form.description
        );
    }
}
