//! Asks the servers of models over HTTP.
//!
//! `belay-model` decides the bytes of requests and reads answers; here are the connection, the limits of time, and the key, which is in nothing that
//! leaves this crate: where a server repeats it, it is replaced.

mod error;
mod key;
mod shown;
mod tls;

use std::{
    error::Error as _,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use belay_model::{
    Answer, Failure, HttpRequest, Limit, Model, Prompt, Reader, ServedModel, list_request, refusal, request,
    retry_after, served, shortened,
};
use belay_network::{HostOrAddress, Placement, Secret, UpstreamProxy};
use reqwest::{Client, Method, Proxy, Response, Url, redirect};
use tokio::time::{Instant, timeout_at};

pub use crate::{error::InvalidServer, shown::Show};
use crate::{key::Key, shown::ShownParts, tls::Authorities};

/// The longest refusal that is read, in bytes.
const MAX_REFUSAL: usize = 64 << 10;
/// The largest list of models, in bytes.
const MAX_LIST: usize = 2 << 20;

/// The way to the servers of models.
#[derive(Debug, Default)]
pub struct Route {
    authorities: Authorities,
    proxy: Option<UpstreamProxy>,
}

impl Route {
    /// With certificate authorities of the operator's own, in PEM, and the proxy behind which hosts are reached. A server on this machine, or at an address,
    /// is reached directly.
    pub fn new(authorities: Vec<Vec<u8>>, proxy: Option<UpstreamProxy>) -> Self {
        Self { authorities: Authorities::new(authorities), proxy }
    }
}

/// The server of a model.
#[derive(Clone, Debug)]
pub struct Server {
    model: Model,
    client: Client,
    url: Url,
}

/// An answer, and how it came.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// The answer.
    pub answer: Answer,
    /// In how many parts it came; one if the server does not stream.
    pub parts: u64,
    /// The bytes of the request.
    pub request_bytes: usize,
}

impl Server {
    /// The server of a model. Nothing is connected.
    ///
    /// # Errors
    /// [`InvalidServer`].
    pub fn new(model: Model, route: &Route) -> Result<Self, InvalidServer> {
        let invalid = |error: reqwest::Error| InvalidServer::Client(words(&error));
        // Only what is asked for is connected to: no redirect, no proxy of the environment, no cookie.
        let mut client = Client::builder().redirect(redirect::Policy::none()).no_proxy();
        // A new connection for each request. Servers close those that are idle whenever they like, llama.cpp's a moment after its answer; a request that meets the end of one
        // has failed, and nobody knows whether it will be paid for.
        client = client.pool_max_idle_per_host(0);
        if let (HostOrAddress::Name(name), Some(proxy)) = (&model.base_url.host, &route.proxy)
            && !model.base_url.is_local()
            && proxy.is_for(name)
        {
            client = client.proxy(Proxy::all(proxy.to_string()).map_err(invalid)?);
        }
        if model.base_url.is_local() {
            // Whatever a name server or the hosts file make of the name.
            let here = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))];
            client = client.resolve_to_addrs("localhost", &here);
        }
        let client = client.tls_backend_preconfigured(route.authorities.config(&model.base_url)?);
        let client = client.user_agent(concat!("belay/", env!("CARGO_PKG_VERSION"))).build().map_err(invalid)?;
        let url = Url::parse(&model.base_url.to_string()).map_err(|error| InvalidServer::Client(error.to_string()))?;
        Ok(Self { model, client, url })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Asks for an answer, once. `now` is in seconds since the Unix epoch; a server may say by a date when to ask again.
    ///
    /// # Errors
    /// [`Failure`]: there is no answer, and what came of one is not acted on.
    pub async fn ask(&self, prompt: &Prompt, key: Option<(&Placement, &Secret)>, now: i64) -> Result<Asked, Failure> {
        self.ask_showing(prompt, key, now, &|_| {}).await
    }

    /// The same. `show` gets the parts of the answer as they come, without the key: nothing may follow from them, since the answer may still break off.
    ///
    /// # Errors
    /// As [`Server::ask`].
    pub async fn ask_showing(
        &self,
        prompt: &Prompt,
        key: Option<(&Placement, &Secret)>,
        now: i64,
        show: Show<'_>,
    ) -> Result<Asked, Failure> {
        let asked = request(&self.model, prompt);
        let request_bytes = asked.body.as_ref().map_or(0, Vec::len);
        let key = key.map(|(placement, secret)| Key { placement, secret });
        let answered = self.answer(&asked, prompt, (key.as_ref(), show), now).await;
        let (mut answer, parts) = answered.map_err(|failure| shown(failure, key.as_ref()))?;
        if let Some(key) = &key {
            answer.map_texts(&mut |text| key.hide(text));
        }
        Ok(Asked { answer, parts, request_bytes })
    }

    /// Asks for the models that the server offers.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn list(&self, key: Option<(&Placement, &Secret)>, now: i64) -> Result<Vec<ServedModel>, Failure> {
        let key = key.map(|(placement, secret)| Key { placement, secret });
        let list = async {
            let mut times = Times::new(&self.model);
            let mut response = self.send(&list_request(self.model.api), key.as_ref(), now, &mut times).await?;
            let mut body = Vec::new();
            while let Some(bytes) = times.next(&mut response).await? {
                times.progress();
                body.extend_from_slice(&bytes);
                if body.len() > MAX_LIST {
                    return Err(Failure::TooLarge { limit: MAX_LIST });
                }
            }
            served(&body)
        };
        let mut served = list.await.map_err(|failure| shown(failure, key.as_ref()))?;
        if let Some(key) = &key {
            served.iter_mut().for_each(|model| key.hide(&mut model.id));
        }
        Ok(served)
    }

    async fn answer(
        &self,
        asked: &HttpRequest,
        prompt: &Prompt,
        (key, show): (Option<&Key<'_>>, Show<'_>),
        now: i64,
    ) -> Result<(Answer, u64), Failure> {
        let mut times = Times::new(&self.model);
        let mut response = self.send(asked, key, now, &mut times).await?;
        let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.trim_start().to_ascii_lowercase().starts_with("text/html") {
            return Err(Failure::Malformed {
                why: "it is an HTML page, as from a proxy or another kind of server".to_owned(),
            });
        }
        let mut reader = Reader::new(&self.model, prompt, kind);
        let mut shown = ShownParts::new(key, show);
        loop {
            let bytes = match times.next(&mut response).await {
                Ok(Some(bytes)) => bytes,
                Ok(None) => break,
                // The connection was lost, or left open, behind the end of the answer: asked again, it would be paid for again.
                Err(_) if reader.has_ended() => break,
                Err(failure) => return Err(failure),
            };
            let before = reader.progress();
            for delta in reader.push(&bytes)? {
                shown.take(delta);
            }
            if reader.progress() > before {
                times.progress();
            }
        }
        shown.end();
        let parts = reader.parts();
        Ok((reader.finish()?, parts))
    }

    /// Sends a request, and returns the head of a response that is a success.
    async fn send(
        &self,
        asked: &HttpRequest,
        key: Option<&Key<'_>>,
        now: i64,
        times: &mut Times,
    ) -> Result<Response, Failure> {
        let mut url = self.url.clone();
        url.set_path(&format!("{}{}", self.model.base_url.path, asked.path));
        if let Some((name, value)) = key.and_then(Key::parameter) {
            url.query_pairs_mut().append_pair(name, &value);
        }
        let method = if asked.body.is_some() { Method::POST } else { Method::GET };
        let mut request = self.client.request(method, url);
        for (name, value) in asked.headers {
            request = request.header(*name, *value);
        }
        if let Some((name, value)) = key.and_then(Key::header) {
            request = request.header(name, value);
        }
        if let Some(body) = &asked.body {
            request = request.header("content-type", "application/json").body(body.clone());
        }
        let sending = async {
            request.send().await.map_err(|error| {
                let why = words(&error);
                if error.is_connect() { Failure::Unreachable { why } } else { Failure::Broken { why } }
            })
        };
        let response = times.until(sending).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let again = retry_after(header, now);
        let mut response = response;
        let mut body = Vec::new();
        // What has come by the time that is over says enough.
        while let Ok(Some(bytes)) = times.next(&mut response).await {
            body.extend_from_slice(&bytes);
            if body.len() > MAX_REFUSAL {
                break;
            }
        }
        Err(refusal(status.as_u16(), again, &body))
    }
}

