//! A server of a model in the bench's own process, which answers Chat Completions by a script, so that its own time is small and known.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use belay_service_kit::{Clock as _, SystemClock};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::{
        Barrier,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval},
};

use crate::Result;

/// The name of the model, in the settings and at its server.
pub(crate) const MODEL: &str = "m";

/// Tokens are about so many bytes of a prompt.
const BYTES_OF_A_TOKEN: usize = 4;

/// An answer of the model.
pub(crate) enum Reply {
    /// A call, at once.
    Call {
        /// The tool.
        tool: &'static str,
        /// Its arguments.
        arguments: Value,
    },
    /// Words one by one, and then the call that completes the step.
    Words(Words),
}

/// Words that come one by one.
#[derive(Clone)]
pub(crate) struct Words {
    pub(crate) count: u32,
    /// The time between two of them.
    pub(crate) interval: Duration,
    /// What has to be there before the first one.
    pub(crate) begins: Arc<Barrier>,
}

impl Reply {
    /// A call that does nothing.
    pub(crate) fn noop(turn: u32) -> Self {
        // The same call with the same result again and again would end the step.
        Self::Call { tool: "noop", arguments: json!({ "output": turn }) }
    }

    /// The call that completes the step.
    pub(crate) fn complete() -> Self {
        Self::Call { tool: "complete_step", arguments: json!({"result": "done"}) }
    }
}

/// A request that was answered.
pub(crate) struct Exchange {
    /// The body of the request.
    pub(crate) body: String,
    /// When it had come to its end, in microseconds since the Unix epoch.
    pub(crate) came_at: i64,
    /// From then until the answer was sent, in microseconds: the server's own time.
    pub(crate) took_us: u64,
}

/// The server. It ends when this is dropped.
pub(crate) struct ModelServer {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

type Script = dyn Fn(&str) -> Reply + Send + Sync;

impl ModelServer {
    /// Starts a server that answers each request as the script says, which gets its body. What it has answered comes in the order of the answers' ends.
    pub(crate) async fn start(
        script: impl Fn(&str) -> Reply + Send + Sync + 'static,
    ) -> Result<(Self, UnboundedReceiver<Exchange>)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (answered, exchanges) = unbounded_channel();
        let script: Arc<Script> = Arc::new(script);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (script, answered) = (Arc::clone(&script), answered.clone());
                // A client that goes away is no failure: the execution says what it lacks.
                tokio::spawn(async move { drop(serve(stream, &*script, &answered).await) });
            }
        });
        Ok((Self { address, accepting }, exchanges))
    }

    /// Settings that have the model.
    pub(crate) fn settings(&self) -> String {
        let keys = format!("api: chat, base_url: 'http://{}/v1', model: {MODEL}, window: 1000000", self.address);
        format!("models:\n  {MODEL}: {{{keys}}}\n")
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The turn of a request: one more than that of the last result, whose id has it.
pub(crate) fn turn(body: &str) -> u32 {
    const ID: &str = "\"tool_call_id\":\"t";
    let last = body.rfind(ID).and_then(|place| body.get(place + ID.len()..)?.split('c').next()?.parse().ok());
    last.unwrap_or(0) + 1
}

/// Answers the requests of a connection, one after the other.
async fn serve(stream: TcpStream, script: &Script, answered: &UnboundedSender<Exchange>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some(body) = read(&mut stream).await? {
        let (came_at, began) = (SystemClock.now_micros(), Instant::now());
        answer(stream.get_mut(), script(&body), body.len() / BYTES_OF_A_TOKEN).await?;
        let took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        // Nobody may look at it any more.
        let _ = answered.send(Exchange { body, came_at, took_us });
    }
    Ok(())
}

/// The body of the next request.
async fn read(stream: &mut BufReader<TcpStream>) -> io::Result<Option<String>> {
    let (mut line, mut length) = (String::new(), 0);
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
            None if line.trim_end().is_empty() => break,
            Some(_) | None => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    String::from_utf8(body).map(Some).map_err(io::Error::other)
}

async fn answer(stream: &mut TcpStream, reply: Reply, tokens: usize) -> io::Result<()> {
    match reply {
        Reply::Call { tool, arguments } => {
            let events = end(tool, &arguments, tokens);
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n",
                events.len()
            );
            stream.write_all((head + &events).as_bytes()).await
        }
        Reply::Words(Words { count, interval: between, begins }) => {
            begins.wait().await;
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
                .await?;
            let mut ticks = interval(between);
            // The rate is kept, also when the machine is late for a word.
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            let word = event(&json!({"content": " word"}), &Value::Null, None);
            for _ in 0..count {
                ticks.tick().await;
                stream.write_all(chunk(&word).as_bytes()).await?;
            }
            let last = end("complete_step", &json!({"result": "done"}), tokens);
            stream.write_all((chunk(&last) + "0\r\n\r\n").as_bytes()).await
        }
    }
}

/// The events of a call and of the answer's end.
fn end(tool: &str, arguments: &Value, tokens: usize) -> String {
    let function = json!({"name": tool, "arguments": arguments.to_string()});
    let call = json!({"tool_calls": [{"index": 0, "id": "call", "type": "function", "function": function}]});
    let usage = json!({"prompt_tokens": tokens, "completion_tokens": 9});
    event(&call, &Value::Null, None) + &event(&json!({}), &json!("tool_calls"), Some(usage)) + "data: [DONE]\n\n"
}

fn event(delta: &Value, finish: &Value, usage: Option<Value>) -> String {
    let choices = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
    let event = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": choices, "usage": usage});
    format!("data: {event}\n\n")
}

fn chunk(bytes: &str) -> String {
    format!("{:x}\r\n{bytes}\r\n", bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_turn_of_a_request_is_that_after_its_last_result() {
        let result = |turn: u32| json!({"role": "tool", "tool_call_id": format!("t{turn:04}c001"), "content": "1"});
        let body = |turns: u32| json!({"messages": (1..=turns).map(result).collect::<Vec<_>>()}).to_string();
        assert_eq!([body(0), body(1), body(199)].map(|body| turn(&body)), [1, 2, 200]);
    }
}
