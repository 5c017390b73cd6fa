//! The models of the settings, and their servers.

mod check;
pub(crate) mod judge;
pub(crate) mod turn;

use std::{collections::BTreeMap, fmt, fs, future::Future, path::PathBuf, pin::Pin, sync::Arc};

use belay_model::{Failure, Model, Prompt, ServedModel};
use belay_model_http::{Asked, Route, Server, Show};
use belay_network::{Placement, Secret};
use belay_settings::{ConfigError, LoadedSettings, OperatorCredential};

pub(crate) use check::check;

/// The models that may be asked, by name.
#[derive(Clone, Debug, Default)]
pub struct Models(Arc<BTreeMap<String, ConfiguredModel>>);

/// The answer of a model's server to one request.
pub type Answering<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// A server of a model. Times are in seconds since the Unix epoch: a server may say by a date when to ask again.
pub trait ModelServer: fmt::Debug + Send + Sync {
    /// Asks for an answer, once. `show` gets its parts as they come.
    fn ask<'a>(&'a self, prompt: &'a Prompt, now: i64, show: Show<'a>) -> Answering<'a, Asked>;

    /// Asks for the models that the server offers.
    fn list(&self, now: i64) -> Answering<'_, Vec<ServedModel>>;
}

/// A model with its server.
#[derive(Debug)]
pub(crate) struct ConfiguredModel {
    model: Model,
    /// `None` where the settings allow models on this machine alone, and this is none: then not even a client of it is made.
    server: Option<Box<dyn ModelServer>>,
}

/// A server that is asked over HTTP, with its key.
#[derive(Debug)]
struct HttpServer {
    server: Server,
    credential: Option<OperatorCredential>,
}

/// The models of the settings.
///
/// # Errors
/// [`ConfigError`] for the field of a model whose server cannot be asked. Nothing is connected.
pub fn models(loaded: &LoadedSettings) -> Result<Models, ConfigError> {
    let settings = &loaded.settings;
    let configured = &settings.models.configured;
    if configured.is_empty() {
        return Ok(Models::default());
    }
    let authority = |(place, file): (usize, &PathBuf)| {
        let refuse =
            |error| loaded.refuse(&format!("network.authorities[{place}]"), format!("cannot be read: {error}"));
        fs::read(file).map_err(refuse)
    };
    let authorities = settings.network.authorities.iter().map(|file| &file.value).enumerate().map(authority);
    let proxy = settings.network.proxy.as_ref().map(|proxy| proxy.value.clone());
    let route = Route::new(authorities.collect::<Result<_, _>>()?, proxy);
    let open = |model: &Model| {
        let refuse = |invalid: belay_model_http::InvalidServer| {
            loaded.refuse(&format!("models.{}.base_url", model.name), invalid.to_string())
        };
        let of_name = |name: &String| {
            let known = settings.credentials.iter().find(|known| known.value.credential.name == *name);
            known.map(|known| known.value.clone())
        };
        let may_be_asked = !settings.asks_local_models_only() || model.base_url.is_local();
        let server = may_be_asked.then(|| Server::new(model.clone(), &route).map_err(refuse)).transpose()?;
        let credential = model.credential.as_ref().and_then(of_name);
        let server = server.map(|server| Box::new(HttpServer { server, credential }) as Box<dyn ModelServer>);
        Ok((model.clone(), server))
    };
    let all = configured.iter().map(|model| open(&model.value)).collect::<Result<Vec<_>, _>>()?;
    Ok(Models::new(all))
}

impl Models {
    /// Models with their servers; one without a server is never asked.
    pub fn new(all: impl IntoIterator<Item = (Model, Option<Box<dyn ModelServer>>)>) -> Self {
        let named = |(model, server): (Model, _)| (model.name.clone(), ConfiguredModel { model, server });
        Self(Arc::new(all.into_iter().map(named).collect()))
    }

    /// All of them, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &ConfiguredModel> {
        self.0.values()
    }

    /// The model of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&ConfiguredModel> {
        self.0.get(name)
    }
}

impl ConfiguredModel {
    /// The model as its operator has configured it.
    pub(crate) fn model(&self) -> &Model {
        &self.model
    }

    /// Whether `local_only` or `air_gapped` forbids to ask it.
    pub(crate) fn is_refused(&self) -> bool {
        self.server.is_none()
    }

    fn server(&self) -> Result<&dyn ModelServer, Failure> {
        let why = "the settings forbid to ask it".to_owned();
        self.server.as_deref().ok_or(Failure::Unreachable { why })
    }

    /// Asks for an answer, once.
    pub(crate) async fn ask(&self, prompt: &Prompt, now: i64, show: Show<'_>) -> Result<Asked, Failure> {
        self.server()?.ask(prompt, now, show).await
    }

    /// Asks for the models that the server offers.
    pub(crate) async fn list(&self, now: i64) -> Result<Vec<ServedModel>, Failure> {
        self.server()?.list(now).await
    }
}

impl ModelServer for HttpServer {
    fn ask<'a>(&'a self, prompt: &'a Prompt, now: i64, show: Show<'a>) -> Answering<'a, Asked> {
        Box::pin(async move {
            let key = self.key().await?;
            let key = key.as_ref().map(|(placement, secret)| (placement, secret));
            self.server.ask_showing(prompt, key, now, show).await
        })
    }

    fn list(&self, now: i64) -> Answering<'_, Vec<ServedModel>> {
        Box::pin(async move {
            let key = self.key().await?;
            self.server.list(key.as_ref().map(|(placement, secret)| (placement, secret)), now).await
        })
    }
}

impl HttpServer {
    /// Reads the key now, so that one that was renewed is used.
    async fn key(&self) -> Result<Option<(Placement, Secret)>, Failure> {
        let Some(known) = &self.credential else { return Ok(None) };
        let source = known.source.clone();
        let reading = move || belay_credentials::read(&source, &|name| std::env::var_os(name));
        match tokio::task::spawn_blocking(reading).await {
            Ok(Ok(secret)) => Ok(Some((known.credential.placement.clone(), secret))),
            Ok(Err(problem)) => Err(Failure::Credential { why: problem.to_string() }),
            Err(error) => Err(Failure::Credential { why: error.to_string() }),
        }
    }
}
