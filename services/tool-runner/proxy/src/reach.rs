//! Resolves a host, checks every address, and connects to one that was checked.

use std::net::{IpAddr, SocketAddr};

use belay_network::{Host, HostOrAddress, Rule, UpstreamProxy, closed_range};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, timeout, timeout_at},
};

use crate::{call_network::CallNetwork, denial::Denial};

/// The reason why an address may not be connected to. `None`: it may.
pub(crate) fn closed(address: IpAddr, own: &[IpAddr]) -> Option<&'static str> {
    let own = own.contains(&address).then_some("an address of this machine");
    closed_range(address).or(own)
}

/// Connects to a host under a rule. The name is resolved once, and only addresses of that answer are connected to.
pub(crate) async fn reach(network: &CallNetwork, host: &Host, port: u16, rule: &Rule) -> Result<TcpStream, Denial> {
    if rule.ask {
        network.questions.permit(host, port, rule).await?;
    }
    let failed = |status, message| Denial { status, message };
    let end = Instant::now() + network.budget.connect_time;
    if let Some(proxy) = network.outside.proxy.as_deref().filter(|proxy| proxy.is_for(host)) {
        let through = through(network, proxy, host, port);
        return match timeout_at(end, through).await {
            Ok(reached) => {
                reached.map_err(|why| failed(502, format!("{host}:{port} cannot be reached by {proxy}: {why}")))
            }
            Err(_) => Err(failed(504, format!("{host}:{port} was not reached by {proxy} in time"))),
        };
    }
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

/// The longest answer of the operator's proxy.
const MAX_ANSWER: usize = 16 << 10;

/// Connects to a host by the operator's proxy, which resolves it: what its addresses are is not known here.
async fn through(network: &CallNetwork, proxy: &UpstreamProxy, host: &Host, port: u16) -> Result<TcpStream, String> {
    let addresses = match &proxy.host {
        HostOrAddress::Address(address) => vec![*address],
        HostOrAddress::Name(name) => {
            let resolved = network.outside.upstream.resolve(name).await;
            resolved.map_err(|error| format!("it cannot be resolved: {error}"))?
        }
    };
    let mut last = "it has no address".to_owned();
    for address in addresses {
        match network.outside.upstream.dial(SocketAddr::new(address, proxy.port)).await {
            Ok(stream) => return tunnel(stream, host, port).await,
            Err(error) => last = error.to_string(),
        }
    }
    Err(last)
}

/// Asks the operator's proxy for a tunnel.
async fn tunnel(mut stream: TcpStream, host: &Host, port: u16) -> Result<TcpStream, String> {
    let shown = |error: std::io::Error| error.to_string();
    let request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(shown)?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() >= MAX_ANSWER {
            return Err("its answer is too long".to_owned());
        }
        // Byte for byte: what follows the answer is the host's.
        answer.push(stream.read_u8().await.map_err(shown)?);
    }
    let line = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line: String = String::from_utf8_lossy(line).chars().take(200).flat_map(char::escape_debug).collect();
    match line.split(' ').nth(1) {
        Some(status) if line.starts_with("HTTP/1.") && status.starts_with('2') && status.len() == 3 => Ok(stream),
        _ => Err(format!("it answers `{line}`")),
    }
}

/// Whether both ends of a connection have the address: one that this machine got after the proxy had started.
fn is_this_machine(stream: &TcpStream, dialled: IpAddr) -> bool {
    stream.peer_addr().is_ok_and(|peer| peer.ip() == dialled)
        && stream.local_addr().is_ok_and(|local| local.ip() == dialled)
}
