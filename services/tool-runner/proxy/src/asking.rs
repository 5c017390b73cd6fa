//! Hosts about which a person is asked while the command waits.

use std::{
    collections::HashMap,
    sync::{Mutex, OnceLock, PoisonError},
};

use belay_network::{Host, Rule};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{mpsc::UnboundedSender, watch},
    time::{Duration, timeout},
};

use crate::denial::Denial;

/// The longest time for which a connection waits for an answer: what most programs wait for a connection.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// The most hosts with their ports about which one call asks.
const MAX_ASKED: usize = 100;

/// A question whether a command may reach a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostQuestion {
    /// Its number in the call, from 1.
    pub number: u64,
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The rule because of which a person is asked.
    pub rule: String,
}

/// The answer to a [`HostQuestion`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostAnswer {
    /// The command may reach the host, as often as it likes.
    Allowed,
    /// It may not, for this reason.
    Denied {
        /// The reason, for the program.
        reason: String,
    },
}

/// The questions of one call.
#[derive(Debug, Default)]
pub(crate) struct HostQuestions {
    /// Receives the questions; without it nobody can be asked.
    asked: OnceLock<UnboundedSender<HostQuestion>>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    by_host: HashMap<(Host, u16), watch::Receiver<Option<HostAnswer>>>,
    by_number: HashMap<u64, watch::Sender<Option<HostAnswer>>>,
}

impl HostQuestions {
    /// Sends the questions there from now on.
    pub(crate) fn ask_over(&self, asked: UnboundedSender<HostQuestion>) {
        // Set once, when the call is opened.
        let _ = self.asked.set(asked);
    }

    /// Passes an answer on. A second one to the same question changes nothing.
    pub(crate) fn answer(&self, number: u64, answer: HostAnswer) {
        let waits = self.known.lock().unwrap_or_else(PoisonError::into_inner).by_number.remove(&number);
        if let Some(waits) = waits {
            waits.send_replace(Some(answer));
        }
    }

    /// Waits for the permission to reach a host.
    pub(crate) async fn permit(&self, host: &Host, port: u16, rule: &Rule) -> Result<(), Denial> {
        let denied =
            |why: &str| Denial { status: 403, message: format!("{host}:{port} is asked about ({rule}), and {why}") };
        let mut answer = self.ask(host, port, rule).map_err(|why| denied(&why))?;
        let answered = timeout(ANSWER_TIMEOUT, answer.wait_for(Option::is_some)).await;
        match answered {
            Ok(Ok(answer)) => match answer.as_ref() {
                Some(HostAnswer::Allowed) => Ok(()),
                Some(HostAnswer::Denied { reason }) => Err(denied(reason)),
                None => Err(denied("there is no answer")),
            },
            Ok(Err(_)) => Err(denied("the call has ended")),
            Err(_) => Err(denied(&format!(
                "nobody has answered in {} s: the question stays open (`belay approvals list`), and another try waits for its answer again",
                ANSWER_TIMEOUT.as_secs()
            ))),
        }
    }

    /// Asks, or finds the question that was asked before.
    fn ask(&self, host: &Host, port: u16, rule: &Rule) -> Result<watch::Receiver<Option<HostAnswer>>, String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = known.by_host.get(&(host.clone(), port)) {
            return Ok(answer.clone());
        }
        let asked = self.asked.get().ok_or("nobody can be asked here")?;
        if known.by_host.len() >= MAX_ASKED {
            return Err(format!("the command has asked about {MAX_ASKED} hosts, which is the limit"));
        }
        let number = known.by_host.len() as u64 + 1;
        let (sender, answer) = watch::channel(None);
        known.by_host.insert((host.clone(), port), answer.clone());
        known.by_number.insert(number, sender);
        let question = HostQuestion { number, host: host.to_string(), port, rule: rule.to_string() };
        asked.send(question).map_err(|_| "the call has ended".to_owned())?;
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use belay_network::{DraftProfile, DraftRule, Profiles};
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    fn rule() -> Rule {
        let rule = DraftRule { host: "*.example.com".to_owned(), ask: true, ..DraftRule::default() };
        let draft = DraftProfile { name: "p".to_owned(), rules: vec![rule], ..DraftProfile::default() };
        Profiles::new(&[draft]).unwrap().find("p").unwrap().rules[0].clone()
    }

    fn host(name: &str) -> Host {
        Host::parse(name).unwrap()
    }

    fn questions() -> (Arc<HostQuestions>, tokio::sync::mpsc::UnboundedReceiver<HostQuestion>) {
        let (asked, questions) = unbounded_channel();
        let all = Arc::new(HostQuestions::default());
        all.ask_over(asked);
        (all, questions)
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_is_asked_about_once_and_its_answer_holds_for_the_call() {
        let (all, mut asked) = questions();
        let permit = |name: &'static str| {
            let all = Arc::clone(&all);
            tokio::spawn(async move { all.permit(&host(name), 443, &rule()).await })
        };
        let (first, second) = (permit("a.example.com"), permit("a.example.com"));
        let question = asked.recv().await.unwrap();
        assert_eq!((question.number, question.host.as_str(), question.port), (1, "a.example.com", 443));
        all.answer(1, HostAnswer::Allowed);
        all.answer(1, HostAnswer::Denied { reason: "too late".to_owned() });
        assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(()), Ok(())));
        assert_eq!(permit("a.example.com").await.unwrap(), Ok(()));

        let other = permit("b.example.com");
        assert_eq!(asked.recv().await.unwrap().number, 2);
        all.answer(2, HostAnswer::Denied { reason: "a person has refused it".to_owned() });
        let denial = other.await.unwrap().unwrap_err();
        assert!(denial.status == 403 && denial.message.ends_with("and a person has refused it"), "{denial:?}");
        assert!(asked.try_recv().is_err(), "nobody is asked twice");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_waits_twenty_seconds_and_the_question_stays_open() {
        let (all, mut asked) = questions();
        let begun = tokio::time::Instant::now();
        let denial = all.permit(&host("a.example.com"), 443, &rule()).await.unwrap_err();
        assert_eq!(begun.elapsed(), ANSWER_TIMEOUT);
        assert!(denial.message.contains("nobody has answered in 20 s"), "{denial:?}");
        all.answer(asked.recv().await.unwrap().number, HostAnswer::Allowed);
        assert_eq!(all.permit(&host("a.example.com"), 443, &rule()).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn without_anybody_to_ask_and_beyond_the_limit_a_host_is_refused_at_once() {
        let alone = HostQuestions::default();
        let denial = alone.permit(&host("a.example.com"), 443, &rule()).await.unwrap_err();
        assert!(denial.message.ends_with("and nobody can be asked here"), "{denial:?}");
        let (all, _asked) = questions();
        for number in 0..MAX_ASKED {
            assert!(all.ask(&host(&format!("h{number}.example.com")), 443, &rule()).is_ok());
        }
        assert!(all.ask(&host("h0.example.com"), 443, &rule()).is_ok(), "it is known");
        assert!(all.ask(&host("more.example.com"), 443, &rule()).unwrap_err().contains("100 hosts"));
    }
}