/// A failure as people may see it: without the key, and not longer than they read.
fn shown(mut failure: Failure, key: Option<&Key<'_>>) -> Failure {
    failure.map_texts(&mut |text| {
        if let Some(key) = key {
            key.hide(text);
        }
        *text = shortened(text);
    });
    failure
}

/// The limits of time of one request.
struct Times {
    limits: belay_model::TimeLimits,
    began: Instant,
    /// When the last part of the answer came.
    last: Option<Instant>,
}

impl Times {
    fn new(model: &Model) -> Self {
        Self { limits: model.limits, began: Instant::now(), last: None }
    }

    /// A part of the answer has come.
    fn progress(&mut self) {
        self.last = Some(Instant::now());
    }

    /// When the time is over, and which.
    fn end(&self) -> (Instant, Limit, Duration) {
        let (from, limit, time) = match self.last {
            None => (self.began, Limit::FirstByte, self.limits.first_byte),
            Some(last) => (last, Limit::BetweenBytes, self.limits.between_bytes),
        };
        let whole = (self.began + self.limits.answer, Limit::Answer, self.limits.answer);
        if from + time < whole.0 { (from + time, limit, time) } else { whole }
    }

    async fn until<T>(&self, future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let (end, limit, after) = self.end();
        timeout_at(end, future).await.unwrap_or(Err(Failure::Late { limit, after }))
    }

    /// The next bytes of a body; `None` at its end.
    async fn next(
        &self,
        response: &mut Response,
    ) -> Result<Option<impl AsRef<[u8]> + std::ops::Deref<Target = [u8]> + use<>>, Failure> {
        self.until(async { response.chunk().await.map_err(|error| Failure::Broken { why: words(&error) }) }).await
    }
}

/// The causes of an error, without the URL: a key may be in its query.
fn words(error: &reqwest::Error) -> String {
    let mut words = Vec::new();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let text = inner.to_string();
        if words.last() != Some(&text) {
            words.push(text);
        }
        cause = inner.source();
    }
    if words.is_empty() { "no cause is known".to_owned() } else { words.join(": ") }
}
