//! Resolves a host, checks every address, and connects to one that was checked.

use std::net::{IpAddr, SocketAddr};

use belay_network::{Host, Rule, closed_range};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout, timeout_at},
};

use crate::call_network::CallNetwork;

/// A refusal, or a failure: the status of the answer, and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Denial {
    pub(crate) status: u16,
    pub(crate) message: String,
}

/// The reason why an address may not be connected to. `None`: it may.
pub(crate) fn closed(address: IpAddr, own: &[IpAddr]) -> Option<&'static str> {
    let own = own.contains(&address).then_some("an address of this machine");
    closed_range(address).or(own)
}

/// Connects to a host under a rule. The name is resolved once, and only addresses of that answer are connected to.
pub(crate) async fn reach(network: &CallNetwork, host: &Host, port: u16, rule: &Rule) -> Result<TcpStream, Denial> {
    let failed = |status, message| Denial { status, message };
    let end = Instant::now() + network.budget.connect_time;
    let addresses = match timeout_at(end, network.outside.upstream.resolve(host)).await {
        Err(_) => return Err(failed(504, format!("{host} was not resolved in time"))),
        Ok(Err(error)) => return Err(failed(502, format!("{host} cannot be resolved: {error}"))),
        Ok(Ok(addresses)) => addresses,
    };
    let is_open =
        |address: &IpAddr| rule.private_addresses || closed(*address, &network.outside.own_addresses).is_none();
    let (open, others): (Vec<IpAddr>, Vec<IpAddr>) = addresses.into_iter().partition(is_open);
    if open.is_empty() {
        let Some(address) = others.first() else { return Err(failed(502, format!("{host} has no address"))) };
        let range = closed(*address, &network.outside.own_addresses).unwrap_or_default();
        let message = format!(
            "{host} leads to {address}, which is {range}; to allow it, the operator adds `private_addresses: true` to the rule `{rule}`"
        );
        return Err(failed(403, message));
    }
    let mut last = failed(504, format!("{host}:{port} did not answer in time"));
    for (at, address) in open.iter().enumerate() {
        let left = u32::try_from(open.len() - at).unwrap_or(u32::MAX);
        let share = end.saturating_duration_since(Instant::now()) / left;
        match timeout(share, network.outside.upstream.dial(SocketAddr::new(*address, port))).await {
            Ok(Ok(stream)) if !rule.private_addresses && is_this_machine(&stream, *address) => {
                last = failed(403, format!("{host} leads to {address}, which is an address of this machine"));
            }
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = failed(502, format!("{host}:{port} cannot be reached: {error}")),
            Err(_) => {}
        }
    }
    Err(last)
}

/// Whether both ends of a connection have the address: one that this machine got after the proxy had started.
fn is_this_machine(stream: &TcpStream, dialled: IpAddr) -> bool {
    stream.peer_addr().is_ok_and(|peer| peer.ip() == dialled)
        && stream.local_addr().is_ok_and(|local| local.ip() == dialled)
}
