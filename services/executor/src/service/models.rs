//! The methods of `ModelService`.

use std::sync::Arc;

use belay_model::{Api, Check, Model, ModelCheck, ToolCalls, Usage, Verdict};
use belay_proto::v1::{
    self,
    check_model_response::Content,
    model, model_check,
    model_service_server::{ModelService, ModelServiceServer},
};
use belay_reasons as reasons;
use belay_service_kit::{HostedServices, Principal, host::MAX_MESSAGE_BYTES, status};
use tonic::{Code, Request, Response, Status, service::Routes};

use super::{
    list_executions::{DEFAULT_PAGE_SIZE, page_size},
    read_only::read_only,
    watch_execution::Messages,
};
use crate::{
    ExecutionRegistry,
    models::{ConfiguredModel, check},
    store::secrets::shown,
};

/// The beginning of the names of models.
const COLLECTION: &str = "models/";

/// The service, ready to be served.
pub(super) fn hosted(registry: Option<Arc<ExecutionRegistry>>) -> HostedServices {
    let service = ModelServiceServer::new(Service { registry })
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    HostedServices::new(Routes::new(service), "belay.v1.ModelService", belay_proto::FILE_DESCRIPTOR_SET)
}

struct Service {
    /// `None` in a process that drives no execution, and asks no model.
    registry: Option<Arc<ExecutionRegistry>>,
}

impl Service {
    fn registry(&self) -> Result<&Arc<ExecutionRegistry>, Status> {
        self.registry.as_ref().ok_or_else(read_only)
    }
}

#[tonic::async_trait]
impl ModelService for Service {
    type CheckModelStream = Messages<v1::CheckModelResponse>;

    async fn list_models(
        &self,
        request: Request<v1::ListModelsRequest>,
    ) -> Result<Response<v1::ListModelsResponse>, Status> {
        let v1::ListModelsRequest { page_size: size, page_token } = request.into_inner();
        let size = page_size(size, DEFAULT_PAGE_SIZE)?;
        let models = &self.registry()?.models;
        let mut page: Vec<v1::Model> =
            models.iter().filter(|known| known.model().name > page_token).take(size + 1).map(message).collect();
        let more = page.len() > size;
        page.truncate(size);
        // The token is the last name of the page.
        let last = page.last().filter(|_| more).map(|model| model.name[COLLECTION.len()..].to_owned());
        Ok(Response::new(v1::ListModelsResponse { models: page, next_page_token: last.unwrap_or_default() }))
    }

    async fn check_model(
        &self,
        request: Request<v1::CheckModelRequest>,
    ) -> Result<Response<Self::CheckModelStream>, Status> {
        let caller = Principal::of(&request)?;
        let v1::CheckModelRequest { name, fill_window } = request.into_inner();
        let registry = Arc::clone(self.registry()?);
        let id = name.strip_prefix(COLLECTION).filter(|id| !id.is_empty());
        let id = id.ok_or_else(|| Status::from(status::invalid("name", "must be models/MODEL")))?.to_owned();
        let model = registry.models.get(&id).ok_or_else(|| {
            Status::from(
                status::error(Code::NotFound, reasons::MODEL_NOT_FOUND, format!("There is no model `{id}`."))
                    .with("name", &name),
            )
        })?;
        if model.is_refused() {
            let message = format!(
                "The model `{id}` was not asked: its server is not on this machine, and the settings say `local_only` or `air_gapped`."
            );
            return Err(status::error(Code::FailedPrecondition, reasons::MODEL_NOT_LOCAL, message)
                .with("name", &name)
                .into());
        }
        let taken = registry.reading.watchers.take_for(&caller)?;
        Ok(Response::new(Box::pin(async_stream::try_stream! {
            let _taken = taken;
            let model = registry.models.get(&id).expect("the models of a process do not change");
            let reading = &registry.reading;
            let mut so_far = ModelCheck::new(fill_window);
            loop {
                let now = reading.clock.now_micros().div_euclid(1_000_000);
                let found = tokio::select! {
                    found = check(model, &mut so_far, now) => found,
                    () = reading.shutdown.requested() => None,
                };
                let Some(checks) = found else { break };
                for found in checks {
                    let check = shown(&reading.sealer.redactor, check_message(found));
                    yield v1::CheckModelResponse { content: Some(Content::Check(check)) };
                }
            }
            let usage = usage_message(model.model(), &so_far.usage());
            yield v1::CheckModelResponse { content: Some(Content::Usage(usage)) };
        })))
    }
}

fn message(known: &ConfiguredModel) -> v1::Model {
    let Model { name, api, base_url, model, window, max_output, tool_calls, price, limits: _, credential: _ } =
        known.model();
    let api = match api {
        Api::Chat => model::Api::Chat,
        Api::Responses => model::Api::Responses,
        Api::Messages => model::Api::Messages,
    };
    let tool_calls = match tool_calls {
        ToolCalls::Native => model::ToolCalls::Native,
        ToolCalls::Constrained => model::ToolCalls::Constrained,
    };
    let price = price.map(|price| model::Price {
        input_micros: signed(price.input),
        cached_input_micros: signed(price.cached_input),
        output_micros: signed(price.output),
    });
    v1::Model {
        name: format!("{COLLECTION}{name}"),
        api: api.into(),
        base_url: base_url.to_string(),
        served_model: model.clone(),
        window_tokens: signed(*window),
        max_output_tokens: signed(*max_output),
        tool_calls: tool_calls.into(),
        price,
        local: base_url.is_local(),
        unavailable_reason: if known.is_refused() { reasons::MODEL_NOT_LOCAL.to_owned() } else { String::new() },
    }
}

fn check_message(Check { name, verdict, seen, advice }: Check) -> v1::ModelCheck {
    let state = match verdict {
        Verdict::Passed => model_check::State::Passed,
        Verdict::Warning => model_check::State::Warning,
        Verdict::Failed => model_check::State::Failed,
        Verdict::Skipped => model_check::State::Skipped,
    };
    v1::ModelCheck { check: name.to_owned(), state: state.into(), message: seen, advice }
}

fn usage_message(model: &Model, usage: &Usage) -> v1::ModelUsage {
    v1::ModelUsage {
        input_tokens: signed(usage.input),
        cached_input_tokens: signed(usage.cached_input),
        output_tokens: signed(usage.output),
        reasoning_tokens: signed(usage.reasoning),
        cost_micros: model.price.map(|price| signed(price.cost(usage))),
    }
}

/// A count as the contract has it.
fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
