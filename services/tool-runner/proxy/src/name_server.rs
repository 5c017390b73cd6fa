//! The stub name server of a call: answers allowed names with addresses that stand for them, and asks no one.

use std::{io, net::Ipv4Addr, sync::Arc};

use belay_network::{AccessRequest, Host, Traffic};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket},
    time::timeout,
};

use crate::{
    call_network::CallNetwork,
    dns::{self, Question, QuestionOutcome, code, kind},
};

/// The validity of an address, in seconds. It holds for all of the call.
const SECONDS: u32 = 30;
/// The longest question: a name has at most 255 bytes.
const MAX_QUESTION: usize = 1232;
/// The most questions over one connection.
const MAX_QUESTIONS: usize = 1_000;

/// The decision about a question.
struct Verdict {
    code: u8,
    address: Option<Ipv4Addr>,
    is_allowed: bool,
    rule: String,
}

/// The answer to a message. `None`: it gets none.
pub(crate) fn answer(network: &CallNetwork, message: &[u8]) -> Option<Vec<u8>> {
    if message.len() > MAX_QUESTION {
        network.log.question("", false, "the question is too long");
        return None;
    }
    match dns::read_question(message) {
        QuestionOutcome::Question(question) => {
            let Verdict { code, address, is_allowed, rule } = judge(network, &question);
            network.log.question(&question.name, is_allowed, &rule);
            Some(dns::answer(&question, code, address, SECONDS))
        }
        QuestionOutcome::Error(answer) => {
            network.log.question("", false, "the question is malformed");
            Some(answer)
        }
        QuestionOutcome::Ignored => None,
    }
}

fn judge(network: &CallNetwork, question: &Question) -> Verdict {
    let refused = |code, rule| Verdict { code, address: None, is_allowed: false, rule };
    let host = match Host::parse(&question.name) {
        Ok(host) => host,
        Err(problem) => return refused(code::NO_NAME, format!("the name {problem}")),
    };
    let Some(rule) = network.profile.rules.iter().find(|rule| rule.host.matches(&host)) else {
        // The port is not known: the one that is most likely is named.
        let asked = AccessRequest { host: &host, port: 443, traffic: Traffic::Nothing };
        let message = match network.profile.decide(asked) {
            belay_network::AccessDecision::Refused(refusal) => refusal.to_string(),
            belay_network::AccessDecision::Allowed(rule) => rule.to_string(),
        };
        return refused(code::NO_NAME, message);
    };
    let allowed = |address| Verdict { code: code::NO_ERROR, address, is_allowed: true, rule: rule.to_string() };
    match question.kind {
        kind::A => match network.address_of(&host) {
            Some(address) => allowed(Some(address)),
            None => refused(
                code::SERVER_FAILURE,
                format!("the command has asked for {} names, which is the limit", network.budget.names),
            ),
        },
        // There is none, and clients that ask for an address ask for these as well.
        kind::AAAA | kind::SVCB | kind::HTTPS => allowed(None),
        other => refused(
            code::NO_ERROR,
            format!("the name server answers with addresses only, not with records of the type {other}"),
        ),
    }
}

/// Answers questions over UDP.
pub(crate) async fn serve_datagrams(network: Arc<CallNetwork>, socket: UdpSocket) {
    let mut buffer = vec![0; MAX_QUESTION + 1];
    loop {
        // Errors are those of answers that were sent before.
        let Ok((length, client)) = socket.recv_from(&mut buffer).await else {
            tokio::task::yield_now().await;
            continue;
        };
        if let Some(answer) = answer(&network, buffer.get(..length).unwrap_or_default()) {
            let _ = socket.send_to(&answer, client).await;
        }
        tokio::task::coop::consume_budget().await;
    }
}

/// Answers questions over one connection.
pub(crate) async fn serve_connection(network: Arc<CallNetwork>, mut stream: TcpStream) {
    for _ in 0..MAX_QUESTIONS {
        match timeout(network.budget.head_time, exchange(&network, &mut stream)).await {
            Ok(Ok(true)) => {}
            _ => return,
        }
    }
}

/// Answers one question. `false`: it gets no answer.
async fn exchange(network: &CallNetwork, stream: &mut TcpStream) -> io::Result<bool> {
    let length = usize::from(stream.read_u16().await?);
    if length > MAX_QUESTION {
        network.log.question("", false, "the question is too long");
        return Ok(false);
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    let Some(answer) = answer(network, &message) else { return Ok(false) };
    let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), &answer[..]].concat()).await?;
    Ok(true)
}
